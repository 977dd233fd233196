"""docs/add-a-feature.md, done: each line goes where the page says, in a copy of the source, which then trains and scores."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "add-a-feature.md"
PORTIONS = ("schemas", "tables", "models", "streams", "agents", "deploy")
STEP = re.compile(r"<!-- (\S+), after: (.+?) -->\n```python\n(.+?)\n```", re.DOTALL)
NEW = ("whole_amount", "spend_count", "bin_instruments_24h", "device_reputation", "merchant_disputes_30d")

# Run in the copy: makes a little history, trains on it, judges some of it; prints what came of it.
PROGRAM = """
import json, sys
import numpy as np
from pathlib import Path
from assay.models.judge import Judge
from assay.models.rules import Rules
from assay.models.training import train
from assay.schemas.decision import Tier
from assay.schemas.transaction import Transaction
from assay.streams.simulator import simulate
from assay.tables.batch_history import BatchHistory, BatchValues
from assay.tables.batch_rows import BATCH_LIST
from assay.tables.digests import OFFLINE
from assay.tables.features import FEATURE_COUNT, NAMES
from assay.tables.rates import Rates
from assay.tables.replay import replay

START_MS = 1_767_225_600_000
rates = Rates.load()
made = list(simulate(seed=5, transactions=1_500, start_ms=START_MS, users=40, fraud_share=0.08))
history = [Transaction.model_validate(payment.transaction) for payment in made]
device = next(payment.device.id for payment in history if payment.device is not None and payment.device.id is not None)
[reputation] = [place for place, feature in enumerate(BATCH_LIST) if feature.name == "device_reputation"]
digest, one, as_of_ms = np.array([OFFLINE.of64(device)], np.uint64), np.ones(1, np.float32), np.array([START_MS])
batch = BatchHistory(BatchValues(np.array([reputation]), digest, one, as_of_ms))
bundle = train(history, [payment.fraud for payment in made], Path(sys.argv[1]), rates=rates, batch=batch, nthread=1)
features = replay(history, rates, batch=batch)
verdicts = Judge(bundle, Rules.load()).judge(history[-50:], features[-50:], Tier.FULL)
text = {name: bundle.catalogue.word(NAMES.index(name), 2.0) for name in sys.argv[2:]}
values = {name: features[:, NAMES.index(name)].tolist() for name in sys.argv[2:]}
scored = int(np.isfinite(verdicts.score).sum())
print(json.dumps({"manifest": list(bundle.manifest.features), "text": text, "values": values, "scored": scored}))
"""


def changed(source: str, anchor: str, lines: str) -> str:
    """The source with the lines below the one that holds the anchor, as far to the right."""
    held = source.splitlines()
    [at] = [place for place, line in enumerate(held) if anchor in line]
    margin = held[at][: len(held[at]) - len(held[at].lstrip())]
    return "\n".join([*held[: at + 1], *(margin + line for line in lines.splitlines()), *held[at + 1 :], ""])


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of a copy of the source to which all lines of the page were added."""
    copy = tmp_path_factory.mktemp("copy")
    for portion in PORTIONS:
        shutil.copytree(ROOT / portion, copy / "assay" / portion)  # with numba's cache: what does not change is not compiled
    for name, anchor, lines in STEP.findall(PAGE.read_text()):
        path = copy / "assay" / name
        if lines.splitlines()[0].strip() not in path.read_text():  # else somebody has added just what the page does
            path.write_text(changed(path.read_text(), anchor, lines))
    program = [sys.executable, "-c", PROGRAM, str(copy / "bundle"), *NEW]
    done = subprocess.run(program, env=os.environ | {"PYTHONPATH": str(copy)}, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout.splitlines()[-1])


pytestmark = pytest.mark.timeout(400)  # much of the copy is compiled anew


def test_the_page_adds_one_feature_of_each_source() -> None:
    added = [re.search(r"_(event|user|seen|batch|risk)\(", lines) for _, _, lines in STEP.findall(PAGE.read_text())]
    assert [found[1] for found in added if found] == ["event", "user", "seen", "batch", "risk"]


def test_what_the_page_adds_is_trained_and_scored_with(added: dict[str, Any]) -> None:
    assert set(NEW) <= set(added["manifest"])
    assert added["scored"] == 50


@pytest.mark.parametrize("name", NEW)
def test_what_the_page_adds_has_a_text(added: dict[str, Any], name: str) -> None:
    code, text = added["text"][name]
    assert code == name.upper()
    assert "2" in text


@pytest.mark.parametrize(
    ("name", "some"),
    [
        ("whole_amount", {0.0, 1.0}),
        ("spend_count", {0.0, 1.0, 2.0}),
        ("bin_instruments_24h", {1.0, 2.0}),
        ("device_reputation", {0.0, 1.0}),
        ("merchant_disputes_30d", {0.0}),  # a history with labels alone has no disputes
    ],
)
def test_what_the_page_adds_has_values(added: dict[str, Any], name: str, some: set[float]) -> None:
    assert some <= set(added["values"][name])
