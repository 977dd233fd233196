"""Plain Kafka through librdkafka: a producer, a consumer of one partition of the reply topic, and correlation ids."""

import json
import threading
import uuid
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition


class Checkout:
    """Asks Assay what to do with a payment. `partition` of the reply topic belongs to this instance alone."""

    def __init__(self, bootstrap: str, transactions: str, reply_topic: str, partition: int, **producer: Any) -> None:
        self._transactions = transactions
        self._address = [("reply-to", reply_topic), ("reply-partition", str(partition))]
        # murmur2: all of a user's payments on the partition where Java's clients put them.
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "partitioner": "murmur2_random"} | producer)
        self._waiting: dict[bytes, Future[dict[str, Any]]] = {}
        self._closing = threading.Event()
        # A group is only a name here: nothing is subscribed to, and nothing committed.
        group = {"group.id": f"checkout-{uuid.uuid4()}", "enable.auto.commit": False}
        self._consumer = Consumer({"bootstrap.servers": bootstrap} | group)
        end = self._consumer.get_watermark_offsets(TopicPartition(reply_topic, partition), timeout=10)[1]
        self._consumer.assign([TopicPartition(reply_topic, partition, end)])  # from here on, before anything is asked
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def decide(self, transaction: Mapping[str, Any]) -> Future[dict[str, Any]]:
        """The reply to come: wait with `.result(timeout=0.2)`; after that `.cancel()` it, and take your own fallback action."""
        correlation, reply = uuid.uuid4().bytes, Future[dict[str, Any]]()
        self._waiting[correlation] = reply  # before it is sent, or a quick reply would find nobody
        reply.add_done_callback(lambda _: self._waiting.pop(correlation, None))
        self._producer.produce(
            self._transactions,
            key=transaction["user_id"],
            value=self.encode(transaction),
            headers=[("correlation-id", correlation), *self._address],
        )
        self._producer.poll(0)
        return reply

    def encode(self, transaction: Mapping[str, Any]) -> str | bytes:
        return json.dumps(transaction)

    def decode(self, value: bytes, refused: bool) -> dict[str, Any]:
        return json.loads(value)

    def _read(self) -> None:
        while not self._closing.is_set():
            record = self._consumer.poll(0.1)
            if record is None or record.error():
                continue
            headers = dict(record.headers() or [])
            reply = self._waiting.get(headers.get("correlation-id", b""))
            if reply is None or not reply.set_running_or_notify_cancel():
                continue  # late, or sent twice: the first one counts
            refused = "assay-error" in headers
            body = self.decode(record.value(), refused)
            if refused:
                reply.set_exception(ValueError(body["error"]))
            else:
                reply.set_result(body)

    def close(self) -> None:
        """Wait for what is being sent, and stop reading."""
        self._producer.flush(10)
        self._closing.set()
        self._reader.join()
        self._consumer.close()
