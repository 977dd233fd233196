"""Taking partitions over: what happens between Faust's recovery and the first record.

In this order (invariant I3): claim and fence, so that former owners can say nothing more; commit what is committed, which only
a member of this generation can; then read back what was said for records that are not committed. Only then is anything judged.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from assay.agents.ports import Ports
from assay.schemas.errors import ChangelogError, TopologyError
from assay.schemas.source import SourceTopic
from assay.streams.metrics import Metrics
from assay.streams.publisher import Placed
from assay.streams.read_back import ReadBack, Uncommitted
from assay.streams.settings import Settings
from assay.streams.topics import source_topic
from assay.tables.changelog import REBUILD
from assay.tables.partition_state import PartitionState

log = logging.getLogger("assay.worker")

Begin = Callable[[SourceTopic, Mapping[int, int], Mapping[int, ReadBack]], Awaitable[None]]


class TakeOver:
    """Makes sure where each partition goes on, and what was said already.

    Args:
        partitions: of the transactions topic.
        begin: called with the topic, {partition: next source offset} and {partition: what was read back}; scoring may begin.
    """

    def __init__(self, ports: Ports, settings: Settings, metrics: Metrics, partitions: int, begin: Begin) -> None:
        self._ports, self._settings, self._metrics = ports, settings, metrics
        self._partitions, self._begin, self._fingerprint = partitions, begin, settings.digests().fingerprint

    async def __call__(self, generation: int, changelogs: set[int]) -> bool:
        """Recovery of these changelog partitions is complete. Returns False where the group has gone on without us.

        Raises TopologyError or ChangelogError where going on would judge anew or skip, PublishError where Kafka fails.
        """
        began, ours = time.monotonic(), self._ports.membership.assigned()
        if changelogs != ours:
            raise TopologyError(
                "transactions and profile changelog are not assigned together",
                expected=f"changelog partitions {sorted(ours)}",
                got=f"{sorted(changelogs)}",
                mend="give both topics the same number of partitions, or start anew under another ASSAY_TOPIC_PREFIX",
            )
        if not ours:  # a standby of others, or one worker too many
            self._ports.membership.begun({})
            return True
        source = self._ports.source
        fences = await self._ports.ownership.take(sorted(ours))
        topic = await source_topic(self._ports.ownership.topic_id, self._settings, self._partitions)
        committed = await source.committed(ours)
        earliest, ends = await source.earliest(ours), await source.readable(ours)
        starts = {p: self._start(topic, p, committed[p], earliest[p], ends[p]) for p in sorted(ours)}
        if not await source.confirm(starts):
            log.info("generation %d is over: waiting for the next one", generation)
            return False
        found = await self._read_back(starts, ends, fences)
        said = sum(len(each.decisions) + len(each.dead_letters) for each in found.values())
        await self._begin(topic, starts, found)
        took = time.monotonic() - began
        self._metrics.take_overs.observe(took)
        self._metrics.read_back.inc(said)
        log.info("taken over in generation %d in %.3f s, %d verdicts read back: %s", generation, took, said, starts)
        return True

    def _start(self, topic: SourceTopic, partition: int, committed: int | None, earliest: int, end: int) -> int:
        """Where a partition goes on. Raises TopologyError or ChangelogError."""
        state = self._ports.rows.state(partition)
        if state is None:
            if committed is not None and committed > earliest:
                raise ChangelogError(
                    f"partition {partition}: the profiles are gone: their changelog was deleted or cut off",
                    expected=f"a state of the profiles at the committed offset {committed}",
                    got="none",
                    mend=REBUILD,
                )
            committed = earliest if committed is None else committed
        else:
            check_topic(state, topic, partition)
            check_key(state, partition, self._fingerprint)
            if committed is None:
                log.warning("partition %d: the committed offset has expired: going on at %d", partition, state.committed)
                committed = state.committed
            check_offset(state, partition, committed)
        if not earliest <= committed <= end:
            raise TopologyError(
                f"partition {partition}: the committed offset is outside of the transactions topic, "
                "whose records expired before they were scored, or were deleted",
                expected=f"{earliest} to {end}",
                got=str(committed),
                mend=f"to take the loss, set the group's offset to {earliest}; then {REBUILD}",
            )
        return committed

    async def _read_back(self, starts: Mapping[int, int], ends: Mapping[int, int], fences: Placed) -> dict[int, ReadBack]:
        """What was said for records that are not committed. Asked by time, so only where there is such a record."""
        wanted = {}
        for partition, start in starts.items():
            since_ms = await self._ports.source.first_append(partition, start, ends[partition])
            if since_ms is not None:
                decisions, dead_letters = (
                    fences[topic, partition] for topic in (self._settings.decisions, self._settings.dead_letters)
                )
                wanted[partition] = Uncommitted(start, since_ms, decisions, dead_letters)
        return await self._ports.reader.read_back(wanted)


def check_topic(state: PartitionState, topic: SourceTopic, partition: int) -> None:
    """Raises TopologyError where the profiles were built from another topic, or from one with other partitions."""
    if state.topic_id != topic.id:
        raise TopologyError(
            f"partition {partition}: the topic {topic.name} was deleted and made anew",
            expected=f"topic id {state.topic_id}, which the profiles were built from",
            got=topic.id,
            mend=f"start anew under another ASSAY_TOPIC_PREFIX; or {REBUILD}",
        )
    if state.log_id != topic.log_id:
        raise TopologyError(
            f"partition {partition}: the topic of decisions or that of dead letters was deleted and made anew: "
            "what was said is gone",
            expected=f"topic ids {state.log_id}",
            got=topic.log_id,
            mend=f"to go on without it (what is not committed is judged anew, and so is every repeat): {REBUILD}",
        )
    if state.partitions != topic.partitions:
        raise TopologyError(
            f"partition {partition}: the number of partitions of {topic.name} has changed, so that users lie elsewhere now",
            expected=f"{state.partitions}",
            got=f"{topic.partitions}",
            mend=REBUILD,
        )


def check_key(state: PartitionState, partition: int, fingerprint: str) -> None:
    """Raises ChangelogError where nobody would be found in the profiles, since their digests are under another key."""
    if state.fingerprint != fingerprint:
        raise ChangelogError(
            f"partition {partition}: the profiles were written under another ASSAY_HASH_KEY",
            expected=f"the key with the fingerprint {state.fingerprint or '(none: by a version that had no key)'}",
            got=fingerprint,
            mend=f"put that key back, on every worker; or, to go on under this one, {REBUILD}; then "
            "`assay rebuild entities`, `assay rebuild outcomes`, and load batch features again",
        )


def check_offset(state: PartitionState, partition: int, committed: int) -> None:
    """Raises TopologyError where the group's offset was set: what was judged would be judged anew, or some be skipped."""
    if not state.committed <= committed <= state.reached:
        raise TopologyError(
            f"partition {partition}: the group's offset was set by hand"
            + (", back to what has its verdicts" if committed < state.committed else ", past what has none"),
            expected=f"{state.committed} to {state.reached}",
            got=str(committed),
            mend=f"set the group's offset to {state.reached}, or keep it and {REBUILD}",
        )
