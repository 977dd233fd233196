"""The clients: how each is started, and what it is told."""

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from . import runtimes
from .questions import Line
from .stand import Stand

TIMEOUT_S = 110.0
SHOWN_CHARACTERS = 4_000


@dataclass(frozen=True)
class Client:
    """One client in one way of use.

    Attributes:
        counted_as: what `make compat` counts it under.
        command: all of its command line but addresses, and `way`; raises ServiceError where its runtime is missing.
        replies_to: the name of its reply topic before `.reply`, where the name is not ours to choose.
        asks_registry: it is told where the schema registry is, last of all.
    """

    counted_as: str
    command: Callable[[], Sequence[str]]
    way: str = ""
    replies_to: str | None = None
    asks_registry: bool = False

    async def ask(self, name: str, stand: Stand, asked: Sequence[Mapping[str, Any]]) -> list[Line]:
        """Let it ask all of these at once. Raises AssertionError with its words where it ends badly, ServiceError."""
        command = await asyncio.to_thread(self.command)
        topic = await stand.reply_topic(self.replies_to or name)
        process = await asyncio.create_subprocess_exec(
            *command,
            *(stand.bootstrap, stand.transactions, topic, *([self.way] if self.way else [])),
            *([stand.registry] if self.asks_registry else []),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=(folder := tempfile.mkdtemp()),  # Faust makes a folder where it runs
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                out, complaints = await process.communicate(b"\n".join(map(orjson.dumps, asked)) + b"\n")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            shutil.rmtree(folder, ignore_errors=True)
        said = [
            line for line in complaints.decode(errors="replace").splitlines() if not line.startswith("\tat ")
        ]  # Java's stacks
        assert process.returncode == 0, "\n".join(said)[-SHOWN_CHARACTERS:]
        return [json.loads(line) for line in out.decode().splitlines() if line.startswith("{")]


def _python() -> list[str]:
    return [sys.executable, str(Path(__file__).with_name("python") / "ask.py")]


def _framed() -> list[str]:
    return ["env", f"PYTHONPATH={runtimes.messages('python')}:{Path(__file__).with_name('python')}", *_python()]


def _spring() -> list[str]:
    return runtimes.java("spring", "Ask")


def _smallrye() -> list[str]:
    return runtimes.java("smallrye", "Ask")


def _nestjs() -> list[str]:
    return runtimes.node("nestjs", "ask.mjs")


CLIENTS: Mapping[str, Client] = {
    "spring-partition": Client("spring", _spring, "raw UUIDs, a partition for each instance"),
    "spring-shared": Client("spring", _spring, "text, a shared topic"),
    "smallrye": Client("smallrye", _smallrye, str(Path(__file__).with_name("smallrye") / "channel.properties")),
    "nestjs": Client("nestjs", _nestjs, replies_to="transactions"),
    "faust": Client("faust", _python, "faust"),
    "librdkafka": Client("librdkafka", _python, "librdkafka"),
    "librdkafka-crc32": Client("librdkafka", _python, "librdkafka-crc32"),
    "framed": Client("librdkafka", _framed, "framed", asks_registry=True),
    "assay": Client("assay", _python, "assay"),
}
UNCHECKED = Client("spring", _spring, "unchecked")
