"""Assay's own client: one deadline, its own partition of the reply topic, no consumer group."""

from collections.abc import Mapping
from typing import Any

from assay.schemas.errors import DecisionRefused, DecisionTimeout
from assay.streams.client import DecisionClient


async def action_for(client: DecisionClient, transaction: Mapping[str, Any], timeout: float = 0.2) -> str:
    """What to do with a payment: approve, review or decline."""
    try:
        decision = await client.decide(transaction, timeout)
    except DecisionTimeout:
        return "review"  # your own fallback; say on `outcomes` what became of the payment
    except DecisionRefused as refused:
        raise ValueError(f"not a transaction: {refused.code}: {refused.field}") from refused
    return str(decision.action)
