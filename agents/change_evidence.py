"""Evidence of changes: what became of a transaction, and which change of each risk row that was, so that it can be replayed."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from assay.agents.decided import DecidedBatch
from assay.schemas.evidence import CHANGE_HEADER, encode_change
from assay.schemas.source import SOURCE_HEADER, OutRecord, Source
from assay.streams.outbox import Make
from assay.streams.publisher import Batches
from assay.tables.changes import COUNTED
from assay.tables.learned_rows import Sequences
from assay.tables.learning import Arrived, Learnt, own_verdicts


class OffersRecords(Protocol):
    """`agents.evidence.EvidenceLog`"""

    def offer_records(self, make: Make) -> None: ...


class ChangeEvidence:
    """Queues evidence of changes behind that of decisions; what does not fit is lost and counted with it.

    Args:
        topic: of evidence; it has as many partitions as the transactions.
        outcomes: the topic that outcomes come from.
    """

    def __init__(self, evidence: OffersRecords, topic: str, outcomes: str, partitions: int) -> None:
        self._evidence, self._topic, self._outcomes, self._partitions = evidence, topic, outcomes, partitions

    def offer_outcomes(self, arrived: Sequence[Arrived], learnt: Learnt, sequences: Sequences) -> None:
        """What outcomes have changed, with the numbers int64 (m, 6) of the rows after each change."""
        records = []
        for position, change, numbers in zip(learnt.causes, learnt.changes, sequences, strict=True):
            partition, offset, outcome = arrived[position]
            source = Source(self._outcomes, partition, offset)
            identity = outcome.user_id, outcome.transaction_id, outcome.outcome_id
            records.append((partition % self._partitions, _record(source, identity, change, numbers, b"outcomes")))
        self._offer(records)

    def offer_verdicts(self, batch: DecidedBatch, sequences: Sequences) -> None:
        """The same of our own declines."""
        records = []
        for request, change, numbers in zip(batch.declined, own_verdicts(batch.rows), sequences, strict=True):
            identity = request.transaction.user_id, request.transaction.transaction_id, None
            records.append((request.source.partition, _record(request.source, identity, change, numbers, b"verdicts")))
        self._offer(records)

    def _offer(self, records: Sequence[tuple[int, OutRecord]]) -> None:
        if not records:
            return

        async def made() -> Batches:
            batches: dict[tuple[str, int], list[OutRecord]] = {}
            for partition, record in records:
                batches.setdefault((self._topic, partition), []).append(record)
            return batches

        self._evidence.offer_records(made)


def _record(
    source: Source, identity: tuple[str, str, str | None], change: np.void, numbers: Sequences, stream: bytes
) -> OutRecord:
    user_id, transaction_id, outcome_id = identity
    value = encode_change(
        transaction_id=transaction_id,
        user_id=user_id,
        outcome_id=outcome_id,
        source=source,
        time_ms=int(change["time_ms"]),
        change={name: change[name].item() for name in (*COUNTED, "thousandths")},
        risk_sequences=numbers,
    )
    return user_id.encode(), value, [(SOURCE_HEADER, source.header()), (CHANGE_HEADER, stream)]
