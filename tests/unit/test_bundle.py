"""A bundle that was damaged, mixed up or is none is refused, and the file is named."""

import json
import pickle
import shutil
from hashlib import sha256

import numpy as np
import pytest
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.models.bundle import Bundle, write_bundle
from assay.models.forest import explain_margins, read_forest, walk
from assay.models.manifest import Manifest
from assay.models.reasons import SHIPPED
from assay.schemas.decision import Tier
from assay.schemas.errors import BundleError
from assay.tables.features import MODEL_FEATURES, NAMES

FILES = ["lead.ubj", "money.ubj", "balanced.ubj", "reasons.yaml", "report.json"]


@pytest.fixture
def copied(bundle_path, tmp_path):
    return shutil.copytree(bundle_path, tmp_path / "bundle")


def _refused(path, *named):
    with pytest.raises(BundleError) as raised:
        Bundle.load(path)
    for name in named:
        assert name in str(raised.value)


def _edit(path, change):
    manifest = json.loads((path / "manifest.json").read_bytes())
    change(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


def _replace(path, name, content):
    """Put other content in place of a file, with a manifest that fits."""
    (path / name).write_bytes(content)
    _edit(path, lambda m: m["files"].update({name: {"sha256": sha256(content).hexdigest(), "size": len(content)}}))


def test_a_copy_is_the_same_version(bundle, copied):
    loaded = Bundle.load(copied)
    assert loaded.version == bundle.version == sha256((copied / "manifest.json").read_bytes()).hexdigest()
    assert set(loaded.thresholds) == {Tier.FULL, Tier.NO_ENTITIES, Tier.LEAD_MODEL}


def test_another_version_than_the_wanted_one_is_refused(bundle, copied):
    assert Bundle.load(copied, version=bundle.version)
    with pytest.raises(BundleError, match=r"manifest\.json"):
        Bundle.load(copied, version="0" * 64)


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_a_missing_file_is_named(copied, name):
    (copied / name).unlink()
    _refused(copied, name, "missing")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "damage", [lambda b: b + b"\0", lambda b: b[:-1], lambda b: b"", lambda b: b[:40] + bytes([b[40] ^ 1]) + b[41:]]
)
def test_bytes_more_less_or_changed_are_refused(copied, name, damage):
    (copied / name).write_bytes(damage((copied / name).read_bytes()))
    _refused(copied, name)


def test_a_file_that_does_not_belong_is_refused(copied):
    (copied / "extra.ubj").write_bytes(b"x")
    _refused(copied, "extra.ubj")


def test_what_is_not_there_is_no_bundle(tmp_path):
    _refused(tmp_path / "nowhere", "nowhere")


def test_an_empty_directory_is_no_bundle(tmp_path):
    _refused(tmp_path, "manifest.json")


def test_a_pickle_is_no_bundle_and_is_not_loaded(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    (tmp_path / "model.pkl").write_bytes(pickle.dumps(Trap()))
    _refused(tmp_path / "model.pkl", "model.pkl")
    assert not (tmp_path / "sprung").exists()


def test_a_pickle_in_place_of_a_model_is_refused(copied):
    _replace(copied, "lead.ubj", pickle.dumps([1, 2, 3]))
    _refused(copied, "lead.ubj", "UBJSON")


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[]", b"null", b'{"format": "other"}', b"\xff\xfe", b"[" * 100_000])
def test_a_manifest_that_is_none_is_refused(copied, content):
    (copied / "manifest.json").write_bytes(content)
    _refused(copied, "manifest.json")


def test_a_report_that_is_no_json_is_refused(copied):
    _replace(copied, "report.json", b"{")
    _refused(copied, "report.json")


def test_features_that_its_reasons_leave_out_are_worded_from_the_list(copied):
    _replace(copied, "reasons.yaml", b"amount: {code: MONEY, as: money, text: 'pays {}'}")
    catalogue = Bundle.load(copied).catalogue
    assert catalogue.word(NAMES.index("amount"), 3.0) == ("MONEY", "pays 3.00")
    assert catalogue.word(NAMES.index("user_count"), 3.0) == ("USER_COUNT", "attempts before this one: 3")


@pytest.mark.parametrize("count", [0, 2, 4])
def test_another_number_of_members_is_refused(copied, count):
    _edit(copied, lambda m: m.update(members=(m["members"] * 2)[:count]))
    _refused(copied, "manifest.json", f"{count} members")


def test_other_features_are_refused(copied):
    _edit(copied, lambda m: m.update(features_digest="0" * 64))
    _refused(copied, "manifest.json", "other features")


def test_features_in_another_order_are_refused(copied):
    _edit(copied, lambda m: m.update(features=m["features"][::-1]))
    _refused(copied, "manifest.json", "other features")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tiers.full.thresholds", {"review": 0.9, "decline": 0.1}),
        ("tiers.full.calibration.slope", -1.0),
        ("tiers.full.calibration.intercept", "NaN"),
        ("tiers.full", None),
        ("tiers.default", {}),
        ("costs.reviewed", -1),
        ("more", 1),
    ],
)
def test_a_manifest_whose_numbers_make_no_sense_is_refused(copied, field, value):
    def change(manifest):
        *outer, last = field.split(".")
        for name in outer:
            manifest = manifest[name]
        manifest[last] = value

    _edit(copied, change)
    _refused(copied, "manifest.json")


def test_a_name_that_leads_out_of_the_bundle_is_refused(copied):
    _edit(copied, lambda m: m["files"].update({"../secret": {"sha256": "0" * 64, "size": 1}}))
    _refused(copied, "manifest.json", "../secret")


def _model(features=MODEL_FEATURES, objective="binary:logistic", depth=2, **more):
    random = np.random.default_rng(0)
    rows = random.normal(size=(2_000, features)).astype(np.float32)
    labels = rows[:, 0] + random.normal(size=2_000) > 0
    parameters = {"objective": objective, "max_depth": depth, "nthread": 1, **more}
    return bytes(xgboost.train(parameters, xgboost.DMatrix(rows, labels), 3).save_raw("ubj"))


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (lambda: _model(features=5), "other features"),
        (lambda: _model(objective="reg:squarederror"), "reg:squarederror"),
        (lambda: _model(booster="dart"), "dart"),
        (lambda: _model(depth=10, min_child_weight=0), "depth"),
        (lambda: _model()[:-30], "ends too early"),
        (lambda: _model() + b"}", "follow the end"),
        (lambda: b"{L\0", "ends too early"),
        (lambda: b"", "UBJSON"),
        (lambda: b"{}", "learner"),
        (lambda: b'{"learner": {}}', "UBJSON"),
        (lambda: b"{" + b"i\1a{" * 200_000, "too deeply"),
        (lambda: b"{i\1a[$d#L\x7f" + b"\xff" * 7, "ends too early"),
    ],
)
def test_a_model_that_can_not_be_served_is_named(copied, model, says):
    _replace(copied, "money.ubj", model())
    _edit(copied, lambda m: m["members"][1].update(trees=3))
    _refused(copied, "money.ubj", says)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_damage_to_a_model_does_more_than_raise(bundle_path, data):
    model = bytearray((bundle_path / "balanced.ubj").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        model[data.draw(st.integers(0, len(model) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        model = model[: data.draw(st.integers(0, len(model)))]
    try:
        forest = read_forest([bytes(model)], MODEL_FEATURES)
    except ValueError:
        return
    walk(forest, np.zeros((9, MODEL_FEATURES), np.float32))
    explain_margins(forest, np.zeros((1, MODEL_FEATURES), np.float32))


def test_a_model_of_other_trees_is_refused(copied):
    _edit(copied, lambda m: m["members"][0].update(trees=1))
    _refused(copied, "lead.ubj", "other trees")


def test_writing_replaces_a_bundle_whole_and_nothing_else(bundle, copied, tmp_path):
    members = [(m.name, xgboost.Booster(model_file=copied / m.file)) for m in bundle.manifest.members]
    kept = ("form", "parity", "tiers", "label_delay_days", "batch_coverage", "costs", "summary")
    fields = {name: getattr(bundle.manifest, name) for name in kept}
    again = write_bundle(copied, fields, members, SHIPPED.read_bytes(), bundle.report)
    assert again.version == bundle.version
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("keep me")
    with pytest.raises(BundleError, match="no bundle"):
        write_bundle(tmp_path / "mine", fields, members, SHIPPED.read_bytes(), bundle.report)
    assert (tmp_path / "mine" / "letter.txt").read_text() == "keep me"


def test_a_bundle_that_can_not_be_served_is_not_put_in_place(bundle, copied, tmp_path):
    members = [(m.name, xgboost.Booster(model_file=copied / m.file)) for m in bundle.manifest.members]
    kept = ("form", "parity", "tiers", "label_delay_days", "batch_coverage", "costs", "summary")
    fields = {name: getattr(bundle.manifest, name) for name in kept}
    with pytest.raises(BundleError, match="reasons"):
        write_bundle(copied, fields, members, b"", bundle.report)
    assert Bundle.load(copied).version == bundle.version
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle"]


def test_the_manifest_round_trips(bundle):
    assert Manifest.model_validate_json(bundle.manifest.model_dump_json()) == bundle.manifest
