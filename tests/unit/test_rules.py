"""Rules: SQL over transaction and features; wrong ones are refused by name, failing ones cost themselves alone."""

import numpy as np
import pytest

from assay.models.rules import Rules
from assay.schemas.decision import Action
from assay.schemas.errors import RulesError
from assay.schemas.transaction import Transaction
from assay.tables.features import FEATURE_COUNT, NAMES


def _transaction(**fields):
    return Transaction.model_validate(
        {
            "transaction_id": "t",
            "user_id": "u",
            "amount": "12.50",
            "currency": "EUR",
            "timestamp": "2026-01-01T12:00:00Z",
            "merchant": {"id": "m"},
        }
        | fields
    )


@pytest.fixture
def load(tmp_path):
    def load_rules(*rules, text=None):
        path = tmp_path / "rules.yaml"
        lines = [f'  - {{id: r{number}, when: "{when}", then: review, reason: x}}' for number, when in enumerate(rules)]
        path.write_text(text if text is not None else "rules:\n" + "\n".join(lines))
        return Rules.load(path)

    return load_rules


def _fires(rules, transaction=None, score=0.5, **features):
    row = np.full((1, FEATURE_COUNT), np.nan, np.float32)
    for name, value in features.items():
        row[0, NAMES.index(name)] = value
    fired = rules.evaluate([transaction or _transaction()], row, np.array([score]))
    assert not fired.failures
    return fired.fired[0].tolist()


# -- what they see


@pytest.mark.parametrize(
    ("amount", "fires"),
    [(10_000.0, False), (10_001.0, True), (float("nan"), False)],
    ids=["at the limit", "above", "not known"],
)
def test_the_starter_set_reviews_large_amounts(amount, fires):
    rules = Rules.load()
    index = [rule.id for rule in rules.rules].index("large_amount")
    assert rules.rules[index].then is Action.REVIEW
    assert _fires(rules, amount=amount)[index] is fires


def test_the_starter_set_reviews_what_can_not_be_converted():
    rules = Rules.load()
    index = [rule.id for rule in rules.rules].index("no_exchange_rate")
    assert _fires(rules)[index]
    assert not _fires(rules, amount=5.0)[index]


@pytest.mark.parametrize(
    ("rule", "features", "fires"),
    [
        ("instrument_of_known_fraud", {"instrument_frauds_30d": 1.0}, True),
        ("instrument_of_known_fraud", {"instrument_frauds_30d": 0.0}, False),
        ("instrument_of_known_fraud", {}, False),
        ("instrument_declined_again_and_again", {"instrument_declined_1h": 3.0}, True),
        ("instrument_declined_again_and_again", {"instrument_declined_1h": 2.0}, False),
        ("instrument_declined_again_and_again", {}, False),
    ],
)
def test_the_starter_set_knows_what_became_of_earlier_payments(rule, features, fires):
    rules = Rules.load()
    index = [each.id for each in rules.rules].index(rule)
    assert rules.rules[index].then is Action.REVIEW
    assert _fires(rules, **features)[index] is fires


def test_every_field_that_is_offered_can_be_asked_for(load):
    rules = load(
        "amount = 12.5", "amount_base = 3", "currency = 'EUR'", "kind = 'refund'", "channel = 'pos'", "merchant_id = 'm'",
        "merchant_category = '0742'", "merchant_country = 'DE'", "instrument_bin = '411111'", "issuer_country = 'FR'",
        "country = 'IT'", "device_id = 'd'", "device_type = 'phone'", "user_id = 'u'", "fraud_score = 0.5",
        "attributes.segment = 'gold'", "attributes.age >= 18", "attributes.vip",
    )  # fmt: skip
    transaction = _transaction(
        kind="refund",
        channel="pos",
        merchant={"id": "m", "category": "0742", "country": "DE"},
        instrument={"id": "i", "bin": "411111", "issuer_country": "FR"},
        location={"country": "IT"},
        device={"id": "d", "type": "phone"},
        attributes={"segment": "gold", "age": 18, "vip": True},
    )
    assert _fires(rules, transaction, amount=3.0) == [True] * 18
    assert _fires(rules) == [name in (0, 2, 5, 13, 14) for name in range(18)]


def test_every_feature_can_be_asked_for(load):
    rules = load(*(f"{name} >= 0 OR {name} < 0" for name in NAMES if name not in ("kind", "channel")))
    row = np.full((1, FEATURE_COUNT), 3.0, np.float32)
    assert rules.evaluate([_transaction()], row, np.array([0.1])).fired.all()


# -- what is not there


@pytest.mark.parametrize(
    "predicate",
    ["amount_z > 3", "amount_z < 3", "amount_z = 3", "amount_z <> 3", "NOT (amount_z > 3)", "amount_z > 3 AND user_id = 'u'",
     "amount_z BETWEEN 0 AND 9", "amount_z IN (1, 2)", "amount_z > 3 OR device_id = 'd'", "device_id LIKE 'd%'",
     "attributes.x = 'y'", "attributes.n > 3", "channel <> 'pos'", "NOT (country = 'DE')"],
)  # fmt: skip
def test_a_comparison_with_what_is_not_known_is_false(load, predicate):
    assert _fires(load(predicate)) == [False]


def test_what_is_not_known_can_be_asked_for(load):
    assert _fires(load("amount_z IS NULL", "device_id IS NULL", "attributes.x IS NULL", "amount_z IS NOT NULL")) == [
        True, True, True, False,
    ]  # fmt: skip


def test_absent_is_not_less_than_something(load):
    """The feature list declares -1 for absent; a rule must not take it for a small number."""
    rules = load("device_age_s < 3600", "local_hour < 6", "speed_kmh < 1")
    assert _fires(rules, device_age_s=-1, local_hour=-1, speed_kmh=-1) == [False, False, False]


def test_a_score_that_is_not_there_is_null(load):
    assert _fires(load("fraud_score > 0.1", "fraud_score IS NULL"), score=float("nan")) == [False, True]


def test_an_attribute_of_another_type_is_not_there(load):
    rules = load("attributes.n > 3", "attributes.flag = true")
    assert _fires(rules, _transaction(attributes={"n": "9", "flag": 1})) == [False, False]
    assert _fires(rules, _transaction(attributes={"n": 9, "flag": True})) == [True, True]
    assert _fires(rules, _transaction(attributes={"n": True, "flag": "true"})) == [False, False]


def test_text_that_looks_like_an_attribute_stays_text(load):
    assert _fires(load("merchant_id = 'attributes.x'"), _transaction(merchant={"id": "attributes.x"})) == [True]


def test_quotes_in_values_are_values(load):
    hostile = "x' OR '1'='1"
    assert _fires(load("merchant_id = 'x'"), _transaction(merchant={"id": hostile})) == [False]


def test_a_verdict_does_not_depend_on_the_batch():
    rules = Rules.load()
    random = np.random.default_rng(5)
    features = random.gamma(1.0, 30.0, (256, FEATURE_COUNT)).astype(np.float32)
    features[random.random(features.shape) < 0.2] = np.nan
    transactions = [_transaction(user_id=f"u{index}") for index in range(256)]
    scores = random.random(256)
    whole = rules.evaluate(transactions, features, scores).fired
    alone = [rules.evaluate([transactions[i]], features[i : i + 1], scores[i : i + 1]).fired[0] for i in range(256)]
    assert whole.any()
    assert np.array_equal(whole, np.array(alone))


def test_no_rules_and_no_transactions(load):
    assert load(text="rules: []").evaluate(
        [_transaction()], np.zeros((1, FEATURE_COUNT), np.float32), np.zeros(1)
    ).fired.shape == (1, 0)
    assert Rules.load().evaluate([], np.zeros((0, FEATURE_COUNT), np.float32), np.zeros(0)).fired.shape[0] == 0


# -- what fails at run time


def test_a_rule_that_fails_counts_as_not_fired_and_is_reported(load):
    rules = load("amount > 1", "CAST(attributes.n AS INT) > 3", "amount > 2")
    transactions = [_transaction(attributes={"n": "no number"}), _transaction(attributes={"n": "9"})]
    fired = rules.evaluate(transactions, np.zeros((2, FEATURE_COUNT), np.float32), np.zeros(2))
    assert fired.fired.tolist() == [[True, False, True]] * 2
    assert [failure.rule for failure in fired.failures] == ["r1"]
    again = rules.evaluate(transactions[1:], np.zeros((1, FEATURE_COUNT), np.float32), np.zeros(1))
    assert again.fired.tolist() == [[True, True, True]]


# -- what is refused


@pytest.mark.parametrize(
    ("predicate", "says"),
    [
        ("amuont > 3", "amount"),
        ("nothing_like_it = 1", "no column nothing_like_it"),
        ("amount >", "bad SQL"),
        ("amount > 3; DROP TABLE x", "bad SQL"),
        ("amount", "true or false"),
        ("amount + 1", "true or false"),
        ("amount > 'x'", "compare"),
        ("currency > 3", "compare"),
        ("merchant_id ~ '['", "regex"),
        ("amount > AVG(amount)", "AVG"),
        ("SUM(amount) > 3", "SUM"),
        ("COUNT(*) > 3", "COUNT"),
        ("RANK() OVER (ORDER BY amount) > 1", "RANK"),
        ("amount > LAG(amount) OVER (ORDER BY amount)", "LAG"),
        ("amount > (SELECT 1)", "SELECT"),
        ("CURRENT_DATE > '2026-01-01'", "CURRENT_DATE"),
        ("NOW() IS NOT NULL AND amount > 1", "NOW"),
        ("1 = 1", "no column"),
        ("true", "no column"),
        ("", "bad SQL"),
        ("attributes.x", ""),
    ],
)
def test_a_wrong_predicate_is_refused_by_name(load, predicate, says):
    if predicate == "attributes.x":
        load(predicate)  # a flag
        return
    with pytest.raises(RulesError) as raised:
        load(predicate)
    assert "rules.yaml: rule r0" in str(raised.value)
    assert says in str(raised.value)


def test_words_of_aggregates_are_free_inside_quotes(load):
    load("merchant_id = 'over' OR merchant_id = 'sum(x)'")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no list"),
        ("rules: 3", "no list"),
        ("rules: []\nmore: 1", "no list"),
        ("- a", "no list"),
        ("rules: [", "not YAML"),
        ("\x00", "not YAML"),
        ("rules: [3]", "rule number 1"),
        ("rules: [{id: a, when: amount > 1, then: review}]", "rule a: reason"),
        ("rules: [{id: A, when: amount > 1, then: review, reason: x}]", "rule A: id"),
        ("rules: [{id: a, when: amount > 1, then: aprove, reason: x}]", "rule a: then"),
        ("rules: [{id: a, when: amount > 1, then: approve, reason: x}]", "list: allow"),
        ("rules: [{id: a, when: amount > 1, then: decline, reason: x, list: allow}]", "list: allow"),
        ("rules: [{id: a, when: amount > 1, then: review, reason: x, lst: allow}]", "rule a: lst"),
        ("rules: [{id: a, when: amount > 1, when: amount > 2, then: review, reason: x}]", "given twice"),
        (
            "rules: [{id: a, when: amount > 1, then: review, reason: x}, {id: a, when: amount > 2, then: review, reason: x}]",
            "twice",
        ),
        (
            "rules: [{id: a, when: attributes.n > 1, then: review, reason: x}, "
            "{id: b, when: attributes.n = 'q', then: review, reason: x}]",
            "one type",
        ),
    ],
)
def test_a_wrong_file_is_refused_by_name(load, text, says):
    with pytest.raises(RulesError) as raised:
        load(text=text)
    assert "rules.yaml" in str(raised.value)
    assert says in str(raised.value)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(RulesError, match="nowhere"):
        Rules.load(tmp_path / "nowhere.yaml")


def test_the_digest_is_that_of_the_file(load, tmp_path):
    assert load("amount > 1").digest == load("amount > 1").digest != load("amount > 2").digest
