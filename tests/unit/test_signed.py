"""Whose transactions are taken: by setting, by signature, and never otherwise than a former owner decided."""

import json
from types import SimpleNamespace

import pytest
from aiokafka.structs import ConsumerRecord

from assay.agents.said import SaidBefore
from assay.agents.signed import Signed
from assay.schemas.decode import Decoded, decode
from assay.schemas.refused import RefusalCode
from assay.schemas.signature import SIGNATURE_HEADER, SigningKey, read_keys
from assay.streams.read_back import ReadBack, Said

NOW, TOPIC = 1_772_362_800_000, "transactions"
KEY = SigningKey.make(kid="shop", topic=TOPIC)
VALUE = json.dumps(
    {"transaction_id": "t-1", "user_id": "u-1", "amount": "1", "currency": "EUR", "timestamp": NOW, "merchant": {"id": "m"}}
).encode()
GOOD, REPLY = KEY.header(VALUE), ("reply-to", b"shop.reply")
BAD = (SIGNATURE_HEADER, KEY.header(VALUE + b" ")[1])


def record(*headers: tuple[str, bytes | None], value: bytes = VALUE) -> ConsumerRecord:
    return ConsumerRecord(TOPIC, 0, 7, NOW, 1, b"u-1", value, None, 3, len(value), headers)


def signed(*, required: bool = True, keys: bytes = KEY.key_set(), said: SaidBefore | None = None) -> Signed:
    return Signed(SimpleNamespace(keys=read_keys(keys)), TOPIC, required=required, said=said or SaidBefore())


def fate(decoded: Decoded) -> str:
    return "taken" if decoded.requests else str(decoded.refusals[0].code)


@pytest.mark.parametrize(
    ("headers", "required", "present"),
    [
        ([], "unsigned", "taken"),
        ([(SIGNATURE_HEADER, None)], "unsigned", "taken"),
        ([GOOD], "taken", "taken"),
        ([BAD], "signature", "signature"),
        ([(SIGNATURE_HEADER, b"")], "signature", "signature"),
        ([BAD, GOOD], "taken", "taken"),  # the last value of a name wins
        ([GOOD, BAD], "signature", "signature"),
        ([BAD, (SIGNATURE_HEADER, None)], "signature", "signature"),  # a null hides nothing
        ([GOOD, (SIGNATURE_HEADER, None)], "taken", "taken"),
    ],
)
def test_the_setting_says_whose_signature_is_verified(headers: list, required: str, present: str) -> None:
    assert fate(decode([record(*headers)], signed=signed())) == required
    assert fate(decode([record(*headers)], signed=signed(required=False))) == present
    assert fate(decode([record(*headers)])) == "taken"


def test_a_refusal_names_the_header_and_keeps_where_to_reply() -> None:
    [refusal] = decode([record(REPLY, BAD)], signed=signed()).refusals
    assert (refusal.code, refusal.field, refusal.transaction_id) == (RefusalCode.SIGNATURE, SIGNATURE_HEADER, "t-1")
    assert refusal.address is not None


def test_what_is_no_transaction_is_refused_for_that() -> None:
    assert fate(decode([record(value=b"{}")], signed=signed())) == "missing"


@pytest.mark.parametrize("header", [[GOOD], []])
def test_i1_what_a_former_owner_decided_on_is_taken_after_its_key_has_gone(header: list) -> None:
    said = SaidBefore()
    said.begin({0: ReadBack({7: Said(b"{}")}, set())})
    gone = signed(keys=b'{"keys": []}', said=said)
    assert fate(decode([record(*header)], signed=gone)) == "taken"
    assert said.decision(decode([record()]).requests[0].source) is not None  # still to be repeated
    assert fate(decode([record(*header)], signed=gone)) == ("signature" if header else "unsigned")


def test_i1_what_a_former_owner_refused_stays_refused_after_its_key_has_come() -> None:
    said = SaidBefore()
    said.begin({0: ReadBack({}, {7})})
    assert said.without_refused(decode([record(GOOD)], signed=signed(said=said))).requests == []
