"""Identifiers as keyed digests."""

from hashlib import blake2b

import numpy as np

from assay.schemas.transaction import Transaction
from assay.tables.digests import OFFLINE, Digests
from assay.tables.encode import encode_events
from assay.tables.events import EVENT
from assay.tables.rates import Rates

ONE, ANOTHER = Digests(b"one"), Digests(b"another")
DIGESTED = ("id", "user", "instrument", "bin", "merchant", "device", "address")
PAYMENT = Transaction.model_validate(
    {
        "transaction_id": "t-1",
        "user_id": "u-1",
        "amount": "1",
        "currency": "EUR",
        "timestamp": 1_767_225_600_000,
        "merchant": {"id": "m-1"},
        "instrument": {"id": "i-1", "bin": "411111"},
        "device": {"id": "d-1", "ip": "192.0.2.7"},
    }
)


def test_they_are_hashes_with_the_key_whatever_was_digested_before() -> None:
    assert ONE.of64("u-1").to_bytes(8, "little") == blake2b(b"u-1", digest_size=8, key=b"one").digest()
    assert ONE.of128("t-1") == blake2b(b"t-1", digest_size=16, key=b"one").digest()


def test_i7_every_identifier_of_an_event_depends_on_the_key_and_nothing_else_does() -> None:
    one, another = (encode_events([PAYMENT], [0], [0], Rates.load(), digests)[0] for digests in (ONE, ANOTHER))
    differ = [name for name in EVENT.names if not np.array_equal(one[name], another[name], equal_nan=name != "id")]
    assert sorted(differ) == sorted(DIGESTED)


def test_all_of_a_long_key_counts() -> None:
    assert Digests(b"k" * 64 + b"1").of64("u-1") != Digests(b"k" * 64 + b"2").of64("u-1")


def test_the_fingerprint_tells_keys_apart() -> None:
    assert len({ONE.fingerprint, ANOTHER.fingerprint, OFFLINE.fingerprint}) == 3
    assert Digests(b"one").fingerprint == ONE.fingerprint


def test_without_a_key_they_are_plain_hashes() -> None:
    assert OFFLINE.of128("t-1") == blake2b(b"t-1", digest_size=16).digest()
    assert OFFLINE.of64("u-1").to_bytes(8, "little") == blake2b(b"u-1", digest_size=8).digest()
