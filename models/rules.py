"""Rules: SQL predicates over one transaction and its features, evaluated on a whole micro-batch with Polars.

The same text runs live, in a backtest and on a file. Whatever can be wrong with a rule is found when it is loaded; what still
fails at run time costs that rule alone. A rule looks at one transaction at a time: aggregates, windows, sub-queries and the
clock are refused, since a verdict must not depend on what else is in the micro-batch.
"""

import difflib
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import polars as pl
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from assay.models.policy import SEVERITY
from assay.models.rule_columns import ATTRIBUTE, OFFERED, OWN_VERDICTS, attribute_types, build, quote_attributes, type_of
from assay.schemas.decision import Action
from assay.schemas.errors import RulesError
from assay.schemas.limits import MAX_PREDICATE_CHARACTERS, MAX_RULES, MAX_RULES_FILE_BYTES
from assay.schemas.transaction import Transaction

SHIPPED = Path(__file__).with_name("rules.yaml")

_WORDS = "over|select|current_date|current_time|current_timestamp|localtime|localtimestamp|interval"
_FUNCTIONS = (
    "sum|avg|mean|min|max|count|first|last|median|mode|stddev|stddev_pop|stddev_samp|stdev|variance|var_pop|var_samp|corr|covar"
    "|covar_pop|covar_samp|quantile_cont|quantile_disc|array_agg|string_agg|listagg|approx_count_distinct|bool_and|bool_or"
    "|every|row_number|rank|dense_rank|lag|lead|first_value|last_value|ntile|now|random|uuid|unnest|explode|columns|shift"
)
_NOT_ONE_ROW = re.compile(rf"\b(?:({_WORDS})\b|({_FUNCTIONS})\s*\()", re.IGNORECASE)
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
_PROBE_ROWS = 8
_MOST_TRIES = 3**6


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(pattern=r"^[a-z][a-z0-9_]{0,63}$", description="a name of lower case letters, digits and _, at most 64")
    when: str = Field(max_length=MAX_PREDICATE_CHARACTERS, description="a SQL predicate, as text")
    # Not `Action`, which takes a word that it does not know for a review.
    then: Literal["approve", "review", "decline"] = Field(description="review or decline; approve only with `list: allow`")
    reason: Annotated[str, Field(min_length=1, max_length=200, description="what an analyst reads, at most 200 characters")]
    list: Literal["allow", "block"] | None = Field(None, description="allow or block")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.then == "approve") != (self.list == "allow"):
            raise ValueError("approve goes with `list: allow`, and only with it")
        return self


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, ready to be evaluated."""

    id: str
    when: str
    then: Action
    reason: str
    list: Literal["allow", "block"] | None
    expression: pl.Expr
    columns: Mapping[str, Any]  # name -> Polars type

    @property
    def code(self) -> str:
        """Its code in an explanation."""
        return f"RULE_{self.id.upper()}"


class Failure(NamedTuple):
    """A rule that failed at run time, and so counts as not fired for that micro-batch."""

    rule: str
    error: str


class Fired(NamedTuple):
    """What the rules said of n transactions."""

    fired: npt.NDArray[np.bool_]  # (n, R)
    failures: tuple[Failure, ...]


class Rules:
    """All rules of one file, in its order."""

    def __init__(self, rules: Sequence[Rule], digest: str) -> None:
        self.rules = tuple(rules)
        self.digest = digest  # SHA-256 of the file, hexadecimal
        self.severities = np.array([SEVERITY[rule.then] for rule in rules], np.int8)
        self.allows = np.array([rule.list == "allow" for rule in rules], np.bool_)
        self.blocks = np.array([rule.list == "block" for rule in rules], np.bool_)
        self.ask_own_verdicts = any(name in OWN_VERDICTS for rule in rules for name in rule.columns)
        self._columns = {name: dtype for rule in rules for name, dtype in rule.columns.items()}
        self._all = [rule.expression.fill_null(False).alias(rule.id) for rule in rules]

    @classmethod
    def load(cls, path: Path | None = None) -> "Rules":
        """From a YAML file, the starter set when None. Raises RulesError, which names file, rule and what was expected."""
        path = path or SHIPPED
        try:
            with path.open("rb") as file:
                raw = file.read(MAX_RULES_FILE_BYTES + 1)
        except OSError as error:
            raise RulesError(
                f"{path} can't be read", expected="a rules file", got=str(error.strerror), mend="give another path"
            ) from None
        if len(raw) > MAX_RULES_FILE_BYTES:
            raise RulesError(
                f"{path} is too large", expected=f"at most {MAX_RULES_FILE_BYTES} bytes", mend="split or shorten it"
            )
        return cls(_parse(raw, path), hashlib.sha256(raw).hexdigest())

    def evaluate(
        self, transactions: Sequence[Transaction], features: npt.NDArray[np.float32], scores: npt.NDArray[np.float64]
    ) -> Fired:
        """Which rules fire on n transactions. `features` float32 (n, F), `scores` float64 (n,); NaN is NULL. Never raises."""
        if not self.rules or not transactions:
            return Fired(np.zeros((len(transactions), len(self.rules)), np.bool_), ())
        try:
            frame = build(self._columns, transactions, features, scores).select(self._all)
            if frame.height == len(transactions):
                return Fired(frame.to_numpy().astype(np.bool_, copy=False), ())
        except Exception:  # one of them failed, and Polars does not say which: ask them one by one
            pass
        return self._one_by_one(transactions, features, scores)

    def _one_by_one(
        self, transactions: Sequence[Transaction], features: npt.NDArray[np.float32], scores: npt.NDArray[np.float64]
    ) -> Fired:
        fired = np.zeros((len(transactions), len(self.rules)), np.bool_)
        failures = []
        for index, (rule, expression) in enumerate(zip(self.rules, self._all, strict=True)):
            try:
                frame = build(rule.columns, transactions, features, scores)
                fired[:, index] = frame.select(expression).to_series().to_numpy()
            except Exception as error:  # whatever it is, the other rules and the verdicts go on
                failures.append(Failure(rule.id, f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"))
        return Fired(fired, tuple(failures))


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Refuses a key given twice, which YAML would let win silently."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{key} is given twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


def _parse(raw: bytes, path: Path) -> list[Rule]:
    try:
        document = yaml.load(raw, Loader=_Loader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise RulesError(f"{path} is not YAML", expected="a list `rules`", got=" ".join(str(error).split())[:200]) from None
    lines = document.get("rules") if isinstance(document, dict) and set(document) == {"rules"} else None
    if not isinstance(lines, list):
        raise RulesError(f"{path} has no list `rules`", expected="`rules:` and nothing beside it", mend="see the starter set")
    if len(lines) > MAX_RULES:
        raise RulesError(f"{path} has too many rules", expected=f"at most {MAX_RULES}", got=str(len(lines)))
    rules: list[Rule] = []
    attributes: dict[str, Rule] = {}
    for number, line in enumerate(lines, 1):
        rule = _rule(_line(line, number, path), path)
        if any(rule.id == other.id for other in rules):
            raise RulesError(f"{path}: rule {rule.id} is there twice", expected="ids that differ", mend="rename one")
        for name in rule.columns:
            other = attributes.setdefault(name, rule)
            if other.columns[name] != rule.columns[name]:
                raise RulesError(
                    f"{path}: rule {rule.id} takes {name} for {rule.columns[name]}, rule {other.id} for {other.columns[name]}",
                    expected="one type for each attribute",
                    mend="compare it with the same kind of value in both",
                )
        rules.append(rule)
    return rules


def _line(line: Any, number: int, path: Path) -> _Line:
    name = line.get("id") if isinstance(line, dict) and isinstance(line.get("id"), str) else f"number {number}"
    try:
        return _Line.model_validate(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        field = _Line.model_fields.get(where)
        raise RulesError(
            f"{path}: rule {name}: {f'{where}: ' if where else ''}{first['msg']}",
            expected=(field.description or "") if field else f"the fields {', '.join(_Line.model_fields)}",
            got="" if first["type"] in ("missing", "value_error") else repr(first["input"])[:100],
        ) from None


def _rule(line: _Line, path: Path) -> Rule:
    where = f"{path}: rule {line.id}"
    other = _NOT_ONE_ROW.search(_QUOTED.sub("''", line.when))
    if other:
        raise RulesError(
            f"{where}: `{other[1] or other[2]}` can't be used",
            expected="a predicate over one transaction: no aggregates, windows, sub-queries, no clock",
            got=line.when,
            mend="use a feature that counts, or ask for one; greatest() and least() compare columns",
        )
    try:
        expression = pl.sql_expr(quote_attributes(line.when))
        names = dict.fromkeys(expression.meta.root_names())
    except Exception as error:  # Polars has no common base for what its parser raises
        raise RulesError(f"{where}: bad SQL", expected="a SQL predicate", got=str(error).splitlines()[0][:200]) from None
    _check_names(names, where)
    choices = {name: [type_of(name)] if type_of(name) else attribute_types(name, line.when) for name in names}
    columns = _types(expression, choices, where)
    return Rule(line.id, line.when, Action(line.then), line.reason, line.list, expression, columns)


def _check_names(names: Mapping[str, None], where: str) -> None:
    if not names:
        raise RulesError(f"{where}: looks at no column", expected="a predicate over the transaction or its features")
    for name in names:
        if name not in OFFERED and not name.startswith(ATTRIBUTE):
            close = _nearest(name)
            raise RulesError(
                f"{where}: there is no column {name}",
                expected=f"{' or '.join(close)}?" if close else "a feature, a field of the transaction or attributes.NAME",
                mend="text stands in single quotes",
            )


def _nearest(name: str) -> list[str]:
    """At most three columns: those spelt nearly so, else those that share a word with it.

    >>> _nearest("amount_bse")[0], _nearest("hour")
    ('amount_base', ['local_hour'])
    """
    words = set(name.lower().split("_"))
    sharing = [column for column in OFFERED if words & set(column.split("_"))]
    sharing.sort(key=lambda column: len(words ^ set(column.split("_"))))
    return (difflib.get_close_matches(name.lower(), OFFERED, 3) or sharing)[:3]


def _types(expression: pl.Expr, choices: Mapping[str, Sequence[Any]], where: str) -> dict[str, Any]:
    """The type of each column: of attributes, the first for which the predicate makes sense."""
    found = "nothing"
    for types in islice(product(*choices.values()), _MOST_TRIES):
        columns = dict(zip(choices, types, strict=True))
        try:
            found = _probe(expression, columns)
        except Exception as error:  # whatever Polars raises for a comparison of unlike types, a bad pattern, ...
            found = str(error).splitlines()[0][:200]
            continue
        if not found:
            return columns
    raise RulesError(f"{where}: is no predicate", expected="true or false for each transaction", got=found)


def _probe(expression: pl.Expr, columns: Mapping[str, Any]) -> str:
    """Evaluate on made-up rows: what is wrong with the outcome, or nothing."""
    frame = pl.DataFrame([_made_up(name, dtype) for name, dtype in columns.items()])
    outcome = frame.select(expression.alias("outcome"))["outcome"]
    if outcome.dtype != pl.Boolean:
        return f"{outcome.dtype} values"
    alone = pl.concat([frame[row].select(expression.alias("outcome")) for row in range(frame.height)])["outcome"]
    if not outcome.equals(alone):
        return "an outcome that depends on the other transactions"
    return ""


def _made_up(name: str, dtype: Any) -> pl.Series:
    numbers: list[Any] = [None, *np.random.default_rng(sum(name.encode())).integers(0, 9, _PROBE_ROWS - 1).tolist()]
    values = {
        pl.String: [None if n is None else str(n) for n in numbers],
        pl.Boolean: [None if n is None else n > 4 for n in numbers],
    }
    return pl.Series(name, values.get(dtype, numbers), dtype)
