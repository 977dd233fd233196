"""Rate limits: who is over one gets the cheap answer, marked; the same in every replay; and nobody else is touched."""

from typing import Any

import numpy as np
import pytest

from assay.agents.decided import decided_batches
from assay.agents.limits import Buckets, Limits, limits_of
from assay.agents.profiles import Recalled
from assay.schemas import limits as bounds
from assay.schemas.decision import Action, Tier
from assay.schemas.decode import decode
from assay.schemas.signature import SigningKey
from assay.schemas.source import SourceRecord
from assay.streams.metrics import Metrics
from assay.streams.settings import Settings
from assay.tables.transaction_index import Kept

from .test_decided import decision, recalled, verdicts
from .test_decode import body, record

START_MS = 1_772_362_800_250


def payments(*users: str, producer: bytes | None = None, every_ms: int = 1) -> list[SourceRecord]:
    """One of each, on one partition."""
    headers = () if producer is None else (("ce_source", producer),)
    return [
        record(
            body(user_id=user, transaction_id=f"t-{n}"), headers, key=user.encode(), offset=n, timestamp=START_MS + n * every_ms
        )
        for n, user in enumerate(users)
    ]


def marked(limits: Limits, records: list[SourceRecord], said: Any = None) -> Recalled:
    """What becomes of records that are all new; `said` as `recalled` takes it."""
    found = recalled(decode(records).requests, said or {})
    limits.mark(found, records)
    return found


def over(limits: Limits, records: list[SourceRecord]) -> list[int]:
    limited = marked(limits, records).limited
    return [] if limited is None else limited.positions


def of(**settings: Any) -> Limits:
    return Limits(Settings.load(**settings), Metrics())


def test_without_a_limit_there_is_nothing_to_ask() -> None:
    assert limits_of(Settings.load(), Metrics()) is None


def test_a_user_over_the_limit_costs_no_other_user_anything() -> None:
    assert over(of(user_rate=1.0, user_burst=2), payments("a", "a", "b", "a", "b", "a", "c")) == [3, 5]


def test_tokens_come_back_with_the_time_of_intake() -> None:
    assert over(of(user_rate=1.0, user_burst=1), payments(*"aaaaa", every_ms=500)) == [1, 3]


def at(*times_ms: int) -> list[SourceRecord]:
    """Payments of one user, appended then."""
    return [
        record(body(user_id="a", transaction_id=f"t-{n}"), key=b"a", offset=n, timestamp=START_MS + ms)
        for n, ms in enumerate(times_ms)
    ]


def test_times_that_go_back_a_little_cost_nobody_a_token_and_give_none() -> None:
    there, back = 10_000, 9_000  # two leaders, or two partitions whose copies lie among each other
    limits = of(user_rate=1.0, user_burst=2)
    assert over(limits, at(0, there, back, there, back, there + 1_000, back, there + 2_000)) == [3, 4, 6]


def test_a_clock_that_was_set_back_costs_one_wait_at_most() -> None:
    ahead = 3_600_000
    assert over(of(user_rate=1.0, user_burst=2), at(ahead, ahead, 0, 999, 1_000, 2_000)) == [2, 3]


def test_a_producer_over_the_limit_is_told_from_another_and_those_without_a_name_are_one() -> None:
    limits = of(producer_rate=0.001, producer_burst=2)
    assert over(limits, payments("a", "b", "c", producer=b"shop")) == [2]
    assert over(limits, payments("d", "e", "f")) == [2]


def test_what_a_producer_is_denied_takes_no_token_of_its_user() -> None:
    limits = of(user_rate=0.001, user_burst=2, producer_rate=1.0, producer_burst=1)
    assert over(limits, payments(*"aaa", every_ms=1_000)) == [2]
    limits = of(user_rate=0.001, user_burst=2, producer_rate=1.0, producer_burst=1)
    assert over(limits, payments(*"aaaa", every_ms=500)) == [1, 3]


def test_the_decision_says_whose_limit_it_was_and_what_the_policy_names() -> None:
    limited = marked(of(user_rate=1.0, user_burst=1, limited_action="decline"), payments("a", "a")).limited
    assert limited is not None
    said = limited.verdicts
    assert (said.tier, said.action, said.rules) == (Tier.DEFAULT, [Action.DECLINE], [("limit:user",)])
    assert [reason.code for reason in said.reasons[0]] == ["RATE_LIMIT_USER"]
    assert np.isnan(said.score).all()


def test_a_repeat_takes_no_token() -> None:
    records, limits = payments("a", "a", "a"), of(user_rate=0.001, user_burst=2)
    found = recalled(decode(records).requests, {}, repeated=1)
    limits.mark(found, records)
    assert found.limited is None


def test_what_is_limited_is_folded_and_not_judged() -> None:
    found = marked(of(user_rate=1.0, user_burst=1), payments("a", "a", "b"))
    assert found.fresh.tolist() == [True, True, True]
    assert found.judged.tolist() == [True, False, True]
    assert [request.source.offset for request in found.judged_requests] == [0, 2]


def test_i4_micro_batches_change_nothing() -> None:
    records, limits = payments(*"aabacabbca", every_ms=300), of(user_rate=1.0, user_burst=2)
    whole = over(of(user_rate=1.0, user_burst=2), records)
    pieces = [start + position for start in (0, 3, 4) for position in over(limits, records[start : {0: 3, 3: 4, 4: 10}[start]])]
    assert pieces == whole


def test_i1_what_a_former_owner_said_stands_and_has_taken_its_token() -> None:
    records = payments("a", "a", "a")
    requests = decode(records).requests
    found = recalled(requests, {1: decision(requests[1], Action.APPROVE)})
    of(user_rate=1.0, user_burst=2).mark(found, records)
    assert found.limited is not None
    assert (found.limited.positions, found.judged.tolist()) == ([2], [True, False, False])


def test_a_take_over_begins_with_full_buckets() -> None:
    limits, records = of(user_rate=0.001, user_burst=1), payments("a")
    assert (over(limits, records), over(limits, records)) == ([], [0])
    limits.begin()
    assert over(limits, records) == []


def test_outcomes_find_what_was_limited() -> None:
    found = marked(of(user_rate=1.0, user_burst=1), payments("a", "a", "b"))
    [batch] = decided_batches(found, verdicts(Action.APPROVE, Action.APPROVE))
    kept = [Kept.decode(row["entry"].tobytes()) for row in batch.rows]
    assert [(each.action, each.entry.tier) for each in kept] == [
        (Action.APPROVE, Tier.FULL.rank), (Action.REVIEW, Tier.DEFAULT.rank), (Action.APPROVE, Tier.FULL.rank),
    ]  # fmt: skip


def test_i5_max_buckets_one_more_makes_room_of_those_that_are_full_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_BUCKETS", 4)
    buckets = Buckets(rate=1.0, burst=1)
    for number in range(4):
        buckets.take(b"early-%d" % number, 0)
    buckets.take(b"late", 2_000)
    assert list(buckets._full_at_us) == [b"late"]


def test_i5_max_buckets_one_more_makes_room_of_the_oldest_where_none_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_BUCKETS", 4)
    buckets = Buckets(rate=1.0, burst=1)
    assert all(buckets.take(b"user-%d" % number, number) for number in range(5))
    assert list(buckets._full_at_us) == [b"user-3", b"user-4"]


def test_what_is_used_is_kept_however_long_ago_it_came_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_BUCKETS", 4)
    buckets = Buckets(rate=1.0, burst=2)
    for number, name in enumerate((b"busy", b"1", b"2", b"3", b"busy", b"4")):
        buckets.take(name, number)
    assert not buckets.take(b"busy", 6)


def test_a_producer_may_be_known_by_the_key_that_it_signs_with() -> None:
    keys = [SigningKey.make(kid=kid, topic="transactions") for kid in ("one", "other")]
    signed = [
        record(payment.value or b"", [key.header(payment.value or b"")], key=payment.key, offset=n, timestamp=payment.timestamp)
        for n, (payment, key) in enumerate(zip(payments(*"abcdef"), keys * 3, strict=True))
    ]
    assert over(of(producer_rate=1.0, producer_burst=2, producer_header="assay-signature"), signed) == [4, 5]
