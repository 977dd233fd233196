"""Outcomes of a file, as changes when they became known, and as labels in the end."""

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from assay.models.outcome_history import DAY_MS, OutcomeHistory, outcome_history
from assay.schemas.errors import InputError
from assay.schemas.transaction import Transaction
from assay.tables.features import NAMES
from assay.tables.rates import SHIPPED_RATES, Rates
from assay.tables.replay import events_of, replay_events

START_MS, DAYS = 1_767_225_600_000, 200
LAST = DAYS - 1


def payment(number: int, amount: str = "64.00") -> Transaction:
    """One a day, each of its own user, all at one merchant."""
    return Transaction.model_validate(
        {
            "transaction_id": f"t-{number}", "user_id": f"u-{number}", "amount": amount, "currency": "EUR",
            "timestamp": START_MS + number * DAY_MS, "merchant": {"id": "m-1"}, "instrument": {"id": f"i-{number}"},
        }
    )  # fmt: skip


EVENTS = events_of([payment(number) for number in range(DAYS)], Rates.load(SHIPPED_RATES))
WHOLE = [64_000] * DAYS


def said(number: int, status: str, day: float, **more: Any) -> dict[str, Any]:
    """An outcome of payment `number`, known on that day."""
    identity = {"outcome_id": f"o-{number}-{status}-{day}", "user_id": f"u-{number}", "transaction_id": f"t-{number}"}
    return identity | {"status": status, "known_at": int(START_MS + day * DAY_MS)} | more


def history(folder: Path, *outcomes: dict[str, Any]) -> OutcomeHistory:
    path = folder / "outcomes.jsonl"
    path.write_bytes(b"\n".join(map(orjson.dumps, outcomes)))
    return outcome_history(path, EVENTS, WHOLE)


def test_each_becomes_known_before_the_first_payment_after_it(tmp_path: Path) -> None:
    found = history(tmp_path, said(5, "fraud", 12.5), said(3, "issuer_declined", 3.0), said(9, "disputed", 500))
    assert found.known_before.tolist() == [4, 13, DAYS]
    assert found.changes["offset"].tolist() == [3, 5, 9]
    assert found.changes["issuer_declines"].tolist() == [1, 0, 0]
    assert found.changes["frauds"].tolist() == [0, 1, 0]
    assert found.changes["disputes"].tolist() == [0, 0, 1]
    assert found.changes["thousandths"].tolist() == [0, 64_000, 0]


def test_a_reversal_takes_back_what_it_reverses_when_it_is_known(tmp_path: Path) -> None:
    found = history(tmp_path, said(5, "dispute_reversed", 30.5), said(5, "disputed", 12.5))
    assert found.changes["disputes"].tolist() == [1, -1]
    assert found.known_before.tolist() == [13, 31]


def test_parts_of_a_fraud_add_up_to_the_whole(tmp_path: Path) -> None:
    parts = [said(5, "fraud", day, amount="40.00") for day in (7, 8)]
    assert history(tmp_path, *parts).changes["thousandths"].tolist() == [40_000, 24_000]


def test_what_nobody_spoke_of_is_genuine_once_it_is_old_and_not_known_before(tmp_path: Path) -> None:
    found = history(tmp_path, said(LAST - 10, "fraud", LAST), said(LAST - 11, "genuine", LAST), said(5, "disputed", 20))
    assert np.flatnonzero(found.fraud).tolist() == [LAST - 10]
    expected = set(range(LAST - 90 + 1)) - {5} | {LAST - 10, LAST - 11}
    assert set(np.flatnonzero(found.labelled).tolist()) == expected


def test_those_of_other_transactions_are_counted(tmp_path: Path) -> None:
    found = history(tmp_path, said(5, "fraud", 6), said(5, "fraud", 6) | {"user_id": "u-6"})
    assert (found.outcomes, found.unknown, len(found.changes)) == (2, 1, 1)


def test_those_known_in_the_future_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.jsonl"
    path.write_bytes(b"\n".join(map(orjson.dumps, (said(5, "fraud", 6), said(6, "fraud", 6.5)))))
    found = outcome_history(path, EVENTS, WHOLE, now_ms=START_MS + 6 * DAY_MS)
    assert (found.outcomes, found.unknown, found.future, len(found.changes)) == (2, 0, 1, 1)


def test_features_count_what_was_known_then(tmp_path: Path) -> None:
    found = history(tmp_path, said(5, "issuer_declined", 5.5))
    again = EVENTS[[5, 5, 5]].copy()  # its user pays three times, an hour apart from the day on
    again["id"][:, 0] += np.arange(3, dtype=np.uint64)
    again["time_ms"] = START_MS + 5 * DAY_MS + np.array([0, 11, 13]) * 3_600_000
    known_before = np.searchsorted(again["time_ms"], [START_MS + round(5.5 * DAY_MS)])
    features = replay_events(again, changes=found.changes, known_before=known_before)
    assert features[:, NAMES.index("user_issuer_declines_24h")].tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"{", "line 2: the line"),
        (orjson.dumps(said(1, "lost", 1)), "line 2: status"),
        (orjson.dumps(said(1, "fraud", 1, amount="-1")), "line 2: amount"),
        (orjson.dumps(said(1, "fraud", 1, detail={"issuer_code": "4111111111111111"})), "line 2: the line"),
    ],
)
def test_a_line_that_is_no_outcome_is_named(tmp_path: Path, line: bytes, expected: str) -> None:
    path = tmp_path / "outcomes.jsonl"
    path.write_bytes(orjson.dumps(said(1, "fraud", 1)) + b"\n" + line)
    with pytest.raises(InputError) as caught:
        outcome_history(path, EVENTS, WHOLE)
    assert expected in caught.value.what
    assert "4111" not in str(caught.value)


def test_outcomes_of_another_history_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none of its 1 outcomes"):
        history(tmp_path, said(5_000, "fraud", 1))


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read"):
        outcome_history(tmp_path / "none.jsonl", EVENTS, WHOLE)
