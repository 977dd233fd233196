"""The command `assay`.

Each command lives in a module of its own, which is imported when it is called: `assay --help` stays quick, and a command
needs only what it uses.
"""

import importlib
import logging
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from assay.schemas.errors import AssayError, SettingError

# Command -> its module in assay.deploy, and what `assay --help` says of it. Each module has a function of the command's
# name, or a typer app named `app` where there are subcommands.
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "Everything at once: services, training, two workers, live payments, a summary."),
    "worker": ("worker_command", "Score transactions from Kafka until told to stop."),
    "services": ("services_command", "Start, stop and show a development Kafka and Redis."),
    "simulate": ("simulate_command", "Make up payments, some fraudulent: into a file, or onto Kafka."),
    "train": ("train_command", "Make a model bundle from transactions with labels."),
    "score": ("score_command", "Score a file of transactions, offline."),
    "backtest": ("backtest_command", "What a change of models or rules would have done, in money."),
    "features": ("features", "Show how fresh each feature is, and load batch features."),
    "send": ("send_command", "Send one transaction and wait for its decision."),
    "outcome": ("outcome_command", "Tell what became of a transaction."),
    "decision": ("decision_command", "Find a decision, and what it was made from."),
    "verify": ("verify_command", "Check the signature of a decision."),
    "dead-letters": ("dead_letters", "List, explain and send again what was refused."),
    "watch": ("watch_command", "Show decisions as they are made."),
    "rebuild": ("rebuild", "Make profiles or entity windows anew from transactions."),
    "parity": ("parity", "Compare a run with its offline replay, bit for bit."),
    "keys": ("keys", "Make keys to sign with, and show their public halves."),
    "acls": ("acls_command", "What each role may do at Kafka and Redis, as commands."),
    "mapping": ("mapping_command", "Try a file that maps other transactions to ours."),
    "doctor": ("doctor", "Check everything Assay depends on, and say what to mend."),
}


class _Lazy(TyperGroup):
    """Lists commands by what COMMANDS says of them, and imports the one that is called."""

    def __init__(self, **arguments: Any) -> None:
        arguments["commands"] = {name: TyperCommand(name, help=summary) for name, (_module, summary) in COMMANDS.items()}
        super().__init__(**arguments)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _listed, rest = super().resolve_command(ctx, args)
        return name, load(name) if name is not None else None, rest


def load(name: str) -> Any:
    """The real command of that name. Raises SettingError when its module isn't there."""
    module_name = f"assay.deploy.{COMMANDS[name][0]}"
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name:
            raise
        raise SettingError(f"this build of assay has no command {name}", mend="install the whole package") from None
    if isinstance(subcommands := getattr(module, "app", None), typer.Typer):
        command: Any = typer.main.get_group(subcommands)
    else:
        single = typer.Typer(add_completion=False)
        single.command(name)(getattr(module, name))
        command = typer.main.get_command(single)
    command.name = name
    return command


app = typer.Typer(
    cls=_Lazy,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"assay {version('assay')}")
        raise typer.Exit


@app.callback()
def assay(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """One explained verdict for every payment, in time, on Kafka.

    \b
    Examples:
      assay demo             see it work: nothing has to be set up before
      assay services up      a Kafka and a Redis of your own
      assay doctor           what is missing, and how to mend it
      assay COMMAND --help   what a command takes, with examples
    """


def main() -> None:
    """Entry point. Exits 2 with a readable line for an error of ours or a wrong argument, 130 for Ctrl-C."""
    # What aiokafka retries by itself is no news for who waits for a command; a worker sets up logs of its own.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    try:
        app()
    except AssayError as error:
        sys.stderr.write(f"error: {error}\n")  # in one write: the thread that writes the log may be at it too
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
