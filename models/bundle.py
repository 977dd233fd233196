"""A bundle: the directory that training makes and workers load.

    manifest.json     what is in it: features, calibration, thresholds, SHA-256 and size of every other file
    lead.ubj ...      three XGBoost models, UBJSON (never pickle: loading one runs what is in it)
    reasons.yaml      what each feature is called in an explanation
    report.json       how it was trained, and how good each tier is on later transactions
    report.html       the same to look at

The version is the SHA-256 of manifest.json. Nothing of a bundle is used before all of it was checked.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import xgboost
from pydantic import ValidationError

from assay.models.ensemble import Ensemble
from assay.models.forest import Forest, explain_margins, read_forest, walk
from assay.models.form_parity import Form
from assay.models.forms import probe, served_in
from assay.models.manifest import SCORED_TIERS, File, Manifest, Member
from assay.models.reasons import Catalogue
from assay.models.report_page import page
from assay.schemas.decision import Tier
from assay.schemas.errors import BundleError
from assay.schemas.limits import MAX_BUNDLE_FILE_BYTES, MAX_MANIFEST_BYTES
from assay.tables.features import MODEL_FEATURES, NAMES, model_features_digest

MANIFEST = "manifest.json"
REASONS = "reasons.yaml"
REPORT = "report.json"
REPORT_PAGE = "report.html"
RETRAIN = "make it anew with `assay train`, or restore the directory as it was made"


@dataclass(frozen=True, slots=True)
class Bundle:
    """A checked bundle, ready to serve."""

    path: Path
    version: str  # SHA-256 of the manifest, hexadecimal
    manifest: Manifest
    ensemble: Ensemble
    catalogue: Catalogue
    report: dict[str, Any]
    thresholds_digest: str  # SHA-256 of the thresholds of all tiers, hexadecimal

    @property
    def thresholds(self) -> Mapping[Tier, tuple[float, float]]:
        """(review, decline) of each tier with a score."""
        return {tier: (s.thresholds.review, s.thresholds.decline) for tier, s in self.manifest.tiers.items()}

    @classmethod
    def load(cls, path: Path, *, version: str | None = None, form: Form | None = None) -> "Bundle":
        """Check every file, compare the trees that are served with XGBoost, warm up. Raises BundleError, which names the file.

        `version`: the one that must be found there; `form`: the one to serve in, whatever the manifest says.
        """
        raw = _read_manifest(path)
        found = hashlib.sha256(raw).hexdigest()
        if version is not None and version != found:
            raise BundleError(f"{path / MANIFEST} is of another version", expected=version, got=found, mend=RETRAIN)
        manifest = _parse_manifest(path / MANIFEST, raw)
        files = _read_files(path, manifest)
        _check_features(path / MANIFEST, manifest)
        forest = _read_members(path, manifest, files)
        report = _parse_json(path / REPORT, files.get(REPORT))
        catalogue = Catalogue.parse(files.get(REASONS, b""), path / REASONS)
        calibrations = {tier: manifest.tiers[tier].calibration for tier in SCORED_TIERS}
        members = [files[member.file] for member in manifest.members]
        margins = served_in(form or manifest.form, forest, members, manifest.tiers)
        ensemble = Ensemble(forest, calibrations, margins)
        return cls(path, found, manifest, ensemble, catalogue, report, _thresholds_digest(manifest))


def read_manifest(path: Path) -> Manifest:
    """What a bundle says of itself, without a look at the rest. Raises BundleError."""
    return _parse_manifest(path / MANIFEST, _read_manifest(path))


def write_bundle(
    path: Path,
    manifest: Mapping[str, Any],
    members: Sequence[tuple[str, xgboost.Booster]],
    reasons: bytes,
    report: dict[str, Any],
) -> Bundle:
    """Write a bundle whole or not at all, and load it. A bundle that is at `path` already is replaced.

    `manifest`: the fields of `Manifest` but members, features, files and libraries; `members`: (name, model), the lead
    first. Raises BundleError where `path` is something else, or what was made can't be served.
    """
    if path.exists() and not (path / MANIFEST).is_file() and (not path.is_dir() or any(path.iterdir())):
        raise BundleError(
            f"{path} is there already and is no bundle", expected="a new path, or a bundle to replace", mend="give another path"
        )
    contents = {f"{name}.ubj": bytes(model.save_raw("ubj")) for name, model in members}
    contents |= {REASONS: reasons, REPORT: orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY)}
    if "tiers" in report:
        contents[REPORT_PAGE] = page(report).encode()
    complete = Manifest.model_validate(
        {
            **manifest,
            "features": NAMES[:MODEL_FEATURES],
            "features_digest": model_features_digest(),
            "members": [Member(name=name, file=f"{name}.ubj", trees=model.num_boosted_rounds()) for name, model in members],
            "libraries": {"xgboost": xgboost.__version__, "numpy": np.__version__},
            "files": {name: File(sha256=hashlib.sha256(data).hexdigest(), size=len(data)) for name, data in contents.items()},
        }
    )
    contents[MANIFEST] = orjson.dumps(complete.model_dump(mode="json"), option=orjson.OPT_INDENT_2)
    made = _beside(path)
    try:
        for name, data in contents.items():
            _write_through(made / name, data)
        made.chmod(0o755)
        Bundle.load(made)  # what can't be served is never put in place
        _replace(made, path)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return Bundle.load(path)


def check_writable(path: Path) -> None:
    """Whether a bundle could be written there: said before training rather than after it. Raises BundleError."""
    _beside(path).rmdir()


def _beside(path: Path) -> Path:
    """A new folder next to where a bundle is to be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
    except OSError as error:
        raise BundleError(
            f"no bundle can be written to {path}",
            got=str(error.strerror),
            mend="give a path in a folder that this user may write to",
        ) from None


def _write_through(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _replace(made: Path, path: Path) -> None:
    """Put `made` at `path`. A directory can't be renamed over a full one, so the old one steps aside first."""
    if not path.exists():
        made.rename(path)
        return
    aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-old-")) / "bundle"
    path.rename(aside)
    try:
        made.rename(path)
    except OSError:
        aside.rename(path)
        raise
    finally:
        shutil.rmtree(aside.parent, ignore_errors=True)


def _read_manifest(path: Path) -> bytes:
    if not path.exists():
        raise BundleError(
            f"{path} is not there",
            expected="a bundle, a directory made by `assay train`",
            mend="train one, or give another path",
        )
    if not path.is_dir():
        raise BundleError(
            f"{path} is not a bundle", expected="a directory made by `assay train`", got="a file", mend="give the directory"
        )
    return _read(path / MANIFEST, MAX_MANIFEST_BYTES)


def _read(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except FileNotFoundError:
        raise BundleError(f"{path} is missing", expected="every file of the bundle", mend=RETRAIN) from None
    except OSError as error:
        raise BundleError(f"{path} can't be read", got=str(error.strerror), mend="let this user read it") from None
    if len(data) > most:
        raise BundleError(f"{path} is too large", expected=f"at most {most} bytes", mend=RETRAIN)
    return data


def _parse_json(path: Path, raw: bytes | None) -> dict[str, Any]:
    if raw is None:
        raise BundleError(f"{path} is not among the files of the manifest", expected="every file of a bundle", mend=RETRAIN)
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BundleError(f"{path} is not JSON", expected="a JSON object", got=str(error), mend=RETRAIN) from None
    if not isinstance(document, dict):
        raise BundleError(f"{path} is not a JSON object", got=type(document).__name__, mend=RETRAIN)
    return document


def _parse_manifest(path: Path, raw: bytes) -> Manifest:
    try:
        return Manifest.model_validate(_parse_json(path, raw))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise BundleError(
            f"{path}: {field}: {first['msg']}", expected="a manifest written by `assay train`", mend=RETRAIN
        ) from None


def _read_files(path: Path, manifest: Manifest) -> dict[str, bytes]:
    files = {}
    for name, entry in manifest.files.items():
        if Path(name).name != name:
            raise BundleError(f"{path / MANIFEST} names a file outside of the bundle", got=name, mend=RETRAIN)
        data = _read(path / name, MAX_BUNDLE_FILE_BYTES)
        if len(data) != entry.size:
            raise BundleError(
                f"{path / name} has another size", expected=f"{entry.size} bytes", got=f"{len(data)} bytes", mend=RETRAIN
            )
        digest = hashlib.sha256(data).hexdigest()
        if digest != entry.sha256:
            raise BundleError(f"{path / name} was changed", expected=f"SHA-256 {entry.sha256}", got=digest, mend=RETRAIN)
        files[name] = data
    known = {*files, MANIFEST}
    for other in sorted(path.iterdir()):
        if other.name not in known and not other.name.startswith("."):
            raise BundleError(
                f"{other} does not belong to the bundle", expected=f"only {', '.join(sorted(known))}", mend="take it out"
            )
    return files


def _check_features(path: Path, manifest: Manifest) -> None:
    seen = NAMES[:MODEL_FEATURES]
    if manifest.features != seen or manifest.features_digest != model_features_digest():
        other = ", ".join(sorted(set(manifest.features) ^ set(seen))[:5])
        raise BundleError(
            f"{path} was made for other features",
            expected=f"features digest {model_features_digest()}",
            got=f"{manifest.features_digest}{f'; not in both: {other}' if other else ''}",
            mend="train a bundle with this version of Assay",
        )


def _read_members(path: Path, manifest: Manifest, files: Mapping[str, bytes]) -> Forest:
    for member in manifest.members:  # one by one, so that the file can be named
        try:
            forest = read_forest([files[member.file]], MODEL_FEATURES)
        except (ValueError, RecursionError) as error:
            raise BundleError(
                f"{path / member.file} can't be served",
                expected="an XGBoost model saved as UBJSON",
                got=str(error),
                mend=RETRAIN,
            ) from None
        if int(forest.ends[-1]) != member.trees:
            raise BundleError(
                f"{path / member.file} has other trees", expected=str(member.trees), got=str(forest.ends[-1]), mend=RETRAIN
            )
    forest = read_forest([files[member.file] for member in manifest.members], MODEL_FEATURES)
    _compare(path, manifest, [_read_booster(path / member.file, files[member.file]) for member in manifest.members], forest)
    return forest


def _read_booster(path: Path, data: bytes) -> xgboost.Booster:
    try:
        return xgboost.Booster({"nthread": 1}, model_file=bytearray(data))
    except (xgboost.core.XGBoostError, ValueError, TypeError) as error:
        got = str(error).splitlines()[0][:200]
        raise BundleError(f"{path} is no model to XGBoost {xgboost.__version__}", got=got, mend=RETRAIN) from None


def _compare(path: Path, manifest: Manifest, boosters: Sequence[xgboost.Booster], forest: Forest) -> None:
    """Walk probe rows and compare with XGBoost: this also warms up the compiled walks."""
    rows = probe(forest)
    margins = walk(forest, rows)
    explain_margins(forest, rows[:1])
    for index, (member, booster) in enumerate(zip(manifest.members, boosters, strict=True)):
        expected = booster.inplace_predict(rows, predict_type="margin")
        if not np.allclose(margins[:, index], expected, atol=1e-4):
            worst = float(np.abs(margins[:, index] - expected).max())
            raise BundleError(
                f"{path / member.file} scores otherwise here than in XGBoost {xgboost.__version__}",
                expected="margins equal to 1e-4",
                got=f"a difference of {worst:.2g}",
                mend=f"use the version it was made with: {manifest.libraries.get('xgboost')}",
            )


def _thresholds_digest(manifest: Manifest) -> str:
    values = {tier.value: manifest.tiers[tier].thresholds.model_dump() for tier in SCORED_TIERS}
    return hashlib.sha256(orjson.dumps(values, option=orjson.OPT_SORT_KEYS)).hexdigest()
