"""The report of a training as one HTML page that needs nothing else: tables, and plots as SVG drawn here.

A plotting library would be a dependency of training alone, for five polylines.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from assay.models.html_page import document, table

_WIDTH, _HEIGHT, _EDGE = 320, 240, 34
Points = Sequence[tuple[float, float]]


def page(report: Mapping[str, Any]) -> str:
    """The whole page, of what `report.json` holds."""
    parts = [
        "<h1>How this bundle was trained, and how good it is</h1>",
        _parts(report),
        "<h2>What each tier does on later payments</h2>",
        _tiers(report),
    ]
    if "curves" in report:
        parts += [_members(report["ensemble"]), "<h2>Curves of the tier full</h2>", *_plots(report)]
        parts += ["<h2>What scores rest on</h2>", table(report["importance"][:20])]
        parts += ["<h2>Week by week</h2>", table(report["weeks"]), "<h2>By segment</h2>", table(report["segments"])]
    return document("Training report", parts)


def _parts(report: Mapping[str, Any]) -> str:
    rows = [{"part": name.replace("_", " "), **report[name]} for name in ("learnt_from", "tuned_on", "held_out")]
    kept = [{key: row[key] for key in ("part", "transactions", "fraud")} for row in rows]
    trees = ", ".join(f"{name} {count}" for name, count in report["members"].items())
    delay = report.get("label_delay_days", "?")
    return f"{table(kept)}<p>Trees: {escape(trees)}. Seed {report['seed']}. Fraud known after {delay} days.</p>"


def _tiers(report: Mapping[str, Any]) -> str:
    shown = (
        "average_precision", "auc", "fraud_caught_share", "declined", "genuine_declined", "reviewed", "genuine_reviewed",
        "money_saved",
    )  # fmt: skip
    named = [*report["tiers"].items(), ("amount_alone", report["amount_alone"])]
    full = report["tiers"]["full"]["money_saved"]
    rows = [
        {"tier": name, **{key: quality[key] for key in shown}, "costs beside full": round(full - quality["money_saved"], 2)}
        for name, quality in named
    ]
    return table(rows)


def _members(ensemble: Mapping[str, Any]) -> str:
    each = ", ".join(f"{name} {value:.4f}" for name, value in ensemble["members"].items())
    low, high = ensemble["above_best"]
    verdict = "which is more than chance" if ensemble["beats_best"] else "which may be chance"
    return (
        f"<p>Average precision of the members: {escape(each)}; together {ensemble['together']:.4f}. That is {low:+.4f} to "
        f"{high:+.4f} beside the best, {escape(ensemble['best_member'])} (95% of a paired bootstrap), {verdict}.</p>"
    )


def _plots(report: Mapping[str, Any]) -> list[str]:
    curves, bins = report["curves"], report["calibration"]
    return [
        _plot("Precision by recall", list(zip(curves["recall"], curves["precision"], strict=True))),
        _plot("ROC: recall by false alarms", list(zip(curves["false_alarms"], curves["recall"], strict=True)), diagonal=True),
        _plot("Amount of fraud by share stopped", list(zip(curves["stopped"], curves["fraud_amount"], strict=True))),
        _plot("True share of fraud by score", [(one["said"], one["true"]) for one in bins], diagonal=True),
    ]


def _plot(caption: str, points: Points, *, diagonal: bool = False) -> str:
    """A polyline; both axes from 0 to 1."""
    across, up = _WIDTH - 2 * _EDGE, _HEIGHT - 2 * _EDGE

    def place(x: float, y: float) -> str:
        return f"{_EDGE + across * x:.1f},{_HEIGHT - _EDGE - up * y:.1f}"

    line = " ".join(place(x, y) for x, y in points)
    marks = "".join(
        f'<text x="{_EDGE + across * at:.0f}" y="{_HEIGHT - _EDGE + 14}" text-anchor="middle">{at:g}</text>'
        f'<text x="{_EDGE - 6}" y="{_HEIGHT - _EDGE - up * at + 4:.0f}" text-anchor="end">{at:g}</text>'
        for at in (0, 0.5, 1)
    )
    even = (
        f'<polyline points="{place(0, 0)} {place(1, 1)}" fill="none" stroke="#bbb" stroke-dasharray="4"/>' if diagonal else ""
    )
    frame = f'<rect x="{_EDGE}" y="{_EDGE}" width="{across}" height="{up}" fill="none" stroke="#9aa"/>'
    curve = f'<polyline points="{line}" fill="none" stroke="#0a62a8" stroke-width="2"/>'
    drawn = (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{escape(caption)}">{frame}{marks}{even}{curve}</svg>'
    )
    return f"<figure>{drawn}<figcaption>{escape(caption)}</figcaption></figure>"
