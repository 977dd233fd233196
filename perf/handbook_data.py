"""The Fraud Detection Handbook's transactions with the features that the stream would have computed of them.

They go through the schema, the encoder, the fold, the windows of entities and of risk as in the stream; a label counts from
7 days after its payment on. What was replayed lies in `.cache/`, by what the features mean and what the file holds.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from pydantic import TypeAdapter

from assay.schemas.errors import InputError
from assay.schemas.transaction import Transaction
from assay.tables.changes import changes_of_labels
from assay.tables.features import LABEL_DELAY_S, MODEL_FEATURES, NAMES, features_digest
from assay.tables.rates import SHIPPED_RATES, Rates
from assay.tables.replay import events_of, replay_events

DAY_S = 86_400
_COLUMNS = ("tx_time", "customer_id", "terminal_id", "amount_minor", "is_fraud")
_SLICE = 8_192
Progress = Callable[[str, int, int], None]  # (stage, how much of it is done, of how much)
_TRANSACTIONS = TypeAdapter(list[Transaction])


@dataclass(frozen=True)
class Payments:
    """All n payments in the order of the file.

    Attributes:
        day: int64 (n,), days since 2018-04-01; `time_s`: epoch seconds; `customer`, `terminal`: int64 (n,).
        amount: float64 (n,), major units; `fraud`: bool (n,).
        features: float32 (n, F): those that models see and that are not the same everywhere; `names`: what they are.
        replay_per_s: how many transactions a second went through the schema, the encoder and the folds when it was made.
    """

    day: npt.NDArray[np.int64]
    time_s: npt.NDArray[np.int64]
    customer: npt.NDArray[np.int64]
    terminal: npt.NDArray[np.int64]
    amount: npt.NDArray[np.float64]
    fraud: npt.NDArray[np.bool_]
    features: npt.NDArray[np.float32]
    names: tuple[str, ...]
    replay_per_s: float


def read_payments(path: Path, cache: Path, told: Progress) -> Payments:
    """The file's payments, their features from the cache or replayed into it. Raises InputError where it can't be read."""
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        frame = pl.read_parquet(path, columns=list(_COLUMNS))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(
            f"{path} can't be read",
            expected="the Handbook's transactions as Parquet",
            got=str(error).splitlines()[0],
            mend="make handbook HANDBOOK=/path/to/handbook-transactions.parquet",
        ) from None
    fraud = frame["is_fraud"].to_numpy().astype(np.bool_)
    folder = cache / f"handbook-{features_digest()[:12]}-{digest[:12]}"
    if not (folder / "about.json").is_file():
        _replay(frame, fraud, folder, told)
    about = json.loads((folder / "about.json").read_text())
    time_s = frame["tx_time"].to_numpy().astype(np.int64)
    return Payments(
        day=time_s // DAY_S - time_s[0] // DAY_S,
        time_s=time_s,
        customer=frame["customer_id"].to_numpy().astype(np.int64),
        terminal=frame["terminal_id"].to_numpy().astype(np.int64),
        amount=frame["amount_minor"].to_numpy() / 100,
        fraud=fraud,
        features=np.load(folder / "features.npy", mmap_mode="r"),
        names=tuple(about["names"]),
        replay_per_s=about["replay_per_s"],
    )


def _replay(frame: pl.DataFrame, fraud: npt.NDArray[np.bool_], folder: Path, told: Progress) -> None:
    started = time.perf_counter()
    events = events_of(_transactions(frame, told), Rates.load(SHIPPED_RATES))
    changes, known_before = changes_of_labels(events, fraud, LABEL_DELAY_S * 1000)
    done = 0

    def step(count: int) -> None:
        nonlocal done
        done += count
        told("replay", done, len(events))

    features = replay_events(events, step, changes=changes, known_before=known_before)[:, :MODEL_FEATURES]
    per_s = len(events) / (time.perf_counter() - started)
    differs = [column for column in range(MODEL_FEATURES) if _differs(features[:, column])]
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "features.npy", np.ascontiguousarray(features[:, differs]))
    about = {"names": [NAMES[column] for column in differs], "replay_per_s": round(per_s, 1)}
    (folder / "about.json").write_text(json.dumps(about))  # last: what is here is whole


def _differs(column: npt.NDArray[np.float32]) -> bool:
    known = column[~np.isnan(column)]
    return len(known) > 0 and (len(known) < len(column) or bool((known != known[0]).any()))


def _transactions(frame: pl.DataFrame, told: Progress) -> Iterator[Transaction]:
    done, source = 0, frame.select(_COLUMNS).iter_rows()
    while rows := list(islice(source, _SLICE)):
        yield from _TRANSACTIONS.validate_python([_document(done + number, row) for number, row in enumerate(rows)])
        done += len(rows)
        told("read", done, frame.height)


def _document(number: int, row: tuple[Any, ...]) -> dict[str, Any]:
    """As it would come on the wire. The day and night of the Handbook are those of its clock: UTC."""
    time_s, customer, terminal, minor, _ = row
    return {
        "transaction_id": f"t-{number}",
        "user_id": f"u-{customer}",
        "merchant": {"id": f"m-{terminal}"},
        "amount": f"{minor / 100:.2f}",
        "currency": "EUR",
        "kind": "purchase" if minor else "verification",  # 42 amounts are 0, which a purchase can't be
        "timestamp": time_s * 1000,
        "location": {"time_zone": "UTC"},
    }
