"""Evidence: what each decision was made from, published after it and off the answer path."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from assay.agents.freshness import ages_of_each
from assay.agents.steer import InForce
from assay.schemas import limits
from assay.schemas.decision import Tier
from assay.schemas.decode import Request
from assay.schemas.evidence import encode_evidence
from assay.schemas.source import SOURCE_HEADER, OutRecord
from assay.streams.metrics import Metrics
from assay.streams.outbox import LossyPublisher, Make, Outbox
from assay.streams.publisher import Batches, Publisher
from assay.tables.entity_answer import EntityAnswer
from assay.tables.features import Origin, features_digest

LINGER_S = 0.05  # many small batches cost more than one large one


class EvidenceLog:
    """Queues the evidence of micro-batches. It never holds up the flow: what does not fit, or can't be sent, is counted.

    Args:
        waiting_s: by source, how long the oldest waits now that Redis has not taken.
    """

    def __init__(
        self,
        topic: str,
        publisher: Callable[[], Publisher],
        in_force: InForce,
        metrics: Metrics,
        waiting_s: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._waiting_s = waiting_s
        self._topic, self._in_force, self._metrics = topic, in_force, metrics
        self._publisher = LossyPublisher(publisher, self._lost)
        self._outbox = Outbox(
            self._publisher.send,
            limits.MAX_WAITING_EVIDENCE_BATCHES,
            lost=metrics.evidence_batches_dropped.inc,
            linger=LINGER_S,
        )

    def start(self) -> None:
        self._outbox.start()

    async def close(self, within_s: float) -> None:
        await self._outbox.close(within_s)
        await self._publisher.close()

    def offer(self, requests: Sequence[Request], features: npt.NDArray[np.float32], windows: EntityAnswer, tier: Tier) -> None:
        """`requests` (n,) that were judged, with `features` (n, FEATURE_COUNT) and the entity windows behind them."""
        if requests:
            waiting_s = self._waiting_s()
            self._outbox.offer(lambda: self._batch(requests, features, windows, tier, waiting_s))

    def offer_records(self, make: Make) -> None:
        """Other records for the topic, made when their turn comes."""
        self._outbox.offer(make)

    def _lost(self, records: int) -> None:
        self._metrics.evidence_dropped.inc(records)

    async def _batch(
        self,
        requests: Sequence[Request],
        features: npt.NDArray[np.float32],
        windows: EntityAnswer,
        tier: Tier,
        waiting_s: Mapping[str, float],
    ) -> Batches:
        batch: dict[tuple[str, int], list[OutRecord]] = {}
        digest, digests = features_digest(), self._in_force.digests
        ages_ms, risk = ages_of_each(windows, waiting_s), windows.row_sequences.get(Origin.RISK.value)
        for i, request in enumerate(requests):
            value = encode_evidence(
                transaction_id=request.transaction.transaction_id,
                user_id=request.transaction.user_id,
                source=request.source,
                appended_ms=request.appended_ms,
                tier=tier,
                digests=digests,
                features_digest=digest,
                features=features[i],
                ages_ms=ages_ms[i],
                entity_sequences=windows.sequences[i] if windows.available else None,
                risk_sequences=None if risk is None else risk[i],
            )
            record = (request.user, value, [(SOURCE_HEADER, request.source.header())])
            batch.setdefault((self._topic, request.source.partition), []).append(record)
        return batch
