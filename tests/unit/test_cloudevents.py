"""CloudEvents in structured mode: what is taken as a transaction, what is refused, and that no card number passes."""

from typing import Any

import orjson
import pytest

from assay.schemas.decode import Request
from assay.schemas.refused import RefusalCode
from tests.unit.test_decode import body, one, refusal

CONTENT = [("content-type", b"application/cloudevents+json; charset=utf-8")]
CARD = "4111 1111 1111 1111"


def event(**changes: Any) -> bytes:
    whole = {"specversion": "1.0", "id": "e-1", "source": "/checkout", "type": "payment", "data": orjson.loads(body())}
    return orjson.dumps({name: value for name, value in (whole | changes).items() if value is not None})


@pytest.mark.parametrize("data_content_type", [None, "application/json", "Application/JSON; charset=utf-8"])
def test_the_data_of_an_event_is_the_transaction(data_content_type: str | None) -> None:
    asked, plain = one(event(datacontenttype=data_content_type), CONTENT), one(body())
    assert isinstance(asked, Request)
    assert isinstance(plain, Request)
    assert asked.transaction == plain.transaction


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"specversion": "0.3"}, RefusalCode.INVALID, "specversion"),
        ({"datacontenttype": "text/xml"}, RefusalCode.CONTENT_TYPE, "datacontenttype"),
        ({"data": None}, RefusalCode.MISSING, "data"),
        ({"data": "text"}, RefusalCode.MALFORMED, "value"),
    ],
)
def test_an_event_that_holds_no_transaction_is_refused(changes: dict[str, Any], code: RefusalCode, field: str) -> None:
    refused = refusal(event(**changes), CONTENT)
    assert (refused.code, refused.field) == (code, field)


def test_an_event_that_is_no_object_is_refused() -> None:
    assert refusal(b"[1]", CONTENT).code == RefusalCode.MALFORMED


@pytest.mark.parametrize(
    "value",
    [
        event(subject=CARD),
        event(specversion="0.3", subject=CARD).replace(b"4111 1111", b"\\u0034111 1111"),
        event(specversion="0.3", data={"note": CARD}).replace(b"4111 1111", b"\\u0034111 1111"),
        event(data=None, data_base64="NDExMTExMTExMTExMTExMQ=="),
        event(data=orjson.loads(body()) | {"note": CARD}),
    ],
    ids=["attribute", "escaped attribute", "escaped data", "base64", "data"],
)
def test_i7_a_card_number_anywhere_in_an_event_is_refused_as_one(value: bytes) -> None:
    assert refusal(value, CONTENT).code == RefusalCode.CARD_NUMBER


def test_an_event_that_is_nested_without_end_is_refused() -> None:
    deep = b"[" * 30_000 + b"]" * 30_000
    assert refusal(event(extension=1).replace(b'"extension":1', b'"extension":' + deep), CONTENT).code == RefusalCode.MALFORMED


def test_in_binary_mode_the_value_is_the_transaction() -> None:
    headers = [("ce_specversion", b"1.0"), ("ce_type", b"payment"), ("ce_id", b"e-1"), ("content-type", b"application/json")]
    asked, plain = one(body(), headers), one(body())
    assert isinstance(asked, Request)
    assert isinstance(plain, Request)
    assert asked.transaction == plain.transaction
