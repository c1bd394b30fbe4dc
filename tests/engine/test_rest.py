"""Preparations of an idle engine for the next prompt, and how seldom a prompt waits for a plan."""

import msgspec
import pytest

from gptoss_local.base.errors import ContextOverflowError
from gptoss_local.base.types import SamplingParams
from gptoss_local.engine.llama import Model
from gptoss_local.engine.llama.chains import Chains
from gptoss_local.engine.llama.library import forget_log, whole_log
from gptoss_local.engine.worker.cache.slots import Slots
from tests.engine.run import GREEDY, Run, make_context

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


FULL, TOP_K = SamplingParams(), SamplingParams(top_k=40)
DAY = [  # a chat, its sampling, and how often llama.cpp plans before its answer is complete
    *[("a", FULL, 0), ("b", FULL, 0), ("c", TOP_K, 1), ("d", TOP_K, 0), ("a", FULL, 0)],
    *[("c", TOP_K, 0), ("e", TOP_K, 0), ("e", TOP_K, 0), ("f", FULL, 0), ("g", None, 1)],
    *[("h", None, 0), ("rest", FULL, 0), ("i", TOP_K, 0), ("h", None, 0), ("j", GREEDY, 1)],
    *[("k", FULL, 0), ("k", TOP_K, 0), ("i", TOP_K, 0), ("j", GREEDY, 0), ("k", None, 0)],
]


def plans_of_a_day(model: Model) -> list[int]:
    context = make_context(model, n_ctx=2048, n_batch=256, n_seq_max=4)
    run = Run(context, backend_sampling=True, prompt_step_s=1.0)
    n_plans, chats = list[int](), dict[str, list[int]]()
    run.engine.rest()
    for i, (chat, sampling, _) in enumerate(DAY):
        if chat == "rest":
            run.engine.rest()
        prompt = chats.get(chat) or [*PROMPT, *range(2000 + 100 * i, 2040 + 100 * i)]
        seeded = msgspec.structs.replace(sampling or FULL, seed=i)
        n_logprobs = None if sampling else 0
        forget_log()
        answer = run.answer(i, prompt, seeded, stop_tokens=[], max_tokens=4, n_logprobs=n_logprobs)
        n_plans.append(whole_log().count(": reserving ..."))
        if chat in chats:
            assert run.end(i).usage.n_cached > len(PROMPT)
        chats[chat] = [*prompt, *answer, *AGAIN]
    return n_plans


def test_a_prompt_waits_for_a_plan_only_with_a_sampling_that_is_new(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [n for *_, n in DAY]
    assert plans_of_a_day(model) == wanted
    monkeypatch.setattr(Slots, "swap", lambda *_: None)
    assert sum(plans_of_a_day(model)) > sum(wanted)
