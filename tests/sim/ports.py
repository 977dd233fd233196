"""Ports of the core that are not Kafka's: a judge whose every judging differs, Redis, replies; and the group's offsets."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
from aiokafka.errors import CommitFailedError

from assay.models.judge import Verdicts
from assay.schemas.decision import Action, Tier, encode_digests
from assay.schemas.decode import Request
from assay.schemas.transaction import Transaction
from assay.streams.replies import Reply
from assay.streams.source_log import SourceLog
from assay.tables.entity_answer import REDIS_FEATURES, EntityAnswer
from assay.tables.events import Events
from assay.tables.features import ENTITIES
from assay.tables.rates import SHIPPED_RATES, Rates

from .broker import Wire
from .group import Coordinator

RATES = Rates.load(SHIPPED_RATES)
REDIS_DEADLINE_S = 0.04
GROUP = "group"


class FickleJudge:
    """No two judgings have the same score, so that judging anew always shows."""

    def __init__(self) -> None:
        self._scores = count(1)

    def judge(
        self,
        transactions: Sequence[Transaction],
        features: npt.NDArray[np.float32],
        tier: Tier,
        asked: npt.NDArray[np.bool_] | None = None,
    ) -> Verdicts:
        number = len(transactions)
        scores = np.array([next(self._scores) / 1e6 for _ in range(number)], np.float64)
        members = np.zeros((number, 3), np.float64)
        return Verdicts(tier, scores, members, [Action.APPROVE] * number, [[] for _ in range(number)], [()] * number)


class SimulatedInForce:
    """Stands in for `agents.steer.InForce`."""

    version, rules_digest, rates = "simulated", "none", RATES
    digests = encode_digests("simulated", None, None, None, None)

    def __init__(self) -> None:
        self.judge = FickleJudge()


class SimulatedEntities:
    """Answers in time or not; what it has seen is not kept.

    Args:
        takes: seconds that the next call takes.
    """

    def __init__(self, takes: Callable[[], float]) -> None:
        self._takes = takes

    async def observe(self, events: Events, partitions: npt.NDArray[np.integer[Any]]) -> EntityAnswer:
        assert len(events) == len(partitions)
        takes, shape = self._takes(), (len(events), REDIS_FEATURES)
        sequences = np.zeros((len(events), len(ENTITIES)), np.int64)
        await asyncio.sleep(min(takes, REDIS_DEADLINE_S))
        if takes >= REDIS_DEADLINE_S:
            return EntityAnswer(np.full(shape, np.nan, np.float32), sequences, available=False, reason="deadline")
        return EntityAnswer(np.zeros(shape, np.float32), sequences, available=True)


class CheckedReplies:
    """Where replies would leave from."""

    def __init__(self, replied: Callable[[Sequence[Reply]], None]) -> None:
        self.send = replied


class NoMetrics:
    """Every metric, unread: nothing is decided by them, and they would be a tenth of a run."""

    def __getattr__(self, name: str) -> "NoMetrics":
        return self

    def labels(self, *values: object) -> "NoMetrics":
        return self

    def inc(self, amount: float = 1) -> None: ...

    def set(self, value: float) -> None: ...

    def observe(self, value: object) -> None: ...

    def timed(self, stage: str) -> "NoMetrics":
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


class CheckedEvidence:
    """Where evidence would leave from: it says what was judged.

    Args:
        judged: called with requests (n,) and their features (n, FEATURE_COUNT).
    """

    def __init__(self, judged: Callable[[Sequence[Request], npt.NDArray[np.float32]], None]) -> None:
        self._judged = judged

    def offer(self, requests: Sequence[Request], features: npt.NDArray[np.float32], windows: EntityAnswer, tier: Tier) -> None:
        self._judged(requests, features)


class SimulatedSourceLog(SourceLog):
    """The group's offsets asked of its coordinator; records and holes as in the real one."""

    def __init__(self, options: Mapping[str, Any], topic: str, wire: Wire, coordinator: Coordinator, deadline: float) -> None:
        super().__init__(None, options, topic, deadline)
        self._wire, self._coordinator = wire, coordinator
        self.member: Callable[[], tuple[str, int]] = lambda: ("", -1)  # our member id and generation

    async def committed(self, partitions: set[int]) -> Mapping[int, int | None]:
        return await self._wire.ask(GROUP, lambda: {p: self._coordinator.committed.get(p) for p in sorted(partitions)})

    async def earliest(self, partitions: set[int]) -> Mapping[int, int]:
        return dict.fromkeys(sorted(partitions), 0)

    async def confirm(self, offsets: Mapping[int, int]) -> bool:
        name, generation = self.member()
        try:
            await self._wire.ask(GROUP, lambda: self._coordinator.commit(name, generation, offsets))
        except CommitFailedError:
            return False
        return True
