"""Preparations of an idle engine for the next prompt."""

import pytest

from gptoss_local.base.errors import ContextOverflowError
from gptoss_local.engine.llama import Model
from gptoss_local.engine.llama.chains import Chains
from tests.engine.run import Run, make_context

PROMPT = [200006, 1428, 200008, *range(1000, 1040), 200007, 200006, 173781]
AGAIN = [200002, 200006, 1428, 200008, 72, 200007, 200006, 173781]


def make_run(model: Model, n_ctx: int = 1024, prompt_step_s: float = 1.0) -> Run:
    outputs = {"n_outputs_max": 8, "n_outputs_max_per_seq": 7}
    context = make_context(model, n_ctx=n_ctx, n_batch=256, n_seq_max=2, **outputs)
    return Run(context, backend_sampling=True, prompt_step_s=prompt_step_s)


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


def ask(run: Run, prompt: list[int], n: int = 12) -> list[int]:
    return run.answer(0, prompt, stop_tokens=[], max_tokens=n)


def rest(run: Run, planned: list[int]) -> bool:
    """Rest once, after which nothing is left to do; return whether memory was planned."""
    planned.clear()
    assert run.engine.rest_s()
    run.engine.rest()
    assert run.engine.rest_s() is None
    assert run.engine.check() == []
    return bool(planned)


def test_memory_is_planned_at_the_start_and_behind_each_answer(
    model: Model, planned: list[int]
) -> None:
    wanted, run = ask(make_run(model), PROMPT), make_run(model)
    assert rest(run, planned)
    assert run.engine.stats().n_cells_used == run.engine.stats().n_cells_cached == 0
    assert ask(run, PROMPT) == wanted
    before = [run.context.positions(i) for i in range(2)]
    assert rest(run, planned)
    assert [run.context.positions(i) for i in range(2)] == before
    again = [*PROMPT, *wanted, *AGAIN]
    run.ends.clear()
    assert ask(run, again) == ask(make_run(model), again)
    assert run.end(0).usage.n_cached > 0


def test_memory_is_planned_also_where_no_cell_is_free(model: Model, planned: list[int]) -> None:
    run = make_run(model, n_ctx=256)
    ask(run, PROMPT, 256 - len(PROMPT))
    run.ends.clear()
    ask(run, [5] * 255, 1)
    with pytest.raises(ContextOverflowError):
        run.context.decode([5], position=0, seq_id=run.context.n_seq_max)
    assert rest(run, planned)


def test_an_engine_with_experts_in_ram_plans_nothing_ahead(
    model: Model, planned: list[int]
) -> None:
    run = make_run(model, prompt_step_s=float("inf"))
    run.engine.rest()
    ask(run, PROMPT)
    assert not rest(run, planned)
