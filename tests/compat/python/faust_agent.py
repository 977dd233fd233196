"""A Faust app asks with `ask()`, as it asks its own agents; this one has its place on Assay's transactions topic."""

import uuid
from typing import Any

import faust


def checkout(bootstrap: str, transactions: str) -> tuple[faust.App, Any]:
    """The app, and the agent whose `ask(transaction, key=user_id)` gives the decision, a dict.

    A refused transaction's answer is of the tier `refused`, and says why under `error`.
    """
    app = faust.App(
        f"checkout-{uuid.uuid4().hex[:8]}",
        broker=f"kafka://{bootstrap}",
        reply_create_topic=True,  # at the start, not at the first ask(): its reply would find no topic
        producer_linger=0.001,
    )
    topic = app.topic(transactions, key_type=str, value_type=dict, value_serializer="json", key_serializer="raw")

    @app.agent(topic)
    async def assay(stream: Any) -> None:
        """Never run: Assay is what reads these."""

    return app, assay
