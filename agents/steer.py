"""What is in force: the bundle, the rules and the rates that verdicts are made with.

Read once at start. Activating another bundle or rules file from the control topic belongs here: the scorer asks `InForce` anew
for each micro-batch, so that replacing `judge` and `digests` is all that an activation has to do.
"""

from typing import Self

from assay.models.bundle import Bundle
from assay.models.judge import Judge
from assay.models.rules import Rules
from assay.schemas.decision import encode_digests
from assay.streams.settings import Settings
from assay.tables.rates import SHIPPED_RATES, Rates


class InForce:
    """The judge that scores now, and the digests that its decisions name."""

    def __init__(self, bundle: Bundle, rules: Rules, rates: Rates) -> None:
        self.judge, self.rates = Judge(bundle, rules), rates
        self.version = bundle.version
        self.digests = encode_digests(bundle.version, rules.digest, None, bundle.thresholds_digest, rates.digest)

    @classmethod
    def load(cls, settings: Settings) -> Self:
        """What the settings name. Raises BundleError, RulesError or RatesError, with the file named."""
        return cls(Bundle.load(settings.bundle), Rules.load(settings.rules), Rates.load(settings.rates or SHIPPED_RATES))
