"""What a rebuild folds, how it differs from what was there, and where it ends."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from aiokafka.structs import ConsumerRecord

from assay.agents.rebuild import Counts, Difference, Refold, difference, first_mark, last_records, rows_to_publish
from assay.deploy.rebuild_log import Span, Until, span_of
from assay.deploy.rebuild_run import has_dead_letter
from assay.schemas.decode import decode
from assay.schemas.errors import TopologyError
from assay.schemas.source import SourceTopic
from assay.streams.simulator import simulate
from assay.tables.digests import OFFLINE
from assay.tables.layouts import LAYOUTS
from assay.tables.partition_state import STATE_KEY, PartitionState
from assay.tables.profile import ROW_BYTES, last_offset_of, new_rows
from assay.tables.rates import SHIPPED_RATES, Rates
from assay.tables.store import RowStore

TOPIC = SourceTopic("transactions", "id", 1)
START_MS = 1_767_225_600_000
APPENDED_MS = START_MS + 400 * 86_400_000  # after every payment that is simulated
RECORDS = 300


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[RowStore, RowStore]]:
    pair = RowStore(tmp_path / "one", ROW_BYTES, LAYOUTS.current), RowStore(tmp_path / "other", ROW_BYTES, LAYOUTS.current)
    yield pair
    for store in pair:
        store.close()


def record(offset: int, key: bytes, value: bytes | None) -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord("transactions", 0, offset, APPENDED_MS + offset, 1, key, value, None, len(key), len(value or b""), ())


@pytest.fixture(scope="module")
def records() -> list[ConsumerRecord[bytes, bytes]]:
    """Payments, each tenth of them twice, one that is none, and a tombstone."""
    payments = [each.transaction for each in simulate(seed=6, transactions=RECORDS, start_ms=START_MS, users=20)]
    bodies = [(body["user_id"].encode(), orjson.dumps(body)) for body in [*payments, *payments[-30::3]]]
    bodies += [(b"user", b"no payment"), (b"user", None)]
    return [record(offset, *body) for offset, body in enumerate(bodies)]


async def refold(store: RowStore, records: list[ConsumerRecord[bytes, bytes]], at_once: int, refused=lambda _: False) -> Counts:
    fold = Refold(store, Rates.load(SHIPPED_RATES), OFFLINE, TOPIC, {0: len(records)})
    counts = Counts()
    for first in range(0, len(records), at_once):
        counts += await fold.take(records[first : first + at_once], refused)
    await fold.finish()
    return counts


async def test_i4_how_much_is_read_at_once_changes_nothing(stores, records) -> None:
    one, other = stores
    assert await refold(one, records, at_once=1) == await refold(other, records, at_once=97)
    assert difference(one, other, 0) == Difference(equal=len(dict(one.rows(0))))


async def test_it_ends_with_a_state_from_which_workers_go_on(stores, records) -> None:
    store, _ = stores
    assert await refold(store, records, at_once=100) == Counts(RECORDS + 10, 1)
    assert store.state(0) == PartitionState("id", 1, len(records), len(records), fingerprint=OFFLINE.fingerprint)


async def test_what_has_a_dead_letter_is_not_folded_whatever_this_version_says(stores, records) -> None:
    one, other = stores
    await refold(one, records, at_once=100, refused=lambda request: request.source.offset >= 100)
    await refold(other, records[:100], at_once=100)
    assert not difference(one, other, 0)


def test_a_dead_letter_from_before_the_append_is_of_a_topic_that_is_gone() -> None:
    [body] = [each.transaction for each in simulate(seed=6, transactions=1, start_ms=START_MS)]
    [request] = decode([record(5, b"user", orjson.dumps(body))]).requests
    assert has_dead_letter({5: APPENDED_MS + 10}, request)
    assert not has_dead_letter({5: APPENDED_MS - 60_000}, request)
    assert not has_dead_letter({6: APPENDED_MS + 10}, request)


def row(last_offset: int) -> bytes:
    rows = new_rows(1)
    rows["last_offset"] = last_offset
    return rows.tobytes()


def test_everything_is_published_and_what_is_gone_is_deleted(stores) -> None:
    before, after = stores
    before.write(0, {b"equal": row(1), b"changed": row(2), b"gone": row(3), STATE_KEY: b"before"}, 9)
    after.write(0, {b"equal": row(1), b"changed": row(4), b"new": row(5)}, 9)
    published = {
        key: (value and last_offset_of(value), headers) for key, value, headers in rows_to_publish(before, after, "t", 0)
    }
    assert published == {
        b"equal": (1, [("assay-source", b"t:0:1")]),
        b"changed": (4, [("assay-source", b"t:0:4")]),
        b"gone": (None, []),
        b"new": (5, [("assay-source", b"t:0:5")]),
    }
    found = difference(before, after, 0)
    assert (found, found.records) == (Difference(equal=1, changed=1, added=1, removed=1), len(published))


async def test_between_its_marks_it_reads_back_as_it_was_folded(stores, records) -> None:
    folded, read = stores
    await refold(folded, records, at_once=100)
    read.write(0, {b"from before": row(1)}, 6)
    written = [first_mark("x", 7), *rows_to_publish(read, folded, "transactions", 0), *last_records(folded, 0, "x", 7)]
    read.apply(0, [(key, value) for key, value, _ in written], 7 + len(written))
    assert not difference(read, folded, 0)
    assert read.state(0) == folded.state(0)
    assert read.on_disk(0).begun == read.on_disk(0).done == b"7 x"


@pytest.mark.parametrize(
    ("until", "committed", "state", "end"),
    [
        (Until.COMMIT, 40, None, 40),
        (Until.COMMIT, None, PartitionState("id", 1, 30, 35), 30),
        (Until.COMMIT, None, PartitionState("of a topic that is gone", 1, 30, 35), 10),
        (Until.COMMIT, None, None, 10),
        (Until.EARLIEST, 40, None, 10),
        (Until.END, 40, None, 90),
    ],
    ids=["the commit", "a commit that has expired", "of another topic", "never any", "earliest", "end"],
)
def test_it_folds_up_to(until: Until, committed: int | None, state: PartitionState | None, end: int) -> None:
    assert span_of(0, (10, 90), committed, state, TOPIC, until) == Span(0, 10, end, committed)


@pytest.mark.parametrize("committed", [9, 91], ids=["expired", "made anew"])
def test_i1_a_commit_outside_of_the_topic_is_for_somebody_to_decide(committed: int) -> None:
    with pytest.raises(TopologyError, match=r"expected: 10 to 90.*--until earliest.*--until end"):
        span_of(0, (10, 90), committed, None, TOPIC, Until.COMMIT)
