"""`assay dead-letters`: what was refused, why, and how it gets its verdict after all."""

import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import AsyncIterator

    from assay.deploy.dead_letter_log import Letter, Place
    from assay.deploy.rebuild_log import Log
    from assay.streams.settings import Settings

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="""List, explain and send again what was refused.

    \b
    Examples:
      assay dead-letters list --since 12h
      assay dead-letters explain 3/41
      assay dead-letters resubmit 3/41 --value corrected.json
    """,
)
NOTHING_SENT = 1
MOST_SENT = 10_000  # all of them are held in memory

_Code = Annotated[str | None, typer.Option(help="Only those of this code.")]
_Since = Annotated[str | None, typer.Option(help="Only those appended since: 90m, 12h, 7d, or an RFC 3339 time.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON, one line each.")]

MENDS = {
    "too_large": "the producer sends less; only the beginning was kept where the topic takes no more",
    "content_type": "the producer names a content type that is read, or none",
    "malformed": "the producer sends one JSON object, no name twice in an object",
    "missing": "the producer adds the field",
    "invalid": "the producer corrects the field; or send it again with --value FILE",
    "timestamp_ahead": "the clock of the producer is ahead; sent again later it is taken",
    "card_number": "the producer sends a token; nothing of the record was kept, so it can't be sent again",
    "correlation": "the caller shortens its correlation id",
    "reply_address": "the caller names a topic and a partition in the form of its dialect; sent again it asks for no reply",
    "deadline": "the caller writes its deadline in digits; sent again it has none",
    "unsigned": "the producer signs what it sends (docs/security.md)",
    "signature": "the producer signs these very bytes, for this topic; where its key was missing, add that and send it again",
}


@app.command("list")
def list_(
    code: _Code = None,
    since: _Since = None,
    limit: Annotated[int, typer.Option(min=1, help="The latest so many.")] = 50,
    json_: _Json = False,
) -> None:
    """Show refused records, the latest last, and how many there are by code.

    \b
    Examples:
      assay dead-letters list
      assay dead-letters list --code missing --since 12h
      assay dead-letters list --json | jq -r .code | sort | uniq -c
    """
    import asyncio

    latest, counts = asyncio.run(_latest(_code(code), _since_ms(since), limit))
    if json_:
        _print_json([letter.summary() for letter in latest])
        return
    _show(latest)
    by_code = ", ".join(f"{count:,} {name}" for name, count in counts.most_common())
    print(f"{counts.total():,} dead letters" + (f": {by_code}" if by_code else ""))


@app.command()
def explain(
    place: Annotated[str, typer.Argument(help="PARTITION/OFFSET of the dead letter.")],
    json_: _Json = False,
) -> None:
    """Show one: what was refused, why, what was expected, and what to do.

    \b
    Example:
      assay dead-letters explain 3/41
    """
    import asyncio

    from assay.deploy.dead_letter_log import Place, body_of

    [letter] = asyncio.run(_named([Place.parse(place)]))
    mend = MENDS.get(letter.code, "see docs/guarantees.md")
    if json_:
        _print_json([letter.summary() | {"mend": mend, "value": body_of(letter)}])
        return
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True, markup=False)
    console.print(f"{letter.code}: {letter.detail}", style="bold")
    console.print(f"record   {letter.source.header().decode()}, key {_text(letter.key)}")
    console.print(f"mend     {mend}")
    console.print(f"headers  {', '.join(name for name, _ in letter.headers) or 'none'}")
    if letter.withheld:
        console.print("value    withheld: a card number is never kept")
    else:
        console.print("value    only its beginning:" if letter.cut else "value")
        if console.is_terminal:
            console.print_json(data=body_of(letter))
        else:
            _print_json([body_of(letter)])


@app.command()
def resubmit(
    places: Annotated[list[str] | None, typer.Argument(help="PARTITION/OFFSET of each.")] = None,
    code: _Code = None,
    since: _Since = None,
    value: Annotated[Path | None, typer.Option(help="Send the body of this file instead; for one dead letter.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be sent.")] = False,
    json_: _Json = False,
) -> None:
    """Send refused records again, to the topic and partition that they came from, after the mend.

    They ask for no reply and have no deadline, since their callers have gone. Who sends one twice does no harm: the same id
    gets the same decision, and what is refused again becomes another dead letter. Of card numbers nothing was kept, and of
    records beyond the topic's limit only the beginning: those are counted and left out, unless --value gives the body.

    Exits 1 where nothing could be sent.

    \b
    Examples:
      assay dead-letters resubmit 3/41
      assay dead-letters resubmit 3/41 --value corrected.json
      assay dead-letters resubmit --code timestamp_ahead --since 1d --dry-run
    """
    import asyncio

    from assay.deploy.dead_letter_log import Place, send_again
    from assay.deploy.progress_bars import progress_bars
    from assay.schemas.errors import SettingError
    from assay.streams.settings import Settings

    if bool(places) == bool(code):
        raise SettingError("which dead letters?", expected="PARTITION/OFFSET of each, or --code", mend="name one of them")
    if value is not None and len(places or ()) != 1:
        raise SettingError("--value is the body of one record", expected="one PARTITION/OFFSET", got=str(len(places or ())))
    body = None if value is None else _body(value)
    chosen = asyncio.run(
        _named([Place.parse(place) for place in places]) if places else _of_code(_code(code), _since_ms(since))
    )
    sendable = sum(letter.again(body) is not None for letter in chosen)
    if not dry_run and sendable:
        with progress_bars() as report:
            sendable = asyncio.run(send_again(Settings.load(), chosen, body, report))
    if json_:
        _print_json([{"dry_run": dry_run, "sent": sendable, "left_out": len(chosen) - sendable}])
    else:
        left_out = f"; {len(chosen) - sendable:,} left out, of which too little was kept" if len(chosen) > sendable else ""
        print(f"{sendable:,} {'would be' if dry_run else 'were'} sent again{left_out}")
    if not sendable:
        raise typer.Exit(NOTHING_SENT)


def _body(file: Path) -> bytes:
    from assay.schemas.errors import InputError

    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} can't be read", got=str(error.strerror)) from error


async def _of_code(code: str | None, since_ms: int | None) -> "list[Letter]":
    """All of a code. Raises InputError where they are too many."""
    from assay.schemas.errors import InputError

    chosen, counts = await _latest(code, since_ms, MOST_SENT)
    if counts.total() > MOST_SENT:
        raise InputError(
            f"{counts.total():,} dead letters", expected=f"at most {MOST_SENT:,} at once", mend="narrow it by --since"
        )
    return chosen


async def _latest(code: str | None, since_ms: int | None, most: int) -> "tuple[list[Letter], Counter[str]]":
    """The latest so many, the last of them last, and how many there are in all, by code."""
    from collections import Counter
    from heapq import heappush, heappushpop

    from assay.deploy.dead_letter_log import letters
    from assay.deploy.progress_bars import progress_bars

    latest: list[tuple[int, int, Letter]] = []
    counts = Counter[str]()
    async with _log() as (log, settings, partitions):
        with progress_bars() as report:
            async for letter in letters(log, settings, since_ms, report, partitions=partitions):
                if code is None or letter.code == code:
                    counts[letter.code] += 1
                    entry = letter.appended_ms, counts.total(), letter
                    heappush(latest, entry) if len(latest) < most else heappushpop(latest, entry)
    return [letter for *_, letter in sorted(latest)], counts


async def _named(places: "list[Place]") -> "list[Letter]":
    from assay.deploy.dead_letter_log import named

    async with _log() as (log, settings, partitions):
        return await named(log, settings, places, partitions=partitions)


@asynccontextmanager
async def _log() -> "AsyncIterator[tuple[Log, Settings, int]]":
    """The brokers, what they are asked about, and how many partitions the dead letters have."""
    from assay.deploy.rebuild_log import Log
    from assay.streams.kafka import client_options
    from assay.streams.reading import partitions_of
    from assay.streams.settings import Settings

    settings = Settings.load()
    partitions = await partitions_of(client_options(settings), settings.dead_letters)
    async with Log.of(settings) as log:
        yield log, settings, partitions


def _code(code: str | None) -> str | None:
    from assay.schemas.errors import SettingError
    from assay.schemas.refused import RefusalCode

    if code is not None and code not in list(RefusalCode):
        raise SettingError("no such code", expected=", ".join(RefusalCode), got=code)
    return code


def _since_ms(since: str | None) -> int | None:
    """Epoch milliseconds of "12h" ago, or of an RFC 3339 time."""
    import re
    import time

    from assay.schemas.errors import SettingError
    from assay.schemas.instant import Instant

    if since is None:
        return None
    if match := re.fullmatch(r"(\d{1,6})([smhd])", since):
        seconds = int(match[1]) * {"s": 1, "m": 60, "h": 3_600, "d": 86_400}[match[2]]
        return time.time_ns() // 1_000_000 - 1_000 * seconds
    try:
        return Instant.parse(since).ms
    except ValueError:
        raise SettingError("--since can't be read", expected="90m, 12h, 7d, or an RFC 3339 time", got=since) from None


def _show(found: "list[Letter]") -> None:
    from rich.console import Console
    from rich.table import Table

    from assay.schemas.instant import Instant

    table = Table(box=None, pad_edge=False)
    for heading in ("at", "of", "appended", "code", "detail", "key"):
        table.add_column(heading, overflow="fold")
    for letter in found:
        moment = str(Instant(letter.appended_ms, 0))[:19]
        table.add_row(str(letter.place), letter.source.topic, moment, letter.code, letter.detail, _text(letter.key))
    if found:
        Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 200).print(table)


def _text(key: bytes | None) -> str:
    return "none" if key is None else key.decode(errors="replace")


def _print_json(rows: list[Any]) -> None:
    import orjson

    for row in rows:
        print(orjson.dumps(row).decode())
