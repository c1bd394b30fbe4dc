"""A device that begins to compute something else is noticed while nobody asks."""

from collections.abc import Callable
from typing import Any

import pytest

from gptoss_local.engine.llama import Context, Model, chains
from gptoss_local.engine.protocol import Finished, Generate
from gptoss_local.engine.worker.engine import Engine
from gptoss_local.errors import ComputeError
from gptoss_local.types import ContextParams, SamplingParams

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
def test_what_is_well_is_checked_after_each_answer(smooth_model: Model, on_device: bool) -> None:
    engine = make_engine(smooth_model, on_device=on_device)
    for n_checks, kinds in enumerate([[], KINDS, KINDS[::-1], [KINDS[1]] * 8]):
        ask(engine, kinds)
        before = [len(slot.tokens) for slot in engine._slots.all]
        assert 1.9 < (engine.rest_s() or 0) <= 2.0
        engine.rest()
        assert engine.stats().n_checks == n_checks + 1
        assert [len(slot.tokens) for slot in engine._slots.all] == before
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
def test_what_is_damaged_is_noticed(
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
