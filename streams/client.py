"""The client library: send a transaction, wait for its decision.

async with DecisionClient("127.0.0.1:9092") as client:
    decision = await client.decide(transaction, timeout=0.2)
"""

import asyncio
import logging
import secrets
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from decimal import Decimal
from typing import Any, Self

import orjson

from assay.schemas.decision import Decision, read_reply
from assay.schemas.errors import AssayError, DecisionRefused, DecisionTimeout, ServiceError
from assay.schemas.headers import TIMEOUT_HEADER, Header
from assay.schemas.signature import BadSignature, SigningKey, VerifyingKey, token_of, verify
from assay.schemas.source import CONFLICT_HEADER, REPLAY_HEADER, SourceRecord
from assay.schemas.transaction import Transaction
from assay.streams.call_tracing import call_tracing
from assay.streams.exchange import Exchange, KafkaExchange
from assay.streams.kafka import client_options
from assay.streams.settings import Settings
from assay.streams.waiters import Counts, Waiters

DEFAULT_TIMEOUT_S = 0.2
DEFAULT_REPLY_TOPIC = "assay.reply"  # on the workers' allow-list by default: *.reply
CORRELATION_HEADER = "correlation-id"
log = logging.getLogger("assay.client")

_SHARE_FOR_WORKER = 0.75  # of the caller's patience; the rest is for the way there and back


class DecisionClient:
    """Asks for decisions over Kafka. Hundreds of calls may wait at once. Use it as an async context manager.

    Args:
        bootstrap: brokers, HOST:PORT, separated by commas.
        transactions_topic: the topic that the workers read, with its prefix.
        reply_topic: where replies are to go; its name must be on the workers' allow-list.
        create_reply_topic: make that topic where it is missing.
        options: more of aiokafka's client options, for TLS and credentials.
        signing_key: signs the transactions; made for their topic (`SigningKey(..., topic=...)`).
        decision_keys: what replies must be signed with; others count as `untrusted`, and are not heard. None: none is asked.
        exchange: replaces Kafka, for tests.
    """

    def __init__(
        self,
        bootstrap: str = "127.0.0.1:9092",
        *,
        transactions_topic: str = "transactions",
        reply_topic: str = DEFAULT_REPLY_TOPIC,
        create_reply_topic: bool = True,
        options: Mapping[str, Any] | None = None,
        signing_key: SigningKey | None = None,
        decision_keys: Mapping[str, VerifyingKey] | None = None,
        exchange: Exchange | None = None,
    ) -> None:
        self._signing_key, self._decision_keys = signing_key, decision_keys
        self._tracing = call_tracing(transactions_topic)
        self._exchange: Exchange = exchange or KafkaExchange(
            {"bootstrap_servers": bootstrap, **(options or {})},
            transactions_topic=transactions_topic,
            reply_topic=reply_topic,
            create=create_reply_topic,
        )
        self._waiters: Waiters[SourceRecord] = Waiters(secrets.token_bytes(8))
        self._listener: asyncio.Task[None] | None = None
        self._failure: AssayError | None = None
        self.repeats = 0  # decisions that had been made before, since the id had been sent before
        self.conflicts = 0  # those of another payload
        self.untrusted = 0  # replies that none of `decision_keys` has signed

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """A client of the deployment that these settings describe."""
        return cls(
            settings.bootstrap_servers,
            transactions_topic=settings.incoming,
            reply_topic=settings.topic(DEFAULT_REPLY_TOPIC),
            options=client_options(settings),
        )

    @property
    def counts(self) -> Counts:
        """Replies so far: first ones, duplicates, late ones, and those that no call of this client waits for."""
        return self._waiters.counts

    async def __aenter__(self) -> Self:
        """Ready only when the reply position is resolved: a reply to the first call can't be missed. Raises ServiceError."""
        try:
            await self._exchange.start()
        except BaseException:
            await self._exchange.close()
            raise
        self._listener = asyncio.create_task(self._listen(), name="replies")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait([self._listener])
        self._waiters.fail_all(ServiceError("the client was closed while a call waited"))
        await self._exchange.close()

    async def decide(
        self,
        transaction: Transaction | Mapping[str, Any],
        timeout: float = DEFAULT_TIMEOUT_S,
        *,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> Decision:
        """Send the transaction and wait for its decision, `timeout` seconds from now for all of it.

        A review or a decline is a normal answer. Calling again with the same transaction gets the same decision; so does
        another payload under the same id, which is a mistake: it is logged, and counted in `conflicts`.

        Args:
            headers: more headers, for example `traceparent`, or `assay-explain: 1` for the reasons of an approval too.

        Raises:
            DecisionTimeout: no answer in time; the message says what to do instead.
            DecisionRefused: the transaction is not one; code, field and message say why.
            ServiceError: it could not be sent, or replies can no longer be read.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        if self._failure is not None:
            raise self._failure
        key, value = _encode(transaction)
        with self._tracing.call(headers) if self._tracing else nullcontext(headers) as asked:
            record = await self._ask(key, value, asked, deadline, timeout)
        marks = {name for name, _ in record.headers}
        self.repeats += REPLAY_HEADER in marks
        if CONFLICT_HEADER in marks:
            self.conflicts += 1
            log.warning("this decision is of another payload: its transaction id was sent before with other contents")
        decision = _decision(record)
        if self._decision_keys is not None and not _is_of(decision, value):
            raise ServiceError("the reply is a signed decision on another transaction", mend="see who else writes there")
        return decision

    async def _ask(self, key: bytes, value: bytes, headers: Sequence[Header], deadline: float, timeout: float) -> SourceRecord:
        """The reply; `deadline` is on the clock of the event loop, `timeout` what it was at first."""
        correlation, reply = self._waiters.register()  # before the send, or a quick reply would find nobody
        patience = max(1, int(timeout * 1000 * _SHARE_FOR_WORKER))
        own = [(CORRELATION_HEADER, correlation), (TIMEOUT_HEADER, b"%d" % patience)]
        delivery: asyncio.Future[Any] | None = None
        if self._signing_key is not None:
            own.append(self._signing_key.header(value))
        try:
            async with asyncio.timeout_at(deadline):
                delivery = await self._exchange.send(key, value, [*own, *headers])
                delivery.add_done_callback(lambda done: self._delivered(correlation, done))
                return await reply
        except TimeoutError:
            raise _too_late(timeout) from None
        finally:
            self._waiters.give_up(correlation)
            if delivery is not None:
                delivery.cancel()  # what has not left by now is of use to nobody

    def _delivered(self, correlation: bytes, done: "asyncio.Future[Any]") -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self._waiters.fail(correlation, ServiceError(f"the transaction could not be sent: {error!r}"))

    async def _listen(self) -> None:
        try:
            while True:
                for record in await self._exchange.receive():
                    if self._decision_keys is not None and not _is_signed(record, self._decision_keys):
                        self.untrusted += 1
                        continue
                    self._waiters.answer(_correlation(record), record)
                    if self._tracing is not None:
                        self._tracing.answered(record)
        except Exception as error:  # whatever it was: callers must not wait for what nobody reads
            failure = error if isinstance(error, AssayError) else ServiceError(f"replies can't be read: {error!r}")
            self._failure = failure
            self._waiters.fail_all(failure)


def _decision(record: SourceRecord) -> Decision:
    """The decision that a reply holds. Raises DecisionRefused where it holds an error instead."""
    try:
        reply = read_reply(record.value or b"")
    except ValueError as error:
        raise ServiceError(
            f"the reply is neither a decision nor an error: {error}", mend="see who else writes there"
        ) from error
    if isinstance(reply, Decision):
        return reply
    raise DecisionRefused(reply.error.code, reply.error.field, reply.error.message)


def _is_of(decision: Decision, transaction: bytes) -> bool:
    asked = orjson.loads(transaction)
    return (decision.user_id, decision.transaction_id) == (asked.get("user_id"), asked.get("transaction_id"))


def _is_signed(record: SourceRecord, keys: Mapping[str, VerifyingKey]) -> bool:
    try:
        verify(token_of(record.headers) or b"", record.value or b"", keys)
    except BadSignature:
        return False
    return True


def _encode(transaction: Transaction | Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Key and value. A transaction that lacks its user is sent all the same: the worker says best what is wrong with it."""
    if isinstance(transaction, Transaction):
        return transaction.user_id.encode(), transaction.model_dump_json(exclude_none=True).encode()
    return str(transaction.get("user_id", "")).encode(), orjson.dumps(dict(transaction), default=_plain)


def _plain(value: object) -> str:
    if isinstance(value, Decimal):
        return str(value)  # exact, which a JSON number read through a float is not
    raise TypeError(f"{type(value).__name__} is not JSON")


def _correlation(record: SourceRecord) -> bytes | None:
    for name, value in record.headers:
        if name == CORRELATION_HEADER:
            return value
    return None


def _too_late(timeout: float) -> DecisionTimeout:
    return DecisionTimeout(
        f"no decision within {timeout * 1000:.0f} ms",
        expected="a reply from a worker",
        mend="take your own fallback action (a review, or what your policy says for the amount) and report it on the outcomes "
        "topic; the same transaction sent again gets the decision that was made, and is counted once",
    )
