"""What clients of other languages need: Java's jars and classes, Node's packages. Fetched once, kept in .cache/compat.

A folder is named after a digest of what it was made from, so that nothing is out of date. A missing runtime is an error.
"""

import fcntl
import hashlib
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from assay.deploy.kafka_local import find_java
from assay.schemas.errors import ServiceError

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / "compat"
JAVA_MEND = "install a JDK of Java 17 or newer, and Maven (Debian: openjdk-17-jdk-headless, maven)"
NODE_MEND = "install Node.js 20 or newer, with npm"
FETCH_TIMEOUT_S = 300
PROTOC_VERSION = "4.35.1"  # as protobuf-java in protobuf/pom.xml


def program(name: str, mend: str) -> str:
    """Path of a program of PATH. Raises ServiceError."""
    found = shutil.which(name)
    if found is None:
        raise ServiceError("a checkout's client can't be tried", expected=f"{name} on PATH", mend=mend)
    return found


def java(folder: str, main: str, generated: Path | None = None) -> list[str]:
    """The command that runs class `main` of a folder here, beside whose sources lies a pom.xml; `generated` has more sources.

    Raises ServiceError.
    """
    jars, runs = _jars(folder), find_java()
    sources = [*sorted((HERE / folder).glob("*.java")), *(sorted(generated.rglob("*.java")) if generated else ())]
    classpath = f"{jars}/*"

    def compiled(into: Path) -> None:
        _run([program("javac", JAVA_MEND), "-cp", classpath, "-d", str(into), *map(str, sources)], JAVA_MEND)
        for resource in (HERE / folder).glob("META-INF/*"):
            (into / "META-INF").mkdir(exist_ok=True)
            shutil.copy(resource, into / "META-INF")

    classes = _made(f"{folder}-classes", [HERE / folder / "pom.xml", *sources, *(HERE / folder).glob("META-INF/*")], compiled)
    # Seconds each: the thorough compiler and several collector threads would only take time from the worker.
    return [runs, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{classes}:{classpath}", main]


def _jars(folder: str) -> Path:
    pom = HERE / folder / "pom.xml"

    def fetched(into: Path) -> None:
        # -C: a jar whose checksum is wrong is an error; Maven alone would warn.
        maven = [program("mvn", JAVA_MEND), "-q", "-B", "-C", "-f", str(pom), "dependency:copy-dependencies"]
        _run([*maven, f"-DoutputDirectory={into}"], "check Maven's network and proxy settings")

    return _made(f"{folder}-jars", [pom], fetched)


def messages(language: str) -> Path:
    """A folder with the code that protoc makes of docs/schemas. Raises ServiceError."""
    sources = [HERE.parents[1] / "docs" / "schemas" / name for name in ("transaction.proto", "decision.proto")]

    def generated(into: Path) -> None:
        protoc = [sys.executable, "-m", "grpc_tools.protoc"] if language == "python" else [str(_protoc())]
        _run([*protoc, f"-I{sources[0].parent}", f"--{language}_out={into}", *map(str, sources)], "run `make setup`")

    return _made(f"messages-{language}", sources, generated)


def _protoc() -> Path:
    """protoc with its generator for Java, which that of grpcio-tools leaves out. Raises ServiceError."""
    system = {"Linux": "linux", "Darwin": "osx"}[platform.system()]
    machine = {"arm64": "aarch_64", "aarch64": "aarch_64"}.get(platform.machine(), "x86_64")
    artifact = f"com.google.protobuf:protoc:{PROTOC_VERSION}:exe:{system}-{machine}"

    def fetched(into: Path) -> None:
        maven = [program("mvn", JAVA_MEND), "-q", "-B", "-C", "dependency:copy", f"-Dartifact={artifact}"]
        _run([*maven, f"-DoutputDirectory={into}"], "check Maven's network and proxy settings")
        [found] = into.iterdir()
        found.rename(into / "protoc").chmod(0o755)

    return _made(f"protoc-{PROTOC_VERSION}-{system}-{machine}", [], fetched) / "protoc"


def node(folder: str, script: str) -> list[str]:
    """The command that runs a script of a folder here, beside which lies a package-lock.json. Raises ServiceError."""
    runs, npm = program("node", NODE_MEND), program("npm", NODE_MEND)
    scripts = sorted((HERE / folder).glob("*.mjs"))
    locked = [HERE / folder / "package.json", HERE / folder / "package-lock.json"]

    def installed(into: Path) -> None:
        for path in (*locked, *scripts):  # Node looks for packages from where a script lies
            shutil.copy(path, into)
        # --ignore-scripts: nothing that is fetched runs before it is imported.
        _run([npm, "ci", "--prefix", str(into), "--ignore-scripts", "--no-audit", "--no-fund"], "check npm's network settings")

    return [runs, str(_made(folder, [*locked, *scripts], installed) / script)]


def _made(name: str, sources: Sequence[Path], make: Callable[[Path], None]) -> Path:
    """The folder that `make` fills from these sources: whole, or not at all; by one process, however many want it."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    folder = CACHE / f"{name}-{digest}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            partial = folder.with_name(f"{folder.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            make(partial)
            partial.rename(folder)
    return folder


def _run(command: Sequence[str], mend: str) -> None:
    answer = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    if answer.returncode != 0:
        said = " ".join((answer.stdout + answer.stderr).split())
        raise ServiceError(f"{Path(command[0]).name} failed", got=said[-1500:], mend=mend)
