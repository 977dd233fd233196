"""Three calls of Kafka's protocol that aiokafka 0.14 lacks.

- InitProducerId version 3 (KIP-360, Kafka 2.5) carries the identity that the caller holds, and is refused when somebody has
  claimed since: a renewal can never take a partition back from its new owner.
- DescribeProducers (KIP-664, Kafka 2.8) lists whom a partition's leader still knows.
- Metadata version 10 (KIP-516, Kafka 2.8) tells a topic's id: a topic that is made anew has another.
"""

from io import BytesIO
from typing import Any
from uuid import UUID

from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields
from aiokafka.structs import TopicPartition

TRANSACTION_TIMEOUT_MS = 60_000  # never runs, but must not exceed the broker's transaction.max.timeout.ms
NOBODY = (-1, -1)

_text = CompactString("utf-8")
_tags = ("tags", TaggedFields)


class _Uuid(AbstractType[UUID]):
    @classmethod
    def encode(cls, value: UUID) -> bytes:
        return value.bytes

    @classmethod
    def decode(cls, data: BytesIO) -> UUID:
        return UUID(bytes=data.read(16))


class _InitProducerIdResponse(Response):
    API_KEY = 22
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32), ("error_code", Int16), ("producer_id", Int64), ("producer_epoch", Int16), _tags
    )  # fmt: skip


class _InitProducerIdRequest(RequestStruct):
    API_KEY = 22
    API_VERSION = 3
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _InitProducerIdResponse
    SCHEMA = Schema(
        ("transactional_id", _text),
        ("transaction_timeout_ms", Int32),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        _tags,
    )


class InitProducerId(Request[_InitProducerIdRequest]):
    """The next (producer id, epoch) of a transactional id; `holder`: only if that one still holds it."""

    API_KEY = 22

    def __init__(self, transactional_id: str, holder: tuple[int, int] = NOBODY) -> None:
        self._fields: tuple[Any, ...] = (transactional_id, TRANSACTION_TIMEOUT_MS, *holder, {})

    def build(self, request_struct_class: type[_InitProducerIdRequest]) -> _InitProducerIdRequest:
        return request_struct_class(*self._fields)


class _DescribeProducersResponse(Response):
    API_KEY = 61
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", _text),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("error_code", Int16),
                        ("error_message", _text),
                        (
                            "active_producers",
                            CompactArray(
                                ("producer_id", Int64),
                                ("producer_epoch", Int32),
                                ("last_sequence", Int32),
                                ("last_timestamp", Int64),
                                ("coordinator_epoch", Int32),
                                ("current_txn_start_offset", Int64),
                                _tags,
                            ),
                        ),
                        _tags,
                    ),
                ),
                _tags,
            ),
        ),
        _tags,
    )


class _DescribeProducersRequest(RequestStruct):
    API_KEY = 61
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _DescribeProducersResponse
    SCHEMA = Schema(("topics", CompactArray(("name", _text), ("partitions", CompactArray(Int32)), _tags)), _tags)


class DescribeProducers(Request[_DescribeProducersRequest]):
    """Asked of a partition's leader."""

    API_KEY = 61

    def __init__(self, where: TopicPartition) -> None:
        self._topics: list[tuple[Any, ...]] = [(where.topic, [where.partition], {})]

    def build(self, request_struct_class: type[_DescribeProducersRequest]) -> _DescribeProducersRequest:
        return request_struct_class(self._topics, {})


class _TopicMetadataResponse(Response):
    API_KEY = 3
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", CompactArray(("node_id", Int32), ("host", _text), ("port", Int32), ("rack", _text), _tags)),
        ("cluster_id", _text),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", _text),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        _tags,
                    ),
                ),
                ("authorized_operations", Int32),
                _tags,
            ),
        ),
        ("cluster_authorized_operations", Int32),
        _tags,
    )


class _TopicMetadataRequest(RequestStruct):
    API_KEY = 3
    API_VERSION = 10
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _TopicMetadataResponse
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _Uuid), ("name", _text), _tags)),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        _tags,
    )


class TopicMetadata(Request[_TopicMetadataRequest]):
    """One topic, its id included."""

    API_KEY = 3

    def __init__(self, topic: str) -> None:
        self._topics: list[tuple[Any, ...]] = [(UUID(int=0), topic, {})]

    def build(self, request_struct_class: type[_TopicMetadataRequest]) -> _TopicMetadataRequest:
        return request_struct_class(self._topics, False, False, False, {})
