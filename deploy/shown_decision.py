"""A decision as a person reads it: one line, or a small page. Works on decoded JSON, so that a newer field disturbs nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

COLOURS = {"approve": "green", "review": "yellow", "decline": "red"}


def action_text(action: str) -> Text:
    """The action in its colour; one that we do not know is shown as a review."""
    return Text(action.upper(), style=f"bold {COLOURS.get(action, COLOURS['review'])}")


def score_text(score: float | None) -> str:
    return "no score" if score is None else f"{score:.4f}"


def decision_line(decision: Mapping[str, Any]) -> Text:
    """When, what, how sure, whose, and the first reason or rule."""
    why = [*decision.get("rules", []), *(reason.get("text", "") for reason in decision.get("explanation", []))]
    line = Text(f"{str(decision.get('decided_at', ''))[11:23]} ", style="dim")
    line.append_text(action_text(str(decision.get("action"))).append(" " * (8 - len(str(decision.get("action"))))))
    line.append(f"{score_text(decision.get('fraud_score')):>8}  ", style="default not bold")
    line.append(f"{decision.get('user_id')} {decision.get('transaction_id')} ", style="default not bold")
    if decision.get("action") != "approve" and why:
        line.append("; ".join(why[:2]), style="italic not bold")
    if decision.get("tier") != "full":
        line.append(f" [{decision.get('tier')}]", style="magenta")
    return line


def decision_page(decision: Mapping[str, Any], waited_ms: float | None = None) -> Table:
    """All that a person would ask about one decision. `waited_ms`: from the call to the reply, in this process, if it asked."""
    page = Table.grid(padding=(0, 2))
    page.add_column(style="dim", justify="right")
    page.add_column()
    page.add_row("decision", action_text(str(decision.get("action"))))
    page.add_row("fraud score", score_text(decision.get("fraud_score")))
    page.add_row("transaction", f"{decision.get('transaction_id')} of {decision.get('user_id')}")
    for number, reason in enumerate(decision.get("explanation", [])):
        weight = reason.get("weight")
        shown = f"{reason.get('text')}" + (f"  ({weight:+.2f})" if isinstance(weight, int | float) else "")
        page.add_row("reasons" if number == 0 else "", shown)
    page.add_row("rules", ", ".join(decision.get("rules", [])) or "none fired")
    tier = str(decision.get("tier"))
    page.add_row("tier", Text(tier, style="" if tier == "full" else "magenta"))
    model = decision.get("model") or {}
    page.add_row("model", f"{str(model.get('version', 'none'))[:12]} {model.get('role', '')}".strip())
    marks = [name for name in ("late_event", "deadline_missed") if decision.get(name)]
    if decision.get("control_share"):
        marks.append(f"control group: one of {1 / decision['control_share']:.0f} would-be declines that are let through")
    if marks:
        page.add_row("marks", ", ".join(marks))
    here = "" if waited_ms is None else f"{waited_ms:.0f} ms here, "
    page.add_row("latency", f"{here}{decision.get('latency_ms')} ms since the append")
    by = decision.get("decided_by") or {}
    page.add_row("decided by", f"{by.get('worker')}, generation {by.get('generation')}")
    return page


def evidence_page(evidence: Mapping[str, Any], *, every: bool) -> Table:
    """What a decision was made from; the features only where `every` one is asked for."""
    page = Table.grid(padding=(0, 2))
    page.add_column(style="dim", justify="right")
    page.add_column()
    source = evidence.get("source") or {}
    page.add_row("source", f"{source.get('topic')}/{source.get('partition')} offset {source.get('offset')}")
    ages = {name: age for name, age in (evidence.get("ages_ms") or {}).items() if age is not None}
    page.add_row("ages", ", ".join(f"{name} {age / 1000:.1f} s" for name, age in ages.items()) or "of no source known")
    for name, digest in (evidence.get("digests") or {}).items():
        page.add_row(f"{name} digest", str(digest or "none")[:12])
    if every:
        for name, value in zip(_feature_names(evidence), evidence.get("features", []), strict=False):
            page.add_row(name, "not known" if value is None else f"{value:g}")
    return page


def _feature_names(evidence: Mapping[str, Any]) -> Sequence[str]:
    """Names where the list is this version's, numbers where it is another's."""
    from assay.tables.features import NAMES, features_digest

    if evidence.get("features_digest") == features_digest():
        return NAMES
    return [f"feature {number} of another list" for number in range(1, len(evidence.get("features", [])) + 1)]
