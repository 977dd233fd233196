"""Signed transactions, by a JOSE library: joserfc here; others know the same words. The value is signed as it is sent."""

from joserfc import jws
from joserfc.jwk import ECKey


def signature(value: bytes, key: ECKey, kid: str, topic: str) -> tuple[str, bytes]:
    """The header to be sent with a value; `kid` is the key's name in Assay's file of keys, `topic` where the value goes."""
    registry = jws.JWSRegistry(algorithms=["ES256"], strict_check_header=False)  # `topic` is no name of the RFC's
    whole = jws.serialize_compact({"alg": "ES256", "kid": kid, "topic": topic}, value, key, registry=registry)
    return "assay-signature", jws.detach_content(whole).encode()
