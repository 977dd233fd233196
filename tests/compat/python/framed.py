"""The same with Confluent's serialisers: Protobuf in the frame that they write, under the ids of a schema registry.

`protoc --python_out=. transaction.proto decision.proto` makes the two modules with the messages, out of docs/schemas.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from decision_pb2 import Decision, ErrorReply
from google.protobuf.json_format import MessageToDict, ParseDict
from librdkafka import Checkout
from transaction_pb2 import Transaction


class FramedCheckout(Checkout):
    """Asks in Protobuf, and is answered so. A refusal is an `ErrorReply`; who reads it as a `Decision` reads a review."""

    def __init__(self, registry: str, bootstrap: str, transactions: str, reply_topic: str, partition: int) -> None:
        client = SchemaRegistryClient({"url": registry})
        self._serializer = ProtobufSerializer(Transaction, client, {"use.deprecated.format": False})
        self._deserializers = {
            refused: ProtobufDeserializer(message, {"use.deprecated.format": False}, client)
            for refused, message in ((False, Decision), (True, ErrorReply))
        }
        self._sent = SerializationContext(transactions, MessageField.VALUE)
        self._replied = SerializationContext(reply_topic, MessageField.VALUE)
        super().__init__(bootstrap, transactions, reply_topic, partition)

    def encode(self, transaction: Mapping[str, Any]) -> bytes:
        at = datetime.fromtimestamp(transaction["timestamp"] / 1000, UTC).isoformat()
        return self._serializer(ParseDict({**transaction, "timestamp": at}, Transaction()), self._sent)

    def decode(self, value: bytes, refused: bool) -> dict[str, Any]:
        return MessageToDict(self._deserializers[refused](value, self._replied), preserving_proto_field_name=True)
