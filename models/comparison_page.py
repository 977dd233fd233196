"""A backtest as one HTML page for whoever decides about it."""

from collections.abc import Mapping
from typing import Any

from assay.models.comparison import shares
from assay.models.html_page import document, table


def page(summary: Mapping[str, Any]) -> str:
    """The whole page, of what `assay backtest --json` prints."""
    what = summary["what"]
    examples = [{name: _plain(value) for name, value in one.items()} for one in summary["examples"]]
    parts = [
        "<h1>What a change would have done</h1>",
        f"<p>{what_was_judged(summary)}.",
        *(f" {name.title()}: models {which['bundle'][:12]}, rules {which['rules'][:12]}." for name, which in what.items()),
        "</p>",
        "<h2>In money</h2>",
        table(shares(dict(summary))),
        f"<p>{bounds(summary)}</p>",
        "<h2>Which transactions change</h2>",
        table(summary["changed"]) or "<p>None.</p>",
        "<h2>The largest of them</h2>",
        table(examples),
    ]
    return document("Backtest", parts)


def what_was_judged(summary: Mapping[str, Any]) -> str:
    """How much, over how long."""
    said = f"{summary['transactions']:,} transactions of {summary['days']:,.1f} days, {summary['unlabelled']:,} without a label"
    return said + (f"; {summary['repeated']:,} came again, and count once" if summary["repeated"] else "")


def bounds(summary: Mapping[str, Any]) -> str:
    """What is not known about the money, in a sentence."""
    difference, unknown = summary["difference"], sum(one["unknown"] for one in summary["changed"])
    if not unknown:
        return "All transactions that change are labelled."
    return (
        f"Of {unknown:,} transactions that change nobody knows what they were. With them the change saves "
        f"{difference['money_saved_least']:,.0f} at least and {difference['money_saved_most']:,.0f} at most."
    )


def _plain(value: Any) -> Any:
    return ", ".join(value) if isinstance(value, list) else value
