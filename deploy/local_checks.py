"""The doctor's checks that need no service: Python, packages, settings, files, ports."""

import difflib
import importlib
import os
import platform
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import metadata
from pathlib import Path

from assay.deploy import containers, kafka_local, redis_local
from assay.deploy.check import Check, attempt, fail, failure, ok, warn
from assay.deploy.ports import is_free
from assay.deploy.signature_check import signatures, tracing
from assay.schemas.errors import AssayError, SettingError
from assay.streams.settings import Settings

# What the dependencies of pyproject.toml are imported as (a test compares them).
PACKAGES = {
    "faust-streaming": "faust",
    "prometheus-client": "prometheus_client",
    "protobuf": "google.protobuf",
    "pydantic-settings": "pydantic_settings",
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
    "xgboost-cpu": "xgboost",
}
_LEAST_PYTHON = (3, 11)
_LEAST_OPEN_FILES = 1024  # RocksDB keeps one open for each of its files, Kafka's client one for each broker
_LEAST_FREE_BYTES = 100 * 1024**2
_LITTLE_FREE_BYTES = 1024**3
_LEAST_KEY_CHARACTERS = 16


def python() -> Check:
    found = f"Python {platform.python_version()}"
    if sys.version_info[:2] < _LEAST_PYTHON:
        return fail("python", found, f"install Python {'.'.join(map(str, _LEAST_PYTHON))} or newer")
    return ok("python", found)


def packages() -> Check:
    """Each dependency can be imported, and those that are pinned exactly have that version."""
    wrong = []
    for name, wanted in requirements():
        try:
            importlib.import_module(PACKAGES.get(name, name.replace("-", "_")))
            if wanted and metadata.version(name) != wanted:
                wrong.append(f"{name} {metadata.version(name)} instead of {wanted}")
        except Exception as error:  # a broken native library may raise whatever it likes
            wrong.append(f"{name}: {error}")
    if wrong:
        return fail("packages", "; ".join(wrong), "make setup, or pip install --require-hashes -r requirements.lock")
    return ok("packages", f"{len(list(requirements()))} can be imported")


def requirements() -> Iterator[tuple[str, str]]:
    """(distribution, exact version or '') of each dependency of this platform, extras left out."""
    for line in metadata.requires("assay") or []:
        requirement, _, marker = line.partition(";")
        if "extra ==" in marker:
            continue
        if "sys_platform" in marker and ("==" in marker) != (sys.platform == "linux"):
            continue
        match = re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*])?\s*(?:==\s*(\S+))?", requirement)
        if match:
            yield match[1], match[2] or ""


def settings(environment: Mapping[str, str] = os.environ) -> tuple[Check, Settings | None]:
    """The settings, if they can be used. Names in the environment that no setting has are likely mistyped."""
    try:
        loaded = Settings.load()
    except SettingError as error:
        return failure("settings", error), None
    known = {f"ASSAY_{name.upper()}" for name in Settings.model_fields}
    for name in sorted(environment):
        if name.startswith("ASSAY_") and name.upper() not in known:
            near = difflib.get_close_matches(name.upper(), known, n=1)
            mend = f"did you mean {near[0]}?" if near else "unset it: it has no effect"
            return warn("settings", f"{name} is no setting", mend), loaded
    return ok("settings", f"{len(loaded.model_fields_set)} set, the others have their defaults"), loaded


def hash_key(settings: Settings) -> Check:
    if settings.hash_key == Settings.model_fields["hash_key"].default:
        return warn("hash key", "the one for development, which anybody knows", "set ASSAY_HASH_KEY before real payments")
    if len(settings.hash_key) < _LEAST_KEY_CHARACTERS:
        mend = f"set ASSAY_HASH_KEY to {_LEAST_KEY_CHARACTERS} random characters or more; then rebuild what is stored"
        return warn("hash key", "so short that it can be found by trying", mend)
    return ok("hash key", f"set; its fingerprint is {settings.digests().fingerprint}")


def bundle(settings: Settings) -> Check:
    from assay.models.bundle import Bundle

    loaded = Bundle.load(settings.bundle)
    if differs := loaded.manifest.label_delay_differs:
        return warn("bundle", differs, "train with the --label-delay of the outcomes that you send")
    return ok("bundle", f"{settings.bundle}, version {loaded.version[:12]}")


def rules(settings: Settings) -> Check:
    from assay.models.rules import Rules

    return ok("rules", f"{settings.rules or 'the starter set'}, digest {Rules.load(settings.rules).digest[:12]}")


def mapping(settings: Settings) -> Check:
    from assay.schemas.mapping_file import load_mapping

    load_mapping(settings.mapping)
    return ok("mapping", f"{settings.mapping} can be used" if settings.mapping else "none: transactions come in our shape")


def rates(settings: Settings) -> Check:
    from assay.tables.rates import Rates

    loaded = Rates.load(settings.rates) if settings.rates else Rates.load()
    if settings.rates is None:
        return warn("rates", f"the illustrative table, base {loaded.base}", "set ASSAY_RATES to a file of real rates")
    return ok("rates", f"{settings.rates}, base {loaded.base}")


def data_directory(settings: Settings) -> Check:
    """The profiles' directory, or the one that it would be made in, can be written and has room."""
    place = nearest(settings.data_dir)
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        return fail("data directory", f"{place}: {error.strerror}", "make it writable, or set ASSAY_DATA_DIR to another")
    free = shutil.disk_usage(place).free
    found = f"{settings.data_dir}, {free / 1024**3:.1f} GiB free"
    if free < _LITTLE_FREE_BYTES:
        mend = "make room: a million profiles take about 2 GiB, changelog and compaction included"
        return (fail if free < _LEAST_FREE_BYTES else warn)("data directory", found, mend)
    return ok("data directory", found)


def nearest(path: Path) -> Path:
    """The path, or the first folder above it that exists."""
    return next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())


def open_files() -> Check:
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _LEAST_OPEN_FILES:
        return warn("open files", f"a process may have {soft}", f"ulimit -n {4 * _LEAST_OPEN_FILES}")
    return ok("open files", f"a process may have {soft}")


def http_port(settings: Settings) -> Check:
    address = f"{settings.http_host}:{settings.http_port}"
    if settings.http_port and not is_free(settings.http_port, settings.http_host):
        return warn(
            "HTTP port", f"{address} is taken", "fine if a worker runs here; for another one set ASSAY_HTTP_PORT (0: any)"
        )
    return ok("HTTP port", f"{address} is free" if settings.http_port else "any that is free")


def development(settings: Settings) -> Check:
    """What `assay services up` and `assay demo` would do."""
    named = {"bootstrap_servers", "redis_url"} & settings.model_fields_set
    if len(named) == 2:
        return ok("development services", "not needed: the environment names both")
    if containers.engine_answers():
        return ok("development services", "in containers: a Docker engine answers")
    try:
        ways = []
        if "redis_url" not in named:
            ways.append(f"Redis by {Path(redis_local.find_server()).name}")
        if "bootstrap_servers" not in named:
            kafka_local.find_java()
            kafka_local.find_jars()
            ways.append(f"Kafka {kafka_local.KAFKA_VERSION} on Java")
    except AssayError as error:
        return warn("development services", f"`assay services up` can't start them: {error.what}", error.mend)
    return ok("development services", "as local processes: " + ", ".join(ways))


def local_checks(loaded: Settings) -> list[Check]:
    """All of them that want settings, in order."""
    named: dict[str, Callable[[Settings], Check]] = {
        "hash key": hash_key,
        "signatures": signatures,
        "tracing": tracing,
        "bundle": bundle,
        "rules": rules,
        "mapping": mapping,
        "rates": rates,
        "data directory": data_directory,
        "HTTP port": http_port,
        "development services": development,
    }
    return [attempt(name, partial(look, loaded)) for name, look in named.items()]
