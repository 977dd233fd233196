"""One more than a file may have (invariant I5): refused, with the file named."""

import json
import re
import shutil
from pathlib import Path

import pytest

from assay.models import bundle as bundles
from assay.models import trees
from assay.models.bundle import MANIFEST, Bundle
from assay.models.forest import read_forest
from assay.models.rules import Rules
from assay.schemas import limits
from assay.schemas.errors import BundleError, RulesError

RULE = "  - {id: r%d, when: 'amount > 1', then: review, reason: large}\n"


def rules_file(folder: Path, text: str) -> Path:
    path = folder / "rules.yaml"
    path.write_text(text)
    return path


def test_i5_max_rules_file_bytes_one_more_is_refused(tmp_path: Path) -> None:
    text = "rules:\n" + RULE % 1
    full = text + "#" * (limits.MAX_RULES_FILE_BYTES - len(text))
    assert len(Rules.load(rules_file(tmp_path, full)).rules) == 1
    with pytest.raises(RulesError, match=r"rules.yaml is too large"):
        Rules.load(rules_file(tmp_path, full + "#"))


def test_i5_max_rules_one_more_is_refused(tmp_path: Path) -> None:
    full = "rules:\n" + "".join(RULE % number for number in range(limits.MAX_RULES))
    assert len(Rules.load(rules_file(tmp_path, full)).rules) == limits.MAX_RULES
    with pytest.raises(RulesError, match="too many rules"):
        Rules.load(rules_file(tmp_path, full + RULE % limits.MAX_RULES))


def test_i5_max_predicate_characters_one_more_is_refused(tmp_path: Path) -> None:
    predicate = "amount > 1".ljust(limits.MAX_PREDICATE_CHARACTERS - 8) + "and true"
    text = "rules:\n  - {id: r, when: '%s', then: review, reason: large}\n"
    assert len(Rules.load(rules_file(tmp_path, text % predicate)).rules) == 1
    with pytest.raises(RulesError, match="r"):
        Rules.load(rules_file(tmp_path, text % predicate.replace("amount >", "amount  >")))


def test_i5_max_manifest_bytes_one_more_is_refused(bundle_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "bundle"
    shutil.copytree(bundle_path, path)
    written = (path / MANIFEST).read_bytes()
    full = written + b" " * (limits.MAX_MANIFEST_BYTES - len(written))
    (path / MANIFEST).write_bytes(full)
    assert Bundle.load(path).manifest
    (path / MANIFEST).write_bytes(full + b" ")
    with pytest.raises(BundleError, match=MANIFEST):
        Bundle.load(path)


def test_i5_max_bundle_file_bytes_one_more_is_refused(
    bundle_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a smaller limit: 64 MiB would say no more."""
    sizes = {name: file["size"] for name, file in json.loads((bundle_path / MANIFEST).read_text())["files"].items()}
    name = max(sizes, key=sizes.__getitem__)
    largest = sizes[name]
    monkeypatch.setattr(bundles, "MAX_BUNDLE_FILE_BYTES", largest)
    assert Bundle.load(bundle_path).manifest
    monkeypatch.setattr(bundles, "MAX_BUNDLE_FILE_BYTES", largest - 1)
    with pytest.raises(BundleError, match=re.escape(name)):
        Bundle.load(bundle_path)


def test_i5_max_tree_depth_one_more_is_refused(bundle_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = [path.read_bytes() for path in sorted(bundle_path.glob("*.ubj"))]
    depth = int(read_forest(members, len(json.loads((bundle_path / MANIFEST).read_text())["features"])).depths.max())
    assert depth <= limits.MAX_TREE_DEPTH
    monkeypatch.setattr(trees, "MAX_TREE_DEPTH", depth - 1)
    with pytest.raises(ValueError, match=f"a tree of depth {depth}"):
        read_forest(members, len(json.loads((bundle_path / MANIFEST).read_text())["features"]))
