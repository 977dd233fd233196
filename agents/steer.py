"""What is in force: the bundle, the rules and the rates that verdicts are made with.

Read once at start. Activating another bundle or rules file from the control topic belongs here: the scorer asks `InForce` anew
for each micro-batch, so that replacing `judge` and `digests` is all that an activation has to do.
"""

import logging
from typing import Self

import numpy as np

from assay.models.bundle import Bundle
from assay.models.control_group import ControlGroup
from assay.models.form_parity import Form
from assay.models.judge import Judge
from assay.models.rules import Rules
from assay.schemas import limits
from assay.schemas.decision import Tier, encode_digests
from assay.schemas.transaction import Transaction
from assay.streams.settings import Settings
from assay.tables.features import FEATURE_COUNT
from assay.tables.rates import SHIPPED_RATES, Rates

log = logging.getLogger("assay.worker")

MADE_UP = {
    "transaction_id": "warm-up",
    "user_id": "warm-up",
    "amount": "1",
    "currency": "EUR",
    "timestamp": 0,
    "merchant": {"id": "-"},
}


class InForce:
    """The judge that scores now, and the digests that its decisions name."""

    def __init__(self, bundle: Bundle, rules: Rules, rates: Rates, control: ControlGroup | None = None) -> None:
        self.judge, self.rates = Judge(bundle, rules, control), rates
        self.version, self.rules_digest = bundle.version, rules.digest
        self.digests = encode_digests(bundle.version, rules.digest, None, bundle.thresholds_digest, rates.digest)

    def warm(self) -> None:
        """Judge made-up transactions, so that the first real ones don't pay for what is set up once."""
        transaction = Transaction.model_validate(MADE_UP)
        for count in (1, limits.MAX_BATCH_TRANSACTIONS):
            features, asked = np.zeros((count, FEATURE_COUNT), np.float32), np.ones(count, np.bool_)
            self.judge.judge([transaction] * count, features, Tier.FULL, asked)

    @classmethod
    def load(cls, settings: Settings) -> Self:
        """What the settings name. Raises BundleError, RulesError or RatesError, with the file named."""
        bundle = Bundle.load(settings.bundle, form=settings.model_form and Form(settings.model_form))
        if differs := bundle.manifest.label_delay_differs:
            log.warning("bundle %s: %s", settings.bundle, differs)
        key = settings.hash_key.get_secret_value().encode()
        control = ControlGroup.of(settings.control_share, settings.control_amount, key)
        return cls(bundle, Rules.load(settings.rules), Rates.load(settings.rates or SHIPPED_RATES), control)
