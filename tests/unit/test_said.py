"""What former owners said for records that they did not commit."""

from types import SimpleNamespace

from assay.agents.said import SaidBefore
from assay.schemas.decode import Decoded
from assay.schemas.source import Source
from assay.streams.read_back import ReadBack, Said

DECIDED, REFUSED, NEITHER = (Source("transactions", 0, offset) for offset in (7, 8, 9))


def said_before() -> SaidBefore:
    said = SaidBefore()
    said.begin({0: ReadBack({7: Said(b"{}", conflict=True)}, {8}), 1: ReadBack()})
    return said


def test_i1_a_decision_is_found_once_for_its_own_record():
    said = said_before()
    assert said.decision(NEITHER) is None
    assert said.decision(DECIDED._replace(partition=1)) is None
    assert said.decision(DECIDED) == Said(b"{}", conflict=True)
    assert said.decision(DECIDED) is None


def test_i1_a_dead_letter_is_known():
    said = said_before()
    assert [said.refused(source) for source in (DECIDED, REFUSED, NEITHER)] == [False, True, False]


def test_i1_what_was_refused_gets_no_decision_from_another_version():
    requests = [SimpleNamespace(source=source) for source in (DECIDED, REFUSED, NEITHER)]
    left = said_before().without_refused(Decoded(requests, [], 0)).requests
    assert [request.source for request in left] == [DECIDED, NEITHER]


def test_nothing_is_looked_for_once_everything_was_asked_for():
    said = said_before()
    said.decision(DECIDED)
    assert said
    said.refused(REFUSED)
    assert not said
