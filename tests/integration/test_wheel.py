"""The built wheel: all of the six folders is in it, and it works without the checkout."""

import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PORTIONS = ("schemas", "tables", "models", "streams", "agents", "deploy")
# Without `site`, whose .pth files would bring the editable checkout back: only the target and the dependencies.
ISOLATED = f"import sys; sys.path[:0] = [sys.argv.pop(1), {sysconfig.get_path('purelib')!r}]\n"
IMPORT_EVERYTHING = """
import importlib
for name in sys.argv[1:]:
    print(importlib.import_module(name).__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources, so that nothing built earlier gets into it."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for name in PORTIONS:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    least = re.search(r'"setuptools>=(\d+)"', (ROOT / "pyproject.toml").read_text())
    assert least
    if int(metadata.version("setuptools").split(".")[0]) >= int(least[1]):
        command = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(built), str(source)]
    else:  # pip fetches the build back end
        command = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(built), str(source)]
    answer = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    [found] = built.glob("assay-*.whl")
    return found


@pytest.fixture(scope="module")
def target(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh folder that the wheel alone is installed in."""
    folder = tmp_path_factory.mktemp("target")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", str(folder)]
    subprocess.run([*command, str(wheel)], check=True)
    return folder


def isolated(program: str, target: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs a program that finds Assay in `target` and nowhere else."""
    command = [sys.executable, "-I", "-S", "-c", ISOLATED + program, str(target), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=target)


def sources() -> set[str]:
    """Every file of the six folders, as it should be named in the wheel."""
    found = (path for name in PORTIONS for path in (ROOT / name).rglob("*") if path.is_file())
    return {
        f"assay/{path.relative_to(ROOT).as_posix()}"
        for path in found
        if "__pycache__" not in path.parts and path.suffix not in (".nbi", ".nbc")
    }


def test_every_file_of_the_six_folders_is_in_the_wheel_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == sources()


def test_the_wheel_has_each_portion_with_its_types_and_each_kind_of_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    assert {f"assay/{name}/{file}" for name in PORTIONS for file in ("__init__.py", "py.typed")} <= packed
    assert {".lua", ".yaml", ".csv", ".xml"} <= {Path(name).suffix for name in packed}
    assert "assay/__init__.py" not in packed, "a namespace package has none, else its portions could not be apart"


def test_the_wheel_names_its_command_and_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        texts = {Path(name).name: archive.read(name).decode() for name in archive.namelist() if ".dist-info/" in name}
    assert "assay = assay.deploy.cli:main" in texts["entry_points.txt"]
    assert "License-Expression: Apache-2.0" in texts["METADATA"]
    assert "LICENSE" in texts


def test_every_module_is_imported_from_the_wheel(wheel: Path, target: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        modules = [name[: -len(".py")].replace("/", ".") for name in archive.namelist() if name.endswith(".py")]
    modules = [name.removesuffix(".__init__") for name in modules]
    answer = isolated(IMPORT_EVERYTHING, target, *modules)
    assert answer.returncode == 0, answer.stderr
    places = answer.stdout.split()
    assert len(places) == len(modules)
    assert all(place.startswith(str(target)) for place in places), places


def test_the_command_works_from_the_wheel(target: Path) -> None:
    answer = isolated("from assay.deploy.cli import main; main()", target, "--version")
    assert (answer.returncode, answer.stdout.split()[:1]) == (0, ["assay"]), answer.stderr
    answer = isolated("from assay.deploy.cli import main; main()", target, "services", "status", "--json")
    assert answer.returncode == 1, answer.stderr
