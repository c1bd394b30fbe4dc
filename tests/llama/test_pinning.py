"""Tensors of a mapped file, locked for a GPU: the right bytes, or none.

The driver's part is played by functions that note their arguments; on a GPU see
`test_pinned_on_a_gpu`.
"""

import ctypes
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.base.formats.gguf_file import read_info
from gptoss_local.base.types import ModelParams
from gptoss_local.engine.llama import Model, has_gpu
from gptoss_local.engine.llama import model as pinning
from tests.engine.run import make_context

EXPERTS = (r"^blk\.[0-3]\.ffn_(up|down|gate)_exps", "CPU")
PROMPT = [200006, 1428, 200008, 13225]


class Driver:
    """Takes all it is asked to lock, or `n_max` parts of it."""

    def __init__(self, n_max: int = 1000) -> None:
        self.locked: dict[int, int] = {}
        self.n_max = n_max

    def function(self, name: str, *_: Any) -> Callable[..., Any]:
        return self.register if name.endswith("_register_host_buffer") else self.unregister

    def register(self, address: int, n_bytes: int) -> bool:
        if len(self.locked) == self.n_max:
            return False
        self.locked[address] = n_bytes
        return True

    def unregister(self, address: int) -> None:
        del self.locked[address]

    def holds(self, file: Path, span: tuple[int, int]) -> bool:
        """Return whether the bytes of a span of a file are locked."""
        with file.open("rb") as source:
            source.seek(span[0])
            wanted = source.read(span[1] - span[0])
        return any(wanted in ctypes.string_at(at, n) for at, n in self.locked.items())


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setattr(pinning, "gpu_function", driver.function)
    return driver


@pytest.fixture
def file(bare_gguf: Path, tmp_path: Path) -> Path:
    """Nano by a name that no other test has mapped."""
    os.link(bare_gguf, tmp_path / "nano.gguf")
    return tmp_path / "nano.gguf"


def test_the_requested_tensors_are_locked(file: Path, driver: Driver) -> None:
    model = Model(file, ModelParams(load_mode="mmap", repack=False))
    spans = read_info(file).tensor_spans
    wanted = {name for name in spans if "_exps" in name and name.startswith(("blk.1.", "blk.6."))}
    addresses = pinning.pin(file, wanted.__contains__)
    assert len(addresses) == len(driver.locked) == 2  # layers, with the small tensors between
    assert all(driver.holds(file, spans[name]) for name in wanted)
    n_wanted = sum(spans[name][1] - spans[name][0] for name in wanted)
    assert n_wanted <= sum(driver.locked.values()) < 1.5 * n_wanted
    assert all(n % mmap.PAGESIZE == 0 for pair in driver.locked.items() for n in pair)
    pinning.unpin(addresses)
    assert driver.locked == {}
    model.close()


def test_all_or_nothing(file: Path, driver: Driver) -> None:
    assert pinning.pin(file, lambda name: "_exps" in name) == []  # it is not mapped
    model = Model(file, ModelParams(load_mode="mmap", repack=False))
    driver.n_max = 1
    assert pinning.pin(file, lambda name: "_exps" in name and name[4] in "16") == []
    assert driver.locked == {}
    model.close()


def test_any_name(bare_gguf: Path, tmp_path: Path, driver: Driver) -> None:
    """A link with a space and a byte that is no UTF-8."""
    named = tmp_path / os.fsdecode(b"a \xff name.gguf")
    os.link(bare_gguf, named)
    link = tmp_path / "link.gguf"
    link.symlink_to(named)
    model = Model(link, ModelParams(load_mode="mmap", repack=False))
    assert len(pinning.pin(link, lambda name: name.startswith("blk.2."))) == 1
    model.close()


@pytest.mark.parametrize("n_max", [1000, 0], ids=["locked", "refused"])
def test_a_model_loads_either_way(file: Path, driver: Driver, n_max: int) -> None:
    driver.n_max = n_max
    params = ModelParams(tensor_overrides=(EXPERTS,), load_mode="pinned", repack=False)
    model = Model(file, params)
    places = {buffer.place for buffer in model.buffers}
    assert ("CPU_Mapped" in places) == bool(n_max)  # or else read into buffers of its own
    spans = read_info(file).tensor_spans
    on_host = [spans[f"blk.{i}.ffn_down_exps.weight"] for i in (0, 3)]
    assert all(driver.holds(file, span) for span in on_host) == bool(n_max)
    plain = Model(file, ModelParams())
    assert logits(model) == pytest.approx(logits(plain))
    model.close()
    plain.close()
    assert driver.locked == {}


def test_layers_without_a_place_on_the_gpu_are_locked_too(file: Path, driver: Driver) -> None:
    """Of 8 layers and the head, 4 are on the GPU: the last three layers and the head."""
    model = Model(file, ModelParams(n_gpu_layers=4, load_mode="pinned", repack=False))
    spans = read_info(file).tensor_spans
    held = [driver.holds(file, spans[f"blk.{i}.attn_q.weight"]) for i in range(8)]
    assert held == [True] * 5 + [False] * 3
    model.close()


def logits(model: Model) -> list[float]:
    context = make_context(model, n_ctx=256)
    context.decode(PROMPT, position=0)
    return [float(each) for each in context.logits(-1)[:1000]]


@pytest.mark.gpu
def test_pinned_on_a_gpu(bare_gguf: Path) -> None:
    if not has_gpu():
        pytest.skip("llama.cpp has no GPU")
    pinned = Model(bare_gguf, ModelParams(tensor_overrides=(EXPERTS,), load_mode="pinned"))
    assert {"CPU_Mapped", "CUDA0"} <= {buffer.place for buffer in pinned.buffers}
    read = Model(bare_gguf, ModelParams(tensor_overrides=(EXPERTS,), load_mode="none"))
    assert logits(pinned) == pytest.approx(logits(read))
    pinned.close()
    read.close()
