"""Finding card numbers where none may be: a number of a known issuer's form, in text of any kind.

A card number is 13 to 19 digits that fulfil Luhn's check (ISO/IEC 7812-1) *and* have a length and a prefix that some
network issues. Luhn alone would refuse one in ten numeric ids. Found are: digits in one piece, and in the groups
that cards print, with blanks or hyphens. Not taken for one: the fraction of a decimal number, a telephone number
with its `+`, the digits within a hexadecimal digest, an IBAN.
"""

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal

# Prefixes (up to 4 digits) and lengths by network, after the networks' public ranges
# (https://en.wikipedia.org/wiki/Payment_card_number lists them with sources).
_ISSUED = (
    ("4", "4", (13, 16, 19)),  # Visa, and national schemes that share its numbers
    ("51", "55", (16,)),  # Mastercard
    ("2221", "2720", (16,)),  # Mastercard
    ("34", "34", (15,)),  # American Express
    ("37", "37", (15,)),  # American Express
    ("30", "30", (14, 15, 16, 17, 18, 19)),  # Diners Club
    ("36", "36", (14, 15, 16, 17, 18, 19)),  # Diners Club
    ("38", "39", (14, 15, 16, 17, 18, 19)),  # Diners Club
    ("6011", "6011", (16, 17, 18, 19)),  # Discover
    ("644", "649", (16, 17, 18, 19)),  # Discover
    ("65", "65", (16, 17, 18, 19)),  # Discover, RuPay, Troy, Verve
    ("3528", "3589", (16, 17, 18, 19)),  # JCB
    ("62", "62", (16, 17, 18, 19)),  # UnionPay
    ("81", "82", (16, 17, 18, 19)),  # UnionPay, RuPay
    ("50", "50", (13, 14, 15, 16, 17, 18, 19)),  # Maestro, Verve, Elo, RuPay
    ("56", "58", (13, 14, 15, 16, 17, 18, 19)),  # Maestro
    ("63", "63", (13, 14, 15, 16, 17, 18, 19)),  # Maestro, InterPayment, InstaPayment
    ("67", "67", (13, 14, 15, 16, 17, 18, 19)),  # Maestro
    ("60", "60", (16,)),  # RuPay, Hipercard
    ("2200", "2205", (16, 17, 18, 19)),  # Mir, Borica
    ("9792", "9792", (16,)),  # Troy
    ("9704", "9704", (16, 19)),  # Napas
    ("8600", "8600", (16,)),  # Uzcard
    ("9860", "9860", (16,)),  # Humo
    ("1946", "1946", (16, 18, 19)),  # GPN
)
_LAYOUTS = frozenset({(4, 4, 4, 4), (4, 6, 5), (4, 6, 4), (4, 4, 4, 4, 3), (4, 4, 4, 1), (4, 4, 5), (6, 13), (8, 8)})
_MOST_GROUPS = 5


def _prefix_lengths() -> list[frozenset[int]]:
    """For each number of four digits, the lengths of the card numbers that begin with it."""
    lengths: list[set[int]] = [set() for _ in range(10_000)]
    for low, high, issued in _ISSUED:
        for prefix in range(int(low.ljust(4, "0")), int(high.ljust(4, "9")) + 1):
            lengths[prefix].update(issued)
    return [frozenset(each) for each in lengths]


_LENGTHS = _prefix_lengths()
_AS_ZEROS = bytes(ord("0") if chr(byte).isdigit() and byte < 128 else byte for byte in range(256))
_DOUBLED = bytes(2 * (byte - 48) % 9 or (byte == 57) * 9 if 48 <= byte <= 57 else 0 for byte in range(256))
_ALPHANUMERIC = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_PIECE = re.compile(rb"[0-9]{13,}")
_THIRTEEN, _LONGEST = b"0" * 13, 19
_PART_OF_NUMBER = frozenset((b".", b"e", b"E", b"+", b"-"))  # 4.1E+15 is a card number, as a double writes it
_GROUPS = re.compile(rb"(?<![0-9])[0-9]{4,8}(?:[ -][0-9]++(?![A-Za-z]))+")  # a letter: the middle of a UUID
_ESCAPES = [(b"\\u00%02x" % ord(c), c.encode()) for c in "0123456789 -"] + [(b"\\u002D", b"-")]  # of JSON
_ENDS = [re.compile(ends) for ends in (rb"(?<![0-9])[0-9]", rb"[0-9](?![0-9])", rb"(?<![0-9])[0-9]|[0-9](?![0-9])")]
_OTHER_GAPS = [(gap.encode(), b" ") for gap in "\u00a0\u202f\u2007\u2009"] + [
    (dash.encode(), b"-") for dash in "\u2010\u2011\u2012\u2013"
]
_HEXADECIMAL = re.compile(rb"[0-9a-f]{24,}|[0-9A-F]{24,}")
_IBAN = re.compile(rb"[A-Z]{2}[0-9]{2}[A-Z0-9]{10,30}")


def _plainly(data: bytes) -> bytes:
    """Blanks and hyphens of other kinds as ours: no-break and narrow ones, figure spaces and dashes (in UTF-8)."""
    if not data.isascii() and (b"\xc2\xa0" in data or b"\xe2\x80" in data):  # looking for them takes 1 us of each record
        for written, plain in _OTHER_GAPS:
            data = data.replace(written, plain)
    return data


def has_digits_of_one(data: bytes) -> bool:
    """Whether there are 13 digits in a row, blanks and hyphens not counted, as every card number has them."""
    return _THIRTEEN in _plainly(data).translate(_AS_ZEROS, b" -")


def may_hold_card_number(data: bytes) -> bool:
    """Whether it is worth a closer look: a first one that costs 1 us/KB, and 5 where there is a time in milliseconds.

    There have to be 13 digits in a row, blanks and hyphens not counted, that are not simply a number which no network
    issues, as a time in milliseconds is.

    >>> may_hold_card_number(b'{"timestamp":1764500000000}'), may_hold_card_number(b"4111 1111 1111 1111")
    (False, True)
    """
    data = _plainly(data)
    if _THIRTEEN not in data.translate(_AS_ZEROS, b" -"):
        return False
    zeros, others, end = data.translate(_AS_ZEROS), [], 0
    while (start := zeros.find(_THIRTEEN, end)) >= 0:
        others.append(data[end:start])
        run = zeros[start : start + _LONGEST + 1]
        end = start + len(run) - len(run.lstrip(b"0"))
        if not _never_issued(data, zeros, start, end):
            return True
    others.append(data[end:])
    return _THIRTEEN in b"x".join(others).translate(_AS_ZEROS, b" -")


def may_hold_one_in_utf16(data: bytes) -> bool:
    """The same first look at what may be UTF-16, where a zero byte stands beside each digit; 0.25 us where there are others.

    >>> may_hold_one_in_utf16("4111111111111111".encode("utf-16")), may_hold_one_in_utf16(b"partition 0001 is \\0\\0\\0\\1")
    (True, False)
    """
    return b"\0" in data and _THIRTEEN in data.translate(_AS_ZEROS, b" -\0") and may_hold_card_number(data.replace(b"\0", b""))


def _never_issued(data: bytes, zeros: bytes, start: int, end: int) -> bool:
    """Whether these digits are a whole number in one piece, of a length and prefix that is no card's."""
    before, after = data[start - 1 : start], data[end : end + 1]
    return not (
        before in _PART_OF_NUMBER
        or after in _PART_OF_NUMBER
        or end - start > _LONGEST
        or end - start in _LENGTHS[int(data[start : start + 4])]
        or (before == b" " and zeros[start - 2 : start - 1] == b"0")
        or (after == b" " and zeros[end + 1 : end + 2] == b"0")
    )


def holds_card_number(data: bytes) -> bool:
    """Whether there is a card number in the text.

    >>> holds_card_number(b"paid with 4111-1111-1111-1111")
    True
    >>> holds_card_number(b"order 4111111111111112, latitude 52.4111111111111111")
    False
    """
    return may_hold_card_number(data) and look_closely(data)


def look_closely(data: bytes) -> bool:
    """The same without the first look."""
    data = _plainly(data)
    return any(_issued(digits) for digits in _pieces(data)) or any(_issued(digits) for digits in _groups(data))


def unread_holds_card_number(data: bytes) -> bool:
    """The same of bytes that nobody parses: as whoever they are for might read them, escapes undone and UTF-16 as ASCII.

    >>> unread_holds_card_number(rb'{"pan": "\\u0034111111111111111", ')
    True
    """
    plain = data.replace(b"\0", b"")
    if b"\\u00" in plain:
        for escape, character in _ESCAPES:
            plain = plain.replace(escape, character)
    return holds_card_number(plain)


def unread_message_holds_card_number(data: bytes) -> bool:
    """The same of what should be Protobuf: a text lies between its length and the next tag, which may look like digits."""
    if unread_holds_card_number(data) or holds_card_number(data):
        return True
    return has_digits_of_one(data) and any(look_closely(ends.sub(b"\n", data)) for ends in _ENDS)


def _issued(digits: bytes) -> bool:
    if len(digits) not in _LENGTHS[int(digits[:4])]:
        return False
    single, double = digits[-1::-2], digits[-2::-2].translate(_DOUBLED)
    return (sum(single) - 48 * len(single) + sum(double)) % 10 == 0


def _pieces(data: bytes) -> Iterator[bytes]:
    for match in _PIECE.finditer(data):
        start, end = match.span()
        before, after = data[max(0, start - 64) : start], data[end : end + 64]
        if end - start > 19 or before.endswith(b"+") or (before.endswith(b".") and before[-2:-1].isdigit()):
            continue
        head = before[len(before.rstrip(_ALPHANUMERIC)) :]
        token = head + match[0] + after[: len(after) - len(after.lstrip(_ALPHANUMERIC))]
        if len(token) > end - start and (_HEXADECIMAL.fullmatch(token) or _is_iban(token)):
            continue
        yield match[0]


def _groups(data: bytes) -> Iterator[bytes]:
    for match in _GROUPS.finditer(data):
        groups = match[0].replace(b"-", b" ").split(b" ")
        lengths = [len(group) for group in groups]
        for first in range(len(groups) - 1):
            for end in range(first + 2, min(first + _MOST_GROUPS, len(groups)) + 1):
                if tuple(lengths[first:end]) in _LAYOUTS:
                    yield b"".join(groups[first:end])


def _is_iban(token: bytes) -> bool:
    """ISO 13616: letters are 10 to 35, the first four characters go last, and the number is 1 modulo 97."""
    if not _IBAN.fullmatch(token):
        return False
    return int("".join(str(int(chr(byte), 36)) for byte in token[4:] + token[:4])) % 97 == 1


def texts(value: object, exempt: frozenset[str] = frozenset(), path: str = "") -> Iterator[tuple[str, str]]:
    """Every name, string and number of a parsed body with its path ("merchant.id"), but what lies at an exempt path."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield path, name
            inner_path = f"{path}.{name}" if path else name
            if inner_path not in exempt:
                yield from texts(inner, exempt, inner_path)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner, exempt, path)
    elif isinstance(value, str):
        yield path, value
    elif isinstance(value, Decimal) and value.is_finite() and 0 <= value.adjusted() < 20:
        yield path, format(value, "f")  # 4.1E+15, as a double writes it, in full; below 1 there is a fraction only
    elif isinstance(value, int):
        yield path, str(value)


def texts_may_hold_card_number(value: object) -> bool:
    """The first look at a parsed body."""
    return may_hold_card_number("\n".join(text for _, text in texts(value)).encode(errors="replace"))


def path_of_card_number(found: Iterable[tuple[str, str]]) -> str | None:
    """The path of the first text that holds a card number; None when none does."""
    searched = list(found)
    if not holds_card_number("\n".join(text for _, text in searched).encode(errors="replace")):
        return None  # one look for all: a body may be thousands of texts
    for path, text in searched:
        if holds_card_number(text.encode(errors="replace")):
            return path
    return None
