"""Checkouts' own clients, unmodified, ask a real worker 1,000 times at once."""

import pytest

from .clients import CLIENTS, UNCHECKED
from .questions import QUESTIONS, check, questions
from .stand import Stand

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_client_gets_the_decision_of_each_transaction_that_it_asked_about(name: str, counter: Stand) -> None:
    asked = questions(name)
    checked = check(asked, await CLIENTS[name].ask(name, counter, asked), await counter.decisions())
    assert not checked.wrong, checked.wrong[:5]
    assert checked.right == QUESTIONS
    assert set(checked.kinds) == {"approve", "review", "decline", "refused"}


async def test_a_spring_client_that_checks_nothing_reads_a_refusal_as_a_review(counter: Stand) -> None:
    asked = [one for one in questions("unchecked", 100) if one["currency"] != "EUR"]
    lines = await UNCHECKED.ask("unchecked", counter, asked)
    assert [(line["answer"]["action"], line["answer"]["tier"]) for line in lines] == [("review", "refused")] * 2
