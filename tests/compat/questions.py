"""What every client asks, and whether what it got is right."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

QUESTIONS, USERS, EVERY = 1_000, 400, 50
LARGE, HUGE = "13.00", "9500.00"
# So that each action is among the answers, whatever the models think.
RULES = f"""\
rules:
  - id: usual
    when: amount < {LARGE}
    then: approve
    reason: a usual amount
    list: allow
  - id: large
    when: amount >= {LARGE} AND amount < {HUGE}
    then: review
    reason: a large amount
  - id: huge
    when: amount >= {HUGE}
    then: decline
    reason: a huge amount
"""

Line = Mapping[str, Any]  # {"asked": id} with "answer", "error" or "failed"
Decisions = Mapping[str, Mapping[str, Any]]  # transaction id -> the decision on the decisions topic


def questions(client: str, count: int = QUESTIONS) -> list[dict[str, Any]]:
    """So many transactions: in each fifty there is a review, a decline, and one that is refused, since its currency is none."""
    kinds = {1: {"amount": LARGE}, 2: {"amount": HUGE}, 3: {"currency": "XXY"}}
    now = int(time.time() * 1000)
    return [_transaction(f"{client}-{n}", f"{client}-user-{n % USERS}", now) | kinds.get(n % EVERY, {}) for n in range(count)]


def _transaction(transaction_id: str, user_id: str, at_ms: int) -> dict[str, Any]:
    return {
        "transaction_id": transaction_id,
        "user_id": user_id,
        "amount": "12.50",
        "currency": "EUR",
        "timestamp": at_ms,
        "merchant": {"id": f"merchant-of-{user_id}", "category": "5411", "country": "DE"},
        "instrument": {"id": f"token-{user_id}", "issuer_country": "DE"},
        "channel": "ecom",
    }


class Checked(NamedTuple):
    """How many questions were answered right, the kinds of answers, and what was wrong, with reasons."""

    right: int
    kinds: Counter[str]
    wrong: list[str]


def check(asked: Iterable[Mapping[str, Any]], lines: Iterable[Line], decisions: Decisions) -> Checked:
    """Hold what a client got against the decisions topic: each question once, with its own decision, or its own refusal."""
    got: dict[str, list[Line]] = {}
    for line in lines:
        got.setdefault(line["asked"], []).append(line)
    right, kinds, wrong = 0, Counter[str](), list[str]()
    for transaction in asked:
        transaction_id = transaction["transaction_id"]
        found = got.pop(transaction_id, [])
        why = _wrong(transaction, found, decisions.get(transaction_id))
        if why:
            wrong.append(f"{transaction_id}: {why}")
        else:
            right += 1
            kinds[found[0]["answer"]["action"] if "answer" in found[0] else "refused"] += 1
    return Checked(right, kinds, wrong + [f"{name}: nobody asked" for name in got])


def _wrong(transaction: Mapping[str, Any], found: list[Line], decision: Mapping[str, Any] | None) -> str:
    if len(found) != 1:
        return f"{len(found)} answers"
    [line] = found
    if transaction["currency"] != "EUR":
        error = line.get("error", {})
        return "" if (error.get("code"), error.get("field")) == ("invalid", "currency") else f"not refused: {line}"
    if "answer" not in line or decision is None:
        return f"{line} for {decision}"
    differ = {name for name, value in line["answer"].items() if decision.get(name) != value}
    return f"{sorted(differ)} differ: {line['answer']}, {decision}" if differ or "action" not in line["answer"] else ""
