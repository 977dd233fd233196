"""TLS in front of a port, since the Redis of the wheel knows none."""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator

from assay.deploy.ports import free_port


@contextlib.contextmanager
def tls_front(context: ssl.SSLContext, behind: int) -> Iterator[int]:
    """A port of this machine whose connections are TLS, and go on in the clear to the port `behind`."""
    port, loop, ready = free_port(), asyncio.new_event_loop(), threading.Event()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(64 * 1024):
                writer.write(chunk)
                await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", behind)
        await asyncio.gather(pass_on(reader, inner_writer), pass_on(inner_reader, writer))

    async def serve(stop: asyncio.Event) -> None:
        server = await asyncio.start_server(connected, "127.0.0.1", port, ssl=context)
        ready.set()
        await stop.wait()
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    stop = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(stop),))
    thread.start()
    try:
        assert ready.wait(10)
        yield port
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
