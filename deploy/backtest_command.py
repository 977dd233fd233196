"""`assay backtest`: what a change of models or rules would have done, in money."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.deploy.history_options import (
    BatchDelay,
    BatchFile,
    Json,
    Label,
    LabelDelay,
    Map,
    MapFile,
    OutcomesFile,
    RatesFile,
    Since,
    SkipRefused,
    Until,
    WarmUp,
    batch_history,
    read,
)

if TYPE_CHECKING:
    from assay.models.history import History
    from assay.models.judge import Judge
    from assay.models.rules import Rules

LEAST_WIDTH = 120  # a narrower terminal wraps lines, which is better than names cut off
TEXTS = ("", "transaction_id", "user_id", "currency")  # columns of a table that are no numbers


def backtest(
    from_: Annotated[
        str,
        typer.Option(
            "--from", metavar="TOPIC|FILE", help="History: a .parquet, .csv or .jsonl file, or a topic of transactions."
        ),
    ],
    model: Annotated[Path | None, typer.Option("--model", help="The changed bundle; else that of the settings.")] = None,
    rules: Annotated[
        Path | None, typer.Option("--rules", help="The changed rules (YAML), all of them; else those of the settings.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Also write a page that needs nothing else.")] = None,
    examples: Annotated[int, typer.Option("--examples", min=0, help="Changed transactions to show: those of most money.")] = 20,
    outcomes: OutcomesFile = None,
    map_: Map = None,
    map_file: MapFile = None,
    label: Label = "fraud",
    label_delay: LabelDelay = 7.0,
    since: Since = None,
    until: Until = None,
    warm_up: WarmUp = 0.0,
    skip_refused: SkipRefused = False,
    batch_features: BatchFile = None,
    batch_delay: BatchDelay = 0.0,
    rates: RatesFile = None,
    json_: Json = False,
) -> None:
    """Judge a history twice, with what is deployed (by the settings) and with a change, and answer in money.

    Says what fraud each way would have stopped, how many good customers it would have troubled, how many reviews a day it asks
    for, and which transactions change. Of a transaction without a label nobody knows what a change would have brought: it is
    counted apart, with the least and the most. So leave the label of what was declined empty: nobody ever hears more of it.

    Of a topic, labels are what the outcomes topic says; what it does not speak of is genuine after 90 days, unless it was
    declined then, and unknown before; --outcomes FILE stands in for it.

    Rules that ask what we declined before see, both ways, what the deployed models and rules would have declined. A transaction
    that comes again counts once.

    \b
    Examples:
      assay backtest --rules new-rules.yaml --from history.parquet
      assay backtest --model candidate --from transactions --since 2026-01-01 --html backtest.html
      assay backtest --rules new-rules.yaml --model candidate --from march.csv --map user_id=customer --json | tail -1
    """
    from assay.deploy.progress_bars import progress_bars
    from assay.models.bundle import Bundle
    from assay.models.judge import Judge
    from assay.models.rules import Rules
    from assay.schemas.errors import SettingError
    from assay.streams.settings import Settings
    from assay.tables.rates import SHIPPED_RATES, Rates

    if model is None and rules is None:
        raise SettingError("what is the change?", expected="--model BUNDLE, --rules FILE, or both")
    if html is not None and not html.parent.is_dir():  # rather than after all the work
        raise SettingError(f"{html} can't be written", expected="a file in a folder that is there", got=f"no {html.parent}")
    settings = Settings.load(rates=rates)
    now = Judge(Bundle.load(settings.bundle), Rules.load(settings.rules))
    changed = Judge(Bundle.load(model) if model else now.bundle, Rules.load(rules) if rules else now.rules)
    batch = batch_history(batch_features, batch_delay)
    with ExitStack() as stack:
        report = stack.enter_context(progress_bars())
        table = Path(from_)
        if not is_file(from_):
            from assay.deploy.backtest_topic import Asked, exported

            asked = Asked(from_, since, until, outcomes)
            table, outcomes = stack.enter_context(exported(settings, asked, report))
        history, left_out = read(table, map_, map_file, label, since, until, skip_refused)
        options = {
            "rates": Rates.load(settings.rates or SHIPPED_RATES), "batch": batch, "first": history.first_after(warm_up),
            "label_delay_days": label_delay, "own_declines": now.rules.ask_own_verdicts or changed.rules.ask_own_verdicts,
            "progress": report,
        }  # fmt: skip
        summary = _run(history, now, changed, outcomes, examples, options)
    summary |= {"left_out": left_out, "what": {"before": _named(now), "after": _named(changed)}}
    summary["rules"] = rules_changed(now.rules, changed.rules)
    _show(summary)
    if html is not None:
        from assay.models.comparison_page import page

        html.write_text(page(summary), encoding="utf-8")
        print(f"Page in {html}")
    if json_:
        import json

        print(json.dumps(summary))


def is_file(name: str) -> bool:
    """Whether a history is a file: there is one, or no topic may have such a name.

    >>> is_file("no-such-folder/march"), is_file("march.parquet"), is_file("transactions")
    (True, True, False)
    """
    from assay.models.table_file import ENDINGS

    return Path(name).suffix in ENDINGS or "/" in name or Path(name).is_file()


def _run(
    history: "History", now: "Judge", changed: "Judge", outcomes: Path | None, examples: int, options: dict[str, Any]
) -> dict[str, Any]:
    """The summary of a comparison over a history. options: of `judge_history`."""
    import numpy as np

    from assay.models.backtest import judge_history
    from assay.models.comparison import Comparison
    from assay.models.history import DAY_MS
    from assay.models.outcome_history import OutcomeHistory, outcome_history

    heard: list[OutcomeHistory] = []

    def changes(events: Any, whole: Any) -> Any:
        assert outcomes is not None
        heard.append(outcome_history(outcomes, events, whole))
        return heard[0].changes, heard[0].known_before

    found = Comparison(examples)
    for judged in judge_history(history, now, changes=changes if outcomes else None, **options):
        found.add(judged, changed.judge(judged.transactions, judged.features, judged.verdicts.tier))
    if history.labels is not None:
        fraud, labelled = history.labels, history.labelled
    elif heard:
        fraud, labelled = heard[0].fraud, heard[0].labelled
    else:
        fraud, labelled = np.zeros((2, len(history)), np.bool_)
    first = options["first"]
    days = max(1.0, float(history.times_ms[-1] - history.times_ms[first]) / DAY_MS)
    return found.summary(fraud[first:], labelled[first:], days, now.bundle.manifest.costs, first)


def rules_changed(before: "Rules", after: "Rules") -> dict[str, list[str]]:
    """Ids of the rules that are only in one of the two, or say something else: a file stands for all rules, not for more."""
    was, now = ({rule.id: (rule.when, rule.then, rule.list) for rule in each.rules} for each in (before, after))
    return {
        "added": [each for each in now if each not in was],
        "removed": [each for each in was if each not in now],
        "changed": [each for each in now if each in was and now[each] != was[each]],
    }


def _named(judge: "Judge") -> dict[str, str]:
    return {"bundle": judge.bundle.version, "rules": judge.rules.digest}


def _show(summary: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from assay.models.comparison import shares
    from assay.models.comparison_page import bounds, what_was_judged

    console = Console(highlight=False, soft_wrap=True, width=max(LEAST_WIDTH, Console().width))
    console.print(what_was_judged(summary))
    for what, ids in summary["rules"].items():
        if ids:
            console.print(f"rules {what}: {', '.join(ids)}", markup=False)
    for rows in (shares(summary), summary["changed"], summary["examples"]):
        if rows:
            grid = Table(box=None, pad_edge=False)
            shown = [name for name in rows[0] if name not in ("rules_before", "rules_after", "timestamp")]
            for name in shown:
                grid.add_column(name.replace("_", " "), justify="left" if name in TEXTS else "right")
            for row in rows:
                grid.add_row(*(_cell(row[name]) for name in shown))
            console.print(grid, "")
    console.print(bounds(summary))
    for rule, error in summary["failed_rules"].items():
        console.print(f"Rule {rule} failed, and so did not count: {error}", markup=False)


def _cell(value: Any) -> str:
    return f"{value:,.2f}" if isinstance(value, float) and abs(value) >= 1 else "-" if value is None else str(value)
