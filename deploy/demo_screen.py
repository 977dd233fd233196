"""What the demo shows while it runs: a live page on a terminal, a line now and then elsewhere. All of it on stderr."""

import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from assay.deploy.shown_decision import decision_line

DECLINES_SHOWN = 8
LINE_EVERY_S = 5.0
SPARK = "▁▂▃▄▅▆▇█"
BUDGET_MS = 200


class Screen:
    """A page that is redrawn. `quiet`: nothing but the steps that take long."""

    def __init__(self, quiet: bool = False) -> None:
        self._console = Console(stderr=True)
        self._quiet = quiet
        self._steps: list[tuple[str, float]] = []
        self._stage: tuple[str, int, int] | None = None
        self._snapshot: dict[str, Any] | None = None
        self._p99: list[float] = []
        self._last_line = 0.0
        on_terminal = self._console.is_terminal and not quiet
        self._live = Live(console=self._console, auto_refresh=False, transient=False) if on_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def step(self, text: str) -> None:
        """A new step begins."""
        self._steps.append((text, time.monotonic()))
        self._stage = None
        if self._live is None:
            self._console.print(f"· {text}", highlight=False, markup=False, soft_wrap=True)
        self._draw()

    def progress(self, stage: str, done: int, total: int) -> None:
        """How far a step is."""
        self._stage = (stage, done, total)
        self._draw()

    def live(self, snapshot: dict[str, Any]) -> None:
        """The run so far (`streams.load_results.Snapshot`)."""
        self._snapshot = snapshot
        if snapshot["p99_ms"] is not None:
            self._p99.append(snapshot["p99_ms"])
        if self._live is None and not self._quiet and time.monotonic() - self._last_line > LINE_EVERY_S:
            self._last_line = time.monotonic()
            self._console.print(self._figures(snapshot), soft_wrap=True)
        self._draw()

    def _draw(self) -> None:
        if self._live is not None:
            self._live.update(self._page(), refresh=True)

    def _page(self) -> RenderableType:
        parts: list[RenderableType] = [self._done()]
        if self._stage is not None:
            stage, done, total = self._stage
            row = Table.grid(padding=(0, 1))
            row.add_row(f"  {stage}", ProgressBar(total=total, completed=done, width=40), f"{done:,} of {total:,}")
            parts.append(row)
        if self._snapshot is not None:
            declines = [decision_line(decision) for decision in self._snapshot["declines"][-DECLINES_SHOWN:]]
            parts.append(Panel(self._figures(self._snapshot), title="payments", title_align="left"))
            parts.append(Panel(Group(*declines), title="latest declines, and why", title_align="left"))
        return Group(*parts)

    def _done(self) -> Text:
        text = Text()
        ends = [began for _, began in self._steps[1:]] + [time.monotonic()]
        for (name, began), end in zip(self._steps, ends, strict=True):
            current = end is ends[-1]
            text.append("● " if current else "✓ ", style="yellow" if current else "green")
            text.append(f"{name}  ")
            text.append(f"{end - began:.0f} s\n", style="dim")
        return text

    def _figures(self, snapshot: dict[str, Any]) -> Text:
        text = Text(f"{snapshot['answered']:>7,} of {snapshot['sent']:,} answered   {snapshot['rate']:>6,.0f}/s   ")
        for name, style in (("approve", "green"), ("review", "yellow"), ("decline", "red")):
            text.append(f"{name} {snapshot[name]:,}  ", style=style)
        if snapshot["p99_ms"] is not None:
            text.append(f"\n        p50 {snapshot['p50_ms']:>4.0f} ms   p99 {snapshot['p99_ms']:>4.0f} ms of {BUDGET_MS}   ")
            text.append(self._spark(), style="cyan")
        text.append(f"\n        {snapshot['sent'] - snapshot['answered']} open   {snapshot['contradictory']} contradictory")
        return text

    def _spark(self) -> str:
        return "".join(SPARK[min(len(SPARK) - 1, int(value / BUDGET_MS * len(SPARK)))] for value in self._p99[-40:])
