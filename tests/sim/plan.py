"""What happens in a run: transactions to be sent and faults, each with its time. All of it comes from the seed.

A plan is data: leaving out some of it gives another plan (`shrink`).
"""

from dataclasses import dataclass
from enum import StrEnum
from random import Random

MAX_WORKERS = 4
USERS = 5
REPEATED = 0.2  # of the transactions
FAR_BACK = 24  # how far a repeat may lie back: beyond the horizon, too
BURST = 14
SESSION_S = 6.0


class Kind(StrEnum):
    """What a record is."""

    PAYMENT = "payment"
    MALFORMED = "malformed"  # no JSON
    INVALID = "invalid"  # a field is missing
    CARD = "card number"
    TOMBSTONE = "tombstone"
    HOLE = "hole"  # no record: the end of an upstream transaction


@dataclass(frozen=True, slots=True)
class Sent:
    """A record that arrives in the transactions topic."""

    at: float
    user: int
    id: str
    variant: int  # another payload where the id is the same
    kind: Kind
    reply: bool

    def __str__(self) -> str:
        what = f"{self.id}/{self.variant}" if self.kind is Kind.PAYMENT else self.kind
        return f"{self.at:8.3f}  user-{self.user} sends {what}"


class Trouble(StrEnum):
    """What goes wrong."""

    KILL = "is killed"
    KILL_AND_DISK = "is killed and its disk lost"
    PAUSE = "is paused"
    STOP = "is stopped"
    JOIN = "joins"
    LEAVE = "leaves"
    CUT = "is cut off"
    LOSE_FETCH = "loses a fetch"
    DOWN = "brokers are down"
    SLOW = "brokers are slow"
    REDIS = "Redis is down"
    COMPACT = "changelogs are compacted"
    CLOCK = "a leader moves to a clock that differs"


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong, in or after a step of a worker."""

    at: float
    trouble: Trouble
    worker: int
    steps: int  # of the worker from then on
    lasts: float

    def __str__(self) -> str:
        of_worker = self.trouble in OF_A_WORKER
        when = f"after {self.steps} steps " if self.trouble in AFTER_STEPS else ""
        lasts = f" for {self.lasts:.3f} s" if self.trouble in LASTING else ""
        return f"{self.at:8.3f}  {when}{f'worker-{self.worker} ' if of_worker else ''}{self.trouble}{lasts}"


AFTER_STEPS = frozenset((Trouble.KILL, Trouble.KILL_AND_DISK, Trouble.PAUSE))
OF_A_WORKER = AFTER_STEPS | {Trouble.STOP, Trouble.JOIN, Trouble.LEAVE, Trouble.CUT, Trouble.LOSE_FETCH}
LASTING = frozenset((Trouble.PAUSE, Trouble.CUT, Trouble.DOWN, Trouble.SLOW, Trouble.REDIS))
_TROUBLES = {
    Trouble.KILL: 8,
    Trouble.KILL_AND_DISK: 2,
    Trouble.PAUSE: 5,
    Trouble.STOP: 2,
    Trouble.JOIN: 2,
    Trouble.LEAVE: 1,
    Trouble.CUT: 3,
    Trouble.LOSE_FETCH: 1,
    Trouble.DOWN: 1,
    Trouble.SLOW: 2,
    Trouble.REDIS: 1,
    Trouble.COMPACT: 2,
    Trouble.CLOCK: 1,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """A run before it is run.

    Attributes:
        workers: how many there are at the start.
        batch: transactions of a micro-batch at most.
        remembered: decisions, and rows, that a worker keeps in memory at most.
        commit_s, publish_s: seconds between commits, and until a publish is given up.
    """

    seed: int
    partitions: int
    workers: int
    batch: int
    remembered: int
    commit_s: float
    publish_s: float
    sent: tuple[Sent, ...]
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        events = sorted([*self.sent, *self.faults], key=lambda event: event.at)
        head = (
            f"seed {self.seed}: {self.partitions} partitions, {self.workers} workers, micro-batches of {self.batch}, "
            f"{self.remembered} remembered, commits every {self.commit_s} s, publishing within {self.publish_s} s"
        )
        return "\n".join([head, *map(str, events)])


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    random = Random(seed)
    partitions, bursts = random.choice((1, 2, 2, 3)), random.randint(3, 14)
    times = sorted(random.uniform(0.5, 12.0) + random.choice((0.0, 0.0, 10.0)) for _ in range(bursts))
    return Plan(
        seed,
        partitions,
        workers=random.choice((1, 2, 2, 3)),
        batch=random.choice((1, 3, 8, 64)),
        remembered=random.choice((2, 10, 1000)),
        commit_s=random.choice((0.05, 0.3, 1.0)),
        publish_s=random.choice((1.5, 5.0, 30.0)),
        sent=_sent(random, times),
        faults=_faults(random, times),
    )


def _sent(random: Random, times: list[float]) -> tuple[Sent, ...]:
    ids: dict[int, list[str]] = {user: [] for user in range(USERS)}
    kinds = [Kind.PAYMENT] * 40 + [Kind.MALFORMED, Kind.INVALID, Kind.CARD, Kind.TOMBSTONE, Kind.HOLE]
    sent = []
    for time in times:
        for _ in range(random.randint(1, BURST)):
            user, kind = min(random.randrange(USERS), random.randrange(USERS)), random.choice(kinds)
            earlier = ids[user][-FAR_BACK:] if random.random() < 0.5 else ids[user][-3:]
            if kind is Kind.PAYMENT and earlier and random.random() < REPEATED:
                id_ = random.choice(earlier)
            else:
                id_ = f"t{len(sent)}"
                ids[user] += [id_] if kind is Kind.PAYMENT else []
            at = time + random.choice((0.0, 0.0, random.uniform(0, 0.05)))
            sent.append(Sent(at, user, id_, random.choice((0, 0, 1)), kind, random.random() < 0.4))
    return tuple(sorted(sent, key=lambda each: each.at))


def _faults(random: Random, times: list[float]) -> tuple[Fault, ...]:
    """Most of them while something is under way: a step is a place, a time hardly ever is."""
    faults = []
    for _ in range(random.choice((0, 1, 2, 3, 3, 4, 5, 6))):
        trouble = random.choices(list(_TROUBLES), list(_TROUBLES.values()))[0]
        at = max(0.0, random.choice(times) + random.choice((0.0, 0.0, -6.5, 6.5, random.uniform(-1, 8))))
        lasts = random.choice((random.uniform(0.01, 1.0), random.uniform(SESSION_S, 2 * SESSION_S)))
        steps = int(random.expovariate(1 / 60))
        faults.append(Fault(at, trouble, random.randrange(MAX_WORKERS if trouble is Trouble.JOIN else 3), steps, lasts))
    return tuple(sorted(faults, key=lambda each: each.at))
