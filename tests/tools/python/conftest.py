"""Sources of the tool `python` that are closed when a test ends, and their processes."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from gptoss_local.base.settings import Settings
from gptoss_local.talk.tools.python import Python

MakePython = Callable[..., Python]


_others: set[psutil.Process] = set()


@pytest.fixture(autouse=True)
def others() -> None:
    """Remember the processes of other tests, such as servers that are shared."""
    _others.clear()
    _others.update(psutil.Process().children(recursive=True))


def children() -> list[psutil.Process]:
    """Return the processes that the test has started."""
    return [each for each in psutil.Process().children(recursive=True) if each not in _others]


@pytest_asyncio.fixture
async def make_python(tmp_path: Path) -> AsyncIterator[MakePython]:
    """Make a source with these settings."""
    made: list[Python] = []

    def make(idle_s: float = 600, **settings: object) -> Python:
        made.append(Python(Settings(**settings), tmp_path, idle_s=idle_s))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        await each.close()
