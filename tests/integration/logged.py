"""What the evidence says that transactions were decided from, and what a replay of them computes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from aiokafka.structs import ConsumerRecord

from assay.schemas.source import Source
from assay.schemas.transaction import Transaction
from assay.tables.features import NAMES, PROFILE_FEATURES
from assay.tables.rates import SHIPPED_RATES, Rates
from assay.tables.replay import replay

from .topics import Topics, source_of

Features = npt.NDArray[np.float32]


async def made_from_each(topics: Topics, sources: Sequence[Source], topic: str) -> list[ConsumerRecord]:
    """The record of a topic that each source record made, once all are there. One that made two of them is an error."""
    wanted = set(sources)
    found: dict[Source, ConsumerRecord] = {}
    looked_at = 0

    def complete() -> bool:
        nonlocal looked_at
        for record in topics.seen[topic][looked_at:]:
            if (source := source_of(record)) in wanted:
                assert source not in found, f"{source} made two records of {topic}"
                found[source] = record
        looked_at = len(topics.seen[topic])
        return len(found) == len(wanted)

    await topics.until(complete, f"{len(wanted)} records of {topic}")
    return [found[source] for source in sources]


async def logged(topics: Topics, sources: Sequence[Source]) -> Features:
    """The features that each was judged by, (n, FEATURE_COUNT); null is NaN."""
    records = await made_from_each(topics, sources, "evidence")
    return np.array([orjson.loads(record.value)["features"] for record in records], np.float32)


async def assert_profiles_as_replayed(topics: Topics, sources: Sequence[Source], bodies: Sequence[Mapping[str, Any]]) -> None:
    """The profile features in the evidence are, bit for bit, those of a replay of these bodies alone, in this order."""
    expected = replay([Transaction.model_validate(body) for body in bodies], Rates.load(SHIPPED_RATES))[:, :PROFILE_FEATURES]
    found = (await logged(topics, sources))[:, :PROFILE_FEATURES]
    differing = np.argwhere(found.view(np.uint32) != expected.view(np.uint32))
    assert not len(differing), [(int(row), NAMES[column]) for row, column in differing[:5]]


async def feature(topics: Topics, source: Source, *names: str) -> list[float]:
    """Some features of one."""
    [row] = await logged(topics, [source])
    return [float(row[NAMES.index(name)]) for name in names]
