"""Every error that Assay raises on purpose.

    AssayError
    ├── SettingError          a setting or a command-line argument
    ├── InputError            a file that somebody gave us
    │   ├── BundleError       ... a model bundle
    │   ├── RulesError        ... a rules file
    │   ├── RatesError        ... a file of exchange rates
    │   └── MappingError      ... a file that maps somebody else's transactions to ours
    ├── ServiceError          Kafka or Redis is not there, or a port is taken
    │   └── NoTopic           ... or a topic
    ├── TopologyError         topics or partitions are not what the state was built from
    ├── ContinuityError       source records are missing between two batches
    ├── DrainError            work in flight did not end before its deadline
    ├── ChangelogError        the profile changelog can't be applied
    ├── PublishError          what was being published may or may not be in the log
    │   ├── Fenced            another worker has claimed the partition
    │   ├── OutOfOrder        the broker misses an earlier batch of ours
    │   ├── TooLarge          a batch exceeds what the topic takes
    │   └── DeadlinePassed    no acknowledgement in time
    ├── DecisionTimeout       no decision came before the caller's deadline
    └── DecisionRefused       the transaction was refused: it was answered with an error, not with a decision

A record that is refused is not an error of the worker: it is data (`schemas.refusal`).
"""


class AssayError(Exception):
    """What went wrong, what was expected, what came, and what to do about it.

    >>> print(AssayError("no rate for XTS", expected="a currency of rates.csv", got="XTS", mend="add a line"))
    no rate for XTS (expected: a currency of rates.csv; got: XTS). Mend: add a line
    """

    def __init__(self, what: str, *, expected: str = "", got: str = "", mend: str = "") -> None:
        self.what, self.expected, self.got, self.mend = what, expected, got, mend
        detail = "; ".join(f"{name}: {text}" for name, text in (("expected", expected), ("got", got)) if text)
        super().__init__(f"{what}{f' ({detail})' if detail else ''}{f'. Mend: {mend}' if mend else ''}")


class SettingError(AssayError):
    """A setting or a command-line argument is missing or wrong."""


class InputError(AssayError):
    """A file that was given can't be used."""


class BundleError(InputError):
    """A bundle is incomplete, tampered with, or made for other features."""


class RulesError(InputError):
    """A rules file can't be used."""


class RatesError(InputError):
    """A rates file can't be used."""


class MappingError(InputError):
    """A mapping file can't be used."""


class ServiceError(AssayError):
    """A service that is needed does not answer, or a port that is needed is taken."""


class NoTopic(ServiceError):
    """A topic that is needed does not exist."""


class TopologyError(AssayError):
    """Topics, partitions or offsets are not the ones that the state was built from."""


class ContinuityError(AssayError):
    """A batch does not begin where the last one of its partition ended."""


class DrainError(AssayError):
    """Micro-batches in flight did not end before the drain deadline."""


class ChangelogError(AssayError):
    """The profile changelog holds what can't be applied."""


class PublishError(AssayError):
    """What was being published may or may not be in the log: the process must end, uncommitted."""


class Fenced(PublishError):
    """Another worker has claimed the partition."""


class OutOfOrder(PublishError):
    """The broker misses an earlier batch of ours: nothing after it was accepted."""


class TooLarge(PublishError):
    """A batch exceeds the topic's max.message.bytes."""


class DeadlinePassed(PublishError):
    """No acknowledgement in time; the batch may still be accepted later."""


class DecisionTimeout(AssayError):
    """No decision came before the caller's deadline: the caller takes its own fallback action."""


class DecisionRefused(AssayError):
    """The transaction was refused: `code` is stable, `field` says which one was wrong (None: the record as a whole)."""

    def __init__(self, code: str, field: str | None, message: str) -> None:
        self.code, self.field, self.message = code, field, message
        where = "" if field is None or message.startswith(f"{field}: ") else f"{field}: "
        super().__init__(
            f"refused ({code}): {where}{message}",
            mend="mend the transaction and send it under a new correlation id; until then treat it as a review",
        )
