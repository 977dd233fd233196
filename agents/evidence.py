"""Evidence: what each decision was made from, published after it and off the answer path."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from assay.agents.steer import InForce
from assay.schemas.decision import Tier
from assay.schemas.decode import Request
from assay.schemas.evidence import encode_evidence
from assay.schemas.source import SOURCE_HEADER, OutRecord
from assay.streams.outbox import Outbox
from assay.streams.publisher import Batches
from assay.tables.entities import EntityAnswer
from assay.tables.features import features_digest


class EvidenceLog:
    """Queues the evidence of a micro-batch; waits while the queue is full, since every decision has evidence."""

    def __init__(self, topic: str, outbox: Outbox, in_force: InForce) -> None:
        self._topic, self._outbox, self._in_force = topic, outbox, in_force

    async def publish(
        self, requests: Sequence[Request], features: npt.NDArray[np.float32], windows: EntityAnswer, tier: Tier
    ) -> None:
        """`requests` (n,) that were judged, with `features` (n, FEATURE_COUNT) and the entity windows behind them."""
        if requests:
            await self._outbox.put(lambda: self._batch(requests, features, windows, tier))

    async def _batch(
        self, requests: Sequence[Request], features: npt.NDArray[np.float32], windows: EntityAnswer, tier: Tier
    ) -> Batches:
        batch: dict[tuple[str, int], list[OutRecord]] = {}
        digest, digests = features_digest(), self._in_force.digests
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
                ages_ms={},
                entity_sequences=windows.sequences[i] if windows.available else None,
            )
            record = (request.transaction.user_id.encode(), value, [(SOURCE_HEADER, request.source.header())])
            batch.setdefault((self._topic, request.source.partition), []).append(record)
        return batch
