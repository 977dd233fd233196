"""The worker's own port: /metrics, /livez, /readyz, and nothing else.

It runs in the worker's event loop on purpose: a loop that is stuck can't answer, which is what a liveness probe asks.
"""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from assay.schemas.errors import ServiceError

Check = Callable[[], str]  # what is wrong; empty if all is well


class HttpPort:
    """Serves metrics and health.

    Args:
        live, ready: say what is wrong, or nothing.
        refresh: called before metrics are collected.
    """

    def __init__(
        self, host: str, port: int, registry: CollectorRegistry, *, live: Check, ready: Check, refresh: Callable[[], None]
    ) -> None:
        self._host, self._port, self._registry = host, port, registry
        self._checks = {"/livez": live, "/readyz": ready}
        self._refresh = refresh
        self._runner: web.AppRunner | None = None

    async def start(self) -> int:
        """Listen; returns the port. Raises ServiceError when it is taken."""
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        for path in self._checks:
            app.router.add_get(path, self._health)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        try:
            await site.start()
        except OSError as error:
            await self.close()
            raise ServiceError(
                f"port {self._port} on {self._host} can't be listened on: {error.strerror}",
                expected="a free port for /metrics, /livez and /readyz",
                mend="set ASSAY_HTTP_PORT to a free one, or to 0 for any",
            ) from error
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        """In the format that is asked for: exemplars are in OpenMetrics alone."""
        self._refresh()
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})

    async def _health(self, request: web.Request) -> web.Response:
        problem = self._checks[request.path]()
        return web.Response(text=(problem or "ok") + "\n", status=503 if problem else 200)
