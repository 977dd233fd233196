"""The brokers, in memory: logs with append times, idempotent producers, claims; and the wire between them and the workers.

What Kafka does about producers follows its `ProducerAppendInfo` and was tried on Kafka 4.4: an append under a lower epoch of a
producer id is refused once a higher one has been appended to that partition, not when it was claimed. A new epoch begins at
sequence 0; a batch that the partition has already is answered with where it lies.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from aiokafka.errors import InvalidProducerEpoch, OutOfOrderSequenceNumber, ProducerFenced

from assay.schemas.source import OutRecord

from .loop import LIFE, Life, VirtualLoop
from .weather import Weather

EPOCH_S = 1_750_000_000.0  # of the virtual clock
LOST_WITH_ITS_PROCESS = 0.25  # of the requests that are under way when a process dies
KNOWN_BATCHES = 5  # per producer: how far back a batch is recognised

Answer = TypeVar("Answer")


class Record(NamedTuple):
    """A record as it lies in a log."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]


class Producer(NamedTuple):
    """Who appends: what a batch says of itself."""

    id: int
    epoch: int
    sequence: int


@dataclass(slots=True)
class _Known:
    epoch: int
    next_sequence: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)  # first sequence, count, offset


class Log:
    """One partition of one topic.

    Args:
        appended: called with the records of each append.
    """

    def __init__(self, topic: str, partition: int, loop: VirtualLoop, appended: Callable[[list[Record]], None]) -> None:
        self.topic, self.partition, self.skew = topic, partition, 0.0
        self.begin = self.end = 0
        self.records: list[Record] = []
        self.producers: dict[int, _Known] = {}
        self._loop, self._appended = loop, appended
        self._waiting: list[asyncio.Future[None]] = []

    def append(self, records: Sequence[OutRecord], producer: Producer | None = None) -> int:
        """Returns the offset of the first. Raises InvalidProducerEpoch or OutOfOrderSequenceNumber."""
        if producer is not None and (known := self._admit(producer, len(records))) is not None:
            return known
        first, now = self.end, int((EPOCH_S + self._loop.time() + self.skew) * 1000)
        new = [Record(self.topic, self.partition, first + i, now, *record) for i, record in enumerate(records)]
        self.records += new
        self.end += len(new)
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
        self._appended(new)
        return first

    def skip(self) -> None:
        """An offset that holds no record: the end of an upstream transaction."""
        self.end += 1

    def read(self, offset: int, most: int) -> tuple[list[Record], int]:
        """Up to so many records from `offset` on, and where to read on."""
        begins = bisect_left(self.records, offset, key=lambda record: record.offset)
        found = self.records[begins : begins + most]
        return found, found[-1].offset + 1 if len(found) == most else self.end

    def offset_at(self, timestamp: int) -> int | None:
        """Of the first record that was appended then or later."""
        return next((record.offset for record in self.records if record.timestamp >= timestamp), None)

    async def beyond(self, offset: int) -> None:
        """Return when there is something at `offset` or after it."""
        while self.end <= offset:
            future = self._loop.create_future()
            self._waiting.append(future)
            await future

    def compact(self, end: int) -> None:
        """Leave of the records before `end` only the last of each key."""
        last = {record.key: record.offset for record in self.records if record.offset < end}
        self.records = [record for record in self.records if record.offset >= last.get(record.key, 0)]

    def expire(self, begin: int) -> None:
        """Records before this offset are too old."""
        self.begin = max(self.begin, begin)
        self.records = [record for record in self.records if record.offset >= begin]

    def _admit(self, producer: Producer, count: int) -> int | None:
        """Take the batch of a producer, or say where it lies already."""
        known = self.producers.get(producer.id)
        if known is not None:
            if producer.epoch < known.epoch:
                raise InvalidProducerEpoch
            if producer.epoch > known.epoch:
                if producer.sequence:
                    raise OutOfOrderSequenceNumber
                known = None
        if known is not None and producer.sequence != known.next_sequence:
            for sequence, size, offset in known.batches:
                if (sequence, size) == (producer.sequence, count):
                    return offset
            raise OutOfOrderSequenceNumber
        if known is None:
            known = self.producers[producer.id] = _Known(producer.epoch, producer.sequence)
        known.next_sequence += count
        known.batches = [*known.batches[1 - KNOWN_BATCHES :], (producer.sequence, count, self.end)]
        return None


class Broker:
    """All logs, and the coordinator of claims."""

    def __init__(self, loop: VirtualLoop, topics: Iterator[tuple[str, int]], appended: Callable[[list[Record]], None]) -> None:
        self.logs = {(topic, partition): Log(topic, partition, loop, appended) for topic, partition in topics}
        self._claims: dict[str, tuple[int, int]] = {}
        self._ids = 0

    def claim(self, name: str, holder: tuple[int, int]) -> tuple[int, int]:
        """The next epoch of a transactional id; `holder` (-1, -1): whoever asks. Raises ProducerFenced."""
        held = self._claims.get(name)
        if holder[0] >= 0 and held is not None and holder != held:
            raise ProducerFenced
        self._ids += held is None
        claim = self._claims[name] = (1000 + self._ids, 0) if held is None else (held[0], held[1] + 1)
        return claim

    def expire_claims(self) -> None:
        """Nobody has claimed for a week: who claims next gets another producer id, which outranks nobody."""
        self._claims.clear()


class Wire:
    """Requests take their time and keep their order on each link; those of a process that has died arrive all the same."""

    def __init__(self, loop: VirtualLoop, weather: Weather) -> None:
        self._loop, self._weather = loop, weather
        self._arrivals: dict[tuple[str, str, str], float] = {}
        self._held: dict[str, list[tuple[Life, str, str, Callable[[], object]]]] = {}  # by process that is cut off

    async def ask(self, link: str, act: Callable[[], Answer]) -> Answer:
        """Have something done on the other side of a link, and return, or raise, what came of it."""
        life = LIFE.get()
        assert life is not None, "only processes send"
        answer: asyncio.Future[Answer] = self._loop.create_future()
        sent = int(self._loop.time() * 1e6)
        self._travel(life, link, "there", lambda: self._act(life, link, sent, act, answer))
        return await answer

    def _act(self, life: Life, link: str, sent: int, act: Callable[[], Answer], answer: "asyncio.Future[Answer]") -> None:
        if not life.alive and self._weather.chance(LOST_WITH_ITS_PROCESS, life.name, link, sent):
            return
        token = LIFE.set(None)
        try:
            result = act()
        except Exception as error:
            self._travel(life, link, "back", lambda error=error: answer.done() or answer.set_exception(error))
        else:
            self._travel(life, link, "back", lambda: answer.done() or answer.set_result(result))
        finally:
            LIFE.reset(token)

    def cut(self, name: str) -> None:
        """What this process sends, or is sent, waits."""
        self._held.setdefault(name, [])

    def mend(self, name: str) -> None:
        """It is sent now."""
        for held in self._held.pop(name, []):
            self._travel(*held)

    def _travel(self, life: Life, link: str, way: str, then: Callable[[], object]) -> None:
        if life.name in self._held:
            self._held[life.name].append((life, link, way, then))
            return
        now, lane = self._loop.time(), (life.name, link, way)
        arrives = max(self._weather.arrival(life.name, link + way, now), self._arrivals.get(lane, 0.0))
        self._arrivals[lane] = arrives
        self._loop.after(arrives - now, then)
