"""A stock Faust application that does the same job in Faust's own idioms.

It does: decode with a `faust.Record`, take() batches, keep a small state per user in a Table on RocksDB (the `rocksdict`
driver) with its changelog topic, score a whole batch with the same models from the same bundle, and `topic.send` a short
decision with the correlation header. Batches and the models' compiled walk are generous to it: record by record it is
several times slower.

It does not: validate, keep windows or look at entities, evaluate rules, give reasons, recognise repeats, publish evidence,
or lose nothing: Faust acknowledges a batch whose sends are still under way, and commits past what failed.

Patched in one place, since it refuses to run otherwise: a Table can't be written inside of `take_events` ("Cannot modify
table key from outside of stream iteration", faust-streaming issue 497), because no event is current there. `write_as_part_of`
makes each event of the batch current again, through a private name of Faust.
"""

import struct
import weakref
from decimal import Decimal
from typing import Any

import faust
import faust.streams
import numpy as np
from job import CORRELATION, Job, Scores, end_with_parent

BATCH, WITHIN_S = 128, 0.01
STATE = struct.Struct("<24d")
HALF_LIVES = (1, 4, 16, 64, 256, 1_024, 4_096, 16_384)  # in transactions of the user


class Payment(faust.Record, serializer="json"):
    """The fields that the application uses; the others are left as they come."""

    transaction_id: str
    user_id: str
    amount: Decimal
    currency: str
    timestamp: str


def write_as_part_of(event: Any) -> None:
    """THE PATCH. What the Table is told next belongs to this event's partition."""
    faust.streams._current_event.set(weakref.ref(event))


def fold(state: bytes | None, amount: float) -> tuple[float, ...]:
    """24 doubles: for each half-life, how many, how much, and how much squared, fading with each transaction."""
    values = STATE.unpack(state) if state else (0.0,) * 24
    folded = []
    for index, half_life in enumerate(HALF_LIVES):
        kept = 0.5 ** (1 / half_life)
        count, total, squares = values[3 * index : 3 * index + 3]
        folded += (count * kept + 1, total * kept + amount, squares * kept + amount * amount)
    return tuple(folded)


def application(job: Job, scores: Scores) -> faust.App:
    """The application, wired for that job."""
    app = faust.App(
        job.group,
        broker=f"kafka://{job.bootstrap_servers}",
        store="rocksdb://",
        datadir=job.data_dir,
        web_enabled=False,
        topic_partitions=job.partitions,
        topic_replication_factor=1,
        topic_disable_leader=True,
        consumer_auto_offset_reset="earliest",
    )
    source = app.topic(job.source, key_type=bytes, key_serializer="raw", value_type=Payment, partitions=job.partitions)
    decisions = app.topic(job.decisions, key_type=bytes, key_serializer="raw", value_serializer="json")
    states = app.Table("states", key_type=bytes, value_type=bytes, partitions=job.partitions, options={"driver": "rocksdict"})

    @app.agent(source)
    async def score(stream: Any) -> None:
        async for events in stream.take_events(BATCH, within=WITHIN_S):
            features = np.zeros((len(events), scores.features), np.float32)
            for row, event in zip(features, events, strict=True):
                write_as_part_of(event)
                state = fold(states.get(event.key), float(event.value.amount))
                states[event.key] = STATE.pack(*state)
                row[: len(state)] = state
            for event, fraud in zip(events, scores.of(features), strict=True):
                payment = event.value
                await decisions.send(
                    key=event.key,
                    value=scores.decision(payment.transaction_id, payment.user_id, payment.amount, fraud),
                    headers={CORRELATION: event.headers[CORRELATION]},
                )

    return app


if __name__ == "__main__":
    given = Job.from_command_line()
    end_with_parent()
    faust.Worker(application(given, Scores(given.bundle)), loglevel="warning").execute_from_commandline()
