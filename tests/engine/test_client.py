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
from tests.engine.run import GREEDY, N_CTX, Prompt, load_of

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(nano_gguf: Path) -> AsyncIterator[EngineClient]:
    """One for all tests that leave it as it was."""
    client = await EngineClient.start(load_of(nano_gguf))
    yield client
    await client.close()


@pytest_asyncio.fixture(loop_scope="module")
async def own_engine(nano_gguf: Path) -> AsyncIterator[EngineClient]:
    client = await EngineClient.start(load_of(nano_gguf))
    yield client
    await client.close()


async def collect(
    engine: EngineClient,
    tokens: list[int],
    sampling: SamplingParams = GREEDY,
    max_tokens: int | None = None,
) -> tuple[list[int], Finished]:
    stream = engine.generate(tokens, sampling, stop_tokens=STOP_TOKENS, max_tokens=max_tokens)
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
    params = ContextParams(n_ctx=N_CTX, n_threads_prefill=2, n_threads_decode=1)
    context, sampler = Context(model, params), Sampler(GREEDY)
    for start in range(0, len(tokens), context.n_batch):
        context.decode(tokens[start : start + context.n_batch], position=start)
    generated = [sampler.sample(context)]
    while generated[-1] not in STOP_TOKENS and len(generated) < n_max:
        context.decode([generated[-1]], position=len(tokens) + len(generated) - 1)
        generated.append(sampler.sample(context))
    sampler.close()
    context.close()
    model.close()
    return generated


@pytest.mark.parametrize("n_filler", [0, 120])
async def test_same_tokens_as_a_bare_loop(
    engine: EngineClient, nano_gguf: Path, prompt: Prompt, n_filler: int
) -> None:
    """Also for a prompt of several prefill chunks and more than the sliding window."""
    filler = "The old river is near the quiet house. " * n_filler
    tokens = prompt(f"{filler}Count from 1 to 20.")
    assert (len(tokens) > 1024) == (n_filler > 0)
    generated, finished = await collect(engine, tokens, max_tokens=60)
    assert generated == bare_loop(nano_gguf, tokens, 60)
    usage = finished.usage
    assert (usage.n_prompt, usage.n_generated) == (len(tokens), len(generated))
    assert usage.prefill_ns > 0
    assert usage.decode_ns > 0


async def test_sampling_parameters(own_engine: EngineClient, prompt: Prompt) -> None:
    tokens = prompt("Tell me about the old river and the moon.")

    async def ask(**params: float | int | None) -> list[int]:
        return (await collect(own_engine, tokens, SamplingParams(**params), 24))[0]  # type: ignore[arg-type]

    greedy = await ask(temperature=0)
    hot = {"temperature": 10.0}
    assert await ask(**hot, seed=1) == await ask(**hot, seed=1)
    assert await ask(**hot, seed=1) != await ask(**hot, seed=2)
    assert await ask(**hot) != await ask(**hot)
    assert await ask(**hot, top_k=1) == greedy
    assert await ask(**hot, top_p=0.0) == greedy
    assert await ask(**hot, min_p=1.0) == greedy


async def test_ends(engine: EngineClient, prompt: Prompt) -> None:
    generated, finished = await collect(engine, prompt("hi"))
    assert (generated[-1], finished.reason) == (200002, "stop")
    for max_tokens in (0, 1, 5):
        generated, finished = await collect(engine, prompt("hi"), max_tokens=max_tokens)
        assert (len(generated), finished.reason) == (max_tokens, "length")


async def test_prompts_beyond_the_context(engine: EngineClient, prompt: Prompt) -> None:
    with pytest.raises(ContextOverflowError, match=str(N_CTX)):
        await collect(engine, prompt("Count from 1 to 900.") * 300)


async def test_cancel_while_running_and_while_waiting(engine: EngineClient, prompt: Prompt) -> None:
    endless = prompt("Count from 1 to 900.")
    running = engine.generate(endless, GREEDY, stop_tokens=[])
    first = await anext(running)
    assert isinstance(first, Tokens)
    others = [engine.generate(endless, GREEDY, stop_tokens=[]) for _ in range(3)]
    for other in others:
        await anext(other)
    waiting = asyncio.create_task(collect(engine, endless))
    await asyncio.sleep(0.1)
    assert engine.n_active == 5
    assert (await engine.stats()).n_waiting == 1
    waiting.cancel()
    engine.cancel(first.seq_id)
    async for event in running:
        last = event
    assert isinstance(last, Finished)
    assert last.reason == "cancelled"
    for other in others:
        await other.aclose()
    assert (await collect(engine, prompt("hi")))[1].reason == "stop"
    assert engine.n_active == 0


async def test_cancel_in_prefill(engine: EngineClient) -> None:
    task = asyncio.create_task(collect(engine, list(range(1000, 1000 + N_CTX - 100))))
    await stats_where(engine, lambda now: now.n_running)
    task.cancel()
    await stats_where(engine, lambda now: not now.n_running + now.n_waiting)


async def test_stats(engine: EngineClient, prompt: Prompt) -> None:
    """Asked for while sequences run, and when idle: every cell is given back."""
    count = prompt("Count from 1 to 900.")
    tasks = [asyncio.create_task(collect(engine, count)) for _ in range(6)]
    n_seq = engine.loaded.n_seq
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


async def test_stats_of_a_dead_engine(own_engine: EngineClient) -> None:
    psutil.Process(own_engine.pid).suspend()
    waiting = asyncio.create_task(own_engine.stats())
    await asyncio.sleep(0.05)
    os.kill(own_engine.pid, signal.SIGKILL)
    with pytest.raises(EngineCrashedError):
        await waiting
    with pytest.raises(EngineCrashedError):
        await own_engine.stats()


async def test_killed_process(own_engine: EngineClient, prompt: Prompt) -> None:
    endless = prompt("Count from 1 to 900.")
    tasks = [asyncio.create_task(collect(own_engine, endless)) for _ in range(2)]
    await asyncio.sleep(0.3)
    os.kill(own_engine.pid, signal.SIGKILL)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(r) for r in results] == [EngineCrashedError] * 2
    assert not own_engine.is_alive
    with pytest.raises(EngineCrashedError, match="signal 9"):
        await collect(own_engine, endless)


async def test_a_frame_that_is_none_ends_all_answers(
    own_engine: EngineClient, prompt: Prompt
) -> None:
    """As a process sends whose memory is damaged: nobody waits on, and unloading works."""
    process = psutil.Process(own_engine.pid)
    endless = prompt("Count from 1 to 900.")
    stdout = own_engine._process.stdout
    assert stdout is not None
    answer = asyncio.create_task(collect(own_engine, endless))
    process.suspend()  # or else the bytes could be amid a frame of its own
    await asyncio.sleep(0.05)
    stdout.feed_data(b"\x03\0\0\0\xc1\xc1\xc1")
    with pytest.raises(EngineCrashedError, match="not a frame"):
        await asyncio.wait_for(answer, 5)
    assert not own_engine.is_alive
    await asyncio.wait_for(own_engine.close(), 5)
    wait_until(lambda: not process.is_running())


async def test_close_ends_the_process(own_engine: EngineClient, prompt: Prompt) -> None:
    process = psutil.Process(own_engine.pid)
    task = asyncio.create_task(collect(own_engine, prompt("Count from 1 to 900.")))
    await stats_where(own_engine, lambda now: now.n_running)
    await own_engine.close()
    with pytest.raises(EngineCrashedError, match="unloaded"):
        await task
    wait_until(lambda: not process.is_running())


async def test_progress_and_load_errors(nano_gguf: Path, tmp_path: Path) -> None:
    fractions: list[float] = []
    engine = await EngineClient.start(load_of(nano_gguf), on_progress=fractions.append)
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert (engine.loaded.n_vocab, engine.loaded.n_ctx_train) == (201_088, 131_072)
    await engine.close()
    with pytest.raises(ModelLoadError, match=r"missing\.gguf"):
        await EngineClient.start(load_of(tmp_path / "missing.gguf"))


async def test_cancels_take_effect_before_the_next_step(engine: EngineClient) -> None:
    """All that is to be cancelled is, before the next step."""
    n_prompts, n_tokens = 12, 600
    before = (await engine.stats()).n_prefilled
    streams = [
        engine.generate([1000 + i] * n_tokens, GREEDY, stop_tokens=STOP_TOKENS)
        for i in range(n_prompts)
    ]
    waiting = [asyncio.create_task(anext(stream)) for stream in streams]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await asyncio.gather(*(stream.aclose() for stream in streams))
    await collect(engine, [1, 2, 3], max_tokens=2)
    assert (await engine.stats()).n_prefilled - before < n_prompts * n_tokens / 2
