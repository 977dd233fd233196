"""What a row of an entity holds, and the layouts that the Redis function shares with us.

A row in Redis is what had become of its observations when it was last compacted (the base, made by `entity_rows`), and those
that came since (the tail, appended by `entity_windows.lua`); little-endian:

    prefix   8 bytes: how many bytes the base has u4, 0 where there is none yet; four spare bytes
    base     as below
    tail     24 bytes for each observation: `TAIL`

The base:

    header   120 bytes: sequence f8, clock f8 (ms), then the newest tile of each ring, then how many users, instruments and
             devices (u2 each), and two spare bytes. In place of its spare bytes a tile here says how many older ones follow.
    tiles    24 bytes each: number u4, attempts u4, small ones u4, four spare bytes, spending f8 (thousandths of the base
             currency's major unit). The older ones of each ring, oldest first, none empty.
    crowds   users, instruments, devices: the 10-second tile in which each was last seen (u4), for all three; then the byte
             that tells each from the others, for all three. Zeros up to a multiple of 8 bytes.

A *ring* has the tiles of one size that windows need: 10 seconds (1 and 10 minutes), 5 minutes (1 hour), 1 hour (24 hours)
and 1 day (7 and 30 days, and those that lie back by the label delay). A row's clock is the latest event time of the entity so
far and never moves back; the newest tile of each ring is the clock's. A late observation lands in the tiles of its own time.

Users, instruments and devices are told apart by 8 bits of their digests; those not seen for 30 days give way to newcomers.
All that a row holds are whole numbers (amounts are rounded to thousandths first): sums are exact.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from assay.schemas.transaction import Kind
from assay.tables.compiled import compiled
from assay.tables.events import Events
from assay.tables.features import DAY, ENTITIES, HOUR, LABEL_DELAY_S, MINUTE, MONTH

LAYOUT_VERSION = 3  # goes into every key: rows of another layout are never read
KEY_LETTERS = b"ibmda"  # of ENTITIES
ABSENT = -1.0  # what the features of an entity say that the transaction doesn't have

SMALL_AMOUNT = 2.0  # base currency, major units: a spending or a verification of at most this may test a card
AMOUNT_SCALE = 1000.0
MAX_THOUSANDTHS = 1e15

TILE_S = (10, 5 * MINUTE, HOUR, DAY)  # of each ring
REACH_S = (10 * MINUTE, HOUR, DAY, MONTH + LABEL_DELAY_S)  # how far back its windows begin
FINE_MS = TILE_S[0] * 1000
FINE_IN = tuple(size // TILE_S[0] for size in TILE_S)  # finest tiles in one of each ring
BACK = tuple(reach // size for reach, size in zip(REACH_S, TILE_S, strict=True))  # tiles behind the newest that are kept
CROWDS = ("users", "instruments", "devices")
CROWD_BACK = MONTH // TILE_S[0]  # finest tiles
PEOPLE = 2**8  # told apart in a crowd: by a byte
MANY_PEOPLE = 8  # from here on, one long gone gives up the place to the next newcomer

KEPT_S = REACH_S[-1] + DAY  # a row can be seen for so long after its clock

MIN_TIME_MS = KEPT_S * 1000  # no tile that a window reaches back to has a negative number
MAX_TIME_MS = (2**32 - 1) * FINE_MS  # a tile's number has four bytes
SPENDING = tuple(list(Kind).index(kind) for kind in (Kind.PURCHASE, Kind.PREAUTH, Kind.RECURRING))
VERIFICATION = list(Kind).index(Kind.VERIFICATION)

_SPENDS = np.isin(np.arange(256), SPENDING)  # by kind
_MAY_TEST = np.isin(np.arange(256), (*SPENDING, VERIFICATION))

PAYLOAD_HEADER = np.dtype([("records", "<u4"), ("partitions", "<u4"), ("expire_s", "<u4"), ("quiet", "<u4")])
QUIET = 12  # where that flag lies: 1 asks for no answer
TAIL = np.dtype(
    [
        ("time_ms", "<f8"),
        ("thousandths", "<f8"),
        ("small", "u1"),
        ("people", "u1", (len(CROWDS),)),
        ("met", "u1", (len(CROWDS),)),  # 0: the transaction has none
        ("unused", "u1"),
    ]
)
# The offset is exact up to 2**53; partition: which of the payload's, from 1.
RECORD = np.dtype([("tail", TAIL), ("offset", "<f8"), ("partition", "<u2"), ("unused", "u1", (6,))])
COMPACTED_FROM = 8  # observations in a tail: to fold fewer again costs less than a new base
MAX_RECORDS = 2**16 // len(ENTITIES) - 1  # of one call: the index of an entity has 16 bits

# Of itself an entity has no crowd: an instrument counts no instruments, a device no devices.
CROWDS_OF = np.array([[crowd != f"{entity}s" for crowd in CROWDS] for entity in ENTITIES])


class Kept(NamedTuple):
    """What a row keeps, for compiled code, which may take no constants from another file: its cache doesn't know that file.

    fine_in, back: int64 (rings,), finest tiles in a tile and tiles behind the newest. crowds: bool (kinds, crowds).
    """

    fine_in: npt.NDArray[np.int64]
    back: npt.NDArray[np.int64]
    crowds: npt.NDArray[np.bool_]
    fine_ms: int
    crowd_back: int
    many_people: int
    people: int
    amount_scale: float


KEPT = Kept(np.array(FINE_IN), np.array(BACK), CROWDS_OF, FINE_MS, CROWD_BACK, MANY_PEOPLE, PEOPLE, AMOUNT_SCALE)


class Observations(NamedTuple):
    """What entities are to learn from transactions, as columns of n.

    digests uint64 (n, 5), 0 where absent; time_ms int64; thousandths float64, whole; small uint8 (0 or 1);
    people uint8 (n, 3): user, instrument and device; met bool (n, 3): whether the transaction has one.
    """

    digests: npt.NDArray[np.uint64]
    time_ms: npt.NDArray[np.int64]
    thousandths: npt.NDArray[np.float64]
    small: npt.NDArray[np.uint8]
    people: npt.NDArray[np.uint8]
    met: npt.NDArray[np.bool_]

    def of(self, rows: npt.NDArray[np.int64] | slice) -> "Observations":
        """Some of them, in that order."""
        people, met = self.people[rows], self.met[rows]
        return Observations(self.digests[rows], self.time_ms[rows], self.thousandths[rows], self.small[rows], people, met)

    def only(self, slot: int) -> "Observations":
        """As if transactions had one kind of entity only."""
        digests = np.zeros_like(self.digests)
        digests[:, slot] = self.digests[:, slot]
        return self._replace(digests=digests)


def observations(events: Events) -> Observations:
    """The columns that windows are made from; what isn't spending or has no rate counts with a sum of 0."""
    digests = np.empty((len(events), len(ENTITIES)), np.uint64)
    for slot, name in enumerate(ENTITIES):
        digests[:, slot] = events[name]
    whom = np.stack([events["user"], events["instrument"], events["device"]], axis=1)
    time_ms = np.minimum(np.maximum(events["time_ms"], MIN_TIME_MS), MAX_TIME_MS)
    amounts, kinds = events["amount"], events["kind"]
    thousandths = np.minimum(np.maximum(np.floor(amounts * AMOUNT_SCALE + 0.5), 0.0), MAX_THOUSANDTHS)
    spent = np.where(_SPENDS[kinds] & ~np.isnan(thousandths), thousandths, 0.0)
    small = (_MAY_TEST[kinds] & (amounts <= SMALL_AMOUNT)).astype(np.uint8)
    people = (whom >> np.uint64(56)).astype(np.uint8)
    met = whom != 0
    met[:, 0] = True  # whoever pays
    return Observations(digests, time_ms, spent, small, people, met)


@compiled
def number_entities(digests: Any) -> Any:
    """Number the distinct entities, digests uint64 (n, k), in order of appearance.

    Returns (kind of each uint8 (m,), digest of each uint64 (m,), index int32 (n, k), -1 where absent).
    """
    n, k = digests.shape
    size = 16
    while size < 2 * n * k:
        size *= 2
    table = np.full(size, -1, np.int32)
    mask = np.uint64(size - 1)
    kinds, keys = np.empty(n * k, np.uint8), np.empty(n * k, np.uint64)
    index = np.full((n, k), -1, np.int32)
    found = 0
    for kind in range(k):  # kind by kind, so that rows of one kind lie together
        for i in range(n):
            digest = digests[i, kind]
            if digest == 0:
                continue
            place = (digest ^ (digest >> np.uint64(32)) ^ np.uint64(kind)) & mask
            while table[place] != -1 and (keys[table[place]] != digest or kinds[table[place]] != kind):
                place = (place + np.uint64(1)) & mask
            if table[place] == -1:
                table[place], kinds[found], keys[found] = found, kind, digest
                found += 1
            index[i, kind] = table[place]
    return kinds[:found], keys[:found], index


@compiled
def by_entity(index: Any, observed: Any) -> Any:
    """Which records observed each entity, from 1: entity after entity, uint16.

    index (m, 5): which entities each record has, from 1 on, 0 for none. observed (entities,): how often each comes in it.
    """
    ends = np.cumsum(observed)
    places = ends - observed
    rows = np.empty(ends[-1], np.uint16)
    for record in range(index.shape[0]):
        for slot in range(index.shape[1]):
            entity = index[record, slot]
            if entity != 0:
                rows[places[entity - 1]] = record + 1
                places[entity - 1] += 1
    return rows
