"""One more than each limit of what became of transactions, where Redis keeps it (invariant I5)."""

import numpy as np
import pytest

from assay.schemas import limits
from assay.tables.changes import CHANGE
from assay.tables.entity_call import Keyspace
from assay.tables.risk_call import risk_calls


def test_i5_max_changes_a_call_one_more_is_not_packed() -> None:
    changes = np.zeros(limits.MAX_CHANGES_A_CALL + 1, CHANGE)
    changes["user"] = 1
    keyspace = Keyspace("x", "", 1)
    assert len(risk_calls(changes[1:], keyspace, "outcomes")) == 1
    with pytest.raises(ValueError, match="changes"):
        risk_calls(changes, keyspace, "outcomes")
