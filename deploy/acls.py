"""What each part of a deployment may do at the brokers, and no more: made from the settings, one list for each role."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from shlex import quote

from assay.streams.settings import Settings


class Role(StrEnum):
    """Who logs in."""

    WORKER = "worker"
    CHECKOUT = "checkout"  # sends transactions, reads its replies
    ANALYST = "analyst"  # sends outcomes, reads decisions and what they were made from
    OPERATOR = "operator"  # makes the topics, rebuilds, sends dead letters again


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One resource, by name or by what its name begins with, and what is allowed there; in Kafka's words."""

    resource: str  # topic, group or transactional-id
    name: str
    operations: tuple[str, ...]
    prefixed: bool = False

    def command(self, principal: str) -> str:
        """For Kafka's own tool; its options for brokers and credentials are left to the operator."""
        pattern = " --resource-pattern-type prefixed" if self.prefixed else ""
        operations = " ".join(f"--operation {operation}" for operation in self.operations)
        where = f"--{self.resource} {quote(self.name)}{pattern}"
        return f"kafka-acls.sh --add --allow-principal {quote(f'User:{principal}')} {operations} {where}"


def acls(settings: Settings, role: Role, reply_topics: Iterable[str] = ()) -> list[Acl]:
    """All that a role needs.

    Args:
        reply_topics: names of reply topics; Kafka knows no patterns but what a name begins with, so "*.reply" can't be allowed.
    """
    lists = {Role.WORKER: _worker, Role.CHECKOUT: _checkout, Role.ANALYST: _analyst, Role.OPERATOR: _operator}
    return sorted(lists[role](settings, list(reply_topics)))


def _worker(settings: Settings, replies: list[str]) -> Iterator[Acl]:
    for topic in (settings.transactions, settings.outcomes):
        yield Acl("topic", topic, ("Read", "DescribeConfigs"))
    for topic in (settings.decisions, settings.dead_letters, settings.changelog):
        yield Acl("topic", topic, ("Read", "Write", "DescribeConfigs"))
    yield Acl("topic", settings.evidence, ("Write", "DescribeConfigs"))
    yield Acl("topic", settings.control, ("Read", "DescribeConfigs"))
    yield from (Acl("topic", topic, ("Write",)) for topic in replies)
    if settings.rekey:
        yield Acl("topic", settings.incoming, ("Read", "DescribeConfigs"))
        yield Acl("topic", settings.transactions, ("Write",))
        yield Acl("group", settings.rekeying_group, ("Read",))
    yield Acl("group", settings.group_id, ("Read",))
    yield Acl("transactional-id", f"{settings.group_id}-", ("Write",), prefixed=True)


def _checkout(settings: Settings, replies: list[str]) -> Iterator[Acl]:
    yield Acl("topic", settings.incoming, ("Write",))
    yield from (Acl("topic", topic, ("Read",)) for topic in replies)


def _analyst(settings: Settings, replies: list[str]) -> Iterator[Acl]:
    yield Acl("topic", settings.outcomes, ("Read", "Write"))  # a backtest has them as labels
    for topic in (settings.decisions, settings.evidence, settings.transactions, settings.dead_letters):
        yield Acl("topic", topic, ("Read",))


def _operator(settings: Settings, replies: list[str]) -> Iterator[Acl]:
    sent = (settings.incoming, settings.outcomes, settings.control)
    for acl in _worker(settings, []):
        operations = set(acl.operations)
        if acl.resource == "topic":
            operations |= {"Create", "Read"} | ({"Write"} if acl.name in sent else set())
        yield Acl(acl.resource, acl.name, tuple(sorted(operations)), acl.prefixed)
