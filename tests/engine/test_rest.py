"""Preparations of an idle engine for the next prompt."""

import pytest

from gptoss_local.base.errors import ContextOverflowError
from gptoss_local.base.types import ContextParams
from gptoss_local.engine.llama import Context, Model
from gptoss_local.engine.llama.chains import Chains
from gptoss_local.engine.protocol import Event, Finished, Generate, Tokens
from gptoss_local.engine.worker.engine import Engine
from tests.engine.run import GREEDY

PROMPT = [200006, 1428, 200008, *range(1000, 1040), 200007, 200006, 173781]


def make_engine(model: Model, n_ctx: int = 1024, prompt_step_s: float = 1.0) -> Engine:
    params = ContextParams(
        n_ctx=n_ctx, n_threads_prefill=1, n_threads_decode=1, n_batch=256, n_seq_max=2,
        n_outputs_max=8, n_outputs_max_per_seq=7,
    )  # fmt: skip
    return Engine(Context(model, params), backend_sampling=True, prompt_step_s=prompt_step_s)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """An entry for each row beyond the first that a graph was asked to have: of plans, drafts."""
    rows: list[int] = []
    needs = Chains.needs

    def spy(chains: Chains, seq_id: int, i_row: int) -> bool:
        rows.extend([i_row] * bool(i_row))
        return needs(chains, seq_id, i_row)

    monkeypatch.setattr(Chains, "needs", spy)
    return rows


def ask(engine: Engine, prompt: list[int], n: int = 12) -> tuple[list[int], int]:
    """The answer, and how much of the prompt was cached."""
    engine.add_request(
        Generate(seq_id=0, prompt=prompt, sampling=GREEDY, stop_tokens=[], max_tokens=n)
    )
    events: list[Event] = []
    while engine.has_work:
        events += engine.step()
        assert engine.check() == []
    tokens = [token for event in events if isinstance(event, Tokens) for token in event.tokens]
    assert isinstance(events[-1], Finished)
    return tokens, events[-1].usage.n_cached


def test_a_new_engine_warms_up_once(model: Model, planned: list[int]) -> None:
    wanted, _ = ask(make_engine(model), PROMPT)
    engine = make_engine(model)
    assert engine.rest_s()
    planned.clear()
    engine.rest()
    assert planned
    assert engine.rest_s() is None
    assert engine.stats().n_cells_used == engine.stats().n_cells_cached == 0
    assert engine.check() == []
    assert ask(engine, PROMPT) == (wanted, 0)


def test_memory_is_planned_again_behind_each_answer(model: Model, planned: list[int]) -> None:
    engine = make_engine(model)
    first, _ = ask(engine, PROMPT)
    assert engine.rest_s()
    before = [engine._context.positions(i) for i in range(2)]
    planned.clear()
    engine.rest()
    assert planned
    assert engine.rest_s() is None
    assert [engine._context.positions(i) for i in range(2)] == before
    again = [*PROMPT, *first, 200002, 200006, 1428, 200008, 72, 200007, 200006, 173781]
    answer, n_cached = ask(engine, again)
    assert n_cached > 0
    assert answer == ask(make_engine(model), again)[0]


def test_memory_is_planned_also_where_no_cell_is_free(model: Model, planned: list[int]) -> None:
    engine = make_engine(model, n_ctx=256)
    ask(engine, PROMPT, 256 - len(PROMPT))
    ask(engine, [5] * 255, 1)
    with pytest.raises(ContextOverflowError):
        engine._context.decode([5], position=0, seq_id=engine._context.n_seq_max)
    planned.clear()
    engine.rest()
    assert planned
    assert engine.check() == []


def test_an_engine_with_experts_in_ram_plans_nothing_ahead(
    model: Model, planned: list[int]
) -> None:
    engine = make_engine(model, prompt_step_s=float("inf"))
    engine.rest()
    ask(engine, PROMPT)
    planned.clear()
    assert engine.rest_s()
    engine.rest()
    assert not planned
    assert engine.rest_s() is None
