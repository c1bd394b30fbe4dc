"""A device that begins to compute something else is noticed while nobody asks."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptoss_local.base.errors import ComputeError
from gptoss_local.base.types import ContextParams, SamplingParams
from gptoss_local.engine.llama import Context, Model, chains
from gptoss_local.engine.protocol import Finished, Generate
from gptoss_local.engine.worker.engine import Engine
from tests.engine.smooth_model import write_smooth_model

KINDS = [
    SamplingParams(temperature=0),
    SamplingParams(seed=1),
    SamplingParams(temperature=0.7, top_k=40, top_p=0.9, seed=2),
    SamplingParams(temperature=2, min_p=0.05, seed=3),
]


def make_engine(model: Model, *, on_device: bool = True, n_ctx: int = 1024) -> Engine:
    params = ContextParams(
        n_ctx=n_ctx, n_threads_prefill=1, n_threads_decode=1, n_batch=256, n_seq_max=8,
        n_outputs_max=23, n_outputs_max_per_seq=16,
    )  # fmt: skip
    return Engine(Context(model, params), backend_sampling=on_device, prompt_step_s=1.0)


def ask(engine: Engine, kinds: list[SamplingParams], n_prompt: int = 30) -> None:
    for i, kind in enumerate(kinds):
        prompt = list(range(10 * i, 10 * i + n_prompt))
        engine.add_request(
            Generate(seq_id=i, prompt=prompt, sampling=kind, stop_tokens=[], max_tokens=6)
        )
    events = []
    while engine.has_work:
        events += engine.step()
    assert sum(isinstance(event, Finished) for event in events) == len(kinds)


@pytest.mark.parametrize("on_device", [False, True])
def test_a_healthy_device_passes_after_each_answer(smooth_model: Model, on_device: bool) -> None:
    engine = make_engine(smooth_model, on_device=on_device)
    for n_checks, kinds in enumerate([[], KINDS, KINDS[::-1], [KINDS[1]] * 8]):
        ask(engine, kinds)
        before = engine.stats().n_cells_cached
        assert 1.9 < (engine.rest_s() or 0) <= 2.0
        engine.rest()
        assert engine.stats().n_checks == n_checks + 1
        assert engine.stats().n_cells_cached == before
        assert engine.check() == []
        assert engine.rest_s() is None


def test_it_is_checked_also_where_prefixes_take_all_cells(smooth_model: Model) -> None:
    engine = make_engine(smooth_model, n_ctx=256)
    ask(engine, KINDS * 2, n_prompt=26)
    ask(engine, KINDS * 2, n_prompt=27)
    assert engine.stats().n_cells_cached > 246
    engine.rest()
    assert engine.stats().n_checks == 1
    assert engine.check() == []


def test_filters_may_leave_equally_likely_tokens_in_any_order(tmp_path: Path) -> None:
    """The device's and the CPU's do otherwise, so one random number draws another of them."""
    write_smooth_model(tmp_path / "model.gguf", n_unlike=64)
    model = Model(tmp_path / "model.gguf")
    engine = make_engine(model)
    for _ in range(10):
        ask(engine, [KINDS[2], KINDS[3]] * 4)
        engine.rest()
    model.close()


def damage_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = Context.logits
    monkeypatch.setattr(Context, "logits", lambda *arguments: logits(*arguments)[::-1])


def make_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = Context.logits
    monkeypatch.setattr(Context, "logits", lambda *arguments: logits(*arguments) * float("nan"))


def keep_no_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As until 2026-11, when tokens of all but the first sequences were overwritten."""
    call = chains.ggml

    def all_but(name: str, *arguments: Any) -> Any:
        return None if name == "ggml_set_output" else call(name, *arguments)

    monkeypatch.setattr(chains, "ggml", all_but)


@pytest.mark.parametrize(
    ("damage", "on_device"),
    [
        *((damage_logits, True), (make_nan, True), (keep_no_outputs, True)),
        *((damage_logits, False), (make_nan, False)),  # nothing is drawn: logits alone can tell
    ],
)
def test_damage_is_noticed(
    smooth_model: Model,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[..., None],
    on_device: bool,
) -> None:
    engine = make_engine(smooth_model, on_device=on_device)
    engine.rest()
    ask(engine, [KINDS[1]] * 8)
    damage(monkeypatch)
    with pytest.raises(ComputeError, match="was stopped"):
        engine.rest()


def round_otherwise(monkeypatch: pytest.MonkeyPatch, shares: Iterator[float]) -> None:
    """Move each logit by a share of the standard deviation, up or down."""
    exact = Context.logits

    def logits(context: Context, row: int) -> Any:
        values = exact(context, row)
        signs = np.where(np.arange(len(values)) % 2, 1, -1)
        return (values + next(shares) * values.std() * signs).astype(np.float32)

    monkeypatch.setattr(Context, "logits", logits)


@pytest.mark.parametrize(("share", "is_damage"), [(0.2, False), (0.3, True)])
def test_rounding_is_no_damage(
    smooth_model: Model, monkeypatch: pytest.MonkeyPatch, share: float, is_damage: bool
) -> None:
    engine = make_engine(smooth_model, on_device=False)
    engine.rest()
    ask(engine, KINDS)
    round_otherwise(monkeypatch, itertools.repeat(share))
    with pytest.raises(ComputeError) if is_damage else nullcontext():
        engine.rest()


@pytest.mark.parametrize(("n_wrong", "is_damage"), [(2, False), (3, True)])
def test_three_wrong_results_in_a_row_are_damage(
    smooth_model: Model, monkeypatch: pytest.MonkeyPatch, n_wrong: int, is_damage: bool
) -> None:
    engine = make_engine(smooth_model, on_device=False)
    engine.rest()
    ask(engine, KINDS)
    round_otherwise(monkeypatch, itertools.chain([1.0] * n_wrong, itertools.repeat(0.0)))
    with pytest.raises(ComputeError) if is_damage else nullcontext():
        engine.rest()


def test_a_device_that_forgets_the_earlier_cell_is_noticed(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(model, on_device=False)
    engine.rest()
    ask(engine, KINDS)
    decode = Context.decode_extra
    monkeypatch.setattr(
        Context, "decode_extra", lambda self, batch, tokens: decode(self, batch, tokens[-1:])
    )
    with pytest.raises(ComputeError, match="was stopped"):
        engine.rest()
