"""Signatures: made and read as the RFCs say, bound to bytes, key, algorithm and topic, and bounded."""

import base64

import orjson
import pytest
from joserfc import jws
from joserfc.jwk import ECKey, OKPKey

from assay.schemas.errors import InputError
from assay.schemas.limits import MAX_SIGNATURE_BYTES
from assay.schemas.signature import (
    SIGNATURE_HEADER,
    BadSignature,
    SigningKey,
    attached,
    claimed_kid,
    read_keys,
    to_base64url,
    unpadded,
    verify,
)
from tests.compat.python.sign import signature

VALUE, TOPIC = b'{"transaction_id":"t-1"}', "transactions"
KEY = SigningKey.make(kid="shop", topic=TOPIC)
KEYS = read_keys(KEY.key_set())
TOKEN = KEY.header(VALUE)[1]
# RFC 8037, appendix A, and RFC 7515, appendix A.3
RFC_8037_X, RFC_8037_D = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", b"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"
RFC_8037 = (
    {"kty": "OKP", "crv": "Ed25519", "x": RFC_8037_X},
    b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc",
    b"hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
)
RFC_7515 = (
    {
        "kty": "EC",
        "crv": "P-256",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    },
    b"eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ",
    b"DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
)


def key_set(*keys: dict[str, str]) -> bytes:
    return orjson.dumps({"keys": list(keys)})


def token_of(protected: object, signature: bytes = b"c2ln") -> bytes:
    return to_base64url(orjson.dumps(protected)) + b".." + signature


@pytest.mark.parametrize(("jwk", "signed", "signature"), [RFC_8037, RFC_7515])
def test_the_examples_of_the_rfcs_verify(jwk: dict[str, str], signed: bytes, signature: bytes) -> None:
    key = read_keys(key_set(jwk | {"kid": "of the RFC"}))["of the RFC"]
    key.check(unpadded(signature), signed)
    with pytest.raises(Exception):  # noqa: B017, PT011  # InvalidSignature
        key.check(unpadded(signature), signed + b"x")


def test_a_key_is_called_by_its_thumbprint_unless_it_has_a_name() -> None:
    der = bytes.fromhex("302e020100300506032b657004220420") + unpadded(RFC_8037_D)  # PKCS #8 of an Ed25519 seed (RFC 8410)
    pem = b"-----BEGIN PRIVATE KEY-----\n" + base64.encodebytes(der) + b"-----END PRIVATE KEY-----\n"
    assert SigningKey.read(pem).kid == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"  # RFC 8037, appendix A.3
    assert SigningKey.read(pem, kid="shop").kid == "shop"


@pytest.mark.parametrize("made", [OKPKey.generate_key("Ed25519"), ECKey.generate_key("P-256")], ids=["Ed25519", "ES256"])
def test_what_another_library_signs_is_taken(made: OKPKey | ECKey) -> None:
    algorithm = "Ed25519" if isinstance(made, OKPKey) else "ES256"
    registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)  # `topic` is a name of ours
    protected = {"alg": algorithm, "kid": "theirs", "topic": TOPIC}
    token = jws.detach_content(jws.serialize_compact(protected, VALUE, made, registry=registry)).encode()
    keys = read_keys(key_set(made.as_dict(private=False) | {"kid": "theirs"}))
    assert verify(token, VALUE, keys, topic=TOPIC) == "theirs"


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
def test_another_library_takes_what_we_sign() -> None:
    [public] = orjson.loads(KEY.key_set())["keys"]
    protected, signature = TOKEN.split(b"..")
    whole = protected + b"." + to_base64url(VALUE) + b"." + signature
    registry = jws.JWSRegistry(algorithms=["EdDSA"], strict_check_header=False)
    assert jws.deserialize_compact(whole, OKPKey.import_key(public), registry=registry).payload == VALUE
    assert attached(whole) == (VALUE, TOKEN)


def test_the_same_bytes_get_the_same_signature() -> None:
    assert SigningKey.read(KEY.pem(), kid="shop", topic=TOPIC).header(VALUE) == KEY.header(VALUE)


@pytest.mark.parametrize("at", [0, 5, len(VALUE) - 1])
def test_another_byte_does_not_verify(at: int) -> None:
    with pytest.raises(BadSignature, match="these very bytes"):
        verify(TOKEN, VALUE[:at] + bytes([VALUE[at] ^ 1]) + VALUE[at + 1 :], KEYS, topic=TOPIC)


def test_a_signature_for_another_topic_does_not_verify() -> None:
    with pytest.raises(BadSignature, match="topic production"):
        verify(TOKEN, VALUE, KEYS, topic="production")
    assert verify(TOKEN, VALUE, KEYS) == "shop"


def test_the_key_decides_the_algorithm() -> None:
    for claimed in ("none", "ES256", "HS256", None, ["EdDSA"]):
        with pytest.raises(BadSignature, match="the algorithm of its key"):
            verify(token_of({"alg": claimed, "kid": "shop", "topic": TOPIC}), VALUE, KEYS, topic=TOPIC)


def test_a_name_of_one_key_does_not_lend_itself_to_another() -> None:
    other = SigningKey.make(kid="shop", topic=TOPIC)
    with pytest.raises(BadSignature, match="by the key of its kid"):
        verify(other.header(VALUE)[1], VALUE, KEYS, topic=TOPIC)


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (b"", "compact JWS"),
        (b"a.b", "compact JWS"),
        (TOKEN.replace(b"..", b".e30."), "without its payload"),
        (TOKEN + b".x", "compact JWS"),
        (b"e30..", "compact JWS"),
        (b"!!!..c2ln", "protected header"),
        (b"W10..c2ln", "protected header"),
        (token_of({"alg": "EdDSA"}), "a kid"),
        (token_of({"alg": "EdDSA", "kid": {}}), "a kid"),
        (token_of({"alg": "EdDSA", "kid": "stranger", "topic": TOPIC}), "a kid"),
        (token_of({"alg": "EdDSA", "kid": "shop", "topic": TOPIC, "b64": False, "crit": ["b64"]}), "no extensions"),
        (token_of({"alg": "EdDSA", "kid": "shop", "topic": TOPIC}), "these very bytes"),
        (token_of({"alg": "EdDSA", "kid": "shop", "topic": TOPIC}, b"\xff"), "these very bytes"),
        (b"." * (MAX_SIGNATURE_BYTES + 1), "at most"),
    ],
)  # fmt: skip
def test_what_is_no_signature_is_told_by_what_was_expected(token: bytes, expected: str) -> None:
    with pytest.raises(BadSignature, match=expected):
        verify(token, VALUE, KEYS, topic=TOPIC)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (b"", "no keys"),
        (b"[]", "no keys"),
        (b'{"keys": 1}', "no keys"),
        (key_set({"kty": "OKP"}), "can't be told from others"),
        (key_set(RFC_8037[0] | {"kid": "a"}, RFC_8037[0] | {"kid": "a"}), "can't be told from others"),
        (key_set(RFC_8037[0] | {"kid": "a", "d": "x"}), "a private one"),
        (key_set({"kid": "a", "kty": "RSA"}), "a kind that is not taken"),
        (key_set({"kid": "a", "kty": "OKP", "crv": "Ed25519", "x": "AAAA"}), "not what it says"),
        (key_set({"kid": "a", "kty": "EC", "crv": "P-256", "x": "AA" * 21 + "A", "y": "AA" * 21 + "A"}), "not what it says"),
    ],
)
def test_keys_that_can_not_be_used_are_an_error_that_says_why(document: bytes, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        read_keys(document)


@pytest.mark.parametrize(
    ("token", "kid"),
    [(TOKEN, b"shop"), (b"", b""), (b"e30..", b""), (b"!", b""), (token_of({"kid": 1}), b""), (b"x" * 5_000, b"")],
)
def test_whose_a_signature_says_that_it_is_can_be_read_unproven(token: bytes, kid: bytes) -> None:
    assert claimed_kid(token) == kid


def test_what_the_page_for_producers_shows_is_taken() -> None:
    key = ECKey.generate_key("P-256")
    name, token = signature(VALUE, key, "shop", TOPIC)
    assert name == SIGNATURE_HEADER
    assert verify(token, VALUE, read_keys(key_set(key.as_dict(private=False) | {"kid": "shop"})), topic=TOPIC) == "shop"
