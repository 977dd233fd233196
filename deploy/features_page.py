"""docs/features.md, made from the feature list: `python -m assay.deploy.features_page > docs/features.md` (`make docs`)."""

from assay.deploy.feature_map import NOTHING, default, span, window
from assay.tables.features import FEATURES, Feature, Origin

HEADING = """# Features

Made from `tables/features.py` by `make docs`. `assay features` shows the same list with what a running system has seen of it;
[add-a-feature.md](add-a-feature.md) shows how to add one.

Three things stay apart: *absent* (the transaction does not say), *never* (nothing came before, or was loaded), and
*unavailable* (it can't be had now), which is not a number, and null in the evidence. The column "default" has the numbers that
stand for the first two. In rules unavailable values are NULL, and so are those of -1. "Only" says that to a model more can only
be more suspicious (up), or less (down).

| source | read from | its age, `assay_feature_age_seconds{source=...}` |
|---|---|---|
| event | the transaction itself | 0 |
| profile | the user's row, in RocksDB | 0: it holds everything before the transaction in its partition |
| entity | windows in Redis, over all partitions | how long the oldest observation waits that Redis has not taken; mostly 0 |
| batch | values that `assay features load` brought | since the newest as-of time that was read |
| risk | what became of transactions, in Redis | how long the oldest outcome waits that was read and not applied |

`assay_feature_allowed_age_seconds{source=...}` stands beside it; and beside `assay_batch_feature_age_seconds{feature=...}`, one
for each batch feature, `assay_batch_feature_allowed_age_seconds`. So two alerts watch every allowed age:

    assay_feature_age_seconds > assay_feature_allowed_age_seconds
    assay_batch_feature_age_seconds > assay_batch_feature_allowed_age_seconds

The newest value says nothing of those that are missing or were left behind: `assay_batch_feature_reads_total` counts, by
feature and result, what decisions found: value, not_loaded (or no such entity), too_old, unavailable. So a third alert:

    sum by (feature) (rate(assay_batch_feature_reads_total{result!="value"}[10m]))
      / sum by (feature) (rate(assay_batch_feature_reads_total[10m])) > 0.5

No age tells of windows that Redis had and has no more (emptied, an old snapshot, a failover): a worker that finds them missing
counts it, and leaves word of it for `assay doctor` until they are made anew. So a fourth alert:

    assay_entity_windows_lost > 0

The evidence of a decision has the ages of what it was made from (`ages_ms`, by source): of entity and risk as in the table,
just after the decision; of batch, of the oldest value read, and of each batch feature, up to the transaction's event time. A
batch value that is older by then than its feature allows is unavailable; so is one that holds as of later, which was not known
then. One older than 90 days is forgotten, as if it had never been loaded.
"""

TITLES = {
    Origin.EVENT: "Of the transaction",
    Origin.PROFILE: "Of the user's profile",
    Origin.ENTITY: "Windows of entities",
    Origin.BATCH: "Batch features",
    Origin.RISK: "What became of transactions",
}
TABLE = """
| feature | what it measures | of | window | allowed age | default | only | seen by |
|---|---|---|---|---|---|---|---|
"""
_SIGNS = {1: "up", -1: "down", 0: NOTHING}


def features_page() -> str:
    """The page, in Markdown."""
    parts = [HEADING]
    for source, title in TITLES.items():
        rows = "\n".join(_row(feature) for feature in FEATURES if feature.source is source)
        parts.append(f"\n## {title}\n{TABLE}{rows}\n")
    return "".join(parts)


def _row(feature: Feature) -> str:
    cells = (
        f"`{feature.name}`",
        feature.measures,
        feature.entity,
        window(feature),
        span(feature.allowed_age_s),
        default(feature),
        _SIGNS[feature.sign],
        "models, rules" if feature.for_models else "rules",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(features_page(), end="")
