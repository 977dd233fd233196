"""What long work tells whoever waits for it."""

from collections.abc import Callable, Iterable, Iterator, MutableSequence
from operator import length_hint

from assay.schemas.transaction import Transaction
from assay.tables.outcomes import thousandths

Progress = Callable[[str, int, int], None]  # (stage, how much of it is done, of how much)


def silent(stage: str, done: int, total: int) -> None:
    """To nobody."""


def read_with_amounts(
    transactions: Iterable[Transaction], whole: MutableSequence[int], told: Progress
) -> Iterator[Transaction]:
    """The same, with the amount of each, in thousandths of a major unit of its own currency, put into `whole`."""
    total = length_hint(transactions)
    for number, transaction in enumerate(transactions, 1):
        whole.append(thousandths(transaction.amount))
        if number % 1000 == 0 or number == total:
            told("read", number, total)
        yield transaction


def steps(stage: str, total: int, told: Progress) -> Callable[[int], None]:
    """What is to be called with how much each step of a stage has done."""
    done = 0

    def step(count: int) -> None:
        nonlocal done
        done += count
        told(stage, done, total)

    return step
