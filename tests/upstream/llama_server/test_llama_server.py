"""llama.cpp's own server as an upstream: nano's answers, token for token, and faults."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from gptoss_local.base.errors import ContextOverflowError, UpstreamError
from gptoss_local.base.types import Penalties, SamplingParams
from gptoss_local.engine.client import EngineClient
from gptoss_local.harmony import Vocabulary
from gptoss_local.harmony.vocabulary import STOP_TOKENS
from gptoss_local.runner.upstream.answer import probe
from gptoss_local.runner.upstream.client import Upstream
from tests.conftest import free_port, wait_until
from tests.engine.run import asked
from tests.upstream.conftest import Connect
from tests.upstream.llama_server.build import libraries, llama_server
from tests.upstream.test_conversations import (
    CAPITAL,
    CONVERSATIONS,
    GRAMMAR,
    collect,
    echo,
    ids,
)

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(
        not llama_server().is_file(),
        reason="`python -m tests.upstream.llama_server.build` makes it",
    ),
]

KIND = {"kind": "llama-server", "model": ""}
N_CTX = 2048  # of each of two slots


@dataclass
class Server:
    url: str
    process: subprocess.Popen[bytes]

    def is_well(self) -> bool:
        assert self.process.poll() is None, "it ended"
        try:
            return httpx.get(f"{self.url}/health", trust_env=False).is_success
        except httpx.TransportError:
            return False

    def is_busy(self) -> bool:
        slots = httpx.get(f"{self.url}/slots", trust_env=False).json()
        return any(slot["is_processing"] for slot in slots)


@contextmanager
def running(model: Path, *, n_slots: int = 2) -> Iterator[Server]:
    port = free_port()
    command = [llama_server(), "--model", model, "--port", port, "--ctx-size", N_CTX * n_slots]
    command += ["--parallel", n_slots, "--threads", 2, "--no-warmup", "--log-disable"]
    environment = os.environ | {"LD_LIBRARY_PATH": str(libraries())}
    process = subprocess.Popen(list(map(str, command)), env=environment)
    server = Server(f"http://127.0.0.1:{port}", process)
    try:
        wait_until(server.is_well)
        yield server
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def real(nano_gguf: Path) -> Iterator[Server]:
    with running(nano_gguf) as server:
        yield server


async def test_golden_conversations_more_than_it_has_slots(
    real: Server, upstream_to: Connect, vocabulary: Vocabulary
) -> None:
    upstream: Upstream
    some = CONVERSATIONS[-12:]
    async with upstream_to(real.url, n_ctx=0, **KIND) as upstream:
        await upstream.connect(*probe(vocabulary))
        assert upstream.loaded.n_ctx == N_CTX
        answers = await asyncio.gather(*(collect(upstream, g["prompt"]) for g in some))
        _, again = await collect(upstream, some[-1]["prompt"])
    for golden, (events, finished) in zip(some, answers, strict=True):
        assert ids(events) == golden["answer"], golden["name"]
        assert finished.reason == "stop"
        assert finished.usage.n_generated == len(golden["answer"])
    assert again.usage.n_cached > 100


async def test_characters_of_several_tokens_and_a_grammar(
    real: Server, upstream_to: Connect, engine: EngineClient, vocabulary: Vocabulary
) -> None:
    """It streams the last token of a character only."""
    async with upstream_to(real.url, **KIND) as upstream:
        for text in ("🦜", "🧿 x", "𓀀ꙮ"):
            prompt = echo(text, vocabulary)
            here, _ = await collect(engine, prompt)
            assert text in vocabulary.encoding.decode(ids(here))
            there, finished = await collect(upstream, prompt)
            assert ids(there) == ids(here)
            assert finished.usage.n_generated == len(ids(here))
            with pytest.raises(UpstreamError, match="parts of a character"):
                await collect(upstream, prompt, n_logprobs=1)
        here, _ = await collect(engine, CAPITAL, grammar=GRAMMAR, max_tokens=60)
        there, finished = await collect(upstream, CAPITAL, grammar=GRAMMAR, max_tokens=60)
    assert ids(there) == ids(here)
    assert finished.reason == "stop"


async def test_options(real: Server, upstream_to: Connect, engine: EngineClient) -> None:
    golden = CONVERSATIONS[0]
    first = golden["answer"][0]
    everything = SamplingParams(
        temperature=1.5,
        top_p=0.9,
        top_k=20,
        min_p=0.01,
        seed=7,
        logit_bias=((first, -100.0),),
        penalties=Penalties(repeat=1.25, presence=0.5, frequency=0.25),
    )
    async with upstream_to(real.url, **KIND) as upstream:
        once, _ = await collect(upstream, golden["prompt"], everything, max_tokens=9)
        again, _ = await collect(upstream, golden["prompt"], everything, max_tokens=9)
        assert ids(once) == ids(again)
        assert first != ids(once)[0]
        single, _ = await collect(upstream, golden["prompt"], n_logprobs=2, max_tokens=1)
        assert len(single[0].logprobs[0].top) == 2
        here, _ = await collect(engine, golden["prompt"], n_logprobs=2)
        there, _ = await collect(upstream, golden["prompt"], n_logprobs=2)
        for n in (1, 4):
            events, finished = await collect(upstream, golden["prompt"], max_tokens=n)
            assert (ids(events), finished.reason) == (golden["answer"][:n], "length")
    for one, other in zip(here, there, strict=True):
        for mine, theirs in zip(one.logprobs, other.logprobs, strict=True):
            assert mine.logprob == pytest.approx(theirs.logprob, abs=1e-3)
            assert mine.top[0][0] == theirs.top[0][0]


async def test_a_prompt_that_does_not_fit(real: Server, upstream_to: Connect) -> None:
    async with upstream_to(real.url, **KIND) as upstream:  # which takes it to have 4096
        with pytest.raises(ContextOverflowError, match=r"3000 tokens.*2048"):
            await collect(upstream, [1] * 3000)
        events, finished = await collect(upstream, CAPITAL * 25, max_tokens=3000)
        assert finished.reason in ("length", "stop")
        assert ids(events)


async def test_leaving_frees_its_slot(nano_gguf: Path, upstream_to: Connect) -> None:
    prompt = next(g for g in CONVERSATIONS if g["name"] == "count, low")["prompt"]
    ban = SamplingParams(temperature=0, logit_bias=tuple((t, -100.0) for t in STOP_TOKENS))
    with running(nano_gguf, n_slots=1) as server:
        async with upstream_to(server.url, **KIND) as upstream:
            answer = upstream.generate(asked(prompt, ban, stop_tokens=[]))
            await anext(answer)
            assert server.is_busy()
            await answer.aclose()
            await asyncio.to_thread(wait_until, lambda: not server.is_busy())
            answer = upstream.generate(asked(prompt, ban, stop_tokens=[]))
            await anext(answer)
            server.process.kill()
            with pytest.raises(UpstreamError, match="broke off the connection"):
                async for _ in answer:
                    pass
            with pytest.raises(UpstreamError, match="does not answer"):
                await collect(upstream, CAPITAL)
