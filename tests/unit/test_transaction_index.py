"""What is kept of decided transactions: bytes that come back, keys that outcomes find, commands of one shard each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.schemas.decision import Action, Tier
from assay.schemas.transaction import Transaction
from assay.tables.digests import OFFLINE
from assay.tables.encode import encode_events
from assay.tables.keyspace import Keyspace
from assay.tables.outcomes import Heard, Paid
from assay.tables.rates import SHIPPED_RATES, Rates
from assay.tables.redis_link import Command
from assay.tables.transaction_index import (
    DECIDED,
    ENTRY,
    UNKNOWN,
    VERSION,
    Decided,
    Entry,
    Kept,
    declined_in_full,
    find_commands,
    keep_commands,
    mark_commands,
    mark_of,
    place_of,
    remember_commands,
)

KEYSPACE = Keyspace("a-prefix", "topic-id", 3)
HEARD = Heard(7, 8, 4, -1, 0)


def decided(count: int) -> Decided:
    rows = np.zeros(count, DECIDED)
    rows["user"], rows["id"], rows["offset"] = np.arange(1, count + 1), np.arange(2 * count).reshape(-1, 2), np.arange(count)
    rows["entry"]["version"], rows["entry"]["time_ms"] = VERSION, np.arange(count) + 1_000
    return rows


def words(command: Command) -> list[bytes]:
    """The words of a command in the Redis protocol."""
    data = b"".join(command.parts)
    count, _, rest = data[1:].partition(b"\r\n")
    found = []
    for _ in range(int(count)):
        size, _, rest = rest[1:].partition(b"\r\n")
        found.append(rest[: int(size)])
        assert rest[int(size) : int(size) + 2] == b"\r\n"
        rest = rest[int(size) + 2 :]
    assert not rest
    return found


def test_an_entry_has_the_bytes_that_its_fields_say() -> None:
    assert ENTRY.itemsize == 72
    assert [name for name in ENTRY.names or () if name != "unused"] == list(Entry._fields)
    row = np.zeros(1, ENTRY)
    values = (VERSION, 2, 5, 0.5, 11, 12, 13, 21, 22, 23, 24, 25)
    for name, value in zip(Entry._fields, values, strict=True):
        row[name] = value
    assert Kept.decode(row.tobytes()) == Kept(Entry(*values), ())


@given(st.integers(0, 2), st.lists(st.integers(0, 5), max_size=3))
def test_what_is_kept_comes_back_from_its_bytes(action: int, statuses: list[int]) -> None:
    known = tuple(Heard(i, i + 1, status, -1, 0) for i, status in enumerate(statuses))
    kept = Kept(Entry(VERSION, action, 5, 0.25, 1, 100_000, 80_000, 2, 3, 4, 5, 6), known)
    assert Kept.decode(kept.encode()) == kept
    assert kept.paid == Paid(100_000, 80_000)
    assert kept.action == tuple(Action)[action]
    assert kept.entities == (2, 3, 4, 5, 6)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x02" + bytes(71),
        bytes([VERSION, 3]) + bytes(70),
        bytes([VERSION, 0, 6]) + bytes(69),
        bytes([VERSION]) + bytes(80),
        UNKNOWN,
    ],
)
def test_bytes_that_are_no_transaction_are_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="version 1"):
        Kept.decode(value)


def test_an_outcome_finds_its_transaction_where_the_event_of_it_is_kept() -> None:
    body = {
        "transaction_id": "t-ü",
        "user_id": "u-1",
        "amount": "1",
        "currency": "EUR",
        "timestamp": 1,
        "merchant": {"id": "m"},
    }
    [event] = encode_events([Transaction.model_validate(body)], [0], [0], Rates.load(SHIPPED_RATES), OFFLINE)
    rows = np.zeros(1, DECIDED)
    rows["user"], rows["id"] = event["user"], event["id"]
    [command] = keep_commands(rows, KEYSPACE, 60)
    place = place_of(KEYSPACE, OFFLINE, "u-1", "t-ü")
    assert words(command)[4] == place.key
    assert place.key.startswith(b"{a-prefix:%d}:t:" % place.shard)
    assert place.key != place_of(KEYSPACE, OFFLINE, "u-2", "t-ü").key
    assert place.key != place_of(KEYSPACE, OFFLINE, "u-1", "t-u").key


def test_transactions_are_kept_by_one_command_of_each_shard_with_values_in_the_order_of_the_keys() -> None:
    rows = decided(7)
    found = {}
    for command in keep_commands(rows, KEYSPACE, 60):
        _, _, count, mark, *keys, fingerprint, expire_s, values = words(command)
        assert 1 + len(keys) == int(count)
        assert (mark, fingerprint, expire_s) == (command.tag + b"key:outcomes", b"", b"60")
        assert all(key.startswith(command.tag) for key in keys)
        found |= {key[-24:]: values[72 * i : 72 * (i + 1)] for i, key in enumerate(keys)}
    assert found == {row["user"].tobytes() + row["id"].tobytes(): row["entry"].tobytes() for row in rows}


def test_no_transactions_need_no_command() -> None:
    assert keep_commands(decided(0), KEYSPACE, 60) == []


def test_transactions_are_found_by_one_command_of_each_shard() -> None:
    places = [place_of(KEYSPACE, OFFLINE, f"u-{i}", "t") for i in range(9)]
    positions = []
    for command, here in find_commands(places, KEYSPACE):
        assert words(command) == [b"MGET", *(places[i].key for i in here)]
        assert {places[i].shard for i in here} == {int(command.tag[len(b"{a-prefix:") : -2])}
        positions += here
    assert sorted(positions) == list(range(9))


def test_what_is_remembered_names_the_value_before_and_after_of_each() -> None:
    places = [place_of(KEYSPACE, OFFLINE, f"u-{i}", "t") for i in range(5)]
    changed = {place: (b"before-%d" % i, b"after-%d" % i) for i, place in enumerate(places)}
    for command, here in remember_commands(changed, KEYSPACE):
        _, name, count, *rest = words(command)
        assert name.startswith(b"assay_remember_")
        assert rest[: int(count)] == [places[i].key for i in here]
        assert rest[int(count) :] == [part for i in here for part in (b"before-%d" % i, b"after-%d" % i)]


def test_a_mark_lies_in_the_shard_of_the_transaction_and_is_of_one_record_of_one_topic() -> None:
    transaction, other = place_of(KEYSPACE, OFFLINE, "u-1", "t"), Keyspace("a-prefix", "another-id", 3)
    marks = [mark_of(KEYSPACE, transaction, 1, 23), mark_of(KEYSPACE, transaction, 12, 3), mark_of(other, transaction, 1, 23)]
    assert len(set(marks)) == 3
    for mark, command in zip(marks, mark_commands(marks, KEYSPACE, 60), strict=True):
        assert mark.shard == transaction.shard
        assert mark.key.startswith(command.tag + b"learnt:")
        assert words(command) == [b"SET", mark.key, UNKNOWN, b"EX", b"60"]


def test_only_declines_in_the_tier_full_are_our_own_verdicts() -> None:
    cases = [(action, tier) for action in Action for tier in Tier]
    rows = decided(len(cases))
    rows["entry"]["action"] = [list(Action).index(action) for action, _ in cases]
    rows["entry"]["tier"] = [tier.rank for _, tier in cases]
    assert [cases[i] for i in np.flatnonzero(declined_in_full(rows))] == [(Action.DECLINE, Tier.FULL)]
