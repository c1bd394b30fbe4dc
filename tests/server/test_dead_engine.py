"""A client holds its answer and reads no further, and the engine is done with it, or dies."""

import asyncio
import os
import signal
from pathlib import Path

from gptoss_local.engine.protocol import Finished
from gptoss_local.models.store import find_model
from gptoss_local.runner.manager import ModelManager
from gptoss_local.settings import Settings
from tests.engine.run import GREEDY


async def test_nobody_waits_for_who_holds_a_dead_engine(nano_home: Path) -> None:
    """Neither if it is dead already nor if it dies while they wait: the next one has another."""
    settings = Settings(home=nano_home)
    manager, nano = ModelManager(settings), find_model("nano", settings)
    try:
        async with manager.use(nano) as first:
            waiting = asyncio.create_task(manager.unload(nano))
            await asyncio.sleep(0.05)
            os.kill(first.engine.pid, signal.SIGKILL)
            await asyncio.wait_for(waiting, 10)
            async with manager.use(nano) as second:
                os.kill(second.engine.pid, signal.SIGKILL)
                while second.engine.is_alive:
                    await asyncio.sleep(0.01)
                async with asyncio.timeout(60), manager.use(nano) as third:
                    assert third.engine.is_alive
                    assert manager.loaded == [third]
            assert manager.loaded == [third]
        assert manager.loaded == [third]
    finally:
        await manager.close()


async def test_nobody_waits_for_who_does_not_read_what_is_complete(nano_home: Path) -> None:
    """The model goes, and its client may still read to the end."""
    settings = Settings(home=nano_home)
    manager, nano = ModelManager(settings), find_model("nano", settings)
    try:
        async with manager.use(nano) as model:
            answer = model.engine.generate([1, 2, 3], GREEDY, stop_tokens=[], max_tokens=20)
            await anext(answer)
            assert not model.engine.unread
            async with asyncio.timeout(10):
                while not model.engine.unread:
                    await asyncio.sleep(0.01)
            await asyncio.wait_for(manager.unload(nano), 10)
            assert manager.loaded == []
            *_, last = [event async for event in answer]
            assert isinstance(last, Finished)
            assert last.usage.n_generated == 20
            assert not model.engine.unread
    finally:
        await manager.close()
