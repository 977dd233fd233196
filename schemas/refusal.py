"""A record that is refused: its dead letter, and the error that its caller gets."""

import dataclasses
import struct
from hashlib import blake2b
from typing import Final

import orjson

from assay.schemas.headers import ERROR_TYPE, Header, ReplyAddress, passed_on, reply_headers
from assay.schemas.limits import MAX_HEADER_BYTES, MAX_KEY_BYTES
from assay.schemas.refused import RefusalCode
from assay.schemas.source import SOURCE_HEADER, WITHHELD_HEADER, Origin, OutRecord, Source, SourceRecord, origin_of

__all__ = ["Refusal", "RefusalCode", "dead_letter", "error_reply"]

ERROR_HEADER: Final = "assay-error"
DETAIL_HEADER: Final = "assay-error-detail"
DIGEST_HEADER: Final = "assay-digest"  # of the whole record, where less than it is kept
CUT_HEADER: Final = "assay-cut"  # how many bytes the value had
NEST_ERROR_HEADER: Final = "kafka_nest-err"  # NestJS throws what it holds

WHY_HEADERS: Final = frozenset(
    {ERROR_HEADER, DETAIL_HEADER, DIGEST_HEADER, CUT_HEADER, SOURCE_HEADER, "kafka_dlt-exception-message"}
    | {f"kafka_dlt-original-{what}" for what in ("topic", "partition", "offset", "timestamp")}
)
"""All that a dead letter may have beside the headers of its record."""

# What a record takes beside its key, value and headers (KIP-98: batch header 61 bytes, record at most 45), and each
# header beside its name and value.
_RECORD_OVERHEAD, _HEADER_OVERHEAD = 128, 10


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """A record that was refused, and why. Nothing of the record shows in its repr: it may end in a log."""

    record: SourceRecord = dataclasses.field(repr=False)
    code: RefusalCode
    field: str  # the path of a field ("merchant.id"), a header's name, or "value", "key", "headers"
    expected: str
    address: ReplyAddress | None = dataclasses.field(default=None, repr=False)
    transaction_id: str | None = None

    @property
    def source(self) -> Source:
        """Which record it was."""
        return Source(self.record.topic, self.record.partition, self.record.offset)

    @property
    def message(self) -> str:
        """Field and expectation, for people."""
        return f"{self.field}: expected {self.expected}"


def dead_letter(refusal: Refusal, topic_limit: int, hash_key: bytes | None = None, *, rekeyed: bool = False) -> OutRecord:
    """The dead letter of a refused record: itself, with headers that say why.

    `topic_limit` is the topic's `max.message.bytes`: what exceeds it is cut. `hash_key` keys the digest that stands for
    what is withheld (code `card_number`); without a key there is none, since card numbers can be guessed from a plain one.
    `rekeyed`: the record is a copy, and what it was made from is named as the original.
    """
    record, why = refusal.record, _why(refusal, origin_of(refusal.record) if rekeyed else None)
    if refusal.code is RefusalCode.CARD_NUMBER:
        if rekeyed and (digest := _withheld_digest(record)):
            return None, None, [*why, (DIGEST_HEADER, digest)]
        return None, None, why if hash_key is None else [*why, (DIGEST_HEADER, record_digest(record, hash_key))]
    key, value = record.key, record.value
    headers = [(name, written or b"") for name, written in record.headers]
    if _size(key, value, headers) + _size(None, None, why) + _RECORD_OVERHEAD <= topic_limit:
        return key, value, [*headers, *why]
    why += [(DIGEST_HEADER, record_digest(record, hash_key or b"")), (CUT_HEADER, b"%d" % len(value or b""))]
    if _size(None, None, headers) > MAX_HEADER_BYTES:
        headers = []
    if key is not None and len(key) > MAX_KEY_BYTES:
        key = None
    left = topic_limit - _RECORD_OVERHEAD - _size(None, None, why)
    if _size(key, None, headers) > left:
        key, headers = None, []
    left -= _size(key, None, headers)
    return key, value if value is None else value[: max(0, left)], [*headers, *why]


def error_reply(refusal: Refusal, type_id: bytes | None = None, *, rekeyed: bool = False) -> OutRecord | None:
    """What the caller gets, at `refusal.address`; None where it gave no usable address. `type_id`: see `headers`;
    `rekeyed`: see `dead_letter`.

    NestJS throws the value of `kafka_nest-err`; Spring raises with a `replyErrorChecker` that looks for `assay-error`; who
    checks nothing reads a review.
    """
    if refusal.address is None:
        return None
    error = {"code": refusal.code, "message": refusal.message, "field": refusal.field}
    body = {"action": "review", "tier": "refused", "error": error, "transaction_id": refusal.transaction_id}
    withheld = refusal.code is RefusalCode.CARD_NUMBER
    trace = [] if withheld else _trace(refusal.record, passed_on(rekeyed=rekeyed))
    key = refusal.record.key
    if withheld or len(key or b"") > MAX_KEY_BYTES:  # a reply that a topic does not take costs others theirs
        key = None
    headers = reply_headers(refusal.address, refusal.source, trace, event_type=ERROR_TYPE, type_id=type_id)
    headers += [(ERROR_HEADER, refusal.code.encode()), (NEST_ERROR_HEADER, orjson.dumps(error))]
    return key, orjson.dumps(body), headers


def _why(refusal: Refusal, origin: Origin | None) -> list[Header]:
    """Ours, and the names that Spring's `DeadLetterPublishingRecoverer` writes, numbers big-endian."""
    record = refusal.record
    original, appended_ms = (refusal.source, record.timestamp) if origin is None else origin
    return [
        (ERROR_HEADER, refusal.code.encode()),
        (DETAIL_HEADER, refusal.message.encode()),
        (SOURCE_HEADER, refusal.source.header()),
        ("kafka_dlt-original-topic", original.topic.encode()),
        ("kafka_dlt-original-partition", struct.pack(">i", original.partition)),
        ("kafka_dlt-original-offset", struct.pack(">q", original.offset)),
        ("kafka_dlt-original-timestamp", struct.pack(">q", appended_ms)),
        ("kafka_dlt-exception-message", f"{refusal.code}: {refusal.message}".encode()),
    ]


def _withheld_digest(record: SourceRecord) -> bytes:
    """That of the record whose copy came without what held a card number; empty for what is no such copy."""
    return next((value.partition(b" ")[2] for name, value in record.headers if name == WITHHELD_HEADER and value), b"")


def _trace(record: SourceRecord, names: tuple[str, ...]) -> list[Header]:
    last = {name: value for name, value in record.headers if name in names and value is not None}
    return list(last.items())


def record_digest(record: SourceRecord, hash_key: bytes) -> bytes:
    """BLAKE2b of key, value and headers, each with its length, in hexadecimal; keyed when there is a key."""
    if len(hash_key) > blake2b.MAX_KEY_SIZE:
        hash_key = blake2b(hash_key).digest()
    digest = blake2b(digest_size=32, key=hash_key)
    parts = [record.key, record.value]
    for name, value in record.headers:
        parts += [name.encode(errors="surrogatepass"), value]
    for part in parts:
        digest.update(b"-" if part is None else b"%d:%b" % (len(part), part))
    return digest.hexdigest().encode()


def _size(key: bytes | None, value: bytes | None, headers: list[Header]) -> int:
    """Bytes of a record's parts, at most (a character of a name is at most 4)."""
    names = sum(len(name) if name.isascii() else 4 * len(name) for name, _ in headers)
    return len(key or b"") + len(value or b"") + names + sum(len(written) + _HEADER_OVERHEAD for _, written in headers)
