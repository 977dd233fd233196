"""A schema registry for tests: Confluent's HTTP API in memory, after its public reference ("Schema Registry API Reference").

What clients of it use: a schema is looked up or registered under a subject, and read by its id.
"""

import asyncio
import base64
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiohttp import BasicAuth, web
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, SCHEMA_NOT_FOUND = 40401, 40402, 40403


class RegistryDouble:
    """Schemas by id; the same text of one kind has one id under every subject.

    Attributes:
        url: where it listens, once started.
        asked: the requests, as "METHOD /path".
        broken: answer every request so: a status and a body, as long as it is set.
        read_only: registering is refused.
    """

    def __init__(self, password: str | None = None) -> None:
        self.url, self.asked = "", list[str]()
        self.broken: tuple[int, bytes] | None = None
        self.read_only = False
        self._password = password
        self._schemas: dict[int, tuple[str, str]] = {}  # id -> kind, text
        self._subjects: dict[str, list[int]] = {}
        self._runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> None:
        app = web.Application(middlewares=[self._guard])
        app.router.add_post("/subjects/{subject}", self._look_up)
        app.router.add_post("/subjects/{subject}/versions", self._register)
        app.router.add_get("/subjects/{subject}/versions/{version}", self._version)
        app.router.add_get("/schemas/ids/{id}", self._schema)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        assert site._server is not None
        [address] = site._server.sockets  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{address.getsockname()[1]}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def subjects(self) -> set[str]:
        return set(self._subjects)

    def text(self, schema_id: int) -> str:
        return self._schemas[schema_id][1]

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path}")
        if self.broken is not None:
            status, body = self.broken
            return web.Response(status=status, body=body)
        if self._password is not None:
            given = request.headers.get("Authorization")
            if given is None or BasicAuth.decode(given).password != self._password:
                return _error(401, 40101, "Unauthorized")
        answered: web.StreamResponse = await handler(request)
        return answered

    async def _look_up(self, request: web.Request) -> web.Response:
        subject, kind, text = await _asked(request)
        if subject not in self._subjects:
            return _error(404, SUBJECT_NOT_FOUND, "Subject not found")
        for version, schema_id in enumerate(self._subjects[subject], 1):
            if self._schemas[schema_id] == (kind, text):
                return web.json_response(self._described(subject, version, schema_id))
        return _error(404, SCHEMA_NOT_FOUND, "Schema not found")

    async def _register(self, request: web.Request) -> web.Response:
        subject, kind, text = await _asked(request)
        if self.read_only:
            return _error(403, 40301, "Not allowed")
        schema_id = next((known for known, schema in self._schemas.items() if schema == (kind, text)), len(self._schemas) + 1)
        self._schemas[schema_id] = (kind, text)
        versions = self._subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return web.json_response({"id": schema_id})

    async def _version(self, request: web.Request) -> web.Response:
        subject = request.match_info["subject"]
        versions = self._subjects.get(subject)
        if versions is None:
            return _error(404, SUBJECT_NOT_FOUND, "Subject not found")
        wanted = request.match_info["version"]
        version = len(versions) if wanted == "latest" else int(wanted)
        if not 0 < version <= len(versions):
            return _error(404, VERSION_NOT_FOUND, "Version not found")
        return web.json_response(self._described(subject, version, versions[version - 1]))

    async def _schema(self, request: web.Request) -> web.Response:
        found = self._schemas.get(int(request.match_info["id"]))
        if found is None:
            return _error(404, SCHEMA_NOT_FOUND, "Schema not found")
        kind, text = found
        if request.query.get("format") == "serialized" and text.lstrip().startswith(("//", "syntax")):
            text = await asyncio.to_thread(_serialized, text)
        return web.json_response({"schema": text, **_kind(kind)})

    def _described(self, subject: str, version: int, schema_id: int) -> Mapping[str, Any]:
        kind, text = self._schemas[schema_id]
        return {"subject": subject, "version": version, "id": schema_id, "schema": text, **_kind(kind)}


def _serialized(text: str) -> str:
    """A .proto file as its descriptor, in base64: what librdkafka's clients ask for."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "schema.proto", Path(folder) / "descriptor"
        path.write_text(text)
        assert protoc.main(["protoc", f"-I{folder}", f"--descriptor_set_out={out}", str(path)]) == 0
        return base64.b64encode(FileDescriptorSet.FromString(out.read_bytes()).file[0].SerializeToString()).decode()


def _kind(kind: str) -> dict[str, str]:
    return {} if kind == "AVRO" else {"schemaType": kind}  # Avro is what goes without saying


async def _asked(request: web.Request) -> tuple[str, str, str]:
    body = await request.json()
    return request.match_info["subject"], body.get("schemaType", "AVRO"), body["schema"]


def _error(status: int, code: int, message: str) -> web.Response:
    return web.json_response({"error_code": code, "message": message}, status=status)
