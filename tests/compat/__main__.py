"""The clients without pytest: `make compat`, or `python -m tests.compat --help`. The last line of stdout is JSON."""

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from assay.deploy.services import services
from assay.schemas.errors import AssayError, ServiceError
from tests.integration.small_bundle import START_MS, train_small_bundle

from .clients import CLIENTS
from .questions import QUESTIONS, check, questions
from .stand import Stand, stand

SHOWN = 3  # of what was wrong

EPILOG = """\
Java 17 (a JDK), Maven, Node.js 20 and npm; a client whose runtime is missing is null in the last line, and the reason is
printed. Kafka and Redis are started for the run, unless ASSAY_BOOTSTRAP_SERVERS and ASSAY_REDIS_URL name some.

exit status: 0 all is right, 1 an answer was wrong or a runtime is missing, 2 it could not be run
"""


def tell(text: str) -> None:
    """On stderr: stdout is for results."""
    print(text, file=sys.stderr, flush=True)


async def ask_all(counter: Stand, count: int) -> dict[str, int | None]:
    """{client: right answers in all its ways of use, or None} with "asked" and "wrong"; prints a line for each way."""
    right: dict[str, int | None] = {client.counted_as: 0 for client in CLIENTS.values()}
    totals = Counter[str]()
    for name, client in CLIENTS.items():
        asked = questions(name, count)
        try:
            lines = await client.ask(name, counter, asked)
        except ServiceError as missing:
            right[client.counted_as] = None
            print(f"{name}: not tried: {missing}")
            continue
        except (AssertionError, TimeoutError) as broken:
            tell(f"{name}: {broken!r}")
            lines = []
        checked = check(asked, lines, await counter.decisions())
        totals += Counter(asked=len(asked), wrong=len(checked.wrong))
        if (so_far := right[client.counted_as]) is not None:
            right[client.counted_as] = so_far + checked.right
        print(f"{name}: {checked.right} of {len(asked)} right: {dict(checked.kinds)}", *checked.wrong[:SHOWN], sep="\n  ")
    return {**right, "asked": totals["asked"], "wrong": totals["wrong"]}


async def run(count: int) -> dict[str, int | None]:
    """Everything up, asked, and down again. Raises AssayError."""
    with tempfile.TemporaryDirectory(prefix="assay-compat-") as folder, services(tell=tell) as running:
        tell("training a small bundle")
        bundle = Path(folder) / "bundle"
        await asyncio.to_thread(train_small_bundle, bundle, START_MS)
        async with stand(Path(folder), running, bundle) as counter:
            return await ask_all(counter, count)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.compat",
        description="Let checkouts' own clients ask a real worker, all at once, and check every answer.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="for each client at once (%(default)s)")
    try:
        result = asyncio.run(run(parser.parse_args().questions))
    except AssayError as error:
        tell(f"error: {error}")
        return 2
    print(json.dumps(result))
    return 1 if result["wrong"] or None in result.values() else 0


if __name__ == "__main__":
    sys.exit(main())
