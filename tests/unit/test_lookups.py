"""Rows that are looked up beside the windows: each once, in the key of its shard, and what they say where they should."""

from collections.abc import Sequence

import numpy as np
import pytest

from assay.tables.events import EVENT, Events
from assay.tables.keyspace import Keyspace
from assay.tables.lookups import Found, LookUps, Reading, look_ups, row_key

COLUMNS = 4
HELD = slice(1, 3)


class Letters:
    """A family of users and merchants: says the first byte of each row, 0 where there is none, -1 where the kind is absent."""

    marker, kinds, columns = b"x", ("user", "merchant"), HELD

    def __init__(self, ages_ms: float = np.nan) -> None:
        self.ages_ms = ages_ms

    def read(self, rows: Sequence[bytes | None], index, events: Events, windows, out) -> Reading:
        said = np.array([0.0 if row is None else row[0] for row in rows] + [-1.0], np.float32)
        out[:] = said[index]
        return Reading(np.full(index.shape, self.ages_ms), sum(row == b"" for row in rows))


def payments(*pairs: tuple[int, int]) -> Events:
    events = np.zeros(len(pairs), EVENT)
    events["user"], events["merchant"] = np.array(pairs, np.uint64).reshape(-1, 2).T
    return events


def keys(asked: LookUps) -> list[list[bytes]]:
    """Of each command."""
    found = []
    for command in asked.commands:
        words = b"".join(command.parts)
        count, _, rest = words.partition(b"\r\n")
        parts = []
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            parts.append(rest[: int(size[1:])])
            rest = rest[int(size[1:]) + 2 :]
        assert parts[0] == b"MGET"
        assert int(count[1:]) == len(parts)
        found.append(parts[1:])
    return found


def test_each_entity_is_asked_for_once_however_often_it_comes() -> None:
    asked = look_ups(payments((7, 9), (7, 8), (3, 9)), (Letters(),), Keyspace("p", "", 1))
    expected = [("user", 7), ("user", 3), ("merchant", 9), ("merchant", 8)]
    assert keys(asked) == [[row_key(Keyspace("p", "", 1), b"x", *one)[1] for one in expected]]
    assert asked.indexes[0].tolist() == [[0, 2], [0, 3], [1, 2]]


def test_a_user_and_a_merchant_of_the_same_digest_have_rows_of_their_own() -> None:
    asked = look_ups(payments((7, 7)), (Letters(),), Keyspace("p", "", 1))
    assert len(set(keys(asked)[0])) == 2


def test_every_key_is_of_the_shard_of_its_digest_whatever_bytes_it_has() -> None:
    keyspace, digest = Keyspace("p", "", 3), int.from_bytes(b"\r\n$9\r\n{}", "little")
    asked = look_ups(payments((digest, 4), (digest + 1, 5)), (Letters(),), keyspace)
    for command, found in zip(asked.commands, keys(asked), strict=True):
        assert all(key.startswith(command.tag) for key in found)
    expected = {
        row_key(keyspace, b"x", kind, d)[1]
        for kind, d in (("user", digest), ("user", digest + 1), ("merchant", 4), ("merchant", 5))
    }
    assert {key for found in keys(asked) for key in found} == expected


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_replies_find_their_transactions_whatever_the_shards(shards: int) -> None:
    events = payments(*((user, 100 + user % 4) for user in range(1, 40)))
    asked = look_ups(events, (Letters(),), Keyspace("p", "", shards))
    block = np.zeros((len(events), COLUMNS), np.float32)
    asked.read([[key[-8:-7] for key in found] for found in keys(asked)], block)
    assert block[:, 1].tolist() == events["user"].tolist()
    assert block[:, 2].tolist() == events["merchant"].tolist()
    assert not block[:, [0, 3]].any()


def test_an_entity_that_a_transaction_does_not_have_is_not_asked_for() -> None:
    asked = look_ups(payments((7, 0)), (Letters(),), Keyspace("p", "", 1))
    block = np.zeros((1, COLUMNS), np.float32)
    asked.read([[None]], block)
    assert block[0].tolist() == [0, 0, -1, 0]


@pytest.mark.parametrize("replies", [None, [], [[b"a"]], [ValueError("no")], [b"ab"]])
def test_where_a_look_up_fails_its_columns_are_unavailable_and_no_others(replies: Sequence[object] | None) -> None:
    asked = look_ups(payments((7, 9)), (Letters(),), Keyspace("p", "", 1))
    block = np.zeros((1, COLUMNS), np.float32)
    assert asked.read(replies, block) == Found({}, {})
    assert np.isnan(block[0]).tolist() == [False, True, True, False]


def test_without_families_nothing_is_asked() -> None:
    asked = look_ups(payments((7, 9)), (), Keyspace("p", "", 1))
    assert asked.commands == []
    assert asked.read([], np.zeros((1, COLUMNS), np.float32)) == Found({}, {})


def test_no_transactions_ask_nothing() -> None:
    asked = look_ups(payments(), (Letters(),), Keyspace("p", "", 1))
    assert asked.commands == []
    asked.read([], np.zeros((0, COLUMNS), np.float32))


def test_the_rows_of_one_family_are_not_those_of_another() -> None:
    asked = look_ups(payments((7, 9)), (Letters(), Letters()), Keyspace("p", "", 1))
    block = np.zeros((1, COLUMNS), np.float32)
    asked.read([[b"\1", b"\2", b"\3", b"\4"]], block)
    assert block[0].tolist() == [0, 3, 4, 0]


def test_rows_that_cannot_be_read_are_counted() -> None:
    asked = look_ups(payments((7, 9)), (Letters(),), Keyspace("p", "", 1))

    class Lenient(Letters):
        def read(self, rows, index, events, windows, out) -> Reading:
            out[:] = np.nan
            return Reading(np.full(index.shape, np.nan), sum(row == b"" for row in rows))

    asked.families = (Lenient(),)
    assert asked.read([[b"", None]], np.zeros((1, COLUMNS), np.float32)).unreadable == 1


def test_the_oldest_value_of_each_transaction_is_told() -> None:
    asked = look_ups(payments((7, 9), (7, 8)), (Letters(5_000.0),), Keyspace("p", "", 1))
    found = asked.read([[b"\1", None, None]], np.zeros((2, COLUMNS), np.float32))
    assert found.ages_ms["entity"].tolist() == [5_000.0, 5_000.0]
