"""The engine process through its client: right tokens, limits, cancel, death."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from gptoss_local.base.errors import ContextOverflowError, EngineCrashedError, ModelLoadError
from gptoss_local.base.types import ContextParams, SamplingParams
from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.llama import Context, Model, Sampler
from gptoss_local.engine.protocol import Finished, Stats, Tokens
from gptoss_local.harmony.vocabulary import STOP_TOKENS
from tests.conftest import wait_until
from tests.engine.run import GREEDY, N_CTX, Prompt, asked, load_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
ENDLESS = "Count from 1 to 900."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(bare_gguf: Path) -> AsyncIterator[EngineClient]:
    """One for all tests that leave it as it was."""
    client = await EngineClient.start(load_of(bare_gguf))
    yield client
    await client.close()


async def collect(
    engine: EngineClient,
    tokens: list[int],
    sampling: SamplingParams = GREEDY,
    max_tokens: int | None = None,
) -> tuple[list[int], Finished]:
    stream = engine.generate(asked(tokens, sampling, max_tokens=max_tokens))
    *events, finished = [event async for event in stream]
    assert isinstance(finished, Finished)
    return [t for e in events if isinstance(e, Tokens) for t in e.tokens], finished


async def stats_where(engine: EngineClient, condition: Callable[[Stats], object]) -> Stats:
    """Ask until it holds."""
    async with asyncio.timeout(60):
        while not condition(stats := await engine.stats()):
            await asyncio.sleep(0.01)
    return stats


def bare_loop(path: Path, tokens: list[int], n_max: int) -> list[int]:
    """The shortest possible greedy loop over llama.cpp."""
    model = Model(path)
    params = ContextParams(n_ctx=N_CTX, n_threads_prefill=1, n_threads_decode=1)
    context, sampler = Context(model, params), Sampler(GREEDY)
    for start in range(0, len(tokens), context.n_batch):
        context.decode(tokens[start : start + context.n_batch], position=start)
    generated = [sampler.sample(context)]
    while generated[-1] not in STOP_TOKENS and len(generated) < n_max:
        context.decode([generated[-1]], position=len(tokens) + len(generated) - 1)
        generated.append(sampler.sample(context))
    sampler.close()
    model.close()
    return generated


@pytest.mark.parametrize("n_filler", [0, 120])
async def test_same_tokens_as_a_bare_loop(
    engine: EngineClient, bare_gguf: Path, prompt: Prompt, n_filler: int
) -> None:
    """Also for a prompt of several prefill chunks and more than the sliding window."""
    filler = "The old river is near the quiet house. " * n_filler
    tokens = prompt(f"{filler}Count from 1 to 20.")
    assert (len(tokens) > 1024) == (n_filler > 0)
    generated, finished = await collect(engine, tokens, max_tokens=60)
    assert generated == bare_loop(bare_gguf, tokens, 60)
    usage = finished.usage
    assert (usage.n_prompt, usage.n_generated) == (len(tokens), len(generated))
    assert min(usage.prefill_ns, usage.decode_ns) > 0


async def test_sampling_parameters(bare_gguf: Path, prompt: Prompt) -> None:
    engine = await EngineClient.start(load_of(bare_gguf))  # other cells round otherwise
    tokens = prompt("Tell me about the old river and the moon.")

    async def ask(**params: float | int | None) -> list[int]:
        return (await collect(engine, tokens, SamplingParams(**params), 24))[0]  # type: ignore[arg-type]

    greedy = await ask(temperature=0)
    hot = {"temperature": 10.0}
    assert await ask(**hot, seed=1) == await ask(**hot, seed=1)
    assert await ask(**hot, seed=1) != await ask(**hot, seed=2)
    assert await ask(**hot) != await ask(**hot)
    for narrow in ({"top_k": 1}, {"top_p": 0.0}, {"min_p": 1.0}):
        assert await ask(**hot, **narrow) == greedy
    await engine.close()


async def test_ends(engine: EngineClient, prompt: Prompt) -> None:
    generated, finished = await collect(engine, prompt("hi"))
    assert (generated[-1], finished.reason) == (200002, "stop")
    for max_tokens in (0, 1, 5):
        generated, finished = await collect(engine, prompt("hi"), max_tokens=max_tokens)
        assert (len(generated), finished.reason) == (max_tokens, "length")
    with pytest.raises(ContextOverflowError, match=str(N_CTX)):
        await collect(engine, prompt(ENDLESS) * 300)


async def test_cancel_while_running_waiting_and_in_prefill(
    engine: EngineClient, prompt: Prompt
) -> None:
    streams = [engine.generate(asked(prompt(ENDLESS), stop_tokens=[])) for _ in range(4)]
    firsts = [await anext(stream) for stream in streams]
    waiting = asyncio.create_task(collect(engine, prompt(ENDLESS)))
    await stats_where(engine, lambda now: now.n_waiting == 1)
    assert engine.n_active == 5
    waiting.cancel()
    assert isinstance(firsts[0], Tokens)
    engine.cancel(firsts[0].seq_id)
    last = [event async for event in streams[0]][-1]
    assert isinstance(last, Finished)
    assert last.reason == "cancelled"
    for stream in streams[1:]:
        await stream.aclose()
    assert (await collect(engine, prompt("hi")))[1].reason == "stop"
    assert engine.n_active == 0
    task = asyncio.create_task(collect(engine, list(range(1000, 1000 + N_CTX - 100))))
    await stats_where(engine, lambda now: now.n_running)
    task.cancel()
    await stats_where(engine, lambda now: not now.n_running + now.n_waiting)


async def test_cancels_take_effect_before_the_next_step(engine: EngineClient) -> None:
    n_prompts, n_tokens = 12, 600
    before = (await engine.stats()).n_prefilled
    prompts = ([1000 + i] * n_tokens for i in range(n_prompts))
    streams = [engine.generate(asked(prompt)) for prompt in prompts]
    waiting = [asyncio.create_task(anext(stream)) for stream in streams]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await asyncio.gather(*(stream.aclose() for stream in streams))
    await collect(engine, [1, 2, 3], max_tokens=2)
    assert (await engine.stats()).n_prefilled - before < n_prompts * n_tokens / 2


async def test_stats(engine: EngineClient, prompt: Prompt) -> None:
    """Asked for while sequences run, and when idle: every cell is given back."""
    count, n_seq = prompt(ENDLESS), engine.loaded.n_seq
    tasks = [asyncio.create_task(collect(engine, count)) for _ in range(6)]
    busy = await stats_where(
        engine, lambda now: (now.n_running, now.n_waiting) == (n_seq, 2) and now.n_cells_used
    )
    assert busy.n_cells_used < busy.n_cells == engine.loaded.n_ctx
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    before = await stats_where(engine, lambda now: not now.n_running + now.n_waiting)
    assert (before.n_cells_used, before.problems) == (0, [])
    await asyncio.gather(*(collect(engine, count, max_tokens=40) for _ in range(6)))
    idle = await engine.stats()
    assert (idle.n_running, idle.n_waiting, idle.n_cells_used, idle.problems) == (0, 0, 0, [])
    n_read, n_found = idle.n_prefilled - before.n_prefilled, idle.n_cached_tokens
    assert n_read + n_found - before.n_cached_tokens == 6 * len(count)
    assert idle.n_decoded - before.n_decoded == 6 * 40
    assert sum(engine.loaded.buffer_bytes.values()) > 100_000_000


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("killed", "signal 9"),
        ("closed", "unloaded"),
        ("sends a frame that is none", "not a frame"),  # as a process with damaged memory does
    ],
)
async def test_an_end_of_the_process_ends_all_answers(
    bare_gguf: Path, prompt: Prompt, end: str, words: str
) -> None:
    """Nobody waits on, and unloading works."""
    fractions: list[float] = []
    engine = await EngineClient.start(load_of(bare_gguf), on_progress=fractions.append)
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    process = psutil.Process(engine.pid)
    answers = [asyncio.create_task(collect(engine, prompt(ENDLESS))) for _ in range(2)]
    await stats_where(engine, lambda now: now.n_running == 2)
    if end == "closed":
        await engine.close()
    else:
        process.suspend()  # or else bytes could be during a frame of its own
        answers.append(asyncio.create_task(engine.stats()))  # type: ignore[arg-type]
        await asyncio.sleep(0.05)
        if end == "killed":
            os.kill(engine.pid, signal.SIGKILL)
        else:
            assert engine._process.stdout is not None
            engine._process.stdout.feed_data(b"\x03\0\0\0\xc1\xc1\xc1")
    for answer in answers:
        with pytest.raises(EngineCrashedError, match=words):
            await asyncio.wait_for(answer, 10)
    assert not engine.is_alive
    with pytest.raises(EngineCrashedError, match=words):
        await engine.stats()
    await asyncio.wait_for(engine.close(), 5)
    wait_until(lambda: not process.is_running())


async def test_a_missing_model(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"missing\.gguf"):
        await EngineClient.start(load_of(tmp_path / "missing.gguf"))
