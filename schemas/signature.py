"""Signatures of transactions and of decisions: a detached JWS in the header `assay-signature`, over the value's bytes as sent.

The form is RFC 7515's compact serialization without its payload (appendix F): `PROTECTED..SIGNATURE`. The key decides the
algorithm, never the token: Ed25519 keys sign EdDSA (RFC 8037; `Ed25519` in RFC 9864), P-256 keys ES256 (RFC 7518, 3.4). Keys
are told by `kid`, as a JWK Set (RFC 7517). What is signed for a topic names it in the protected header, as `topic`.
"""

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self

import orjson
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePublicNumbers
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from assay.schemas.errors import InputError
from assay.schemas.limits import MAX_CACHED_TEXTS, MAX_SIGNATURE_BYTES, MAX_SIGNATURE_KEYS

SIGNATURE_HEADER: Final = "assay-signature"

Check = Callable[[bytes, bytes], None]
"""Of a signature over data, in that order. Raises InvalidSignature, or ValueError for what is no signature at all."""


class BadSignature(ValueError):
    """What a signature should have been; never what came."""


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A public key, and the names of the one algorithm that it is for."""

    algorithms: frozenset[str]
    check: Check


class _Protected(NamedTuple):
    """What a token says of itself."""

    algorithm: object
    kid: object
    topic: object


def verify(token: bytes, value: bytes, keys: Mapping[str, VerifyingKey], *, topic: str | None = None) -> str:
    """Whose signature of `value` a detached JWS is: the `kid` of one of `keys`. Raises BadSignature.

    `topic` is the one that it must have been made for; None for decisions, which go to several.
    """
    if len(token) > MAX_SIGNATURE_BYTES:
        raise BadSignature(f"at most {MAX_SIGNATURE_BYTES} bytes")
    protected, payload, signature = [*token.split(b"."), b"", b""][:3]
    if payload or not signature or token.count(b".") != 2:
        raise BadSignature("a compact JWS without its payload, PROTECTED..SIGNATURE (RFC 7515, appendix F)")
    said = _read_protected(protected)
    key = keys.get(said.kid) if isinstance(said.kid, str) else None
    if key is None:
        raise BadSignature("a kid that is among the keys")
    if said.algorithm not in key.algorithms:
        raise BadSignature("the algorithm of its key")
    if topic is not None and said.topic != topic:
        raise BadSignature(f"topic {topic} in its protected header")
    try:
        key.check(unpadded(signature), protected + b"." + to_base64url(value))
    except (InvalidSignature, ValueError):
        raise BadSignature("made by the key of its kid over these very bytes") from None
    return str(said.kid)


def token_of(headers: Sequence[tuple[str, bytes | None]]) -> bytes | None:
    """The detached JWS that comes with a record: the last header of that name that is not null."""
    return next((value for name, value in reversed(headers) if name == SIGNATURE_HEADER and value is not None), None)


def claimed_kid(token: bytes) -> bytes:
    """Whose a detached JWS says that it is, which `verify` proves; empty where it doesn't say."""
    try:
        kid = _read_protected(token[:MAX_SIGNATURE_BYTES].partition(b".")[0]).kid
    except BadSignature:
        return b""
    return kid.encode(errors="replace") if isinstance(kid, str) else b""


def attached(token: bytes) -> tuple[bytes, bytes]:
    """The payload of a compact JWS that has one, and the detached JWS of it. Raises BadSignature."""
    try:
        protected, payload, signature = token.split(b".")
        return unpadded(payload), protected + b".." + signature
    except ValueError:
        raise BadSignature("a compact JWS, PROTECTED.PAYLOAD.SIGNATURE; of a decision as it came, --signature too") from None


@lru_cache(MAX_CACHED_TEXTS)
def _read_protected(segment: bytes) -> _Protected:
    """Of a token; the same for all that one producer signs for one topic."""
    try:
        said = orjson.loads(unpadded(segment))
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise BadSignature("a protected header of JSON in base64url")
    if "crit" in said or "b64" in said:  # what is not understood must be refused (RFC 7515, 4.1.11)
        raise BadSignature("no extensions (crit, b64) in its protected header")
    algorithm, kid, topic = said.get("alg"), said.get("kid"), said.get("topic")
    return _Protected(algorithm if isinstance(algorithm, str) else None, kid, topic)


def to_base64url(data: bytes) -> bytes:
    """Without padding (RFC 7515, 2)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def unpadded(text: bytes) -> bytes:
    """What `to_base64url` wrote. Raises ValueError."""
    return base64.b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)


# -- keys


def read_keys(document: bytes) -> dict[str, VerifyingKey]:
    """The keys of a JWK Set, by `kid`. Raises InputError."""
    try:
        keys = orjson.loads(document)["keys"]
        if not isinstance(keys, list):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        raise InputError("these are no keys", expected='a JWK Set: {"keys": [...]} (RFC 7517)') from None
    if len(keys) > MAX_SIGNATURE_KEYS:
        raise InputError("too many keys", expected=f"at most {MAX_SIGNATURE_KEYS}", got=str(len(keys)))
    found: dict[str, VerifyingKey] = {}
    for place, key in enumerate(keys):
        kid = key.get("kid") if isinstance(key, dict) else None
        if not isinstance(kid, str) or not kid or kid in found:
            raise InputError(f"key {place} can't be told from others", expected="a kid (text) that no other key has")
        if "d" in key:
            raise InputError(f"key {kid} is a private one", expected="public keys only", mend="take out d, and make a new key")
        found[kid] = _read_key(kid, key)
    return found


def _read_key(kid: str, key: Mapping[str, Any]) -> VerifyingKey:
    kind = (key.get("kty"), key.get("crv"))
    try:
        if kind == ("OKP", "Ed25519"):
            return _ed25519(Ed25519PublicKey.from_public_bytes(_coordinate(key, "x")))
        if kind == ("EC", "P-256"):
            return _es256(*(int.from_bytes(_coordinate(key, name)) for name in ("x", "y")))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"key {kid} is not what it says", expected="coordinates of a point, in base64url") from None
    raise InputError(f"key {kid} is of a kind that is not taken", expected="OKP with Ed25519, or EC with P-256")


def _coordinate(key: Mapping[str, Any], name: str) -> bytes:
    found = unpadded(key[name].encode())
    if len(found) != 32:
        raise ValueError(name)
    return found


def _ed25519(key: Ed25519PublicKey) -> VerifyingKey:
    return VerifyingKey(frozenset({"EdDSA", "Ed25519"}), key.verify)


def _es256(x: int, y: int) -> VerifyingKey:
    key, algorithm = EllipticCurvePublicNumbers(x, y, SECP256R1()).public_key(), ECDSA(SHA256())

    def check(signature: bytes, data: bytes) -> None:
        if len(signature) != 64:  # R and S, 32 bytes each (RFC 7518, 3.4)
            raise InvalidSignature
        halves = (int.from_bytes(signature[:32]), int.from_bytes(signature[32:]))
        key.verify(encode_dss_signature(*halves), data, algorithm)

    return VerifyingKey(frozenset({"ES256"}), check)


class SigningKey:
    """A private Ed25519 key. The same bytes get the same signature: whatever is repeated stays the same word for word.

    Args:
        kid: how others call it; its thumbprint (RFC 7638) when None.
        topic: what is signed is for that topic alone.

    >>> key = SigningKey.make()
    >>> name, token = key.header(b"{}")
    >>> verify(token, b"{}", read_keys(key.key_set())) == key.kid
    True
    """

    def __init__(self, private: Ed25519PrivateKey, *, kid: str | None = None, topic: str | None = None) -> None:
        self._private = private
        public = {"crv": "Ed25519", "kty": "OKP", "x": to_base64url(private.public_key().public_bytes_raw()).decode()}
        # RFC 8037, appendix A.3: the thumbprint is of these members, in this order, without spaces
        self.kid = kid or to_base64url(hashlib.sha256(orjson.dumps(public)).digest()).decode()
        self._public = {**public, "kid": self.kid, "alg": "EdDSA", "use": "sig"}
        said = {"alg": "EdDSA", "kid": self.kid} | ({} if topic is None else {"topic": topic})
        self._protected = to_base64url(orjson.dumps(said))
        self._cached = lru_cache(MAX_CACHED_TEXTS)(self._sign)  # a decision and its reply are mostly the same bytes

    @classmethod
    def make(cls, **names: Any) -> Self:
        """A new one."""
        return cls(Ed25519PrivateKey.generate(), **names)

    @classmethod
    def read(cls, pem: bytes, **names: Any) -> Self:
        """From PEM (PKCS #8). Raises InputError."""
        try:
            private = load_pem_private_key(pem, None)
        except (ValueError, TypeError):
            private = None
        if not isinstance(private, Ed25519PrivateKey):
            raise InputError("this is no key to sign with", expected="a private Ed25519 key in PEM, without a password")
        return cls(private, **names)

    def pem(self) -> bytes:
        """The private key, as `read` takes it."""
        return self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def key_set(self) -> bytes:
        """Its public half, as `read_keys` takes it."""
        return orjson.dumps({"keys": [self._public]}, option=orjson.OPT_INDENT_2)

    def header(self, value: bytes) -> tuple[str, bytes]:
        """The header that signs a value."""
        return SIGNATURE_HEADER, self._cached(value)

    def _sign(self, value: bytes) -> bytes:
        signature = self._private.sign(self._protected + b"." + to_base64url(value))
        return self._protected + b".." + to_base64url(signature)
