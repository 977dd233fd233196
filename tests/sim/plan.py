"""What happens in a run: transactions to be sent and faults, each with its time. All of it comes from the seed.

A plan is data: leaving out some of it gives another plan (`shrink`).
"""

from dataclasses import dataclass
from enum import StrEnum
from random import Random

MAX_WORKERS = 4
USERS = 5
LOOKS_UP = 0.25
REPEATED = (0.1, 0.2, 0.5)  # of the transactions
FAR_BACK = 24  # how far a repeat may lie back: beyond the horizon, too
BURST = 14
SESSION_S = 6.0
FAULTS = (0, 1, 2, 3, 4, 6, 8, 12)


class Kind(StrEnum):
    """What a record is."""

    PAYMENT = "payment"
    MALFORMED = "malformed"  # no JSON
    INVALID = "invalid"  # a field is missing
    CARD = "card number"
    TOMBSTONE = "tombstone"
    HOLE = "hole"  # no record: the end of an upstream transaction


HOLES = (1, 1, 1, 15)  # of 45: many where upstream writes in transactions
POISON = (Kind.MALFORMED, Kind.INVALID, Kind.CARD, Kind.TOMBSTONE)


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
    SLOW = "a topic is slow"
    REDIS = "Redis is down"
    COMPACT = "changelogs are compacted"
    EXPIRE = "decisions expire"
    OUTAGE = "all workers are down"
    OFFSETS = "all workers are down, and the group's offsets expire"
    CLAIMS = "claims expire"
    RENEW = "renews its claims"
    CLOCK = "a leader moves to a clock that differs"


class Moment(StrEnum):
    """From when on a worker's steps are counted: the next time that this happens."""

    NOW = "from then on"
    GIVEN = "from when it is given partitions"
    DECIDED = "from an append to decisions"
    REMEMBERED = "from an append to a changelog"
    COMMITTED = "from a commit that decisions are ahead of"


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong.

    Attributes:
        worker: counted among those that live.
        moment, steps: a process is struck between two of its steps: so many after this moment, which comes after `at`.
        lasts: seconds; from when its partitions are given to others (`until_taken`), where that is awaited.
    """

    at: float
    trouble: Trouble
    worker: int = 0
    steps: int = 0
    lasts: float = 0.0
    moment: Moment = Moment.NOW
    until_taken: bool = False

    def __str__(self) -> str:
        of_worker = f"worker {self.worker} of those that live " if self.trouble in OF_A_WORKER else ""
        when = f" {self.steps} steps {self.moment}" if self.trouble in AFTER_STEPS else ""
        until = " from when its partitions are given to others" if self.until_taken else ""
        lasts = f", for {self.lasts:.3f} s{until}" if self.trouble in LASTING else ""
        return f"{self.at:8.3f}  {of_worker}{self.trouble}{when}{lasts}"


AFTER_STEPS = frozenset((Trouble.KILL, Trouble.KILL_AND_DISK, Trouble.PAUSE, Trouble.CUT))
OF_A_WORKER = AFTER_STEPS | {Trouble.STOP, Trouble.JOIN, Trouble.LEAVE, Trouble.LOSE_FETCH, Trouble.RENEW}
LASTING = frozenset((Trouble.PAUSE, Trouble.CUT, Trouble.DOWN, Trouble.SLOW, Trouble.REDIS, Trouble.OUTAGE, Trouble.OFFSETS))
_TROUBLES = {
    Trouble.KILL: 12,
    Trouble.KILL_AND_DISK: 2,
    Trouble.PAUSE: 5,
    Trouble.STOP: 2,
    Trouble.JOIN: 2,
    Trouble.LEAVE: 1,
    Trouble.CUT: 3,
    Trouble.LOSE_FETCH: 1,
    Trouble.DOWN: 1,
    Trouble.SLOW: 3,
    Trouble.REDIS: 1,
    Trouble.COMPACT: 2,
    Trouble.EXPIRE: 1,
    Trouble.OUTAGE: 1,
    Trouble.OFFSETS: 1,
    Trouble.CLAIMS: 1,
    Trouble.RENEW: 2,
    Trouble.CLOCK: 1,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """A run before it is run.

    Attributes:
        workers: how many there are at the start.
        batch, take_bytes: transactions, and bytes, of a micro-batch at most.
        batch_bytes: of what is published at once, at most.
        remembered: decisions, and rows, that a worker keeps in memory at most.
        commit_s, publish_s: seconds between commits, and until a publish is given up.
        slow: what takes .1 s more than the rest: a topic, the group, what is fetched to be read back; if any.
    """

    seed: int
    partitions: int
    workers: int
    batch: int
    take_bytes: int
    batch_bytes: int
    remembered: int
    commit_s: float
    publish_s: float
    slow: str
    sent: tuple[Sent, ...]
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        events = sorted([*self.sent, *self.faults], key=lambda event: event.at)
        head = (
            f"seed {self.seed}: {self.partitions} partitions, {self.workers} workers, "
            f"micro-batches of {self.batch} and {self.take_bytes} bytes, "
            f"{self.batch_bytes} bytes published at once, "
            f"{self.remembered} remembered, commits every {self.commit_s} s, publishing within {self.publish_s} s"
            + (f", {self.slow} slow" if self.slow else "")
        )
        return "\n".join([head, *map(str, events)])


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    random = Random(seed)
    times = sorted(random.uniform(0.5, 12.0) + random.choice((0.0, 0.0, 10.0)) for _ in range(random.randint(3, 14)))
    looks_up = random.random() < LOOKS_UP  # repeats, hardly any memory, and small micro-batches that pass those by
    return Plan(
        seed,
        partitions=random.choice((1, 2, 2, 3)),
        workers=random.choice((1, 2, 2, 3)),
        batch=random.choice((1, 3) if looks_up else (1, 3, 8, 64)),
        take_bytes=random.choice((1_024, 1_000_000)),
        batch_bytes=random.choice((3_000, 900_000)),
        remembered=2 if looks_up else random.choice((2, 10, 1000)),
        commit_s=random.choice((0.05, 0.05, 0.3, 1.0)),
        publish_s=random.choice((1.5, 5.0, 30.0)),
        slow=random.choice(("changelog", "") if looks_up else ("", "changelog", "decisions", "group", "fetch")),
        sent=_sent(random, times, random.choice((1, 2, USERS)), 0.5 if looks_up else random.choice(REPEATED)),
        faults=_faults(random, times, looks_up),
    )


def _sent(random: Random, times: list[float], users: int, repeated: float) -> tuple[Sent, ...]:
    ids: dict[int, list[str]] = {user: [] for user in range(users)}
    kinds = [*[Kind.PAYMENT] * 40, *[Kind.HOLE] * random.choice(HOLES), *POISON]
    sent = []
    for time in times:
        for _ in range(random.randint(1, BURST)):
            user, kind = min(random.randrange(users), random.randrange(users)), random.choice(kinds)
            earlier = ids[user][-FAR_BACK:] if random.random() < 0.5 else ids[user][-3:]
            if kind is Kind.PAYMENT and earlier and random.random() < repeated:
                id_ = random.choice(earlier)
            else:
                id_ = f"t{len(sent)}"
                ids[user] += [id_] if kind is Kind.PAYMENT else []
            at = time + random.choice((0.0, 0.0, random.uniform(0, 0.05)))
            sent.append(Sent(at, user, id_, random.choice((0, 0, 1)), kind, random.random() < 0.4))
    return tuple(sorted(sent, key=lambda each: each.at))


def _faults(random: Random, times: list[float], looks_up: bool) -> tuple[Fault, ...]:
    """Of few kinds in one plan: what needs the same trouble several times over comes up so, and hardly in a mix of all.

    Where much is looked up, some strike when a commit has just passed a repeat that was answered late.
    """
    kinds, weights = list(_TROUBLES), list(_TROUBLES.values())
    troubles = random.choices(kinds, weights, k=random.choice((1, 2, 4, 12)))
    moments = random.choices(list(Moment), k=random.choice((1, 2, 5)))
    faults = [
        _fault(random, times, Trouble.KILL, Moment.COMMITTED)
        if looks_up and random.random() < 0.5
        else _fault(random, times, random.choice(troubles), random.choice(moments))
        for _ in range(random.choice(FAULTS))
    ]
    return tuple(sorted(faults, key=lambda each: each.at))


def _fault(random: Random, times: list[float], trouble: Trouble, moment: Moment) -> Fault:
    """Most of them while something is under way: a step is a place, a time hardly ever is."""
    until_taken = trouble in (Trouble.PAUSE, Trouble.CUT) and random.random() < 0.5
    lasts = random.choice((random.uniform(0.01, 1.0), random.uniform(SESSION_S, 2 * SESSION_S)))
    return Fault(
        at=max(0.0, random.choice(times) + random.choice((0.0, 0.0, -6.5, 6.5, random.uniform(-1, 8)))),
        trouble=trouble,
        worker=random.randrange(MAX_WORKERS if trouble is Trouble.JOIN else 3),
        steps=int(random.expovariate(1 / random.choice((10, 60, 200) if moment is Moment.NOW else (5, 20, 60)))),
        lasts=random.expovariate(1 / 0.05) if until_taken else lasts,
        moment=moment if trouble in AFTER_STEPS else Moment.NOW,
        until_taken=until_taken,
    )
