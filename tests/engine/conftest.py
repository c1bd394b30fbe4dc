"""Fixtures of the tests that compare logits."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gptoss_local.engine import prefix_cache
from gptoss_local.llama import Model
from tests.engine.prefix_run import Run
from tests.engine.smooth_model import write_smooth_model


@pytest.fixture(scope="session")
def smooth_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = tmp_path_factory.mktemp("smooth") / "smooth.gguf"
    write_smooth_model(path)
    model = Model(path)
    yield model
    model.close()


@pytest.fixture
def start(smooth_model: Model, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Run]]:
    """Makes engines, whose distances are as short as their window."""
    monkeypatch.setattr(prefix_cache, "_CHECKPOINT_EVERY", 100)
    monkeypatch.setattr(prefix_cache, "_WORTH_REUSING", 4)
    runs = []

    def make(**sizes: Any) -> Run:
        runs.append(Run(smooth_model, monkeypatch, **sizes))
        return runs[-1]

    yield make
    for run in runs:
        run.close()
