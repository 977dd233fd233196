"""One more than each limit (invariant I5): of a record here, of the others in the files beside; and none is left out.

A test is named `test_i5_`, the limit, and what is promised. What a record may hold is a table.
"""

import json
from typing import Any, NamedTuple

import pytest
from aiokafka.structs import ConsumerRecord

from assay.schemas import limits
from assay.schemas.decode import Decoded, decode
from assay.schemas.refusal import RefusalCode
from assay.schemas.source import SourceRecord

from . import (
    test_bounds_batch,
    test_bounds_caches,
    test_bounds_entities,
    test_bounds_files,
    test_bounds_flow,
    test_bounds_kafka,
    test_bounds_memory,
    test_bounds_outcomes,
    test_bounds_queues,
    test_bounds_risk,
    test_bounds_signatures,
    test_bounds_spans,
    test_lanes,
    test_limits,
    test_mapping,
    test_refused_outcomes,
    test_registry,
)

BESIDE = (
    test_bounds_batch,
    test_bounds_caches,
    test_bounds_entities,
    test_bounds_files,
    test_bounds_flow,
    test_bounds_kafka,
    test_bounds_memory,
    test_bounds_outcomes,
    test_bounds_queues,
    test_bounds_risk,
    test_bounds_spans,
    test_lanes,
    test_limits,
    test_mapping,
    test_bounds_signatures,
    test_registry,
    test_refused_outcomes,
)
APPENDED_MS = 1_772_362_800_000


def limit_of(test: str, names: set[str]) -> str:
    """The limit that a test is about: the longest name that it begins with."""
    return max((name for name in names if test.startswith(f"test_i5_{name.lower()}_")), key=len, default="")


def test_i5_every_limit_is_fed_one_more() -> None:
    names = {name for name in vars(limits) if name.isupper()}
    tests = [*globals(), *(name for module in BESIDE for name in vars(module))]
    assert names - {limit_of(test, names) for test in tests} - RECORDS.keys() == set()
    assert RECORDS.keys() <= names


def record(
    value: bytes | None = None, *, key: bytes = b"u", headers: tuple[tuple[str, bytes], ...] = (), **changes: Any
) -> SourceRecord:
    body: dict[str, Any] = {
        "transaction_id": "t-1",
        "user_id": "u-1",
        "amount": "12.50",
        "currency": "EUR",
        "timestamp": APPENDED_MS,
        "merchant": {"id": "m-1"},
    }
    value = json.dumps(body | changes).encode() if value is None else value
    return ConsumerRecord("transactions", 0, 7, APPENDED_MS, 1, key, value, None, len(key), len(value), headers)


def of_size(size: int) -> SourceRecord:
    """A transaction in a value of so many bytes."""
    plain = record().value or b""
    return record(plain + b" " * (size - len(plain)))


def with_headers(size: int) -> SourceRecord:
    """Two headers whose names and values have so many bytes together."""
    return record(headers=(("one", b"1" * 100), ("other", b"2" * (size - 108))))


class Bound(NamedTuple):
    """Records at a limit and one beyond it, and why that is refused."""

    most: SourceRecord
    beyond: SourceRecord
    code: RefusalCode
    field: str


def attributes(count: int) -> dict[str, int]:
    return {f"a{number}": number for number in range(count)}


RECORDS = {
    "MAX_VALUE_BYTES": Bound(
        of_size(limits.MAX_VALUE_BYTES), of_size(limits.MAX_VALUE_BYTES + 1), RefusalCode.TOO_LARGE, "value"
    ),
    "MAX_KEY_BYTES": Bound(
        record(key=b"k" * limits.MAX_KEY_BYTES), record(key=b"k" * (limits.MAX_KEY_BYTES + 1)), RefusalCode.TOO_LARGE, "key"
    ),
    "MAX_HEADER_BYTES": Bound(
        with_headers(limits.MAX_HEADER_BYTES), with_headers(limits.MAX_HEADER_BYTES + 1), RefusalCode.TOO_LARGE, "headers"
    ),
    "MAX_CORRELATION_BYTES": Bound(
        record(headers=(("correlation-id", b"c" * limits.MAX_CORRELATION_BYTES),)),
        record(headers=(("correlation-id", b"c" * (limits.MAX_CORRELATION_BYTES + 1)),)),
        RefusalCode.CORRELATION,
        "correlation-id",
    ),
    "MAX_ID_CHARACTERS": Bound(
        record(user_id="ü" * limits.MAX_ID_CHARACTERS),
        record(user_id="ü" * (limits.MAX_ID_CHARACTERS + 1)),
        RefusalCode.INVALID,
        "user_id",
    ),
    "MAX_ATTRIBUTES": Bound(
        record(attributes=attributes(limits.MAX_ATTRIBUTES)),
        record(attributes=attributes(limits.MAX_ATTRIBUTES + 1)),
        RefusalCode.INVALID,
        "attributes",
    ),
    "MAX_ATTRIBUTE_CHARACTERS": Bound(
        record(attributes={"n" * limits.MAX_ATTRIBUTE_CHARACTERS: "t" * limits.MAX_ATTRIBUTE_CHARACTERS}),
        record(attributes={"name": "t" * (limits.MAX_ATTRIBUTE_CHARACTERS + 1)}),
        RefusalCode.INVALID,
        "attributes",
    ),
    "MAX_AMOUNT": Bound(
        record(amount=str(limits.MAX_AMOUNT)), record(amount=f"{limits.MAX_AMOUNT}.01"), RefusalCode.INVALID, "amount"
    ),
    "MAX_FUTURE_MS": Bound(
        record(timestamp=APPENDED_MS + limits.MAX_FUTURE_MS),
        record(timestamp=APPENDED_MS + limits.MAX_FUTURE_MS + 1),
        RefusalCode.TIMESTAMP_AHEAD,
        "timestamp",
    ),
}  # fmt: skip


def fates(decoded: Decoded) -> tuple[int, list[tuple[RefusalCode, str]]]:
    return len(decoded.requests), [(refusal.code, refusal.field) for refusal in decoded.refusals]


@pytest.mark.parametrize("limit", RECORDS)
def test_i5_a_record_at_the_limit_is_taken_and_one_beyond_is_refused_with_its_code(limit: str) -> None:
    bound = RECORDS[limit]
    assert fates(decode([bound.most])) == (1, [])
    assert fates(decode([bound.beyond])) == (0, [(bound.code, bound.field)])


def test_i5_a_name_of_an_attribute_is_bounded_as_its_text_is() -> None:
    beyond = record(attributes={"n" * (limits.MAX_ATTRIBUTE_CHARACTERS + 1): 1})
    assert fates(decode([beyond])) == (0, [(RefusalCode.INVALID, "attributes")])


def test_i5_a_null_header_takes_no_room_but_its_name() -> None:
    name = "n" * limits.MAX_HEADER_BYTES
    assert fates(decode([record(headers=((name, None),))])) == (1, [])  # type: ignore[arg-type]
    assert fates(decode([record(headers=((name + "n", None),))])) == (0, [(RefusalCode.TOO_LARGE, "headers")])  # type: ignore[arg-type]


def test_i5_late_after_ms_one_more_is_late() -> None:
    within, beyond = (record(timestamp=APPENDED_MS - age) for age in (limits.LATE_AFTER_MS, limits.LATE_AFTER_MS + 1))
    assert [request.late_event for request in decode([within, beyond]).requests] == [False, True]
