"""docs/schemas/asyncapi.json: what Assay reads and writes, topic by topic (AsyncAPI 3.0). Schemas are those beside it."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final, NamedTuple

from assay.schemas.protobuf import MEDIA_TYPES
from assay.streams.settings import Settings

_PROTOBUF: Final = MEDIA_TYPES[0]


class _Topic(NamedTuple):
    """A topic, by the name of its setting; `messages` are the kinds of value that it holds, by the names of their schemas."""

    setting: str
    action: str
    what: str
    messages: tuple[str, ...]
    protobuf: tuple[str, ...] = ()  # those that may come or go as Protobuf, too


_TOPICS: Final = (
    _Topic("transactions_topic", "receive", "Payments to be scored, keyed by user_id.", ("transaction",), ("transaction",)),
    _Topic("decisions_topic", "send", "One decision for each, keyed by user_id, on its partition.", ("decision",)),
    _Topic("outcomes_topic", "receive", "What became of payments, keyed by user_id.", ("outcome",)),
    _Topic("evidence_topic", "send", "What decisions were made from, keyed by user_id.", ("evidence", "change-evidence")),
)
_HEADERS: Final = {
    "correlation-id": "of the request; comes back as it came, at most 256 bytes",
    "reply-to": "the topic that a reply goes to",
    "reply-partition": "its partition, in digits",
    "assay-timeout-ms": "how long its caller waits, from the append, in digits",
    "traceparent": "W3C trace context",
}


def asyncapi(protos: Mapping[str, str]) -> dict[str, Any]:
    """The document. Topics are named as by default; a deployment's prefix and settings may change them.

    `protos` are the texts of .proto files, by the names of the messages that they hold: a document can't point to such a file.
    """
    channels = {_name(topic): _channel(_name(topic), topic.what, topic.messages, topic.protobuf) for topic in _TOPICS}
    answers = ("decision", "error-reply")
    channels["replies"] = _channel(None, "Answers, to the topic that a request names.", answers, answers)
    operations = {f"{topic.action}-{_name(topic)}": _operation(topic) for topic in _TOPICS}
    operations["receive-transactions"]["reply"] = {
        "channel": {"$ref": "#/channels/replies"},
        "address": {"location": "$message.header#/reply-to", "description": "Only topics of ASSAY_REPLY_TOPICS."},
    }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Assay",
            "version": version("assay"),
            "description": "One explained verdict for every payment, on Kafka.",
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {"messages": _messages(protos)},
    }


def _name(topic: _Topic) -> str:
    return str(Settings.model_fields[topic.setting].default)


def _channel(address: str | None, what: str, messages: tuple[str, ...], protobuf: tuple[str, ...]) -> dict[str, Any]:
    names = (*messages, *(f"{name}-protobuf" for name in protobuf))
    return {
        "address": address,
        "description": what,
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in names},
    }


def _operation(topic: _Topic) -> dict[str, Any]:
    return {"action": topic.action, "channel": {"$ref": f"#/channels/{_name(topic)}"}, "summary": topic.what}


def _messages(protos: Mapping[str, str]) -> dict[str, Any]:
    names = [*(name for topic in _TOPICS for name in topic.messages), "error-reply"]
    messages: dict[str, dict[str, Any]] = {
        name: {"contentType": "application/json", "payload": {"$ref": f"./{name}.schema.json"}} for name in names
    }
    for name, text in protos.items():
        messages[f"{name}-protobuf"] = {
            "contentType": _PROTOBUF,
            "payload": {"schemaFormat": "application/vnd.google.protobuf;version=3", "schema": text},
        }
    for name in ("transaction", "transaction-protobuf"):
        properties = {header: {"type": "string", "description": what} for header, what in _HEADERS.items()}
        messages[name]["headers"] = {"type": "object", "properties": properties}
    return messages
