"""What the contenders in this folder share: the job they are given, the decision they publish, and when they end."""

import os
import sys
import threading
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from assay.models.bundle import Bundle
from assay.schemas.decision import Tier

CORRELATION = "correlation-id"  # copied from each transaction to its decision


@dataclass(frozen=True)
class Job:
    """Where to read transactions, where to write decisions, and with which models to score. JSON on the command line."""

    bootstrap_servers: str
    source: str
    decisions: str
    group: str
    partitions: int
    bundle: str
    data_dir: str

    @classmethod
    def from_command_line(cls) -> "Job":
        return cls(**orjson.loads(sys.argv[1]))


class Scores:
    """The three models of a bundle behind one call: the worker's own compiled walk, so that no contender has better models."""

    def __init__(self, path: str) -> None:
        bundle = Bundle.load(Path(path))
        self._ensemble = bundle.ensemble
        self._review, self._decline = bundle.thresholds[Tier.FULL]
        self.features = len(bundle.manifest.features)

    def of(self, features: npt.NDArray[np.float32]) -> list[float]:
        """Probability of fraud (n,) of a float32 (n, features)."""
        probability, _ = self._ensemble.score(features, Tier.FULL)
        return probability.tolist()

    def decision(self, transaction_id: str, user_id: str, amount: Decimal | str, score: float) -> dict[str, Any]:
        """What is published: far less than the worker's decision, which also holds reasons, rules and where it comes from."""
        action = "decline" if score >= self._decline else "review" if score >= self._review else "approve"
        return {
            "transaction_id": transaction_id,
            "user_id": user_id,
            "amount": str(amount),
            "fraud_score": score,
            "action": action,
        }


def end_with_parent() -> None:
    """End at once when the process that started this one is gone: it holds the other end of standard input."""

    def wait() -> None:
        os.read(0, 1)  # nothing is ever written there; `sys.stdin` would hold a lock that the interpreter needs to end
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
