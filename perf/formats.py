"""What reading and answering cost by format: `python perf/formats.py`. CPU time, one core; the last line is JSON.

Read: `decode` of micro-batches of 256, to requests. Answered: one reply rewritten, off the answer path.
"""

import argparse
import json
import time
from collections.abc import Callable

import orjson
from aiokafka import ConsumerRecord

from assay.schemas.answer_format import ANSWER_SCHEMAS, in_format
from assay.schemas.confluent import frame
from assay.schemas.decode import decode
from assay.schemas.formats import Format
from assay.schemas.protobuf import message_class

APPENDED_MS, BATCH = 1_772_362_800_250, 256
Header = tuple[str, bytes]
PROTOBUF: Header = ("content-type", b"application/protobuf")


def body(number: int) -> dict[str, object]:
    """A transaction with every field."""
    return {
        "transaction_id": f"t-{number}",
        "user_id": f"u-{number % 97}",
        "payment_id": f"p-{number}",
        "kind": "purchase",
        "amount": "129.90",
        "currency": "EUR",
        "timestamp": "2026-03-01T12:00:00.250+01:00",
        "merchant": {"id": "m-1", "category": "5411", "country": "DE"},
        "instrument": {"id": "tok_9f8e", "bin": "411111", "issuer_country": "DE"},
        "location": {"country": "DE", "latitude": 52.520008, "longitude": 13.404954, "time_zone": "Europe/Berlin"},
        "device": {"id": "d-1", "ip": "203.0.113.77", "type": "mobile"},
        "channel": "ecom",
        "attributes": {"basket": 3, "coupon": "SPRING"},
    }


def as_protobuf(transaction: dict[str, object]) -> bytes:
    parts = {name: value for name, value in transaction.items() if name != "attributes"}
    message = message_class("Transaction")(**parts)
    message.attributes["basket"].integer = 3  # type: ignore[attr-defined]
    message.attributes["coupon"].text = "SPRING"  # type: ignore[attr-defined]
    return message.SerializeToString()


def as_event(transaction: dict[str, object]) -> bytes:
    return orjson.dumps({"specversion": "1.0", "id": "e", "source": "/shop", "type": "payment", "data": transaction})


FORMATS: dict[str, tuple[Callable[[dict[str, object]], bytes], list[Header]]] = {
    "json": (orjson.dumps, []),
    "protobuf": (as_protobuf, [PROTOBUF]),
    "json_framed": (lambda transaction: frame(7, orjson.dumps(transaction)), []),
    "protobuf_framed": (lambda transaction: frame(7, as_protobuf(transaction), 0), []),
    "cloudevent": (as_event, [("content-type", b"application/cloudevents+json")]),
}
DECISION = {
    "transaction_id": "t-1",
    "user_id": "u-1",
    "fraud_score": 0.25,
    "action": "review",
    "explanation": [{"code": f"code-{n}", "text": "a reason for people", "weight": 1.5} for n in range(4)],
    "rules": ["r-1"],
    "model": {"version": "b" * 12, "role": "champion", "member_scores": [0.1, 0.2, 0.3]},
    "digests": dict.fromkeys(("bundle", "rules", "lists", "thresholds", "rates"), "d" * 12),
    "tier": "full",
    "late_event": False,
    "deadline_missed": False,
    "decided_at": "2026-03-01T12:00:00.250Z",
    "latency_ms": 12,
    "decided_by": {"worker": "worker-1", "generation": 3},
    "source": {"topic": "transactions", "partition": 1, "offset": 41},
}


def least_us(call: Callable[[], object], repeats: int) -> float:
    """Least CPU time of one call, in microseconds."""
    took: list[float] = []
    for _ in range(repeats):
        began = time.process_time_ns()
        call()
        took.append((time.process_time_ns() - began) / 1000)
    return min(took)


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU time of a record by format: read, and answered.")
    parser.add_argument("--repeats", type=int, default=200, help="of each; the least counts (%(default)s)")
    repeats = parser.parse_args().repeats
    result: dict[str, float] = {}
    for name, (written, content_type) in FORMATS.items():
        headers = [("correlation-id", b"c"), ("reply-to", b"shop.reply"), ("reply-partition", b"0"), *content_type]
        records = [
            ConsumerRecord("transactions", 0, n, APPENDED_MS, 1, b"u", value, None, 1, len(value), headers)
            for n, value in enumerate(written(body(n)) for n in range(BATCH))
        ]
        assert len(decode(records).requests) == BATCH
        result[f"read_{name}_us"] = round(least_us(lambda records=records: decode(records), repeats) / BATCH, 2)  # type: ignore[misc]
    reply = (b"u-1", orjson.dumps(DECISION), [("content-type", b"application/json")])
    ids = dict.fromkeys(ANSWER_SCHEMAS, 7)
    for name, wanted in {
        "protobuf": Format(b"application/protobuf", is_protobuf=True),
        "json_framed": Format(is_framed=True),
        "protobuf_framed": Format(b"application/protobuf", is_protobuf=True, is_framed=True),
    }.items():
        result[f"answer_{name}_us"] = round(least_us(lambda wanted=wanted: in_format(reply, wanted, ids), 10 * repeats), 2)  # type: ignore[misc]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
