"""Outcomes: what became of transactions. For now they are checked and counted; risk windows and live quality follow here."""

import logging
from typing import Any

from pydantic import ValidationError

from assay.schemas.outcome import read_outcome
from assay.streams.metrics import Metrics

log = logging.getLogger("assay.learn")


class Learner:
    """Reads the outcomes topic, record by record."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def run(self, stream: Any, consumer: Any) -> None:
        """For ever; nothing that an outcome says can stop it."""
        async for event in stream.events():
            self.learn(event.message.value)
            consumer.finished[event.message.tp] = event.message.offset + 1

    def learn(self, value: bytes | None) -> None:
        """One outcome; one that is not valid is counted and skipped."""
        if value is None:
            return
        try:
            outcome = read_outcome(value)
        except ValueError as error:
            self._metrics.outcomes.labels("invalid").inc()
            reasons = error.errors(include_url=False, include_input=False) if isinstance(error, ValidationError) else []
            log.warning("an outcome can't be read: %s", reasons[0]["msg"] if reasons else type(error).__name__)
        else:
            self._metrics.outcomes.labels(outcome.status.value).inc()
