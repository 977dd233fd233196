"""Which column of a foreign table is which field of a transaction.

    user_id=customer_id          a column
    amount=amount_minor/100      a column of numbers, divided (or multiplied: timestamp=tx_time*1000)
    currency=EUR                 a constant, where the table has no such column; 'quoted', always
    transaction_id=#             the number of the row

Columns that are named like our fields (`merchant.id`) need no mention.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel

from assay.schemas.errors import InputError
from assay.schemas.transaction import Transaction

ROW_NUMBER = "#"
ATTRIBUTE = "attributes."
_SCALED = re.compile(r"(?P<column>.+?)\s*(?P<sign>[*/])\s*(?P<number>[0-9]+(?:\.[0-9]+)?)")
_QUOTED = re.compile(r"'(.*)'|\"(.*)\"", re.DOTALL)
# A constant here is more likely a column's name with a typing error: it must be quoted.
_SELDOM_CONSTANT = {
    "transaction_id",
    "user_id",
    "payment_id",
    "amount",
    "timestamp",
    "merchant.id",
    "instrument.id",
    "device.id",
    "id",  # of batch features
    "value",
    "as_of",
}
NEEDED = ("transaction_id", "user_id", "amount", "currency", "timestamp", "merchant.id")


def _field_names(model: type[BaseModel], prefix: str = "") -> Iterable[str]:
    for name, field in model.model_fields.items():
        parts = [part for part in (field.annotation, *get_args(field.annotation)) if isinstance(part, type)]
        nested = next((part for part in parts if issubclass(part, BaseModel)), None)
        if nested is not None:
            yield from _field_names(nested, f"{name}.")
        elif name != "attributes":
            yield prefix + name


FIELDS: tuple[str, ...] = tuple(_field_names(Transaction))


@dataclass(frozen=True, slots=True)
class Column:
    """Where a field's value comes from: a column, its numbers times `factor`; or a constant; or (neither) the row's number."""

    name: str | None = None
    constant: str | None = None
    factor: Decimal = Decimal(1)


def parse_mapping(options: Iterable[str], file: Path | None = None, fields: Collection[str] = FIELDS) -> dict[str, str]:
    """field -> what it is, from `FIELD=COLUMN` options and a YAML file of the same (`FIELD: COLUMN`); options win.

    `fields`: those that there are; of a transaction also `attributes.NAME`. Raises InputError.
    """
    mapping: dict[str, str] = {}
    if file is not None:
        try:
            document = yaml.safe_load(file.read_bytes())
        except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
            raise InputError(f"{file} can't be read", expected="YAML: a field and its column a line", got=str(error)) from None
        if not isinstance(document, dict):
            raise InputError(f"{file} is no mapping", expected="a field and its column a line", got=type(document).__name__)
        mapping = {str(field): str(column) for field, column in document.items()}
    for option in options:
        field, equals, column = option.partition("=")
        if not equals or not field or not column:
            raise InputError(f"{option!r} maps nothing", expected="FIELD=COLUMN, such as user_id=customer_id")
        mapping[field.strip()] = column.strip()
    for field in mapping:
        if field not in fields and not (fields is FIELDS and field.startswith(ATTRIBUTE) and len(field) > len(ATTRIBUTE)):
            more = ", attributes.NAME" if fields is FIELDS else ""
            raise InputError(f"there is no field {field}", expected=f"one of {', '.join(fields)}{more}")
    return mapping


def resolve(
    mapping: Mapping[str, str],
    columns: Iterable[str],
    path: Path,
    fields: Collection[str] = FIELDS,
    needed: Iterable[str] = NEEDED,
) -> dict[str, Column]:
    """What each field comes from in a table with these columns. Raises InputError, which names the file."""
    there = list(columns)
    resolved = {name: Column(name) for name in there if name in fields or (fields is FIELDS and name.startswith(ATTRIBUTE))}
    resolved |= {field: _column(field, text, there, path) for field, text in mapping.items()}
    for field in needed:
        if field not in resolved:
            raise InputError(
                f"{path}: nothing says which column is {field}",
                expected=f"one of {', '.join(there)}",
                mend=f"--map {field}=COLUMN" + (" (# for the row number)" if field == "transaction_id" else ""),
            )
    return resolved


def _column(field: str, text: str, there: list[str], path: Path) -> Column:
    if text in there:
        return Column(text)
    if text == ROW_NUMBER:
        return Column()
    scaled, quoted = _SCALED.fullmatch(text), _QUOTED.fullmatch(text)
    if quoted:
        return Column(constant=quoted[1] or quoted[2] or "")
    if scaled and scaled["column"] in there and Decimal(scaled["number"]):
        number = Decimal(scaled["number"])
        return Column(scaled["column"], factor=number if scaled["sign"] == "*" else 1 / number)
    if field in _SELDOM_CONSTANT or scaled:
        raise InputError(
            f"{path} has no column {scaled['column'] if scaled else text}, which {field} is mapped to",
            expected=f"one of {', '.join(there)}",
            mend=f"a constant needs quotes: {field}='{text}'",
        )
    return Column(constant=text)


def scale(value: Any, factor: Decimal) -> Any:
    """A number times a factor, exactly; what is no number stays what it is, for the schema to refuse."""
    try:
        product = Decimal(str(value)) * factor
    except ArithmeticError:
        return value
    return product.normalize() if product.is_finite() else value
