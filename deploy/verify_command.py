"""`assay verify`: whether a decision is as a worker signed it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.schemas.signature import VerifyingKey
    from assay.streams.settings import Settings

NOT_VERIFIED = 1


def verify(
    what: Annotated[list[str], typer.Argument(help="FILE with a decision as it came, - for stdin; or USER ID.")],
    signature: Annotated[
        str | None, typer.Option(help="Of a file: the header `assay-signature` that came with the decision.")
    ] = None,
    keys: Annotated[
        Path | None, typer.Option(help="Public keys (JWK Set); that of ASSAY_SIGNING_KEY_FILE when absent.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print what was found as one JSON object.")] = False,
) -> None:
    """Check the signature of a decision: from a file, from stdin, or from the decisions topic.

    Bytes count: keep a decision as it came. Without --signature, a file holds both, as a compact JWS.
    Exits 1 where the signature does not hold, or there is none, or no such decision.

    \b
    Examples:
      assay verify u-17 t-4711
      assay verify decision.json --signature "$SIGNATURE" --keys decision-keys.json
      cat decision.jws | assay verify - --keys decision-keys.json --json
    """
    from assay.schemas.signature import BadSignature
    from assay.schemas.signature import verify as check
    from assay.streams.settings import Settings

    settings = Settings.load()
    known = _keys(settings, keys)
    said: dict[str, Any] = {"verified": False, "kid": None, "expected": None, "decision": None}
    try:
        value, token = _given(what, signature) if len(what) == 1 else _published(settings, what)
        if token is None:
            raise BadSignature("a header assay-signature: this decision is not signed")
        said |= {"kid": check(token, value, known), "verified": True}
        said["decision"] = _read(value)
    except BadSignature as bad:
        said["expected"] = str(bad)
    _tell(said, json_)
    if not said["verified"]:
        raise typer.Exit(NOT_VERIFIED)


def _keys(settings: "Settings", path: Path | None) -> "Mapping[str, VerifyingKey]":
    from assay.schemas.errors import SettingError
    from assay.schemas.signature import read_keys
    from assay.streams.key_files import KeyFile, read_signing_key

    if path is not None:
        return KeyFile(path).keys
    if settings.signing_key_file is None:
        raise SettingError(
            "no keys are named", expected="--keys FILE, or ASSAY_SIGNING_KEY_FILE", mend="assay keys show > FILE"
        )
    return read_keys(read_signing_key(settings.signing_key_file).key_set())


def _given(what: list[str], signature: str | None) -> tuple[bytes, bytes | None]:
    """A decision and its detached signature."""
    from assay.schemas.errors import InputError
    from assay.schemas.signature import attached

    [name] = what
    try:
        value = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise InputError(f"{name} can't be read: {error.strerror}", expected="a file, - for stdin, or USER ID") from None
    return attached(value.strip()) if signature is None else (value, signature.encode())


def _published(settings: "Settings", what: list[str]) -> tuple[bytes, bytes | None]:
    """The same, from the topic."""
    import asyncio

    from assay.deploy.decision_command import find_record
    from assay.schemas.errors import SettingError
    from assay.schemas.signature import token_of

    if len(what) != 2:
        raise SettingError("what is to be verified is not clear", expected="FILE, - or USER ID", got=" ".join(what))
    record = asyncio.run(find_record(settings, *what))
    if record is None or record.value is None:
        print(f"error: no decision on {what[1]} of {what[0]} in {settings.decisions}", file=sys.stderr)
        raise typer.Exit(NOT_VERIFIED)
    return record.value, token_of(record.headers)


def _read(value: bytes) -> Any:
    """The decision, to be shown; None where it is in another form than JSON."""
    import orjson

    try:
        return orjson.loads(value)
    except ValueError:
        return None


def _tell(said: dict[str, Any], json_: bool) -> None:
    import orjson

    if json_:
        print(orjson.dumps(said).decode())
    elif said["verified"]:
        print(f"verified: signed by {said['kid']}")
        if isinstance(decision := said["decision"], dict):
            print(f"{decision.get('action')} on {decision.get('transaction_id')} of {decision.get('user_id')}")
    else:
        print(f"error: not verified. Expected: {said['expected']}", file=sys.stderr)
