"""The frame that Confluent's serialisers put before a value: a zero byte, the schema's id (4 bytes, big-endian), and for
Protobuf where the message stands in its schema, a list of indexes as zigzag varints, whose length goes first; a single 0
stands for the first message (Confluent's documentation, "Wire format").

No JSON and no Protobuf begins with a zero byte, and no list of indexes with a brace: so what a frame holds is told by its
bytes alone, and nobody has to be asked what an id means before a payment can be judged.
"""

from typing import Final, NamedTuple

MAGIC: Final = b"\0"
_HEAD: Final = 5  # the zero byte and the id
_BLANK: Final = b" \t\r\n"  # what JSON allows before a value
_MOST_INDEXES: Final = 4  # of a message within a message; 5 would look like a blank
_MOST_BYTES: Final = 3  # of one index


class Framed(NamedTuple):
    """What a frame holds."""

    schema_id: int
    payload: bytes
    is_protobuf: bool


def unframe(value: bytes) -> Framed:
    """Take the frame off. Raises ValueError where there is none, or nothing in it."""
    if value[:1] != MAGIC or len(value) <= _HEAD:
        raise ValueError("no frame: a zero byte, 4 bytes of a schema id, and a value")
    schema_id, payload = int.from_bytes(value[1:_HEAD], "big"), value[_HEAD:]
    if payload.lstrip(_BLANK)[:1] in (b"{", b"["):
        return Framed(schema_id, payload, False)
    count, at = _zigzag(payload, 0)
    if not 0 <= count <= _MOST_INDEXES:
        raise ValueError("neither JSON nor the indexes of a message")
    for _ in range(count):
        _, at = _zigzag(payload, at)
    if at == len(payload):
        raise ValueError("nothing behind the indexes of a message")
    return Framed(schema_id, payload[at:], True)


def frame(schema_id: int, payload: bytes, index: int | None = None) -> bytes:
    """A value in its frame; `index` is the place of a Protobuf message in its schema, at the top, at most 63.

    >>> frame(7, b"{}").hex(" "), frame(7, b"x", 0).hex(" "), frame(7, b"x", 1).hex(" ")
    ('00 00 00 00 07 7b 7d', '00 00 00 00 07 00 78', '00 00 00 00 07 02 02 78')
    """
    indexes = b"" if index is None else b"\0" if index == 0 else bytes((2, 2 * index))
    return MAGIC + schema_id.to_bytes(4, "big") + indexes + payload


def emptied(value: bytes) -> bytes:
    """What holds nothing any more and looks alike from outside: in a frame, of the same kind, where `value` was in one.

    >>> emptied(b"{}"), emptied(frame(7, b"{}")).hex(" "), emptied(frame(7, b"x", 1)).hex(" ")
    (b'', '00 00 00 00 00 7b', '00 00 00 00 00 00 00')
    """
    if value[:1] != MAGIC:
        return b""
    try:
        is_protobuf = unframe(value).is_protobuf
    except ValueError:
        return MAGIC
    return frame(0, MAGIC, 0) if is_protobuf else frame(0, b"{")


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where the next one begins. Raises ValueError."""
    number = 0
    for shift in range(_MOST_BYTES):
        if at + shift >= len(data):
            break
        byte = data[at + shift]
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at + shift + 1
    raise ValueError("the indexes of a message are not whole")
