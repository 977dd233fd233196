"""A Redis process of a test's own."""

import asyncio
import os
import subprocess
from pathlib import Path

from redis.asyncio import Redis

from assay.deploy.ports import free_port
from assay.deploy.redis_local import command, find_server

READY_TIMEOUT_S = 30.0


class OwnRedis:
    """A Redis process that one test may stop, stall and start again."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        line = [*command(find_server(), self._folder, self.port, keep=False), *options]
        self._process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
        asyncio.run(self._ready())

    async def _ready(self) -> None:
        async with asyncio.timeout(READY_TIMEOUT_S):
            while True:
                client = Redis.from_url(self.url)
                try:
                    await client.ping()
                except Exception as error:
                    if "auth" in str(error).lower():
                        return
                    await asyncio.sleep(0.02)
                else:
                    return
                finally:
                    await client.aclose()

    def signal(self, number: int) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
