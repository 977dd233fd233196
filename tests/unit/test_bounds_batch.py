"""One more than each limit of batch features (invariant I5)."""

import numpy as np

from assay.schemas.limits import MAX_BATCH_VALUE_AGE_S

from .batch_features import NEVER, NOW_MS, read, row


def test_i5_max_batch_value_age_s_an_older_one_is_as_if_never_loaded() -> None:
    oldest_ms = NOW_MS - int(MAX_BATCH_VALUE_AGE_S * 1000)
    at, beyond = (read([row(rate=(1.0, as_of_ms))], [[0, -1]])[0][0, 0] for as_of_ms in (oldest_ms, oldest_ms - 1))
    assert np.isnan(at)
    assert beyond == NEVER
