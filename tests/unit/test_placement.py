"""Transactions that lie on another partition than their user's: told apart by their keys, counted, and said now and then."""

import json
import logging
from binascii import crc32
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.structs import ConsumerRecord

from assay.agents.placement import EVERY_S, Placement
from assay.deploy.check import State
from assay.deploy.placement_check import Placed, judge_placement
from assay.schemas.source import Source
from assay.streams.metrics import Metrics
from assay.streams.partitioning import partition_of, partitions_of_keys

PARTITIONS = 4
USERS = [f"user-{number}".encode() for number in range(100)]


def request(user: bytes, key: bytes, partition: int) -> Any:
    return SimpleNamespace(user=user, key=key, source=Source("transactions", partition, 0))


def elsewhere(user: bytes) -> int:
    return (partition_of(user, PARTITIONS) + 1) % PARTITIONS


def record(key: bytes | None, partition: int, user: bytes) -> ConsumerRecord[bytes, bytes]:
    value = json.dumps({"user_id": user.decode()}).encode()
    return ConsumerRecord("transactions", partition, 0, 1_790_000_000_000, 1, key, value, None, 0, 0, ())


def counted(metrics: Metrics) -> dict[str, float]:
    [family] = metrics.misplaced.collect()
    return {sample.labels["kind"]: sample.value for sample in family.samples if sample.name.endswith("_total")}


def test_a_key_belongs_where_java_clients_put_it() -> None:
    # Values of org.apache.kafka.common.utils.Utils.murmur2, from Kafka's own UtilsTest: "21" -> -973932308.
    assert partition_of(b"21", 1000) == (-973932308 & 0x7FFFFFFF) % 1000


def test_many_keys_at_once_belong_where_each_alone_does() -> None:
    keys = [bytes(range(start, start + length)) for start in (0, 200) for length in range(50)]
    assert partitions_of_keys(keys, 12).tolist() == [partition_of(key, 12) for key in keys]


def test_what_lies_elsewhere_is_counted_by_what_its_key_tells() -> None:
    metrics, user = Metrics(), USERS[0]
    placement = Placement(PARTITIONS, metrics, lambda: 0.0)
    placement.note([request(user, key, elsewhere(user)) for key in (b"", b"t-1", b"t-2", user)])
    assert counted(metrics) == {"no_key": 1, "other_key": 2, "partitioner": 1}


def test_what_lies_where_its_user_belongs_is_not_counted_whatever_its_key() -> None:
    metrics = Metrics()
    placement = Placement(PARTITIONS, metrics, lambda: 0.0)
    placement.note([request(user, b"t-1", partition_of(user, PARTITIONS)) for user in USERS])
    placement.note([])
    assert counted(metrics) == {}


def test_it_is_said_once_in_a_while_with_all_that_came_since(caplog: pytest.LogCaptureFixture) -> None:
    now, user = [0.0], USERS[0]
    placement = Placement(PARTITIONS, Metrics(), lambda: now[0])
    with caplog.at_level(logging.WARNING, "assay.score"):
        for second in (0.0, 1.0, 2.0, EVERY_S):
            now[0] = second
            placement.note([request(user, b"", elsewhere(user)), request(user, user, partition_of(user, PARTITIONS))])
    assert [line.split(" lie ")[0] for line in caplog.messages] == ["1 of 2 transactions", "3 of 6 transactions"]


def test_the_doctor_is_content_where_users_lie_where_they_belong() -> None:
    placed = Placed()
    placed.note([record(user, partition_of(user, PARTITIONS), user) for user in USERS], PARTITIONS)
    assert judge_placement(placed).state is State.OK
    assert "100 recent" in judge_placement(placed).found


def test_the_doctor_tells_librdkafkas_default_from_other_partitioners() -> None:
    placed = Placed()
    placed.note([record(user, crc32(user) % PARTITIONS, user) for user in USERS], PARTITIONS)
    found = judge_placement(placed)
    assert found.state is State.WARN
    assert found.found.endswith(f"{placed.elsewhere} by CRC32, librdkafka's default")


def test_the_doctor_tells_missing_keys_and_other_keys() -> None:
    placed = Placed()
    for user in USERS[:5]:
        placed.note([record(None, elsewhere(user), user), record(b"t-1", elsewhere(user), user)], PARTITIONS)
    assert judge_placement(placed).found.endswith(
        "10 lie on another partition than their user's: 5 without a key, 5 with another key"
    )
