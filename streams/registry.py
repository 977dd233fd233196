"""Our schemas in a schema registry: the ids that framed replies carry.

After Confluent's public API (Schema Registry API Reference, "Subjects"): a schema is looked up under its subject, and
registered where it is not there. Requests need no registry: what a frame holds is told by its bytes (`schemas.confluent`). So
no payment waits for one, and while it does not answer framed replies alone are dropped, and counted.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson

from assay.schemas.answer_format import Schema
from assay.schemas.errors import ServiceError, SettingError
from assay.schemas.limits import MAX_REGISTRY_ANSWER_BYTES, REGISTRY_TIMEOUT_S

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
_SUBJECT_NOT_FOUND, _SCHEMA_NOT_FOUND = 40401, 40403
_HEADERS = {"Content-Type": "application/vnd.schemaregistry.v1+json", "Accept": "application/vnd.schemaregistry.v1+json"}

log = logging.getLogger("assay.registry")


class SchemaRegistry:
    """Keeps asking until each schema has its id; ids never change.

    Args:
        url: where the registry is, a user and a password before the host where it asks for them; none is used where None.
        schemas: by subject.

    Raises SettingError where `url` is none of HTTP.

    Attributes:
        ids: by subject, as far as they are known.
    """

    def __init__(self, url: str | None, schemas: Mapping[str, Schema]) -> None:
        if url is not None and not _is_http(url):  # and never shown: it may hold a password
            raise SettingError(
                "ASSAY_SCHEMA_REGISTRY_URL can't be used",
                expected="http:// or https://, a host, and a user with a password before it where they are needed",
                mend="set it to where the registry is, or unset it: then framed requests get no reply",
            )
        self._url, self._schemas = url, schemas
        self.ids: dict[str, int] = {}
        self._asking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to ask, in the background."""
        if self._url is not None:
            self._asking = asyncio.ensure_future(self._ask(self._url))

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])

    async def _ask(self, url: str) -> None:
        pause_s = FIRST_PAUSE_S
        async with aiohttp.ClientSession(headers=_HEADERS, timeout=aiohttp.ClientTimeout(REGISTRY_TIMEOUT_S)) as session:
            while missing := self._schemas.keys() - self.ids.keys():
                try:
                    for subject in sorted(missing):
                        self.ids[subject] = await _id_of(session, url, subject, self._schemas[subject])
                except (aiohttp.ClientError, TimeoutError, ServiceError, ValueError) as error:
                    log.warning("framed replies can't be sent yet, asking again in %.1f s: %s", pause_s, _told(error))
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        log.info("schemas of replies: %s", self.ids)


def _told(error: Exception) -> str:
    """What went wrong. Who could not read an address shows all of it (`aiohttp.InvalidURL`, a ValueError), passwords too."""
    return type(error).__name__ if isinstance(error, ValueError) else str(error) or repr(error)


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


async def _id_of(session: aiohttp.ClientSession, url: str, subject: str, schema: Schema) -> int:
    """The id of a schema, registered where it was not. Raises ServiceError or aiohttp's ClientError."""
    body = {"schema": schema.text, "schemaType": schema.kind}
    where = f"{url.rstrip('/')}/subjects/{subject}"
    found = await _post(session, where, body)
    if found.get("error_code") in (_SUBJECT_NOT_FOUND, _SCHEMA_NOT_FOUND):
        found = await _post(session, f"{where}/versions", body)
    found_id = found.get("id")
    if type(found_id) is not int or not 0 < found_id < 2**31:  # four bytes in a frame, and an int in Java
        raise ServiceError(
            f"the schema registry has no id for {subject}",
            expected="an id of the schema",
            got=f"{found.get('error_code')}: {found.get('message')}" if found_id is None else repr(found_id)[:40],
            mend="allow Assay to register it there, or register docs/schemas under this subject",
        )
    return found_id


async def _post(session: aiohttp.ClientSession, url: str, body: Mapping[str, str]) -> dict[str, Any]:
    async with session.post(url, data=orjson.dumps(body)) as response:
        answer = b""
        while len(answer) <= MAX_REGISTRY_ANSWER_BYTES and (chunk := await response.content.readany()):
            answer += chunk
    try:
        parsed = orjson.loads(answer[: MAX_REGISTRY_ANSWER_BYTES + 1]) if len(answer) <= MAX_REGISTRY_ANSWER_BYTES else None
    except ValueError:
        parsed = None
    return parsed if isinstance(parsed, dict) else {"error_code": response.status, "message": "no JSON object, or too long"}
