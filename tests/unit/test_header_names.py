"""Records whose header names are not UTF-8 are read like others; aiokafka alone would not get past them."""

import struct
from typing import Any

import pytest
from aiokafka.codec import gzip_encode, lz4_encode
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c

from assay.streams.header_names import Records

NAME, ODD = b"replaced", b"\xff\xfe\xfd\xfc\xc3\x28\x80\x81"
LENGTH_AT, CRC_AT, ATTRIBUTES_AT, HEADER_BYTES = 8, 17, 21, 61  # of a batch
ENCODERS = {1: gzip_encode, 3: lz4_encode}


def batch(codec: int = 0, *, odd_at: int | None = None, records: int = 4) -> bytes:
    """A batch as it is fetched; one of its records may have a name that is not UTF-8."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 100_000)
    for number in range(records):
        name = NAME.decode() if number == odd_at else "correlation-id"
        builder.append(number, 1, b"key", b"value-%d" % number, [(name, b"\xff"), ("last", b"")])
    built = bytearray(builder.build())
    if odd_at is not None:
        assert built.count(NAME) == 1
        built = built.replace(NAME, ODD)
    if codec:
        built = compressed(built, codec)
    struct.pack_into(">I", built, CRC_AT, calc_crc32c(memoryview(built)[ATTRIBUTES_AT:]))
    return bytes(built)


def compressed(built: bytearray, codec: int) -> bytearray:
    smaller = built[:HEADER_BYTES] + ENCODERS[codec](bytes(built[HEADER_BYTES:]))
    struct.pack_into(">h", smaller, ATTRIBUTES_AT, codec)
    struct.pack_into(">i", smaller, LENGTH_AT, len(smaller) - LENGTH_AT - 4)
    return smaller


def read(fetched: bytes) -> list[list[Any]]:
    records = Records(fetched)
    found = []
    while records.has_next():
        each = records.next_batch()
        assert each.validate_crc()
        found.append([(r.offset, r.timestamp, r.key, r.value, r.headers) for r in each])
    return found


def expected(name: str | None = None, at: int | None = None) -> list[Any]:
    return [
        (n, 1, b"key", b"value-%d" % n, [(name if n == at else "correlation-id", b"\xff"), ("last", b"")]) for n in range(4)
    ]


def test_aiokafka_alone_would_stop_at_such_a_record() -> None:
    with pytest.raises(UnicodeDecodeError):
        list(MemoryRecords(batch(odd_at=2)).next_batch())


@pytest.mark.parametrize("codec", [0, 1, 3], ids=["plain", "gzip", "lz4"])
@pytest.mark.parametrize("at", [0, 2, 3])
def test_i1_a_name_that_is_not_utf8_costs_no_record(codec: int, at: int) -> None:
    odd = ODD.decode(errors="replace")
    assert read(batch(codec) + batch(codec, odd_at=at) + batch(codec)) == [expected(), expected(odd, at), expected()]


def test_such_a_name_can_be_written_again() -> None:
    [[_, (_, _, key, value, headers), *_]] = read(batch(odd_at=1))
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 100_000)
    assert builder.append(0, 1, key, value, headers) is not None


def test_what_is_cut_off_at_the_end_of_a_fetch_is_left_to_the_next_one() -> None:
    assert read(batch() + batch(odd_at=0)[:-1]) == [expected()]


def test_a_batch_gives_its_first_record_alone_as_aiokafka_asks_for_the_end_of_a_transaction():
    assert next(Records(batch()).next_batch()).value == b"value-0"
