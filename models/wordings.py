"""What a feature is called in an explanation: a code, and a text with the value filled in.

`reasons.yaml` has texts chosen with care. A feature that it leaves out gets one made of its line in the feature list, so that
one line is all that it takes to add a feature.
"""

from collections.abc import Callable, Mapping
from math import isnan

from pydantic import BaseModel, ConfigDict, Field

from assay.tables.features import Feature

_MONEY, _SHARES = ("sum", "money", "fraud_sum"), ("share", "fraud_share")  # measures that are not printed as plain numbers


class Wording(BaseModel):
    """One entry of the catalogue. `{}` in a text stands for the value, printed `as` said."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    code: str = Field(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")
    form: str = Field(alias="as", pattern="^(count|money|ratio|share|number|duration|hour|code|distance)$")
    text: str = Field(max_length=200)
    negative: str | None = Field(None, max_length=200)
    values: dict[float, str] = Field(default_factory=dict, alias="is")

    def word(self, value: float) -> str:
        """The text at a value."""
        exact = self.values.get(value)
        if exact is not None:
            return exact
        template = self.text
        if value < 0 and self.negative is not None:
            template, value = self.negative, -value
        return template.replace("{}", _FORMS[self.form](value))


def worded(feature: Feature) -> Wording:
    """A wording made of what the list says of a feature.

    >>> from assay.tables.features import HOUR, Origin
    >>> shared = Feature("device_users_1h", "distinct users of this device", "device", HOUR, Origin.ENTITY, 60, 1, -1.0, 0.0)
    >>> made = worded(shared)
    >>> made.code, made.word(3.0), made.word(-1.0)
    ('DEVICE_USERS_1H', 'distinct users of this device, in 1 hour: 3', 'no device is given')
    """
    window = "" if feature.window_s is None else f", in {_span(feature.window_s)}"
    values = {feature.absent: f"no {feature.entity} is given"} if not isnan(feature.absent) else {}
    if feature.never < 0:
        values[feature.never] = f"not known of this {feature.entity}: {feature.measures}"[:200]
    text = f"{feature.measures}{window}"[:190] + ": {}"
    return Wording(code=feature.name.upper()[:64], form=_form(feature), text=text, values=values)


# Measures that say much the same of an entity: how busy it is, and how much fraud it has had.
_AKIN = {"matured": "count", "frauds": "fraud", "fraud_sum": "fraud", "fraud_share": "fraud"}


def family(feature: Feature) -> str:
    """Which features share a place of an explanation with this one, where the catalogue does not say.

    >>> from assay.tables.features import FEATURES, NAMES
    >>> [family(FEATURES[NAMES.index(name)]) for name in ("bin_matured_7d", "device_fraud_share_7d", "since_last_s")]
    ['bin count', 'device fraud', 'since_last_s']
    """
    return f"{feature.entity} {_AKIN.get(feature.measure, feature.measure)}" if feature.measure else feature.name


def _form(feature: Feature) -> str:
    if feature.measure in _MONEY:
        return "money"
    if feature.measure in _SHARES:
        return "share"
    return "duration" if feature.name.endswith("_s") else "number"


def _span(seconds: int) -> str:
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds > size or seconds == size != 86_400:
            count = seconds // size
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return f"{seconds} seconds"


def _duration(seconds: float) -> str:
    """
    >>> _duration(1.0), _duration(90.0), _duration(200_000.0)
    ('1 second', '2 minutes', '2 days')
    """
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit}"
    return "1 second" if round(seconds) == 1 else f"{seconds:.0f} seconds"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


_FORMS: Mapping[str, Callable[[float], str]] = {
    "count": "{:,.0f}".format,
    "money": "{:,.2f}".format,
    "ratio": "{:,.1f}".format,
    "share": "{:.1%}".format,
    "number": _number,
    "duration": _duration,
    "hour": "{:02.0f}:00".format,
    "code": "{:04.0f}".format,
    "distance": "{:,.0f} km".format,
}
