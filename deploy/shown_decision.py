"""A decision as a person reads it: one line, or a small page. Works on decoded JSON, so that a newer field disturbs nothing."""

from collections.abc import Mapping
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


def decision_page(decision: Mapping[str, Any], waited_ms: float) -> Table:
    """All that a person would ask about one decision. `waited_ms`: from the call to the reply, in this process."""
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
    if marks:
        page.add_row("marks", ", ".join(marks))
    page.add_row("latency", f"{waited_ms:.0f} ms here, {decision.get('latency_ms')} ms since the append")
    by = decision.get("decided_by") or {}
    page.add_row("decided by", f"{by.get('worker')}, generation {by.get('generation')}")
    return page
