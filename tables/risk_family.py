"""The rows of risk as a family of looked-up rows: the features that say what became of an entity's transactions."""

from collections.abc import Sequence

from assay.tables.changes import CHANGED_KINDS
from assay.tables.events import Events
from assay.tables.features import FEATURES, NAMES, PROFILE_FEATURES, RISK_FEATURES, Origin
from assay.tables.lookups import Floats, Index, Reading
from assay.tables.risk_layout import MARKER, columns_of, read_rows

RISK_COLUMNS = columns_of([feature for feature in FEATURES if feature.source is Origin.RISK], NAMES[PROFILE_FEATURES:])


class RiskFamily:
    """Rows that `risk_windows.lua` writes; what is read is the state before the micro-batch."""

    marker = MARKER
    kinds: tuple[str, ...] = CHANGED_KINDS
    columns = slice(len(FEATURES) - PROFILE_FEATURES - RISK_FEATURES, len(FEATURES) - PROFILE_FEATURES)

    def read(self, rows: Sequence[bytes | None], index: Index, events: Events, windows: Floats, out: Floats) -> Reading:
        """Fill out, float32 (n, columns). A row has no age of its own: the learner knows how long outcomes wait."""
        sequences, unreadable = read_rows(rows, index, events, RISK_COLUMNS, windows, out)
        return Reading(None, unreadable, sequences)
