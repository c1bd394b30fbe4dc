"""A device that begins to compute something else is noticed while nobody asks."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptoss_local.base.errors import ComputeError
from gptoss_local.base.types import SamplingParams
from gptoss_local.engine.llama import Context, Model, canary, chains
from gptoss_local.engine.llama.sampler import is_near
from gptoss_local.engine.protocol import Failed
from gptoss_local.engine.worker.engine import Engine
from tests.engine.run import make_context, request
from tests.engine.smooth_model import write_smooth_model

KINDS = [
    SamplingParams(temperature=0),
    SamplingParams(seed=1),
    SamplingParams(temperature=0.7, top_k=40, top_p=0.9, seed=2),
    SamplingParams(temperature=2, min_p=0.05, seed=3),
]


def make_engine(model: Model, *, on_device: bool = True, n_ctx: int = 1024) -> Engine:
    outputs = {"n_outputs_max": 23, "n_outputs_max_per_seq": 16}
    context = make_context(model, n_ctx=n_ctx, n_batch=256, n_seq_max=8, **outputs)
    return Engine(context, backend_sampling=on_device, prompt_step_s=1.0)


def ask(engine: Engine, kinds: list[SamplingParams], n_prompt: int = 30) -> None:
    for i, kind in enumerate(kinds):
        prompt = list(range(10 * i, 10 * i + n_prompt))
        engine.add_request(request(i, prompt, kind, stop_tokens=[], max_tokens=6))
    while engine.has_work:
        assert not any(isinstance(event, Failed) for event in engine.step())


def make_used_engine(model: Model, *, on_device: bool = False) -> Engine:
    """Make one that has been checked, and has answered since."""
    engine = make_engine(model, on_device=on_device)
    engine.rest()
    ask(engine, KINDS * 2)
    return engine


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


def test_each_try_draws_other_numbers(smooth_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, drawn = make_engine(smooth_model), list[int]()
    monkeypatch.setattr(
        canary, "is_near", lambda logits, params, token, wanted: drawn.append(token)
    )
    ask(engine, [SamplingParams(temperature=9, seed=1)])
    with pytest.raises(ComputeError):
        engine.rest()
    assert len(drawn) == len(set(drawn)) == 3


@pytest.mark.parametrize(
    ("drawn", "wanted", "expected"),
    [(0, 1, True), (1, 0, False), (1, 2, True), (2, 1, True), (0, 3, True), (0, 5, False)],
)
def test_only_rounding_is_near(drawn: int, wanted: int, expected: bool) -> None:
    """Tokens 1 and 2 are drawn once in a hundred million answers, where either may come."""
    odds = np.array([0.4, 1e-8, 1.1e-8, 0.4, 0.1, 0.1])
    assert is_near(np.log(odds), SamplingParams(), drawn, wanted) is expected


def change_logits(change: Callable[[Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    exact = Context.logits
    return lambda patch: patch.setattr(Context, "logits", lambda *what: change(exact(*what)))


damage_logits = change_logits(lambda logits: logits[::-1])
make_nan = change_logits(lambda logits: logits * float("nan"))


def change_likeliest(change: Callable[[Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    exact = Context.likeliest
    return lambda patch: patch.setattr(Context, "likeliest", lambda *what: change(exact(*what)))


keep_others = change_likeliest(lambda kept: (kept[0][::-1], kept[1]))
keep_none = change_likeliest(lambda kept: (kept[0] + 201_088, kept[1]))
keep_one_twice = change_likeliest(lambda kept: tuple(part[[0, *range(63)]] for part in kept))
keep_no_best = change_likeliest(lambda kept: tuple(part[kept[1] < kept[1].max()] for part in kept))


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
        *((keep_others, True), (keep_none, True), (keep_one_twice, True), (keep_no_best, True)),
        *((damage_logits, False), (make_nan, False)),  # nothing is drawn: logits alone can tell
    ],
)
def test_damage_is_noticed(
    smooth_model: Model,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[..., None],
    on_device: bool,
) -> None:
    engine = make_used_engine(smooth_model, on_device=on_device)
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


@pytest.mark.parametrize(
    ("shares", "is_damage"),
    [
        (itertools.repeat(0.2), False),
        (itertools.repeat(0.3), True),
        (itertools.chain([1.0] * 2, itertools.repeat(0.0)), False),
        (itertools.chain([1.0] * 3, itertools.repeat(0.0)), True),
    ],
    ids=["rounding", "more than rounding", "wrong twice", "wrong three times in a row"],
)
def test_rounding_is_no_damage(
    smooth_model: Model,
    monkeypatch: pytest.MonkeyPatch,
    shares: Iterator[float],
    is_damage: bool,
) -> None:
    engine = make_used_engine(smooth_model)
    round_otherwise(monkeypatch, shares)
    with pytest.raises(ComputeError) if is_damage else nullcontext():
        engine.rest()


def test_a_device_that_forgets_the_earlier_cell_is_noticed(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, decode = make_used_engine(model), Context.decode_extra
    monkeypatch.setattr(
        Context, "decode_extra", lambda self, batch, tokens: decode(self, batch, tokens[-1:])
    )
    with pytest.raises(ComputeError, match="was stopped"):
        engine.rest()
