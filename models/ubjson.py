"""A strict reader of UBJSON (ubjson.org, draft 12), as much of it as XGBoost writes.

XGBoost's own reader trusts what it reads: a truncated model ends the process. So ours looks first.
"""

from struct import Struct
from typing import Any

import numpy as np

_NUMBERS = {b"i": ">i1", b"U": ">u1", b"I": ">i2", b"l": ">i4", b"L": ">i8", b"d": ">f4", b"D": ">f8"}
_STRUCTS = {code: Struct(form) for code, form in ((b"i", ">b"), (b"U", ">B"), (b"I", ">h"), (b"l", ">i"), (b"L", ">q"))} | {
    b"d": Struct(">f"),
    b"D": Struct(">d"),
}
_CONSTANTS = {b"T": True, b"F": False, b"Z": None}
_DEEPEST = 32


def parse_ubjson(data: bytes) -> dict[str, Any]:
    """The one object that `data` is; typed arrays become numpy arrays. Raises ValueError for anything else."""
    reader = _Reader(data)
    if data[:1] != b"{":
        raise ValueError("it does not begin as a UBJSON object")
    document: dict[str, Any] = reader.value(0)
    if reader.at != len(data):
        raise ValueError(f"{len(data) - reader.at} bytes follow the end")
    return document


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def value(self, depth: int) -> Any:
        code = self.take(1)
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        if code == b"{":
            return self.object(depth)
        if code == b"[":
            return self.array(depth)
        if code == b"S":
            return self.text()
        if code in _STRUCTS:
            return self.number(code)
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        raise ValueError(f"byte {self.at - 1} is no UBJSON type: {code!r}")

    def object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self.peek() != b"}":
            name = self.text()
            if name in found:
                raise ValueError(f"{name} is there twice")
            found[name] = self.value(depth + 1)
        self.at += 1
        return found

    def array(self, depth: int) -> Any:
        if self.peek() == b"$":
            self.at += 1
            form = _NUMBERS.get(self.take(1))
            if form is None or self.take(1) != b"#":
                raise ValueError(f"byte {self.at - 1}: a typed array of numbers with its count was expected")
            count = self.count()
            return np.frombuffer(self.take(count * np.dtype(form).itemsize), form)
        if self.peek() == b"#":
            self.at += 1
            return [self.value(depth + 1) for _ in range(min(self.count(), len(self.data) + 1))]
        found = []
        while self.peek() != b"]":
            found.append(self.value(depth + 1))
        self.at += 1
        return found

    def text(self) -> str:
        return self.take(self.count()).decode()

    def count(self) -> int:
        count = self.number(self.take(1))
        if not isinstance(count, int) or count < 0:
            raise ValueError(f"byte {self.at}: {count} is no length")
        return count

    def number(self, code: bytes) -> int | float:
        form = _STRUCTS.get(code)
        if form is None:
            raise ValueError(f"byte {self.at - 1} is no number type: {code!r}")
        number: int | float = form.unpack(self.take(form.size))[0]
        return number

    def peek(self) -> bytes:
        return self.data[self.at : self.at + 1] or self.take(1)

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise ValueError("it ends too early")
        self.at += size
        return self.data[self.at - size : self.at]
