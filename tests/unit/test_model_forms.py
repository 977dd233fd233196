"""What the benchmark of models compares does the same work: every form gives XGBoost's margins."""

from pathlib import Path

import numpy as np
import pytest

from assay.models.forest import walk
from assay.tables.features import MODEL_FEATURES

PERF = Path(__file__).parents[2] / "perf"


@pytest.fixture
def forms(bundle, monkeypatch):
    monkeypatch.syspath_prepend(PERF)
    from model_forms import forms as forms_of

    return forms_of(bundle)


@pytest.mark.parametrize("count", [1, 9, 300])
def test_every_form_scores_alike(forms, bundle, made_up, count):
    rows = np.ascontiguousarray(made_up[0][:count, :MODEL_FEATURES])
    expected = walk(bundle.ensemble.forest, rows)
    for name, form in forms.items():
        found = form(rows)
        if "float16" in name or "fused" in name:  # rounded, and the mean of the members
            assert found.mean(axis=1) == pytest.approx(expected.mean(axis=1), abs=2e-3), name
        else:
            assert np.array_equal(found, expected), name
