"""Policy: the most severe wins, only an allow-list lowers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.models.policy import by_score, decide

APPROVE, REVIEW, DECLINE = 0, 1, 2


def _decide(score, *rules):
    """rules: (fired, severity, list)."""
    final, decided = decide(
        np.array([score], np.int8),
        np.array([[fired for fired, _, _ in rules]], np.bool_).reshape(1, len(rules)),
        np.array([severity for _, severity, _ in rules], np.int8),
        np.array([which == "allow" for _, _, which in rules], np.bool_),
        np.array([which == "block" for _, _, which in rules], np.bool_),
    )
    return int(final[0]), decided[0].tolist()


ALLOW, BLOCK = (True, APPROVE, "allow"), (True, DECLINE, "block")


@pytest.mark.parametrize(
    ("score", "rules", "final", "decided"),
    [
        (APPROVE, [], APPROVE, []),
        (DECLINE, [], DECLINE, []),
        (APPROVE, [(True, REVIEW, None)], REVIEW, [True]),
        (APPROVE, [(False, REVIEW, None)], APPROVE, [False]),
        (REVIEW, [(True, REVIEW, None)], REVIEW, [True]),
        (DECLINE, [(True, REVIEW, None)], DECLINE, [False]),
        (APPROVE, [(True, REVIEW, None), (True, DECLINE, None)], DECLINE, [False, True]),
        (DECLINE, [ALLOW], APPROVE, [True]),
        (APPROVE, [(True, DECLINE, None), ALLOW], APPROVE, [False, True]),
        (REVIEW, [(False, APPROVE, "allow")], REVIEW, [False]),
        (APPROVE, [BLOCK, ALLOW], DECLINE, [True, False]),
        (APPROVE, [(False, DECLINE, "block"), ALLOW], APPROVE, [False, True]),
    ],
)
def test_score_and_rules_give_one_action(score, rules, final, decided):
    assert _decide(score, *rules) == (final, decided)


_RULE = st.tuples(st.booleans(), st.sampled_from([REVIEW, DECLINE]), st.sampled_from([None, "block"]))


@given(st.sampled_from([APPROVE, REVIEW, DECLINE]), st.lists(_RULE, max_size=5))
def test_without_an_allow_list_nothing_lowers(score, rules):
    final, decided = _decide(score, *rules)
    assert final == max([score, *(severity for fired, severity, _ in rules if fired)])
    assert all(fired for (fired, _, _), one in zip(rules, decided, strict=True) if one)


def test_a_score_at_a_threshold_counts():
    assert by_score(np.array([0.19, 0.2, 0.79, 0.8, 1.0]), 0.2, 0.8).tolist() == [0, 1, 1, 2, 2]


def test_a_threshold_above_one_is_never_reached():
    assert by_score(np.array([1.0]), 2.0, 2.0).tolist() == [0]
