"""The checker bites: each fault that it looks for is made up, and found."""

import orjson
import pytest

from assay.schemas.decision import Action
from assay.schemas.decode import decode
from assay.schemas.limits import DECISIONS_REMEMBERED_PER_USER
from assay.schemas.source import SOURCE_HEADER, Source
from tests.integration.topics import transaction

from .checker import MUST_BE_ZERO, Counts
from .made_up import APPENDED_MS, MadeUp, decision, deployment, faultless

FIRST, REPEAT, CHANGED, LETTER = 1, 33, 34, 1  # positions in `decisions` and `dead-letters`, which begin with a fence


@pytest.fixture
def made() -> MadeUp:
    return faultless()


def faults_of(made: MadeUp) -> dict[str, int]:
    return made.check().counts().faults


def source(offset: int, partition: int = 0) -> tuple[tuple[str, bytes], ...]:
    return ((SOURCE_HEADER, Source("transactions", partition, offset).header()),)


def test_nothing_is_wrong_with_a_faultless_deployment(made: MadeUp) -> None:
    counts = made.check().counts()
    assert counts.faults == {}
    assert (counts.transactions, counts.fences, counts.repeated, counts.unanswered) == (36, 4, 0, 0)


def test_everything_is_told_in_pieces_as_well_as_at_once(made: MadeUp) -> None:
    checker = made.check()
    pieces = MadeUp().check()
    for record in made.records["transactions"]:
        pieces.transactions([record])
    for topic, tell in (
        ("decisions", pieces.decisions),
        ("dead-letters", pieces.dead_letters),
        ("changelog", pieces.changelog),
    ):
        for record in made.records[topic]:
            tell([record])
    pieces.evidence(made.records["evidence"])
    pieces.replies(made.records["checkout.reply"])
    assert pieces.counts() == checker.counts()


def test_i1_a_transaction_without_a_decision_is_lost(made: MadeUp) -> None:
    del made.records["decisions"][REPEAT]
    del made.records["checkout.reply"][REPEAT - 1]
    assert faults_of(made) == {"lost": 1}


def test_i1_a_refused_record_without_a_dead_letter_is_lost(made: MadeUp) -> None:
    del made.records["dead-letters"][LETTER]
    del made.records["checkout.reply"][-1]
    assert faults_of(made) == {"lost": 1}


def test_i2_another_decision_for_the_same_record_is_contradictory(made: MadeUp) -> None:
    made.again("decisions", FIRST, value=made.records["decisions"][FIRST].value.replace(b"approve", b"decline"))
    assert faults_of(made) == {"contradictory": 1}


def test_i2_one_byte_is_enough_to_contradict(made: MadeUp) -> None:
    made.again("decisions", FIRST, value=made.records["decisions"][FIRST].value + b" ")
    assert faults_of(made) == {"contradictory": 1}


@pytest.mark.parametrize("position", [REPEAT, CHANGED])
def test_i2_another_decision_for_a_repeated_transaction_is_contradictory(made: MadeUp, position: int) -> None:
    value = made.records["decisions"][position].value.replace(b"approve", b"decline")
    made.change("decisions", position, value=value)
    made.change("checkout.reply", position - 1, value=value)
    assert faults_of(made) == {"contradictory": 1}


def test_i2_the_same_record_decided_twice_alike_is_repeated_and_no_fault(made: MadeUp) -> None:
    made.again("decisions", FIRST)
    counts = made.check().counts()
    assert (counts.repeated, counts.faults) == (1, {})


def test_i1_a_decision_and_a_dead_letter_for_one_record_are_contradictory(made: MadeUp) -> None:
    made.again("dead-letters", LETTER, headers=source(3))
    assert faults_of(made) == {"contradictory": 1, "unfounded": 1}


def test_i1_two_dead_letters_for_one_record_are_contradictory(made: MadeUp) -> None:
    made.again("dead-letters", LETTER)
    assert faults_of(made) == {"contradictory": 1}


def test_a_dead_letter_of_an_outcome_is_none_of_a_transaction(made: MadeUp) -> None:
    made.again("dead-letters", LETTER, headers=((SOURCE_HEADER, Source("x-outcomes", 0, 3).header()),))
    assert faults_of(made) == {}


@pytest.mark.parametrize("headers", [source(34), source(35), source(99), (), source(0, 1)])
def test_i1_a_decision_that_no_transaction_accounts_for_is_unfounded(
    made: MadeUp, headers: tuple[tuple[str, bytes], ...]
) -> None:
    made.again("decisions", FIRST, headers=headers)
    assert faults_of(made) == {"unfounded": 1}


def test_i1_a_decision_on_another_partition_than_its_transaction_is_unfounded(made: MadeUp) -> None:
    made.again("decisions", FIRST, partition=1)
    assert faults_of(made) == {"unfounded": 1}


def test_i1_a_decision_of_another_transaction_is_unfounded(made: MadeUp) -> None:
    made.again("decisions", FIRST, headers=source(5))
    assert faults_of(made) == {"unfounded": 1}


def test_i4_a_row_that_the_replay_never_had_differs_and_so_does_its_profile(made: MadeUp) -> None:
    value = made.records["changelog"][-1].value
    made.change("changelog", -1, value=value[:-1] + bytes([value[-1] ^ 1]))
    assert faults_of(made) == {"profiles_differ": 1, "rows_differ": 1}


def test_i3_an_older_row_that_is_appended_late_differs_even_if_a_newer_one_follows(made: MadeUp) -> None:
    made.again("changelog", -3)
    made.again("changelog", -2)
    assert faults_of(made) == {"rows_differ": 2}


def test_i3_a_profile_whose_last_row_is_missing_differs(made: MadeUp) -> None:
    del made.records["changelog"][-1]
    assert faults_of(made) == {"profiles_differ": 1}


def test_i3_a_profile_that_was_deleted_differs(made: MadeUp) -> None:
    made.again("changelog", -1, value=None)
    assert faults_of(made) == {"profiles_differ": 1}


def test_i4_bookkeeping_in_the_changelog_is_no_profile(made: MadeUp) -> None:
    made.add("changelog", (b"\0built-from", b"anything", []))
    assert faults_of(made) == {}


def test_i4_a_changelog_without_what_compaction_removes_is_whole(made: MadeUp) -> None:
    last = {record.key: record for record in made.records["changelog"]}
    made.records["changelog"] = list(last.values())
    assert faults_of(made) == {}


def test_i4_evidence_with_another_feature_differs(made: MadeUp) -> None:
    features = orjson.loads(made.records["evidence"][-1].value)["features"]
    made.change("evidence", -1, value=orjson.dumps({"features": [features[0] + 1, *features[1:]]}))
    assert faults_of(made) == {"evidence_differs": 1}


def test_i2_evidence_of_a_transaction_that_was_not_judged_differs(made: MadeUp) -> None:
    made.again("evidence", -1, headers=source(REPEAT - 1))
    assert faults_of(made) == {"evidence_differs": 1}


def test_i3_a_reply_that_says_what_the_log_does_not_hold_is_found(made: MadeUp) -> None:
    made.change("checkout.reply", 0, value=made.records["checkout.reply"][0].value.replace(b"approve", b"decline"))
    assert faults_of(made) == {"replies_without_decision": 1}


def test_i3_an_error_without_a_dead_letter_is_found(made: MadeUp) -> None:
    made.change("checkout.reply", -1, headers=(*source(2), ("assay-error", b"malformed")))
    assert faults_of(made) == {"replies_without_decision": 1}


def test_a_missing_reply_is_counted_and_no_fault(made: MadeUp) -> None:
    del made.records["checkout.reply"][0]
    counts = made.check().counts()
    assert (counts.unanswered, counts.faults) == (1, {})


def test_the_gap_is_from_append_to_the_first_decision_and_asked_for_once(made: MadeUp) -> None:
    made.change("decisions", FIRST, timestamp=APPENDED_MS + 9_300)
    made.again("decisions", FIRST, timestamp=APPENDED_MS + 60_000)
    checker = made.check()
    assert (checker.gap().seconds, checker.gap().seconds, checker.counts().worst_gap_s) == (9.3, 0.0, 9.3)


@pytest.mark.parametrize(
    ("between", "contradictory"), [(DECISIONS_REMEMBERED_PER_USER - 1, 1), (DECISIONS_REMEMBERED_PER_USER, 0)]
)
def test_i2_an_id_that_comes_back_beyond_the_horizon_may_be_decided_otherwise(between: int, contradictory: int) -> None:
    bodies = [transaction(number, "somebody") for number in range(between + 1)]
    made = deployment([*bodies, bodies[0]])
    requests = decode(made.records["transactions"]).requests
    for request in requests[:-1]:
        made.add("decisions", decision(request, request.source.offset))
    made.add("decisions", decision(requests[-1], 0 if contradictory else between + 1, Action.DECLINE))
    assert made.check().counts().contradictory == contradictory


def test_every_count_but_the_last_ones_must_be_zero() -> None:
    assert MUST_BE_ZERO == (
        "lost", "contradictory", "unfounded", "profiles_differ", "rows_differ", "evidence_differs", "replies_without_decision",
    )  # fmt: skip
    assert all(hasattr(Counts(), name) for name in MUST_BE_ZERO)
