"""Live quality: what we did with transactions of which somebody has said what they are.

Counted as each becomes known, and taken back where that changes, so that of any period

    labelled - withdrawn

is what is known now. Only what was said counts: a transaction without a word is neither genuine nor fraud, and of one that was
declined nobody may ever hear. A share of what is labelled means little before the labels are mature (90 days by default).
"""

from collections.abc import Iterable
from itertools import product

from assay.schemas.decision import Action
from assay.streams.metrics import Metrics
from assay.tables.learning import Labelled
from assay.tables.outcomes import LABELS


class LiveQuality:
    """Counts labels by our action: `assay_labelled_total` and `assay_labels_withdrawn_total`, with the amounts beside them."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        counters = (metrics.labelled, metrics.labelled_amount, metrics.withdrawn, metrics.withdrawn_amount)
        for counter, action, label in product(counters, Action, LABELS):
            counter.labels(action, label)  # from 0 on: a rate sees the first one, and a difference has both its sides

    def count(self, labels: Iterable[tuple[Action, Labelled, Labelled]]) -> None:
        """(our action, what was known, what is known now) of transactions of which something else is known now."""
        metrics = self._metrics
        for action, before, after in labels:
            changed = before.label != after.label
            if before.label and changed:
                metrics.withdrawn.labels(action, before.label).inc()
            if after.label and changed:
                metrics.labelled.labels(action, after.label).inc()
            less = before.thousandths if changed else max(0, before.thousandths - after.thousandths)
            more = after.thousandths if changed else max(0, after.thousandths - before.thousandths)
            if before.label and less:
                metrics.withdrawn_amount.labels(action, before.label).inc(less / 1000)
            if after.label and more:
                metrics.labelled_amount.labels(action, after.label).inc(more / 1000)
