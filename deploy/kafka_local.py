"""Kafka as a process of this machine, for development and tests: jars through Maven, one KRaft node, Java 17."""

import base64
import fcntl
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from assay.deploy.steps import Tell, silent
from assay.schemas.errors import ServiceError

KAFKA_VERSION = "4.4.0"
_JARS = 45  # of Kafka and its dependencies
_LEAST_JAVA = 17
NO_USERS: Mapping[str, str] = MappingProxyType({})
_POM = Path(__file__).with_name("kafka-pom.xml")
LOG4J = Path(__file__).with_name("kafka-log4j2.xml")
_MEND = (
    "install Java 17 or newer and Maven, or start a Docker engine, "
    "or name a Kafka that is there already in ASSAY_BOOTSTRAP_SERVERS"
)
# Replication factors of one, since there is one node, and few internal partitions, since each costs start-up time.
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
"""


def cache_dir() -> Path:
    """Where downloads are kept for this user: `assay` under XDG_CACHE_HOME, by default ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "assay"


def find_java() -> str:
    """Path of a Java that can run Kafka: JAVA_HOME's, else PATH's. Raises ServiceError."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if not java or not Path(java).exists():
        raise ServiceError("no Java for a local Kafka", expected="JAVA_HOME, or java on PATH", mend=_MEND)
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', answer.stderr)
    if answer.returncode != 0 or not found or int(found[1]) < _LEAST_JAVA:
        first = (answer.stderr.splitlines() or [""])[0]
        raise ServiceError("this Java can't run Kafka", expected=f"{_LEAST_JAVA} or newer", got=first, mend=_MEND)
    return java


def find_jars() -> tuple[Path, str]:
    """The folder for Kafka's jars, and the Maven that is to fill it, '' if it is full. Raises ServiceError without one."""
    jars = cache_dir() / f"kafka-{KAFKA_VERSION}"
    if jars.is_dir():
        return jars, ""
    maven = shutil.which("mvn")
    if maven is None:
        raise ServiceError("Kafka has not been fetched yet, and there is no Maven for it", expected="mvn on PATH", mend=_MEND)
    return jars, maven


def fetch_jars(tell: Tell = silent) -> Path:
    """The folder with Kafka's jars; downloads them through Maven when they are not there yet. Raises ServiceError.

    Two at once don't clash: one waits for the other, and the folder appears whole or not at all.
    """
    jars, maven = find_jars()
    if not maven:
        return jars
    try:
        jars.parent.mkdir(parents=True, exist_ok=True)
        with jars.with_name(f"{jars.name}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                tell(f"Kafka {KAFKA_VERSION}: waiting for another process that fetches it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            if not jars.is_dir():
                _download(maven, jars, tell)
    except OSError as error:
        raise ServiceError(
            f"{jars.parent} can't hold Kafka's jars: {error.strerror}",
            mend="make it writable, or set XDG_CACHE_HOME to a folder that is",
        ) from error
    return jars


def _download(maven: str, jars: Path, tell: Tell) -> None:
    """Fills `jars` by way of a folder beside it, so that what was interrupted is never taken for whole."""
    what = f"fetching Kafka {KAFKA_VERSION} through Maven, once: {_JARS} jars, about 45 MB, kept in {jars}"
    tell(what)
    partial = jars.with_name(f"{jars.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    # -C: a jar whose checksum is wrong is an error; Maven alone would warn.
    command = [maven, "-B", "-C", "-f", str(_POM), "dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
    complaints, fetched = [], 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "[ERROR]" in line:
                complaints.append(line.replace("[ERROR]", "").strip())
            elif "Downloaded" in line and ".jar" in line:
                fetched += 1  # Maven's plugins are among them
                if fetched % 10 == 0:
                    tell(f"{what} ({fetched} files so far)")
    if process.returncode != 0 or len(list(partial.glob("*.jar"))) < _JARS:
        raise ServiceError(
            "Maven could not fetch Kafka",
            got=" ".join(complaints[:2]) or f"exit code {process.returncode}",
            mend=f"check Maven's network and proxy settings with: {' '.join(command[:5])} dependency:resolve",
        )
    partial.rename(jars)


def prepare(
    folder: Path, java: str, jars: Path, port: int, controller_port: int, more: str = "", users: Mapping[str, str] = NO_USERS
) -> list[str]:
    """Writes and formats a node's `folder`, keeping what it holds already, and returns the command that runs it.

    Args:
        more: properties that win over ours.
        users: name -> password, of users that log in by SCRAM-SHA-512.

    Raises ServiceError when Kafka refuses to format it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    properties = folder / "server.properties"
    ours = _PROPERTIES.format(port=port, controller_port=controller_port, data=(folder / "data").resolve())
    properties.write_text(ours + more)  # what stands later in a file of properties wins
    classpath = f"{jars}/*"
    if not (folder / "data" / "meta.properties").exists():
        _format(java, classpath, properties, users)
    return [
        *(java, "-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={LOG4J}"),
        *(f"-Dassay.kafka.log={folder / 'kafka.log'}", "-cp", classpath, "kafka.Kafka", str(properties)),
    ]


def cluster_id() -> str:
    """A new one, as Kafka writes them: 16 bytes in URL-safe base 64. One in 64 begins with a hyphen."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _format(java: str, classpath: str, properties: Path, users: Mapping[str, str]) -> None:
    cluster = cluster_id()
    scram = [f"--add-scram=SCRAM-SHA-512=[name={name},password={password}]" for name, password in users.items()]
    answer = subprocess.run(
        [
            # Half a second: not worth the thorough compiler or several collector threads.
            *(java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classpath),
            *("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", f"--config={properties}", *scram),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        raise ServiceError(
            "Kafka could not format its folder",
            got=" ".join((answer.stderr + answer.stdout).split())[:500],
            mend=f"remove {properties.parent} (development data), then start again",
        )
