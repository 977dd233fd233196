"""Logs: JSON lines (pretty on a terminal), written by a thread of their own, so that no answer waits for a disk or a pipe.

Personal data is not logged: a transaction is named by its id, and by nothing else of it.
"""

import atexit
import logging
import logging.handlers
import queue
import sys
import time
from typing import Any

import structlog

from assay.schemas import limits

FLUSH_TIMEOUT_S = 1.0
# Services of Faust's log under the names of our own modules that subclass them.
LIBRARIES = ("faust", "mode", "aiokafka", "opentelemetry", "assay.streams.transport", "assay.tables.profile_table")
REPEATED_EVERY_S = 5.0


class _Seldom(logging.Filter):
    """One line of a kind every few seconds: libraries say fifty times a second that a broker is gone."""

    def __init__(self, every_s: float = REPEATED_EVERY_S) -> None:
        super().__init__()
        self._every_s = every_s
        self._last: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(LIBRARIES):
            return True
        kind, now = (record.name, str(record.msg)[:80]), time.monotonic()
        if now - self._last.get(kind, -self._every_s) < self._every_s:
            return False
        if len(self._last) >= limits.MAX_LOG_KINDS:
            self._last.clear()
        self._last[kind] = now
        return True


class _BoundedQueueHandler(logging.handlers.QueueHandler):
    """Drops and counts lines when the writer can't keep up, rather than holding up the flow."""

    dropped = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            type(self).dropped += 1

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """As it is: the line is formatted by the thread that writes it."""
        return record

    def flush(self) -> None:
        """Return once what was logged is written, or soon after: a pipe that nobody reads must not keep a process alive."""
        patience = time.monotonic() + FLUSH_TIMEOUT_S
        while self.queue.unfinished_tasks and time.monotonic() < patience:  # type: ignore[attr-defined]
            time.sleep(0.005)


def set_up_logs(level: str, form: str = "auto", **bound: Any) -> None:
    """Route all logging of the process to stderr, through a queue.

    Args:
        level: the least level that is written.
        form: "json", "pretty", or "auto": pretty on a terminal.
        bound: fields that every line bears, such as the worker's name.
    """
    pretty = form == "pretty" or (form == "auto" and sys.stderr.isatty())

    def bind(_: Any, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        return {**event, **bound}

    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        bind,
    ]
    renderer = structlog.dev.ConsoleRenderer(colors=True) if pretty else structlog.processors.JSONRenderer()
    writer = logging.StreamHandler(sys.stderr)
    writer.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer]
        )
    )
    lines: queue.Queue[Any] = queue.Queue(limits.MAX_WAITING_LOG_LINES)
    listener = logging.handlers.QueueListener(lines, writer)
    root = logging.getLogger()
    handler = _BoundedQueueHandler(lines)
    handler.addFilter(_Seldom())
    root.handlers[:] = [handler]
    root.setLevel(level)
    for noisy in LIBRARIES:
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.getLevelName(level)))
    listener.start()
    atexit.register(listener.stop)
