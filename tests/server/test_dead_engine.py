"""An engine dies while a client holds its answer and reads no further."""

import asyncio
import os
import signal
from pathlib import Path

from gptoss_local.server.manager import ModelManager
from gptoss_local.settings import Settings


async def test_nobody_waits_for_who_holds_a_dead_engine(nano_home: Path) -> None:
    """Neither if it is dead already nor if it dies while they wait: the next one has another."""
    manager = ModelManager(Settings(home=nano_home))
    try:
        async with manager.use("nano") as first:
            waiting = asyncio.create_task(manager.unload("nano"))
            await asyncio.sleep(0.05)
            os.kill(first.engine.pid, signal.SIGKILL)
            await asyncio.wait_for(waiting, 10)
            async with manager.use("nano") as second:
                os.kill(second.engine.pid, signal.SIGKILL)
                while second.engine.is_alive:
                    await asyncio.sleep(0.01)
                async with asyncio.timeout(60), manager.use("nano") as third:
                    assert third.engine.is_alive
                    assert manager.loaded == [third]
            assert manager.loaded == [third]
        assert manager.loaded == [third]
    finally:
        await manager.close()
