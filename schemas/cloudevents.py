"""CloudEvents in structured mode: the transaction is the `data` of the event (CloudEvents 1.0, JSON event format, 3).

In binary mode the record's value is the data itself and nothing here is needed.
"""

import base64
from typing import Final

from assay.schemas.card_number import holds_card_number, path_of_card_number, texts
from assay.schemas.refused import RefusalCode, Refused

STRUCTURED: Final = "application/cloudevents+json"
_TOKEN: Final = "a token: card numbers are never taken, logged or kept"


def data_of(event: object) -> object:
    """The data of an event that was read from JSON.

    Raises Refused where the event is not one of version 1.0 with JSON data, and where an attribute holds a card number. The
    data of a good event is left to be searched as any body is, with the fields that are exempt.
    """
    problem = _problem(event)
    if isinstance(event, dict) and problem is None:
        searched: object = {name: value for name, value in event.items() if name != "data"}
    else:
        searched = event  # a dead letter would keep all of it
    if path_of_card_number(texts(searched)) is not None or _hides_card_number(event):
        raise Refused(RefusalCode.CARD_NUMBER, "value", _TOKEN)
    if problem is not None:
        raise problem
    assert isinstance(event, dict)
    return event["data"]


def _problem(event: object) -> Refused | None:
    if not isinstance(event, dict):
        return Refused(RefusalCode.MALFORMED, "value", "a CloudEvent: a JSON object")
    if event.get("specversion") != "1.0":
        return Refused(RefusalCode.INVALID, "specversion", '"1.0"')
    if not _is_json(event.get("datacontenttype")):
        return Refused(RefusalCode.CONTENT_TYPE, "datacontenttype", "application/json, or none")
    if "data" not in event:
        return Refused(RefusalCode.MISSING, "data", "a transaction, as a JSON object")
    return None


def _is_json(media_type: object) -> bool:
    if media_type is None:
        return True
    return isinstance(media_type, str) and media_type.split(";", 1)[0].strip().lower() == "application/json"


def _hides_card_number(event: object) -> bool:
    encoded = event.get("data_base64") if isinstance(event, dict) else None
    if not isinstance(encoded, str):
        return False
    try:
        return holds_card_number(base64.b64decode(encoded))
    except ValueError:
        return False
