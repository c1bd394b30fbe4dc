"""Models, engines and prompts."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.engine.llama import Model, has_gpu
from gptoss_local.engine.worker.cache import prefix_cache
from gptoss_local.engine.worker.sampling.mask import MaskCompiler
from gptoss_local.harmony import Vocabulary
from tests.engine.prefix_run import Run
from tests.engine.run import Prompt
from tests.engine.smooth_model import GPU_HEAD_DIM, GPU_TOLERANCE, write_smooth_model

Start = Callable[..., Run]


@pytest.fixture(scope="module")
def model(bare_gguf: Path) -> Iterator[Model]:
    model = Model(bare_gguf)
    yield model
    model.close()


@pytest.fixture(scope="module")
def masks(nano_gguf: Path) -> MaskCompiler:
    return MaskCompiler(nano_gguf)


@pytest.fixture
def prompt(vocabulary: Vocabulary) -> Prompt:
    """Tokens of a user's message, behind which the answer begins, without analysis."""

    def encode(text: str) -> list[int]:
        tagged = f"<|start|>user<|message|>{text}<|end|><|start|>assistant<|channel|>final"
        return vocabulary.encode_tagged(tagged + "<|message|>")

    return encode


@pytest.fixture(scope="session")
def smooth_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = tmp_path_factory.mktemp("smooth") / "smooth.gguf"
    write_smooth_model(path)
    model = Model(path)
    yield model
    model.close()


@pytest.fixture(scope="session")
def wide_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """The smooth model with heads of gpt-oss's size, which small caches rotate."""
    path = tmp_path_factory.mktemp("smooth") / "wide.gguf"
    write_smooth_model(path, GPU_HEAD_DIM)
    model = Model(path)
    yield model
    model.close()


@pytest.fixture
def gpu_model(wide_model: Model) -> Model:
    if not has_gpu():
        pytest.skip("there is no GPU")
    return wide_model


@pytest.fixture
def start(smooth_model: Model, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Makes engines with distances as short as their window."""
    yield from _starts(smooth_model, monkeypatch)


@pytest.fixture
def start_on_gpu(gpu_model: Model, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """As `start`, on a GPU and with its tolerance."""
    yield from _starts(gpu_model, monkeypatch, tolerance=GPU_TOLERANCE)


def _starts(model: Model, monkeypatch: pytest.MonkeyPatch, **settings: float) -> Iterator[Start]:
    monkeypatch.setattr(prefix_cache, "_CHECKPOINT_EVERY", 100)
    monkeypatch.setattr(prefix_cache, "_WORTH_REUSING", 4)
    runs: list[Run] = []

    def make(**sizes: Any) -> Run:
        runs.append(Run(model, monkeypatch, **settings, **sizes))
        return runs[-1]

    yield make
    for run in runs:
        run.close()
