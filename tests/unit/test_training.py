"""Training and backtests: from a table of transactions to a bundle, and to what it would have saved."""

import json
from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from assay.models.backtest import Tally, judge_history
from assay.models.bundle import Bundle
from assay.models.costs import NEVER, Costs, best_thresholds
from assay.models.evaluate import outcome
from assay.models.history import read_history
from assay.models.judge import Judge
from assay.models.mapping import FIELDS, parse_mapping
from assay.models.rules import Rules
from assay.models.training import Split, divide, train, train_on_features
from assay.schemas.decision import Tier
from assay.schemas.errors import InputError
from assay.streams.simulation_files import write
from assay.streams.simulator import simulate
from assay.tables.features import PROFILE_FEATURES
from assay.tables.rates import Rates

HANDBOOK = Path(__file__).parents[3] / "shared" / "data" / "handbook-transactions.parquet"
HANDBOOK_COLUMNS = [
    "user_id=customer_id",
    "merchant.id=terminal_id",
    "amount=amount_minor/100",
    "timestamp=tx_time*1000",
    "currency=EUR",
]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    path = tmp_path_factory.mktemp("history") / "history.parquet"
    write(simulate(seed=5, transactions=6_000, start_ms=1_767_225_600_000, days=20, users=150, fraud_share=0.05), path)
    return path


@pytest.fixture(scope="module")
def trained(simulated, tmp_path_factory):
    history = read_history(simulated, {}, need_labels=True)
    stages = []
    bundle = train(
        history,
        history.labels,
        tmp_path_factory.mktemp("trained") / "bundle",
        rates=Rates.load(),
        nthread=1,
        progress=lambda stage, done, total: stages.append(stage),
    )
    return bundle, stages


# -- training


def test_a_bundle_trained_on_a_simulated_month_is_far_better_than_the_amount(trained):
    report = trained[0].report
    for tier in ("full", "no_entities", "lead_model"):
        assert report["tiers"][tier]["average_precision"] > 2 * report["amount_alone"]["average_precision"]
        assert report["tiers"][tier]["money_saved"] > report["amount_alone"]["money_saved"]


def test_progress_names_the_stages_in_order(trained):
    assert list(dict.fromkeys(trained[1])) == ["read", "replay", "grow lead", "grow money", "grow balanced"]


def test_the_same_data_and_seed_give_the_same_bundle(made_up, bundle, tmp_path):
    assert train_on_features(*made_up, tmp_path / "again").version == bundle.version
    assert train_on_features(*made_up, tmp_path / "other", seed=8).version != bundle.version


def test_members_are_of_different_character(bundle):
    depths = [recipe["trees"] for recipe in json.loads((bundle.path / "manifest.json").read_bytes())["members"]]
    assert len(depths) == 3
    assert [member.name for member in bundle.manifest.members] == ["lead", "money", "balanced"]


def test_without_entities_a_score_is_calibrated_of_its_own(bundle, made_up):
    """A model that never saw the block missing, or another tier's calibration, would put everybody too high or too low."""
    features, _, fraud = made_up
    features = features[3_400:].copy()
    features[:, PROFILE_FEATURES:] = np.nan
    score = bundle.ensemble.score(features, Tier.NO_ENTITIES)[0]
    assert score.mean() == pytest.approx(fraud[3_400:].mean(), abs=0.03)


def test_parts_follow_each_other_in_time(made_up):
    _, times, fraud = made_up
    shuffled = np.random.default_rng(1).permutation(len(times))
    learn, tune, held = divide(times[shuffled], fraud[shuffled], Split(warm_up_days=0.2, gap_days=0.1))
    times = times[shuffled]
    day = 86_400_000
    assert times[learn].min() >= 0.2 * day
    assert times[learn].max() < times[tune].min()
    assert times[tune].max() < times[held].min() - 0.1 * day


def test_too_little_fraud_is_told(made_up, tmp_path):
    features, times, fraud = made_up
    with pytest.raises(InputError, match="0 fraud"):
        train_on_features(features, times, np.zeros_like(fraud), tmp_path / "bundle")
    with pytest.raises(InputError, match="differ in number"):
        train([], [True], tmp_path / "bundle", rates=Rates.load())
    assert not (tmp_path / "bundle").exists()


# -- money


def test_thresholds_are_the_best_of_all_pairs():
    random = np.random.default_rng(2)
    for _ in range(30):
        scores = random.integers(0, 8, 40) / 10
        amounts, fraud, costs = random.gamma(1, 50, 40), random.random(40) < scores, Costs()
        cuts = [*np.unique(scores), NEVER]

        def saved(review, decline, scores=scores, amounts=amounts, fraud=fraud, costs=costs):
            declined = scores >= decline
            return outcome(declined, (scores >= review) & ~declined, amounts, fraud, costs)["money_saved"]

        best = max(saved(review, decline) for review in cuts for decline in cuts if review <= decline)
        assert saved(*best_thresholds(scores, amounts, fraud, costs)) == pytest.approx(best, abs=0.01)


def test_without_fraud_nothing_is_declined():
    nothing = np.zeros(5, np.bool_)
    assert best_thresholds(np.linspace(0, 1, 5), np.full(5, 10.0), nothing, Costs()) == (NEVER, NEVER)
    assert best_thresholds(np.zeros(0), np.zeros(0), nothing[:0], Costs()) == (NEVER, NEVER)


# -- tables


def test_the_fields_are_those_of_a_transaction():
    assert {"transaction_id", "merchant.id", "location.latitude", "device.ip", "instrument.bin", "channel"} <= set(FIELDS)
    assert "attributes" not in FIELDS
    assert "merchant" not in FIELDS


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl"])
def test_every_format_holds_the_same_history(simulated, tmp_path, ending):
    path = tmp_path / f"copy{ending}"
    write(simulate(seed=5, transactions=300, start_ms=1_767_225_600_000, days=20, users=150, fraud_share=0.05), path)
    first, copy = read_history(simulated, {}), read_history(path, {})
    assert copy.labels.sum() > 0
    assert len(copy) == 300
    parquet = tmp_path / "same.parquet"
    write(simulate(seed=5, transactions=300, start_ms=1_767_225_600_000, days=20, users=150, fraud_share=0.05), parquet)
    assert list(copy) == list(read_history(parquet, {}))
    assert first.part(0, 1)


def test_foreign_columns_are_mapped(tmp_path):
    path = tmp_path / "foreign.csv"
    path.write_text("who,shop,cents,when,mcc,bad\n007,a,1999,1767225601,742,1\n008,b,5,1767225600,5411,0\n")
    mapping = parse_mapping(
        ["transaction_id=#", "user_id=who", "merchant.id=shop", "amount=cents/100", "timestamp=when*1000", "currency=EUR",
         "merchant.category=mcc", "channel='ecom'", "attributes.shop=shop"]
    )  # fmt: skip
    second, first = read_history(path, mapping, label="bad")
    assert (first.user_id, first.amount, first.transaction_id) == ("007", Decimal("19.99"), "row-1")
    assert (first.timestamp.ms, first.merchant.category, first.channel) == (1_767_225_601_000, "0742", "ecom")
    assert (second.user_id, second.amount, second.attributes) == ("008", Decimal("0.05"), {"shop": "b"})
    assert read_history(path, mapping, label="bad").labels.tolist() == [False, True]


def test_a_payment_without_a_label_is_neither_fraud_nor_genuine(tmp_path):
    path = tmp_path / "young.csv"
    path.write_text("who,shop,amount,when,bad\n1,a,1,1767225600000,1\n2,b,2,1767225601000,0\n3,c,3,1767225602000,\n")
    fields = ["transaction_id=#", "user_id=who", "merchant.id=shop", "amount=amount", "timestamp=when", "currency=EUR"]
    history = read_history(path, parse_mapping(fields), label="bad")
    assert history.labels.tolist() == [True, False, False]
    assert history.labelled.tolist() == [True, True, False]


def test_nothing_is_learnt_tuned_or_measured_on_what_has_no_label():
    times_ms, labelled = np.arange(600), np.arange(600) % 3 > 0
    parts = divide(times_ms, np.arange(600) % 4 == 1, Split(), labelled)
    assert sorted(np.concatenate(parts).tolist()) == np.flatnonzero(labelled).tolist()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["user_id"], "maps nothing"),
        (["usr=who"], "no field usr"),
        (["merchant=shop"], "no field merchant"),
        (["user_id=whom"], "no column whom"),
        (["amount=cent/100"], "no column cent"),
        ([], "which column is transaction_id"),
    ],
)
def test_a_wrong_mapping_is_told(tmp_path, options, says):
    path = tmp_path / "foreign.csv"
    path.write_text("who,cents\n1,2\n")
    with pytest.raises(InputError, match=says):
        read_history(path, parse_mapping(options))


def _table(tmp_path, **columns):
    path = tmp_path / "table.parquet"
    rows = {
        "transaction_id": ["1", "2", "3"],
        "user_id": ["a", "b", "c"],
        "amount": ["1", "2", "3"],
        "currency": ["EUR"] * 3,
        "timestamp": ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"],
        "merchant.id": ["m"] * 3,
        "fraud": [False, True, False],
    }
    pl.DataFrame(rows | columns).write_parquet(path)
    return path


@pytest.mark.parametrize(
    ("column", "values", "row", "field"),
    [
        ("amount", ["1", "x", "3"], 2, "amount"),
        ("amount", ["1", "2", "3.001"], 3, "amount"),
        ("amount", [1.0, 2.0, float("nan")], 3, "amount"),
        ("currency", ["EUR", "EURO", "EUR"], 2, "currency"),
        ("timestamp", ["2026-01-01T00:00:00Z", "2026-01-02", "2026-01-03T00:00:00Z"], 2, "timestamp"),
        ("user_id", ["a", None, "c"], 2, "user_id"),
        ("location.latitude", [1.0, 2.0, 99.0], 3, "location.latitude"),
    ],
)
def test_a_row_that_can_not_be_used_is_named(tmp_path, column, values, row, field):
    history = read_history(_table(tmp_path, **{column: values}), {})
    with pytest.raises(InputError, match=rf"table\.parquet, row {row}: {field}"):
        list(history)
    kept, first = history.without_refused()
    assert len(kept) == len(list(kept)) == len(kept.labels) == 2
    assert f"row {row}" in str(first)


def test_days_are_selected(tmp_path):
    path = _table(tmp_path)
    assert [t.user_id for t in read_history(path, {}, since=date(2026, 1, 2))] == ["b", "c"]
    assert [t.user_id for t in read_history(path, {}, until=date(2026, 1, 2))] == ["a"]
    with pytest.raises(InputError, match="no transactions"):
        read_history(path, {}, since=date(2027, 1, 1))


def test_a_label_that_is_none_is_named(tmp_path):
    with pytest.raises(InputError, match="row 2: fraud"):
        read_history(_table(tmp_path, fraud=[0, 7, 1]), {})
    with pytest.raises(InputError, match="no column chargeback"):
        read_history(_table(tmp_path), {}, label="chargeback")


@pytest.mark.parametrize("name", ["table.xlsx", "nowhere.parquet", "nowhere.csv", "nowhere.jsonl"])
def test_a_file_that_can_not_be_read_is_named(tmp_path, name):
    with pytest.raises(InputError, match=name):
        read_history(tmp_path / name, {})


@pytest.mark.parametrize("content", [b"\x00\xff noise", b"PAR1", b""])
@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl"])
def test_noise_is_no_table(tmp_path, content, ending):
    path = tmp_path / f"noise{ending}"
    path.write_bytes(content)
    with pytest.raises(InputError, match="noise"):
        read_history(path, {})


# -- backtests


def test_a_backtest_judges_every_row_once(simulated, trained):
    bundle = Bundle.load(trained[0].path)
    history = read_history(simulated, {})
    tally, seen = Tally(), 0
    for judged in judge_history(history, Judge(bundle, Rules.load()), Rates.load(), first=5_000):
        assert judged.start == 5_000 + seen
        seen += len(judged.transactions)
        tally.add(judged)
    summary = tally.summary(history.labels[5_000:], Costs())
    assert seen == summary["transactions"] == sum(summary["actions"].values()) == 1_000
    assert summary["fraud_caught"] <= summary["fraud"] == history.labels[5_000:].sum()
    assert summary["declined"] == summary["actions"]["decline"]
    assert summary["amount_alone"]["declined"] == summary["declined"]
    assert summary["money_saved"] > summary["amount_alone"]["money_saved"]
    half = np.arange(1_000) % 2 == 0  # the others have no label yet
    of_half = tally.summary(history.labels[5_000:], Costs(), half)
    assert (of_half["transactions"], of_half["labelled"]) == (1_000, 500)
    assert of_half["fraud"] == history.labels[5_000:][half].sum() < summary["fraud"]


@pytest.mark.skipif(not HANDBOOK.exists(), reason="the Handbook's transactions are not here")
def test_the_handbooks_transactions_can_be_read():
    history = read_history(
        HANDBOOK, parse_mapping(HANDBOOK_COLUMNS), label="is_fraud", since=date(2018, 4, 2), until=date(2018, 4, 3)
    )
    assert len(history) > 9_000
    assert history.labels.any()
    assert history.part(0, 1)[0].currency == "EUR"
