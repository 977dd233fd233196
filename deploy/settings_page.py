"""docs/settings.md, made from the settings: `python -m assay.deploy.settings_page > docs/settings.md` (`make docs`)."""

from typing import Any

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from assay.streams.settings import Settings

HEADING = """# Settings

Made from `streams/settings.py` by `make docs`. Each is read from the environment, or from a `.env` file in the working
directory; `assay doctor` checks them.

| setting | default | what it is |
|---|---|---|
"""


def settings_page() -> str:
    """The page, in Markdown."""
    rows = [
        f"| `ASSAY_{name.upper()}` | {_default(field)} | {(field.description or '').replace('|', chr(92) + '|')} |"
        for name, field in Settings.model_fields.items()
    ]
    return HEADING + "\n".join(rows) + "\n"


def _default(field: FieldInfo) -> str:
    value: Any = field.default
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, tuple):
        value = ",".join(value)
    return "" if value is None or value == "" else f"`{value}`"


if __name__ == "__main__":
    print(settings_page(), end="")
