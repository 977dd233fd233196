"""What former owners of our partitions said for records that they did not commit: said again, never judged anew."""

from collections.abc import Mapping
from dataclasses import replace

from assay.schemas.decode import Decoded
from assay.schemas.source import Source
from assay.streams.read_back import ReadBack, Said


class SaidBefore:
    """By source record; empty but for the moments after a take-over. Each source is asked for once, and then forgotten."""

    def __init__(self) -> None:
        self._partitions: dict[int, ReadBack] = {}

    def begin(self, found: Mapping[int, ReadBack]) -> None:
        """Partitions were taken over, {source partition: what was read back}."""
        self._partitions = {partition: each for partition, each in found.items() if each.decisions or each.dead_letters}

    def __bool__(self) -> bool:
        return bool(self._partitions)

    def decision(self, source: Source) -> Said | None:
        """The decision that was published for this record."""
        found = self._partitions.get(source.partition)
        said = found.decisions.pop(source.offset, None) if found is not None else None
        self._tidy(source.partition)
        return said

    def has_decided(self, source: Source) -> bool:
        """Whether a decision was published for this record; it can be asked for still."""
        found = self._partitions.get(source.partition)
        return found is not None and source.offset in found.decisions

    def refused(self, source: Source) -> bool:
        """Whether a dead letter was published for this record."""
        found = self._partitions.get(source.partition)
        if found is None or source.offset not in found.dead_letters:
            return False
        found.dead_letters.discard(source.offset)
        self._tidy(source.partition)
        return True

    def without_refused(self, decoded: Decoded) -> Decoded:
        """Without requests that another version of us refused: what is a dead letter gets no decision (invariant I1)."""
        return replace(decoded, requests=[request for request in decoded.requests if not self.refused(request.source)])

    def _tidy(self, partition: int) -> None:
        found = self._partitions.get(partition)
        if found is not None and not found.decisions and not found.dead_letters:
            del self._partitions[partition]
