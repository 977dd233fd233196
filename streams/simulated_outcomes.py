"""What is heard of a simulated transaction afterwards, and when: the issuer's answer, disputes, confirmed fraud."""

from typing import Any

import numpy as np

from assay.streams.simulated_world import DAY_MS

_DRAWS = 4_096
_FRAUD_TYPES = {
    "stolen_card": "stolen",
    "account_takeover": "account_takeover",
    "compromised_merchant": "counterfeit",
    "card_testing": "card_not_present",
    "impossible_travel": "counterfeit",
}
Delayed = tuple[int, dict[str, Any]]  # milliseconds after the transaction


class Outcomes:
    """Draws outcomes, some numbers ahead, from its own generator."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._ahead: list[list[float]] = []

    def of(self, wire: dict[str, Any], time_ms: int, pattern: str | None) -> list[Delayed]:
        """The outcomes of this transaction, in the order in which they become known.

        The issuer answers at once. Fraud is disputed by most card holders within weeks, and confirmed later; some is
        never found. A few genuine payments are disputed too, and the dispute is lost.
        """
        if not self._ahead:
            self._ahead = self._rng.random((_DRAWS, 4)).tolist()
        quick, declined, heard, days = self._ahead.pop()
        issuer_declines = declined < (0.15 if pattern else 0.03)
        status, detail = (
            ("issuer_declined", {"issuer_code": "51"}) if issuer_declines else ("authorised", {"issuer_code": "00"})
        )
        known = [(int(300 + 2_000 * quick), status, detail)]
        if not issuer_declines:
            later = int((0.5 + 20 * days * days) * DAY_MS)  # mostly days, up to three weeks
            if pattern and heard < 0.95:
                if heard < 0.65:
                    known.append((later, "disputed", {}))
                known.append((later + DAY_MS, "fraud", {"fraud_type": _FRAUD_TYPES[pattern]}))
            elif not pattern and heard < 0.002:
                known += [(later, "disputed", {}), (later + 5 * DAY_MS, "dispute_reversed", {})]
        identity = wire["transaction_id"]
        outcomes = []
        for number, (delay, status, detail) in enumerate(known):
            outcome = {
                "outcome_id": f"o-{identity}-{number}",
                "user_id": wire["user_id"],
                "transaction_id": identity,
                "status": status,
                "detail": detail,
                "amount": wire["amount"],
                "known_at": time_ms + delay,
            }
            if status == "dispute_reversed":
                outcome["supersedes"] = f"o-{identity}-{number - 1}"
            outcomes.append((delay, outcome))
        return outcomes
