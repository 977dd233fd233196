"""HTML pages that need nothing else: no network, no scripts."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 2em auto; padding: 0 1em; color: #1d2733 }
table { border-collapse: collapse; margin: .5em 0 } td, th { padding: .15em .8em .15em 0; text-align: right }
td:first-child, th:first-child { text-align: left } th { border-bottom: 1px solid #9aa }
figure { display: inline-block; margin: 0 1em 1em 0 } figcaption { font-size: 13px }
svg text { font: 11px system-ui, sans-serif; fill: #456 }
"""


def document(title: str, parts: Iterable[str]) -> str:
    """A whole page of these parts, which are HTML."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    heads = "".join(f"<th>{escape(str(name).replace('_', ' '))}</th>" for name in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(_shown(value))}</td>" for value in row.values()) + "</tr>" for row in rows)
    return f"<table><tr>{heads}</tr>{body}</table>"


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,.4f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
