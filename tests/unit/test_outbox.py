"""What leaves off the answer path is bounded, merged, and counted when it is lost."""

import asyncio

import pytest

from assay.schemas.errors import PublishError
from assay.streams.outbox import LossyPublisher, Outbox

RECORD = (b"key", b"value", [])


class Sent:
    def __init__(self) -> None:
        self.batches: list[dict] = []
        self.lost = 0
        self.go = asyncio.Event()
        self.go.set()

    async def send(self, batches) -> None:
        await self.go.wait()
        self.batches.append(dict(batches))

    def lose(self, count: int) -> None:
        self.lost += count


def of(topic: str, count: int = 1):
    async def make():
        return {(topic, 0): [RECORD] * count}

    return make


async def test_batches_that_wait_leave_together():
    sent = Sent()
    outbox = Outbox(sent.send, 10, lost=sent.lose, linger=0.01)
    outbox.start()
    for topic in ("a", "b", "a"):
        outbox.offer(of(topic))
    await outbox.close(1)
    assert sent.batches == [{("a", 0): [RECORD, RECORD], ("b", 0): [RECORD]}]
    assert sent.lost == 0


async def test_i6_a_full_queue_loses_and_counts_instead_of_waiting():
    sent = Sent()
    sent.go.clear()
    outbox = Outbox(sent.send, 2, lost=sent.lose)
    outbox.start()
    outbox.offer(of("a"))
    await asyncio.sleep(0)  # taken, and stuck
    for _ in range(5):
        outbox.offer(of("b"))
    assert sent.lost == 3


async def test_what_is_left_at_the_end_is_counted():
    sent = Sent()
    sent.go.clear()
    outbox = Outbox(sent.send, 10, lost=sent.lose)
    outbox.start()
    outbox.offer(of("a"))
    await asyncio.sleep(0)
    outbox.offer(of("b"))
    await outbox.close(0.01)
    assert sent.lost == 1


async def test_a_batch_that_can_not_be_made_is_counted_and_the_next_one_leaves():
    async def broken():
        raise ValueError("no records")

    sent = Sent()
    outbox = Outbox(sent.send, 10, lost=sent.lose)
    outbox.start()
    outbox.offer(broken)
    await asyncio.sleep(0.01)
    outbox.offer(of("a"))
    await outbox.close(1)
    assert (sent.lost, sent.batches) == (1, [{("a", 0): [RECORD]}])


class Broker:
    """Publishers of which some calls fail, for good as real ones do."""

    def __init__(self, *failing: int, not_starting: int = 0) -> None:
        self.failing, self.not_starting = set(failing), not_starting
        self.made = self.calls = self.published = 0

    def publisher(self) -> "Broker":
        self.made += 1
        return self

    async def start(self) -> None:
        if self.not_starting:
            self.not_starting -= 1
            raise PublishError("no broker")

    async def publish(self, batches) -> None:
        self.calls += 1
        if self.calls in self.failing:
            raise PublishError("broken")
        self.published += sum(map(len, batches.values()))

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("broker", "lost", "published", "made"),
    [
        (Broker(), 0, 3, 1),
        (Broker(2), 1, 2, 2),
        (Broker(not_starting=1), 1, 2, 2),
        (Broker(1, 2, 3), 3, 0, 3),
    ],
    ids=["all is well", "one call fails", "the first start fails", "every call fails"],
)
async def test_a_publisher_that_failed_is_replaced_and_what_it_lost_is_counted(broker, lost, published, made):
    counted = []
    lossy = LossyPublisher(broker.publisher, counted.append)
    for _ in range(3):
        await lossy.send({("evidence", 0): [RECORD]})
    assert (sum(counted), broker.published, broker.made) == (lost, published, made)
