"""Faust's own worker around ours: signals, event loop and shutdown, each with a deadline, and every failure with its reason."""

import gc
import logging
import signal
import threading
from typing import Any, Protocol

import faust
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError

from assay.schemas.errors import AssayError, ServiceError
from assay.streams.ending import end_process, refuse_to_start
from assay.streams.settings import Settings

GC_THRESHOLD = 100_000  # what lives long is frozen at start; what a micro-batch makes dies by its reference counts
STOP_GRACE_S = 8.0  # beside the drain: for leaving the group and closing what is open

log = logging.getLogger("assay.worker")


class Runs(Protocol):
    """`agents.worker.Worker`"""

    app: Any
    settings: Settings

    async def start(self) -> None: ...
    async def drain(self) -> None: ...


class FaustWorker(faust.Worker):
    """Faust's own worker: signals, event loop and shutdown; our parts are started before the app and our logs are kept."""

    def __init__(self, worker: Runs) -> None:
        super().__init__(worker.app, override_logging=False, redirect_stdouts=False, quiet=True)
        self.spinner = None  # it writes to the terminal that our logs are on
        self._worker, self._stopping = worker, False

    def _schedule_shutdown(self, received: signal.Signals) -> None:
        """Stop in good order, but not for ever: Faust waits without a deadline for a consumer whose Kafka is gone."""
        if self._stopping:
            end_process(f"a second signal came: {received.name}")
        self._stopping = True
        within_s = self._worker.settings.drain_timeout_s + STOP_GRACE_S
        log.info("stopping: %s; at most %.0f s", received.name, within_s)
        last = threading.Timer(within_s, end_process, (f"it did not stop within {within_s:.0f} s",))
        last.daemon = True
        last.start()
        super()._schedule_shutdown(received)

    async def start(self) -> None:
        """Returns when the worker has stopped. Whatever Faust fails of ends the process with a reason, not a traceback."""
        try:
            await super().start()
        except Exception as error:
            end_process("Faust could not start or go on", _explained(error, self._worker.settings))
        if self.crash_reason is not None:
            end_process("Faust has crashed", _explained(self.crash_reason, self._worker.settings))

    async def on_first_start(self) -> None:
        try:
            await self._worker.start()
        except AssayError as error:
            refuse_to_start(error)
        await super().on_first_start()
        self.app.consumer.drain = self._worker.drain
        self.app.consumer.drain_timeout_s = self._worker.settings.drain_timeout_s
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD, 10, 10)


def _explained(error: BaseException, settings: Settings) -> BaseException:
    """An error of the Kafka client in words for whoever is woken by it."""
    if not isinstance(error, KafkaError):
        return error
    if isinstance(error, TopicAuthorizationFailedError | GroupAuthorizationFailedError):
        return ServiceError(
            f"Kafka at {settings.bootstrap_servers} does not allow it",
            expected="the rights of a worker, which `assay acls --role worker` lists",
            got=repr(error),
            mend="grant what is missing, then start the worker again",
        )
    return ServiceError(
        f"Kafka at {settings.bootstrap_servers} went away",
        got=repr(error),
        mend="see that Kafka answers, then start the worker again, as its supervisor does",
    )
