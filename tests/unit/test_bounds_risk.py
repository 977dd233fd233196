"""One more than each limit of what became of transactions, where Redis keeps it (invariant I5)."""

import numpy as np
import pytest

from assay.schemas import limits
from assay.tables.changes import CHANGE
from assay.tables.events import EVENT
from assay.tables.features import FEATURE_COUNT
from assay.tables.keyspace import Keyspace
from assay.tables.risk_call import risk_calls
from assay.tables.risk_family import RISK_COLUMNS
from assay.tables.risk_fold import RiskWindows
from assay.tables.risk_layout import HEADER_BYTES, TILE_BYTES, TILE_S, TILES_BACK


def tiles_of(windows: RiskWindows) -> int:
    """How many tiles the one entity has that is known."""
    kind = windows._kinds[0]
    count = 0
    for newest in kind.slots[0]["newest"]:
        at = newest
        while at != -1:
            count, at = count + 1, kind.tiles[at]["older"]
    return count


def test_i5_max_risk_row_bytes_hold_one_change_more_than_there_are_tiles() -> None:
    times = [size * 1000 * back for size, most in zip(TILE_S, TILES_BACK, strict=True) for back in range(most + 2)]
    changes = np.zeros(len(times), CHANGE)
    changes["user"], changes["time_ms"] = 1, 1_760_000_000_000 - np.sort(times)[::-1]
    windows = RiskWindows(RISK_COLUMNS, changes, np.zeros(len(changes), np.int64))
    windows.read(np.zeros(1, EVENT), np.zeros(1, np.int64), np.zeros((1, FEATURE_COUNT), np.float32))
    assert HEADER_BYTES + TILE_BYTES * tiles_of(windows) == limits.MAX_RISK_ROW_BYTES


def test_i5_max_changes_a_call_one_more_is_not_packed() -> None:
    changes = np.zeros(limits.MAX_CHANGES_A_CALL + 1, CHANGE)
    changes["user"] = 1
    keyspace = Keyspace("x", "", 1)
    assert len(risk_calls(changes[1:], keyspace, "outcomes")) == 1
    with pytest.raises(ValueError, match="changes"):
        risk_calls(changes, keyspace, "outcomes")
