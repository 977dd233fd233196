"""`assay doctor`: checks everything that Assay depends on, and says what to mend."""

import asyncio
import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from assay.deploy.check import Check, State

_COLOURS = {State.OK: "green", State.WARN: "yellow", State.FAIL: "red"}


def doctor(json_: Annotated[bool, typer.Option("--json", help="Print one JSON object for a machine to read.")] = False) -> None:
    """Check everything Assay depends on, and say what to mend. Exits 1 when something fails.

    \b
    Examples:
      assay doctor
      assay doctor --json
      ASSAY_BOOTSTRAP_SERVERS=broker:9092 assay doctor
    """
    checks = examine()
    healthy = all(check.state is not State.FAIL for check in checks)
    if json_:
        print(json.dumps({"ok": healthy, "checks": [asdict(check) for check in checks]}))
    elif sys.stdout.isatty():
        _table(checks)
    else:
        for check in checks:
            print(f"{check.state:4}  {check.name}: {check.found}{f' -> {check.mend}' if check.mend else ''}")
    if not healthy:
        raise typer.Exit(1)


def examine() -> list[Check]:
    """Every check, in the order in which they are best mended."""
    from assay.deploy import local_checks
    from assay.deploy.check import attempt, failure

    checks = [attempt("python", local_checks.python), attempt("packages", local_checks.packages)]
    checks.append(attempt("open files", local_checks.open_files))
    found, settings = local_checks.settings()
    checks.append(found)
    if settings is None:
        return checks  # nothing else can be judged without them
    try:
        from assay.deploy.service_checks import service_checks

        checks += asyncio.run(service_checks(settings))
    except Exception as error:  # a doctor reports every illness and dies of none
        checks.append(failure("services", error))
    return checks + local_checks.local_checks(settings)


def _table(checks: list[Check]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_edge=False, pad_edge=False)
    for heading in ("check", "state", "found", "what to do"):
        table.add_column(heading, overflow="fold")
    for check in checks:
        state = Text(check.state, style=_COLOURS[check.state])
        table.add_row(Text(check.name), state, Text(check.found), Text(check.mend))
    Console().print(table)
