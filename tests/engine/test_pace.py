"""Steps of prompts are as long as they should be."""

from gptoss_local.base.types import ContextParams
from gptoss_local.engine.llama import Context, Model
from gptoss_local.engine.protocol import Generate
from gptoss_local.engine.worker.costs import PrefillPace
from gptoss_local.engine.worker.engine import Engine
from tests.engine.run import GREEDY


def test_pace_finds_the_chunk_that_takes_the_target() -> None:
    pace = PrefillPace(n_max=512, target_s=0.1)
    for _ in range(12):
        pace.observe(pace.n_tokens, step_s=0.02 + pace.n_tokens / 4000)
    assert 0.05 < 0.02 + pace.n_tokens / 4000 < 0.2
    pace.observe(3, step_s=0.05)
    n_tokens = pace.n_tokens
    pace.observe(n_tokens, step_s=60)
    assert pace.n_tokens == n_tokens // 2  # one stall is no new rule
    for _ in range(20):
        pace.observe(pace.n_tokens, step_s=60)
    assert pace.n_tokens == 32
    for _ in range(20):
        pace.observe(pace.n_tokens, step_s=0.001)
    assert pace.n_tokens == 512


def test_a_prompt_alone_keeps_its_steps_short(model: Model) -> None:
    """So that a cancel does not wait long; here the whole batch of 512 is too slow."""
    params = ContextParams(n_ctx=2048, n_threads_prefill=2, n_threads_decode=1)
    engine = Engine(Context(model, params), prompt_step_s=1e-3)
    request = Generate(seq_id=0, prompt=[5] * 1500, sampling=GREEDY, stop_tokens=[])
    engine.add_request(request)
    n_prefilled = []
    for _ in range(4):  # what a step took is known when the next one is launched
        engine.step()
        n_prefilled.append(engine.stats().n_prefilled)
    assert n_prefilled == [512, 1024, 1280, 1500]
