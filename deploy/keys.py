"""`assay keys`: make a key to sign with, and show the public half of one."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True)


@app.callback()
def keys() -> None:
    """Keys that transactions and decisions are signed with.

    \b
    Examples:
      assay keys make decisions.pem
      assay keys show decisions.pem > decision-keys.json
    """


Kid = Annotated[str | None, typer.Option(help="What the key is called; its thumbprint (RFC 7638) when absent.")]


@app.command()
def make(file: Annotated[Path, typer.Argument(help="Where the private key goes; it must not be there yet.")]) -> None:
    """Make an Ed25519 key that only you may read, to sign decisions (ASSAY_SIGNING_KEY_FILE) or transactions with.

    \b
    Example:
      assay keys make decisions.pem
    """
    import os

    from assay.schemas.errors import SettingError
    from assay.schemas.signature import SigningKey

    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise SettingError(f"{file} can't be made: {error.strerror}", mend="name a file that is not there yet") from None
    with os.fdopen(descriptor, "wb") as written:
        written.write(SigningKey.make().pem())


@app.command()
def show(
    file: Annotated[Path | None, typer.Argument(help="A private key; that of ASSAY_SIGNING_KEY_FILE when absent.")] = None,
    kid: Kid = None,
) -> None:
    """Print the public half as a JWK Set: what `assay verify` and ASSAY_SIGNATURE_KEYS_FILE take.

    \b
    Examples:
      assay keys show > decision-keys.json
      assay keys show shop.pem --kid shop
    """
    from assay.schemas.errors import SettingError
    from assay.streams.key_files import read_signing_key
    from assay.streams.settings import Settings

    path = file or Settings.load().signing_key_file
    if path is None:
        raise SettingError("no key is named", expected="FILE, or ASSAY_SIGNING_KEY_FILE", mend="assay keys make FILE")
    print(read_signing_key(path, kid=kid).key_set().decode())
