"""CloudEvents in structured mode: the transaction is the `data` of the event (CloudEvents 1.0, JSON event format, 3).

In binary mode the record's value is the data itself and nothing here is needed.
"""

import base64
from typing import Final

from assay.schemas.card_number import holds_card_number, path_of_card_number, texts
from assay.schemas.protobuf import MEDIA_TYPES as PROTOBUF_TYPES
from assay.schemas.refused import TOKEN_EXPECTED, RefusalCode, Refused

STRUCTURED: Final = "application/cloudevents+json"


def data_of(event: object) -> object:
    """The data of an event that was read from JSON; as bytes where it is Protobuf.

    Raises Refused where the event is not one of version 1.0 with such data, and where an attribute holds a card number. The
    data of a good event is left to be searched as any body is, with the fields that are exempt.
    """
    problem = _problem(event)
    if isinstance(event, dict) and problem is None:
        searched: object = {name: value for name, value in event.items() if name != "data"}
    else:
        searched = event  # a dead letter would keep all of it
    if path_of_card_number(texts(searched)) is not None or _hides_card_number(event):
        raise Refused(RefusalCode.CARD_NUMBER, "value", TOKEN_EXPECTED)
    if problem is not None:
        raise problem
    assert isinstance(event, dict)
    return _decoded(event) if _media_type(event) in PROTOBUF_TYPES else event["data"]


def _problem(event: object) -> Refused | None:
    if not isinstance(event, dict):
        return Refused(RefusalCode.MALFORMED, "value", "a CloudEvent: a JSON object")
    if event.get("specversion") != "1.0":
        return Refused(RefusalCode.INVALID, "specversion", '"1.0"')
    media_type = _media_type(event)
    if media_type in PROTOBUF_TYPES:
        if _decoded(event) is None:
            return Refused(RefusalCode.MISSING, "data_base64", "a transaction in Protobuf, in base64")
    elif media_type != "application/json":
        return Refused(RefusalCode.CONTENT_TYPE, "datacontenttype", f"application/json, none, or {PROTOBUF_TYPES[0]}")
    elif "data" not in event:
        return Refused(RefusalCode.MISSING, "data", "a transaction, as a JSON object")
    return None


def _media_type(event: dict[str, object]) -> str:
    """Of the data: JSON where nothing is said (JSON event format, 3.1)."""
    written = event.get("datacontenttype")
    if written is None:
        return "application/json"
    return written.split(";", 1)[0].strip().lower() if isinstance(written, str) else ""


def _decoded(event: object) -> bytes | None:
    encoded = event.get("data_base64") if isinstance(event, dict) else None
    if not isinstance(encoded, str):
        return None
    try:
        return base64.b64decode(encoded)
    except ValueError:
        return None


def _hides_card_number(event: object) -> bool:
    return holds_card_number(_decoded(event) or b"")
