"""`assay outcome`: tell what became of one transaction."""

from typing import Annotated, Any

import typer

from assay.schemas.outcome import Detail, Status

STATUSES, DETAILS = ", ".join(Status), ", ".join(Detail.model_fields)


def outcome(
    user: Annotated[str, typer.Argument(help="user_id.")],
    transaction: Annotated[str, typer.Argument(help="transaction_id.")],
    status: Annotated[str, typer.Option(help=f"{STATUSES}.")],
    amount: Annotated[
        str | None, typer.Option(help="In the transaction's currency, where it is a part; else the whole.")
    ] = None,
    detail: Annotated[list[str] | None, typer.Option(help=f"NAME=VALUE, again for each: {DETAILS}.")] = None,
    supersedes: Annotated[str | None, typer.Option(help="outcome_id of an earlier one whose place this takes.")] = None,
    known_at: Annotated[str | None, typer.Option(help="When it became known, RFC 3339; now when absent.")] = None,
    id_: Annotated[str | None, typer.Option("--id", help="outcome_id; a new one when absent.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one line of JSON: what was sent, and where it lies.")] = False,
) -> None:
    """Tell what became of one transaction. It is checked before it is sent: exits 2 where it is none, or Kafka fails.

    The same --id again is the same outcome. Whether the transaction is known shows in the worker's metrics:
    assay_outcomes_total, with the status, or "unknown".

    \b
    Examples:
      assay outcome u-17 t-42 --status fraud --detail fraud_type=card_not_present
      assay outcome u-17 t-42 --status disputed --amount 30.00 --id d-7
      assay outcome u-17 t-42 --status dispute_reversed --supersedes d-7
      assay outcome u-17 t-42 --status issuer_declined --detail issuer_code=51 --known-at 2026-03-02T09:30:00Z
    """
    import asyncio
    import time

    import orjson

    from assay.streams.settings import Settings

    now_ms = time.time_ns() // 1_000_000
    said = {
        "outcome_id": id_ or f"o-{time.time_ns():x}",
        "user_id": user,
        "transaction_id": transaction,
        "status": status,
        "amount": amount,
        "detail": _details(detail or []) or None,
        "supersedes": supersedes,
        "known_at": now_ms if known_at is None else known_at,
    }
    value = orjson.dumps({name: each for name, each in said.items() if each is not None})
    _check(value, now_ms)
    partition, offset = asyncio.run(_send(Settings.load(), user.encode(), value))
    if json_:
        print(orjson.dumps(orjson.loads(value) | {"partition": partition, "offset": offset}).decode())
    else:
        print(f"{said['outcome_id']}: {status} of {transaction}, at {partition}/{offset} of the outcomes")
        if status == Status.FRAUD:
            from assay.tables.features import DAY, LABEL_DELAY_S

            days = LABEL_DELAY_S // DAY
            print(f"Features of fraud count it once its payment is {days} days old; live quality at once, if it is known.")


def _details(written: list[str]) -> dict[str, str]:
    from assay.schemas.errors import SettingError

    found = {}
    for each in written:
        name, equals, value = each.partition("=")
        if not equals or name not in Detail.model_fields:
            raise SettingError("--detail can't be read", expected=f"NAME=VALUE, NAME one of {DETAILS}", got=name)
        found[name] = value
    return found


def _check(value: bytes, now_ms: int) -> None:
    """As a worker checks it. Raises InputError."""
    from aiokafka.structs import ConsumerRecord

    from assay.schemas.errors import InputError
    from assay.schemas.limits import MAX_FUTURE_MS
    from assay.schemas.outcome import Outcome, outcome_of, read_outcome

    record: Any = ConsumerRecord("outcomes", 0, 0, now_ms, 0, None, value, None, 0, len(value), ())
    read = outcome_of(record)
    if not isinstance(read, Outcome):
        assert read is not None
        raise InputError(f"no outcome: {read.field}", expected=read.expected)
    if read_outcome(value).known_at.ms > now_ms + MAX_FUTURE_MS:
        raise InputError("no outcome: known_at", expected="a time that has come: what is to come is not known")


async def _send(settings: Any, key: bytes, value: bytes) -> tuple[int, int]:
    """Return the partition and offset of its record. Raises ServiceError."""
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    from assay.schemas.errors import ServiceError
    from assay.streams.kafka import client_options
    from assay.streams.reading import begin, partitions_of

    options = client_options(settings)
    await partitions_of(options, settings.outcomes)  # which says what to do where there is no such topic
    producer = AIOKafkaProducer(**options, acks="all", enable_idempotence=True)
    await begin(producer, options)
    try:
        placed = await producer.send_and_wait(settings.outcomes, value, key=key)
    except KafkaError as error:
        raise ServiceError(
            f"Kafka did not take it: {error!r}", mend="send it again with the same --id: twice counts once"
        ) from error
    finally:
        await producer.stop()
    return placed.partition, placed.offset
