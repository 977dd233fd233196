"""The code on the pages of docs/integrate is that of the tests: `python -m tests.compat.pages` puts it there anew."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "integrate").glob("*.md"))
_SHOWN = re.compile(r"(<!-- (\S+) -->\n```\w+\n).*?(```)", re.DOTALL)  # the file's path, then its text


def with_code(page: str) -> str:
    """The page with each file that it names as that file is now."""
    return _SHOWN.sub(lambda found: found[1] + (ROOT / found[2]).read_text() + found[3], page)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(with_code(path.read_text()))
