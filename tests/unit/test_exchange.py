"""What waits to be sent in our client, while Kafka takes nothing."""

import asyncio
from typing import Any

from assay.schemas import limits
from assay.streams.exchange import KafkaExchange


class Batch:
    def __init__(self) -> None:
        self.values: list[bytes] = []

    def append(self, *, timestamp: None, key: bytes, value: bytes, headers: Any) -> object:
        self.values.append(value)
        return object()

    def close(self) -> None: ...


class Producer:
    """Takes nothing until it may."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.takes = asyncio.Event()

    def create_batch(self) -> Batch:
        return Batch()

    async def send_batch(self, batch: Batch, topic: str, *, partition: int) -> "asyncio.Future[None]":
        await self.takes.wait()
        self.sent += batch.values
        return asyncio.get_running_loop().create_future()

    async def stop(self) -> None: ...


def exchange(producer: Producer) -> KafkaExchange:
    made = KafkaExchange({}, transactions_topic="transactions", reply_topic="a.reply", create=False)
    made._producer, made._partitions = producer, 1  # type: ignore[assignment]
    return made


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_transaction_whose_caller_has_gone_before_it_left_is_not_sent() -> None:
    producer = Producer()
    made = exchange(producer)
    await made.send(b"u", b"first", [])
    await settled()
    gone, still = await made.send(b"u", b"gone", []), await made.send(b"u", b"still", [])
    gone.cancel()
    producer.takes.set()
    await settled()
    assert producer.sent == [b"first", b"still"]
    assert not still.done()
    await made.close()


async def test_i5_max_waiting_calls_one_more_lets_go_of_those_whose_callers_have_gone() -> None:
    made = exchange(Producer())
    await made.send(b"u", b"on its way", [])
    await settled()
    for number in range(3 * limits.MAX_WAITING_CALLS):
        (await made.send(b"u", b"%d" % number, [])).cancel()
    [(sending, _)] = made._sendings.values()
    assert len(sending.due) <= limits.MAX_WAITING_CALLS
    await made.close()
