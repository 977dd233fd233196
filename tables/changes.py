"""Changes: what became known of transactions, as arrays. The risk windows of entities are made from them.

One change is a difference, so that a reversal takes back exactly what it reverses: together, those of one transaction are
never less than nothing. A change belongs to the time of its transaction, whenever it became known.
"""

import numpy as np
import numpy.typing as npt

CHANGED_KINDS = ("user", "instrument", "bin", "merchant", "device", "address")  # entities that learn of it, by digest
COUNTED = ("issuer_declines", "verdicts", "disputes", "frauds")  # verdicts: our own declines, from the tier full alone

CHANGE = np.dtype(
    [
        ("offset", "<i8"),  # of the record that made it known; within a partition they ascend
        ("partition", "<i4"),  # of that record
        ("time_ms", "<i8"),  # event time of the transaction: epoch, milliseconds
        *[(kind, "<u8") for kind in CHANGED_KINDS],  # digests; 0 where absent
        *[(count, "i1") for count in COUNTED],  # differences: +1 and -1
        ("thousandths", "<f8"),  # difference of the amount of fraud: whole thousandths of the base currency's major unit
    ]
)

Changes = npt.NDArray[np.void]
