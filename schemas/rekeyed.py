"""Transactions re-keyed by their user: what a copy in the internal topic looks like.

A copy has the value and the headers of its record, the user as its key, the record's append time as its own, and a header that
names the record. So whoever scores copies needs to know nothing of it, and deadlines count from the first append.
"""

from typing import Any, Final, NamedTuple

from assay.schemas.confluent import emptied
from assay.schemas.decode import body_of, user_in
from assay.schemas.limits import MAX_HEADER_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES
from assay.schemas.mapping import Mapped
from assay.schemas.refusal import record_digest
from assay.schemas.refused import RefusalCode, Refused
from assay.schemas.source import ORIGIN_HEADER, WITHHELD_HEADER, Origin, Source, SourceRecord

_OURS: Final = frozenset({ORIGIN_HEADER, WITHHELD_HEADER})  # nobody else may say them

Headers = list[tuple[str, Any]]  # a null value stays one


class Copy(NamedTuple):
    """A copy of a transaction's record. `user` is whose transaction it is; None where that can't be told."""

    user: bytes | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    appended_ms: int  # of the record that it was made from


def copy_of(record: SourceRecord, hash_key: bytes, mapped: Mapped | None = None) -> Copy:
    """What goes into the internal topic for a record.

    What will be refused goes as it is, but for two things: of what is beyond a bound there is one byte too many and no more,
    and what holds a card number is withheld, with a digest of the record in its place that `hash_key` keys. `mapped` tells the
    user of what comes in another shape; its value goes as it is.
    """
    origin = (ORIGIN_HEADER, Origin(Source(record.topic, record.partition, record.offset), record.timestamp).header())
    headers: Headers = [(name, value) for name, value in record.headers if name not in _OURS]
    if record.value is None:
        return Copy(None, None, None, [origin], record.timestamp)  # nobody reads its key, and nobody has searched it
    try:
        user = user_in(body_of(record, mapped))
    except Refused as refused:
        if refused.code is RefusalCode.CARD_NUMBER:
            withheld = b"%b %b" % (refused.field.encode(), record_digest(record, hash_key))
            ours = [(WITHHELD_HEADER, withheld), origin]
            kept = headers if refused.field != "headers" and _fit([*headers, *ours]) else []
            return Copy(None, None, emptied(record.value), [*kept, *ours], record.timestamp)
        key = record.key if record.key is None else record.key[: MAX_KEY_BYTES + 1]
        return Copy(None, key, record.value[: MAX_VALUE_BYTES + 1], [*_cut(headers), origin], record.timestamp)
    return Copy(user, record.key if user is None else user, record.value, [*headers, origin], record.timestamp)


def _fit(headers: Headers) -> bool:
    """Whether whoever scores the copy will read them (`schemas.headers`): names have a byte between them."""
    names = sum(len(name.encode(errors="surrogatepass")) for name, _ in headers)
    return max(names + len(headers) - 1, names + sum(len(value or b"") for _, value in headers)) <= MAX_HEADER_BYTES


def _cut(headers: Headers) -> Headers:
    """As many as are within their bound, and so much of the next one that they are beyond it, as they were."""
    room, room_of_names = MAX_HEADER_BYTES + 1, MAX_HEADER_BYTES + 1
    kept: Headers = []
    for name, value in headers:
        if room <= 0 or room_of_names < 0:
            break
        name = name[:room]
        value = value if value is None else value[: max(0, room - len(name))]
        kept.append((name, value))
        room -= len(name) + len(value or b"")
        room_of_names -= len(name) + 1
    return kept
