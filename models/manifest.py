"""What a bundle says of itself: `manifest.json`, field by field.

The version of a bundle is the SHA-256 of this file, which holds the SHA-256 of every other file: one digest stands for all.
"""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from assay.models.costs import Costs
from assay.models.form_parity import Form, Parity
from assay.schemas.decision import Tier
from assay.tables.features import DAY, LABEL_DELAY_S

FORMAT = "assay-bundle-1"
MEMBERS = 3
SCORED_TIERS = (Tier.FULL, Tier.NO_ENTITIES, Tier.LEAD_MODEL)

Probability = Annotated[float, Field(ge=0, le=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class File(_Part):
    """One file of the bundle."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int = Field(ge=0)  # bytes


class Member(_Part):
    """One of the three models; the first is the lead, which can answer alone."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")
    file: str = Field(pattern=r"^[a-z][a-z0-9_]{0,31}\.ubj$")
    trees: int = Field(ge=1)


class Calibration(_Part):
    """Platt scaling: log-odds = slope * mean margin + intercept (Platt 1999). The slope is positive: order is kept."""

    slope: float = Field(gt=0, allow_inf_nan=False)
    intercept: Finite


class Thresholds(_Part):
    """Scores from which a transaction is reviewed and declined; above 1: never."""

    review: float = Field(ge=0, le=2)
    decline: float = Field(ge=0, le=2)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.review > self.decline:
            raise ValueError("review must not be above decline")
        return self


class TierSettings(_Part):
    """How the margins of one tier are read."""

    calibration: Calibration
    thresholds: Thresholds


class Quality(_Part):
    """A tier on held-out later transactions; money in the base currency, the report has the details."""

    average_precision: Probability | None
    auc: Probability | None
    money_saved: Finite


class Summary(_Part):
    """The training report in short."""

    trained_on: int = Field(ge=1)
    trained_fraud: int = Field(ge=1)
    held_out: int = Field(ge=0)
    held_out_fraud: int = Field(ge=0)
    tiers: dict[Tier, Quality]


class Manifest(_Part):
    """The whole of `manifest.json`."""

    format: Literal["assay-bundle-1"] = "assay-bundle-1"
    features: tuple[str, ...]  # those that models see
    features_digest: str  # of those
    members: tuple[Member, ...]
    tiers: dict[Tier, TierSettings]
    form: Form = Form.COMPILED  # how the ensemble is served, where ASSAY_MODEL_FORM does not say otherwise
    parity: dict[Tier, Parity] = {}  # of that form, on what was held out
    label_delay_days: float | None = Field(None, ge=0)  # after which fraud was known in training; None: made before it was kept
    batch_coverage: dict[str, Probability] = {}  # share of what was learnt from that had a value of each batch feature
    costs: Costs
    summary: Summary
    libraries: dict[str, str]
    files: dict[str, File]

    @property
    def label_delay_differs(self) -> str | None:
        """Why the fraud that models learnt from is not that which the stream counts; None where it is.

        What became known sooner than the windows of fraud end makes no difference to them.
        """
        windows_end = LABEL_DELAY_S / DAY
        if self.label_delay_days is None or self.label_delay_days <= windows_end:
            return None
        return (
            f"trained as if fraud were known after {self.label_delay_days:g} days; the stream counts what is known up to "
            f"{windows_end:g} days ago, which is more"
        )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if len(self.members) != MEMBERS:
            raise ValueError(f"{len(self.members)} members; a bundle has {MEMBERS}")
        if set(self.tiers) != set(SCORED_TIERS):
            raise ValueError(f"tiers are {sorted(self.tiers)}; a bundle has {sorted(SCORED_TIERS)}")
        for member in self.members:
            if member.file not in self.files:
                raise ValueError(f"{member.file} of member {member.name} is not among its files")
        return self
