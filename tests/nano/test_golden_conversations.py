"""nano gives the answers of the day it was made: prompts and greedy answers, token for token."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.engine.llama import Model
from tests.engine.run import Run, running
from tests.nano.golden import CONVERSATIONS


@pytest.fixture(scope="module")
def run(nano_gguf: Path) -> Iterator[Run]:
    with running(Model(nano_gguf), n_seq=1) as run:
        yield run


@pytest.mark.parametrize("golden", CONVERSATIONS, ids=lambda golden: golden["name"])
def test_greedy_answer(run: Run, golden: dict[str, Any]) -> None:
    """Fails where the weights, the conversion or the engine's arithmetic have changed."""
    run.add(0, golden["prompt"], max_tokens=400)
    assert run.finish().pop(0) == golden["answer"]
    run.ends.clear()
