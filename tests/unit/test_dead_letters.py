"""What `assay dead-letters` says and sends, without a Kafka."""

from types import SimpleNamespace

import pytest

from assay.deploy.dead_letter_log import Letter
from assay.deploy.dead_letters import MENDS
from assay.schemas.refusal import WHY_HEADERS, Refusal, dead_letter
from assay.schemas.refused import RefusalCode

RECORD = SimpleNamespace(
    topic="transactions", partition=2, offset=7, timestamp=1_767_225_600_000, key=b"user", value=b"x" * 5_000,
    headers=[("traceparent", b"00-ab"), ("reply-to", b"a.reply"), ("reply-partition", b"1"), ("assay-deadline", b"1"),
             ("correlation-id", b"c-1")],
)  # fmt: skip


def letter(code: RefusalCode, topic_limit: int = 1_000_000) -> Letter:
    key, value, headers = dead_letter(Refusal(RECORD, code, "value", "less"), topic_limit, b"key")
    found = Letter.of(SimpleNamespace(partition=0, offset=3, timestamp=5, key=key, value=value, headers=headers))
    assert found is not None
    return found


def test_every_code_has_a_mend() -> None:
    assert set(MENDS) == set(RefusalCode)


@pytest.mark.parametrize("code", RefusalCode)
@pytest.mark.parametrize("topic_limit", [2_000, 1_000_000])
def test_all_headers_that_a_dead_letter_adds_are_known(code: RefusalCode, topic_limit: int) -> None:
    _, _, headers = dead_letter(Refusal(RECORD, code, "value", "less"), topic_limit, b"key")
    assert {name for name, _ in headers} - {name for name, _ in RECORD.headers} <= WHY_HEADERS


def test_it_is_sent_again_as_it_came_but_for_what_its_caller_waited_for() -> None:
    assert letter(RefusalCode.INVALID).again() == (
        b"user", RECORD.value, [("traceparent", b"00-ab"), ("correlation-id", b"c-1"), ("assay-resubmitted", b"0/3")],
    )  # fmt: skip


def test_a_correlation_id_that_was_refused_is_not_sent_again() -> None:
    again = letter(RefusalCode.CORRELATION).again()
    assert again is not None
    assert [name for name, _ in again[2]] == ["traceparent", "assay-resubmitted"]


def test_the_beginning_of_a_value_is_not_sent_as_if_it_were_all_of_it() -> None:
    cut = letter(RefusalCode.TOO_LARGE, topic_limit=2_000)
    assert cut.cut
    assert cut.again() is None
    again = cut.again(b"{}")
    assert again is not None
    assert again[1] == b"{}"
