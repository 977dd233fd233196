"""docs/outcomes.md says what is so."""

import re
from pathlib import Path

from assay.schemas import limits
from assay.schemas.outcome import Status, read_outcome
from assay.streams.metrics import Metrics
from assay.streams.settings import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "outcomes.md").read_text(encoding="utf-8")


def test_its_outcome_can_be_read() -> None:
    [example] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert read_outcome(example.encode()).status is Status.FRAUD


def test_it_names_every_status() -> None:
    assert [status for status in Status if f"`{status.value}`" not in PAGE] == []


def test_its_metrics_exist() -> None:
    names = {sample.name for family in Metrics().registry.collect() for sample in family.samples}
    names |= {f"{family.name}_total" for family in Metrics().registry.collect() if family.type == "counter"}
    assert set(re.findall(r"assay_[a-z_]+", PAGE)) - names == set()


def test_its_figures_are_those_of_the_code() -> None:
    assert f"{limits.MAX_OUTCOMES_PER_TRANSACTION} that say to be known latest" in PAGE
    assert f"up to {limits.OUTCOME_PATIENCE_S:.0f} s" in PAGE
    assert f"({limits.MAX_UNINDEXED_DECISIONS:,} of a worker)" in PAGE
    assert f"for {Settings.model_fields['outcome_days'].default:.0f} days" in PAGE
