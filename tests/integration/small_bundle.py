"""A bundle to test with: trained in seconds on a little simulated history."""

from pathlib import Path

from assay.models.training import train
from assay.schemas.transaction import Transaction
from assay.streams.simulator import simulate
from assay.tables.rates import SHIPPED_RATES, Rates

HISTORY, USERS, FRAUD_SHARE = 3_000, 60, 0.05
START_MS = 1_767_225_600_000  # when tests begin


def train_small_bundle(path: Path, start_ms: int) -> None:
    """Train one into `path`, on payments from `start_ms` (epoch, ms) on."""
    history = list(simulate(seed=5, transactions=HISTORY, start_ms=start_ms, users=USERS, fraud_share=FRAUD_SHARE))
    train(
        [Transaction.model_validate(payment.transaction) for payment in history],
        [payment.fraud for payment in history],
        path,
        rates=Rates.load(SHIPPED_RATES),
    )
