"""`assay services`: a development Kafka and Redis that stay up between commands."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.deploy.probes import without_password
from assay.deploy.services import DEFAULT_FOLDER, Running
from assay.deploy.services import down as stop
from assay.deploy.services import fetch as fetch_all
from assay.deploy.services import status as look
from assay.deploy.services import up as start
from assay.deploy.steps import steps

app = typer.Typer(no_args_is_help=True, add_completion=False)

_Folder = Annotated[Path, typer.Option("--folder", help="Where their data, logs and state lie.")]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for a machine to read.")]


@app.callback()
def services() -> None:
    """Start, stop and show a development Kafka and Redis.

    Addresses in ASSAY_BOOTSTRAP_SERVERS and ASSAY_REDIS_URL are used as they are. What they don't name is started: as
    containers where a Docker engine answers, else as local processes (Java 17 and Maven for Kafka).

    \b
    Examples:
      assay services up
      assay services status
      assay services down
    """


@app.command()
def up(
    folder: _Folder = DEFAULT_FOLDER,
    kafka_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port for Kafka; else 9092, or any if that is taken.")
    ] = None,
    redis_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port for Redis; else 6379, or any if that is taken.")
    ] = None,
    json_: _Json = False,
) -> None:
    """Start what the environment doesn't name, and leave it running until `assay services down`.

    \b
    Examples:
      assay services up
      assay services up --kafka-port 19092 --redis-port 16379
      eval "$(assay services up)"      also sets the addresses in this shell
    """
    with steps() as tell:
        running = start(folder, kafka_port=kafka_port, redis_port=redis_port, tell=tell)
    if json_:
        print(json.dumps({"running": True} | _shown(running)))
        return
    # As comments of a shell, so that the whole output can be evaluated by one.
    for name, address in _addresses(running).items():
        print(f"# {name:6} {address}{_origin(running, name)}")
    if "environment" not in running.origin.values():
        print('# For this shell: eval "$(assay services up)". Stop them with: assay services down')
    for name, setting in (("kafka", "ASSAY_BOOTSTRAP_SERVERS"), ("redis", "ASSAY_REDIS_URL")):
        if running.origin.get(name) != "environment":
            print(f"export {setting}={_addresses(running)[name]}")


@app.command()
def down(
    folder: _Folder = DEFAULT_FOLDER,
    clear: Annotated[bool, typer.Option("--clear", help="Remove their data too.")] = False,
    json_: _Json = False,
) -> None:
    """Stop what `assay services up` started here, and nothing else. Its data is kept, unless --clear is given.

    \b
    Examples:
      assay services down
      assay services down --clear      start from nothing next time
    """
    stopped = stop(folder, clear=clear)
    if json_:
        print(json.dumps({"stopped": stopped}))
    else:
        print("stopped" if stopped else f"nothing runs in {folder}")


@app.command()
def status(folder: _Folder = DEFAULT_FOLDER, json_: _Json = False) -> None:
    """Show where Kafka and Redis are and whether they answer. Exits 1 when one of them doesn't.

    \b
    Examples:
      assay services status
      assay services status --json
    """
    running, answers = look(folder)
    if json_:
        print(json.dumps({"running": all(answers.values())} | _shown(running) | {"answers": answers}))
    else:
        for name, address in _addresses(running).items():
            state = "answers" if answers[name] else "does not answer" if address else "not running"
            print(f"{name:6} {address or '-'}  {state}{_origin(running, name)}")
    if not all(answers.values()):
        raise typer.Exit(1)


@app.command()
def fetch() -> None:
    """Download what `up` would download (Kafka's jars, about 45 MB, once), and start nothing.

    \b
    Examples:
      assay services fetch
    """
    with steps() as tell:
        fetch_all(tell)


def _addresses(running: Running) -> dict[str, str]:
    """What may be shown: a password in the environment's URL is left out."""
    return {"kafka": running.bootstrap_servers, "redis": without_password(running.redis_url)}


def _shown(running: Running) -> dict[str, Any]:
    return asdict(running) | {"redis_url": without_password(running.redis_url)}


def _origin(running: Running, name: str) -> str:
    return f"  ({running.origin[name]})" if name in running.origin else ""
