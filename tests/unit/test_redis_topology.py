"""What a Redis Cluster says of its slots, and a URL of several hosts."""

import pytest

from assay.tables.redis_link import RedisLink, urls_of
from assay.tables.redis_topology import read_topology

ASKED = ("the-one-asked", 6379)


def test_a_slot_belongs_to_the_master_of_its_range() -> None:
    reply = [
        [0, 9, [b"a", 1, b"id-a", []], [b"copy-of-a", 2, b"id", []]],
        [10, 16_383, [b"b", 3, b"id-b", [b"hostname", b"x"]]],
    ]
    topology = read_topology(reply, ASKED)
    assert [topology.master(slot) for slot in (0, 9, 10, 16_383)] == [("a", 1), ("a", 1), ("b", 3), ("b", 3)]
    assert topology.nodes == (("a", 1), ("copy-of-a", 2), ("b", 3))


@pytest.mark.parametrize("host", [None, b"", b"?"])
def test_a_node_that_does_not_know_its_host_is_the_one_that_was_asked(host: bytes | None) -> None:
    assert read_topology([[0, 16_383, [host, 7, b"id"]]], ASKED).master(5) == ("the-one-asked", 7)


def test_a_slot_that_nobody_has_is_an_outage() -> None:
    with pytest.raises(ConnectionError, match="slot 11"):
        read_topology([[0, 10, [b"a", 1, b"id"]]], ASKED).master(11)


@pytest.mark.parametrize("reply", [b"OK", [[0, 1]], [[0, 1, [b"a"]]], [3], [[b"x", 1, [b"a", 1]]], None])
def test_an_answer_of_another_form_is_an_outage(reply: object) -> None:
    with pytest.raises(ConnectionError, match="can't be read"):
        read_topology(reply, ASKED)


def test_each_host_of_a_url_has_its_login_and_database() -> None:
    assert urls_of("rediss://me:a,b@one:1,two:2,[::1]:3/0?x=y") == [
        "rediss://me:a,b@one:1/0?x=y",
        "rediss://me:a,b@two:2/0?x=y",
        "rediss://me:a,b@[::1]:3/0?x=y",
    ]


@pytest.mark.parametrize("url", ["redis://one", "unix:///a,b/redis.sock"])
def test_a_url_of_one_host_stays_as_it_is(url: str) -> None:
    assert urls_of(url) == [url]


def test_where_redis_is_expected_is_told_without_credentials() -> None:
    assert RedisLink("redis://me:secret@one:1,two/0").address == "one:1, two:6379"
    assert RedisLink("unix:///tmp/redis.sock").address == "/tmp/redis.sock"
