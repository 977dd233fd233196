"""A learner over rows in memory: clocks that stand still, outcomes as Faust would bring them, and what it has finished."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
from faust.types import TP

from assay.agents.decided import DecidedBatch
from assay.agents.learn import Learner
from assay.schemas.decision import Tier
from assay.schemas.refusal import Refusal
from assay.streams.metrics import Metrics
from assay.tables.digests import OFFLINE
from assay.tables.learning import Arrived, Learnt
from assay.tables.transaction_index import ACTIONS, DECIDED, VERSION, place_of

from .rows_in_memory import KEYSPACE, RowsInMemory

PATIENCE_S = 20.0  # of a test
GENERATION = 3


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Told:
    """Where evidence of changes would leave from."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[str, dict[str, Any]]] = []
        self.verdicts = 0

    def offer_outcomes(self, arrived: Sequence[Arrived], learnt: Learnt, sequences: object) -> None:
        for position, change in zip(learnt.causes, learnt.changes, strict=True):
            self.outcomes.append((arrived[position].outcome.outcome_id, dict(zip(change.dtype.names, change, strict=True))))

    def offer_verdicts(self, batch: DecidedBatch, sequences: Sequence[object]) -> None:
        self.verdicts += len(sequences)


class Letters:
    """Where outcomes that are refused would be kept; those of partitions that fail are not."""

    def __init__(self) -> None:
        self.kept: list[Refusal] = []
        self.fail: set[int] = set()

    async def keep(self, refusals: Sequence[Refusal]) -> set[int]:
        self.kept += [each for each in refusals if each.source.partition not in self.fail]
        return {each.source.partition for each in refusals} & self.fail

    def forget(self) -> None: ...

    async def close(self) -> None: ...


class Stand:
    """One learner; `restarted` gives another one over the same rows."""

    def __init__(self, rows: RowsInMemory | None = None) -> None:
        self.rows, self.clock, self.told, self.metrics = rows or RowsInMemory(), Clock(), Told(), Metrics()
        self.letters = Letters()
        self.generation, self.member = GENERATION, True
        self.finished: dict[TP, int] = {}
        self._changed = asyncio.Event()
        self.learner = Learner(
            self.rows,  # type: ignore[arg-type]
            self.told,
            self.letters,
            self.metrics,
            generation=lambda: self.generation,
            finished=self._finish,
            may_write=lambda: self.member,
            rest=0.0,
            clock=self.clock,
            monotonic=self.clock,
        )
        self.hear()  # so that it knows the generation

    def restarted(self) -> "Stand":
        return Stand(self.rows)

    def decide(self, number: int, *, action: str = "approve", tier: Tier = Tier.FULL) -> None:
        """The transaction `t-NUMBER` of user `u` is decided, of 100.00 that are 80.00 in the base currency."""
        row = np.zeros(1, DECIDED)
        identity = place_of(KEYSPACE, OFFLINE, "u", f"t-{number}").key[-16:]
        row["user"], row["id"], row["offset"] = OFFLINE.of64("u"), np.frombuffer(identity, "<u8"), number
        entry = row["entry"]
        entry["version"], entry["tier"], entry["whole"], entry["base"] = VERSION, tier.rank, 100_000, 80_000
        entry["action"], entry["merchant"] = [str(one) for one in ACTIONS].index(action), 7
        self.learner.keep([DecidedBatch(row)])

    def hear(self, *outcomes: bytes | None, partition: int = 0, first: int = 0, age_s: float = 60.0) -> None:
        """Records of a partition of outcomes, from an offset on."""
        self.learner.take(fetched(outcomes, partition, first, self.clock.now - age_s, self.generation))

    async def until_finished(self, offset: int, partition: int = 0) -> None:
        """Return once everything before it is done with."""
        async with asyncio.timeout(PATIENCE_S):
            while self.finished.get(TP("outcomes", partition), -1) < offset:
                self._changed.clear()
                await self._changed.wait()

    async def turn(self) -> None:
        """Let it do all that it can do now."""
        await self.learner._turn()

    def count(self, name: str, **labels: str) -> float:
        """A metric; 0 where it does not exist yet."""
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    def _finish(self, tp: TP, offset: int) -> None:
        self.finished[tp] = offset
        self._changed.set()


def fetched(
    values: Sequence[bytes | None], partition: int = 0, first: int = 0, appended_s: float = 0.0, generation: int = GENERATION
) -> Any:
    """Records of a partition of outcomes, from an offset on, as the transport hands them over."""
    records = [
        SimpleNamespace(
            topic="outcomes",
            partition=partition,
            offset=offset,
            timestamp=int(appended_s * 1000),
            key=b"u",
            value=value,
            headers=(),
        )
        for offset, value in enumerate(values, first)
    ]
    return SimpleNamespace(tp=TP("outcomes", partition), value=records, generation_id=generation)


def outcome(number: int, status: str, *, transaction: int = 1, **changes: Any) -> bytes:
    """`o-NUMBER` about the transaction `t-TRANSACTION` of user `u`."""
    plain = {"outcome_id": f"o-{number}", "user_id": "u", "transaction_id": f"t-{transaction}", "status": status}
    return orjson.dumps(plain | {"known_at": 1_000 + number} | changes)
