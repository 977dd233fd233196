"""Functions that run in Redis: a library of them from its file, under names that carry a digest of what it is.

So versions live side by side, and a worker calls what it was written for.
"""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

_FOLDER = Path(__file__).parent
_HOLDS_TO_OUR_KEY = "-- (key_marks.lua)\n"  # where that file goes


def source(name: str) -> str:
    """What Redis is to run of a file: NAME.lua beside this one, with what holds it to our key of digests."""
    code, held = ((_FOLDER / f"{each}.lua").read_text(encoding="utf-8") for each in (name, "key_marks"))
    return code.replace(_HOLDS_TO_OUR_KEY, held)


@dataclass(frozen=True, slots=True)
class Library:
    """What FUNCTION LOAD takes, and the name under which Redis lists it."""

    name: str
    code: str
    version: str

    @classmethod
    def of(cls, name: str, *functions: str) -> "Library":
        """`assay_NAME` with these functions, `assay_FUNCTION` in its file, NAME.lua beside this one."""
        code = source(name)
        version = sha256(code.encode()).hexdigest()[:12]
        made = cls(f"assay_{name}_{version}", code.replace(f"name=assay_{name}", f"name=assay_{name}_{version}"), version)
        for function in functions:
            quoted = f"'assay_{function}'"
            assert quoted in made.code, function
            made = cls(made.name, made.code.replace(quoted, f"'{made.function(function).decode()}'"), version)
        return made

    def function(self, name: str) -> bytes:
        """What it is called by."""
        return f"assay_{name}_{self.version}".encode()
