"""The records that a plan's transactions arrive as."""

import orjson

from assay.schemas.source import OutRecord

from .plan import Kind, Sent

CARD_NUMBER = "4111111111111111"


def record_of(sent: Sent, now: float) -> OutRecord:
    """What is appended to the transactions topic at `now` (epoch, seconds)."""
    user, number = f"user-{sent.user}", sum(sent.id.encode())
    body = {
        "transaction_id": sent.id,
        "user_id": user,
        "amount": str(10 + sent.variant + number % 50),
        "currency": "EUR",
        "timestamp": int(now * 1000),
        "merchant": {"id": CARD_NUMBER if sent.kind is Kind.CARD else f"merchant-{number % 7}"},
    }
    if sent.kind is Kind.INVALID:
        del body["merchant"]
    value = {Kind.MALFORMED: b"{", Kind.TOMBSTONE: None}.get(sent.kind, orjson.dumps(body))
    headers = [("reply-to", b"checkout.reply"), ("correlation-id", sent.id.encode())] if sent.reply else []
    return user.encode(), value, headers
