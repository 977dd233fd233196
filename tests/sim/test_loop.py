"""Virtual time, and processes that crash or pause between two steps."""

import asyncio

import pytest

from assay.streams.ending import end_process

from .loop import Life, Stuck, VirtualLoop


class Seen:
    """What happened when."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.what: list[object] = []

    def life(self) -> Life:
        return Life("worker", self.loop, lambda life, why: self.what.append((self.loop.time(), why)))

    async def ticks(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.what.append(self.loop.time())


def test_an_hour_passes_at_once():
    seen = Seen()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(7200), 3600)
        seen.what.append(seen.loop.time())

    seen.loop.run(main())
    assert seen.what == [3600]


def test_a_run_that_can_never_go_on_fails():
    loop = VirtualLoop()

    async def main() -> None:
        await loop.create_future()

    with pytest.raises(Stuck, match="no timer"):
        loop.run(main())


def test_an_error_that_nobody_expected_fails_the_run():
    loop = VirtualLoop()

    async def main() -> None:
        loop.call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    with pytest.raises(ZeroDivisionError):
        loop.run(main())


def test_a_process_that_crashed_takes_no_step():
    seen = Seen()

    async def main() -> None:
        life = seen.life()
        task = seen.loop.create_task(seen.ticks(), context=life.enter())
        await asyncio.sleep(2.5)
        life.crash("killed")
        await asyncio.sleep(5)
        assert not task.done()

    seen.loop.run(main())
    assert seen.what == [1, 2, (2.5, "killed")]


def test_it_crashes_between_two_steps():
    seen = Seen()

    async def main() -> None:
        life = seen.life()
        life.after(3, lambda: life.crash("killed"))
        task = seen.loop.create_task(seen.ticks(), context=life.enter())
        await asyncio.sleep(5)
        assert not task.done()

    seen.loop.run(main())
    assert seen.what == [1, (2.0, "killed")]  # begins, wakes, goes on, and is no more


def test_a_process_that_is_paused_takes_up_later_what_has_gathered():
    seen = Seen()

    async def main() -> None:
        life = seen.life()
        task = seen.loop.create_task(seen.ticks(), context=life.enter())
        await asyncio.sleep(1.5)
        life.pause()
        await asyncio.sleep(10)
        life.resume()
        await asyncio.sleep(1.5)
        assert not task.done()

    seen.loop.run(main())
    assert seen.what == [1, 11.5, 12.5]


def test_a_process_that_ends_itself_ends_alone():
    seen = Seen()

    async def main() -> None:
        life = seen.life()
        seen.loop.call_soon(lambda: end_process("nothing goes"), context=life.enter())
        await asyncio.sleep(1)
        assert not life.alive

    seen.loop.run(main())
    assert seen.what == [(0.0, "ended itself: nothing goes: None")]
