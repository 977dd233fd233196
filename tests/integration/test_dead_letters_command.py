"""`assay dead-letters` on a real Kafka: what was refused is listed, explained, and judged once it is sent again."""

import asyncio
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from assay.schemas.headers import ASKING

from .conftest import Run
from .topics import Topics, transaction

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module")]
CARD = "4111111111111111"


@pytest.fixture
def run(assay: Run) -> Run:
    return partial(assay, "dead-letters")


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode in (0, 1), done.stderr
    return [orjson.loads(line) for line in done.stdout.splitlines()]


async def refused(topics: Topics, body: dict[str, Any] | bytes, **more: Any) -> str:
    """PARTITION/OFFSET of the dead letter of a record."""
    letter = await topics.first(await topics.send(body, **more), "dead-letters")
    return f"{letter.partition}/{letter.offset}"


async def test_what_was_refused_is_listed_with_code_and_field_and_counted(topics: Topics, run: Run) -> None:
    at = await refused(topics, transaction("listed", "user-a", amount="1.234"))
    [letter] = [each for each in lines(await asyncio.to_thread(run, "list", "--json")) if each["at"] == at]
    assert (letter["code"], letter["key"], letter["withheld"]) == ("invalid", "user-a", False)
    assert letter["detail"].startswith("amount: expected")
    page = (await asyncio.to_thread(run, "list", "--code", "invalid", "--since", "1h")).stdout
    assert at in page
    assert page.splitlines()[-1].endswith("invalid")


async def test_the_latest_are_shown_where_there_are_more_than_asked_for(topics: Topics, run: Run) -> None:
    for number in range(3):
        at = await refused(topics, transaction(f"many-{number}", "user-b", amount="x"))
    assert [each["at"] for each in lines(await asyncio.to_thread(run, "list", "--json", "--limit", "1"))] == [at]


async def test_one_is_explained_with_its_mend(topics: Topics, run: Run) -> None:
    body = transaction("explained", "user-c")
    del body["merchant"]
    at = await refused(topics, body)
    [found] = lines(await asyncio.to_thread(run, "explain", at, "--json"))
    assert (found["code"], found["value"]) == ("missing", body)
    page = (await asyncio.to_thread(run, "explain", at)).stdout
    assert "merchant" in page
    assert "the producer adds the field" in page


async def test_sent_again_with_a_corrected_body_it_gets_its_verdict_and_no_reply(
    topics: Topics, run: Run, tmp_path: Path
) -> None:
    asking = [("reply-to", topics.name("checkout.reply").encode()), ("correlation-id", b"c-7"), ("assay-timeout-ms", b"100")]
    at = await refused(topics, transaction("again", "user-d", amount="x"), headers=asking)
    corrected = tmp_path / "corrected.json"
    corrected.write_bytes(orjson.dumps(transaction("again", "user-d")))
    [said] = lines(await asyncio.to_thread(run, "resubmit", at, "--value", str(corrected), "--json"))
    assert said == {"dry_run": False, "sent": 1, "left_out": 0}
    await topics.settled()
    [decision] = [each for each in topics.seen["decisions"] if each.key == b"user-d"]
    assert orjson.loads(decision.value)["deadline_missed"] is False
    assert dict(decision.headers)["correlation-id"] == b"c-7"
    replies = [orjson.loads(each.value) for each in topics.seen["checkout.reply"]]
    assert [reply["tier"] for reply in replies if reply["transaction_id"] == "t-again"] == ["refused"]
    assert not ASKING & {name for name, _ in decision.headers}


async def test_what_is_sent_again_as_it_was_is_refused_again_and_twice_is_harmless(topics: Topics, run: Run) -> None:
    at = await refused(topics, transaction("unmended", "user-e", currency="EURO"))
    for _ in range(2):
        assert (await asyncio.to_thread(run, "resubmit", at)).stdout == "1 were sent again\n"
    await topics.settled()
    letters = [each for each in topics.seen["dead-letters"] if each.key == b"user-e"]
    assert len(letters) == 3
    assert {each.partition for each in letters} == {int(at.split("/")[0])}
    assert [dict(each.headers).get("assay-resubmitted") for each in letters] == [None, at.encode(), at.encode()]


async def test_of_a_card_number_nothing_is_there_to_be_sent(topics: Topics, run: Run) -> None:
    at = await refused(topics, transaction("card", "user-f", instrument={"id": CARD}))
    done = await asyncio.to_thread(run, "resubmit", at)
    assert (done.returncode, done.stdout) == (1, "0 were sent again; 1 left out, of which too little was kept\n")
    explained = await asyncio.to_thread(run, "explain", at)
    assert CARD not in explained.stdout
    assert "withheld" in explained.stdout


async def test_a_dry_run_sends_nothing(topics: Topics, run: Run) -> None:
    await refused(topics, transaction("dry", "user-g", timestamp=9_999_999_999_998))
    await topics.settled()
    before = len(topics.seen["dead-letters"])
    [said] = lines(await asyncio.to_thread(run, "resubmit", "--code", "timestamp_ahead", "--dry-run", "--json"))
    assert said == {"dry_run": True, "sent": 1, "left_out": 0}
    await topics.settled()
    assert len(topics.seen["dead-letters"]) == before


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["resubmit"], "which dead letters?"),
        (["resubmit", "0/0", "--code", "invalid"], "which dead letters?"),
        (["resubmit", "--code", "invalid", "--value", "x"], "--value is the body of one record"),
        (["explain", "zero"], "PARTITION/OFFSET"),
        (["explain", "77/0"], "no dead letter at 77/0"),
        (["explain", "0/999999"], "no dead letter at 0/999999"),
        (["list", "--code", "wrong"], "no such code"),
        (["list", "--since", "yesterday"], "--since can't be read"),
    ],
)
async def test_what_is_asked_wrongly_is_told_and_exits_with_2(topics: Topics, run: Run, arguments: list[str], why: str) -> None:
    done = await asyncio.to_thread(run, *arguments)
    assert done.returncode == 2
    assert why in done.stderr
