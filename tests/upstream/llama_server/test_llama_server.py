"""llama.cpp's own server as an upstream: nano's answers, token for token, and faults."""

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import gguf
import httpx
import numpy as np
import pytest

from gptoss_local.base.errors import ContextOverflowError, UpstreamError
from gptoss_local.base.types import Penalties, SamplingParams
from gptoss_local.engine.client import EngineClient
from gptoss_local.harmony import Vocabulary
from gptoss_local.runner.upstream.client import Upstream
from gptoss_local.runner.upstream.harmony import probe
from tests.conftest import free_port
from tests.upstream.conftest import Connect
from tests.upstream.llama_server.build import libraries, llama_server
from tests.upstream.test_conversations import (
    CAPITAL,
    CONVERSATIONS,
    GRAMMAR,
    STOP_TOKENS,
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


@contextmanager
def running(model: Path, *, n_slots: int = 2) -> Iterator[Server]:
    port = free_port()
    command = [llama_server(), "--model", model, "--port", port, "--ctx-size", N_CTX * n_slots]
    command += ["--parallel", n_slots, "--threads", 2, "--no-warmup", "--log-disable"]
    environment = os.environ | {"LD_LIBRARY_PATH": str(libraries())}
    process = subprocess.Popen(list(map(str, command)), env=environment)
    server = Server(f"http://127.0.0.1:{port}", process)
    try:
        _wait(server)
        yield server
    finally:
        process.kill()
        process.wait()


def _wait(server: Server) -> None:
    deadline_s = time.monotonic() + 120
    with httpx.Client(trust_env=False) as http:
        while True:
            assert server.process.poll() is None, "it ended"
            assert time.monotonic() < deadline_s, "it does not start"
            try:
                if http.get(server.url + "/health").is_success:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)


@pytest.fixture(scope="module")
def real(nano_gguf: Path) -> Iterator[Server]:
    with running(nano_gguf) as server:
        yield server


async def test_golden_conversations(
    real: Server, upstream_to: Connect, vocabulary: Vocabulary
) -> None:
    upstream: Upstream
    async with upstream_to(real.url, n_ctx=0, **KIND) as upstream:
        await upstream.connect(*probe(vocabulary))
        assert upstream.loaded.n_ctx == N_CTX
        for golden in CONVERSATIONS[-12:]:
            events, finished = await collect(upstream, golden["prompt"])
            assert ids(events) == golden["answer"], golden["name"]
            assert finished.reason == "stop"
            assert finished.usage.n_generated == len(golden["answer"])
        again, finished = await collect(upstream, CONVERSATIONS[-1]["prompt"])
        assert ids(again) == CONVERSATIONS[-1]["answer"]
        assert finished.usage.n_cached > 100


async def test_more_at_the_same_time_than_it_has_slots(real: Server, upstream_to: Connect) -> None:
    async with upstream_to(real.url, **KIND) as upstream:
        some = CONVERSATIONS[-8:]
        answers = await asyncio.gather(*(collect(upstream, g["prompt"]) for g in some))
    for golden, (events, _) in zip(some, answers, strict=True):
        assert ids(events) == golden["answer"], golden["name"]


@pytest.mark.parametrize("text", ["🦜", "🧿 x", "𓀀ꙮ"])
async def test_characters_of_several_tokens(
    real: Server, upstream_to: Connect, engine: EngineClient, vocabulary: Vocabulary, text: str
) -> None:
    """It streams the last token of a character only."""
    prompt = echo(text, vocabulary)
    here, _ = await collect(engine, prompt)
    assert text in vocabulary.encoding.decode(ids(here))
    async with upstream_to(real.url, **KIND) as upstream:
        there, finished = await collect(upstream, prompt)
        assert ids(there) == ids(here)
        assert finished.usage.n_generated == len(ids(here))
        with pytest.raises(UpstreamError, match="parts of a character"):
            await collect(upstream, prompt, n_logprobs=1)


async def test_a_grammar_is_held(real: Server, upstream_to: Connect, engine: EngineClient) -> None:
    here, _ = await collect(engine, CAPITAL, grammar=GRAMMAR, max_tokens=60)
    async with upstream_to(real.url, **KIND) as upstream:
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


def is_busy(server: Server) -> bool:
    slots = httpx.get(server.url + "/slots", trust_env=False).json()
    return any(slot["is_processing"] for slot in slots)


async def test_leaving_frees_its_slot(nano_gguf: Path, upstream_to: Connect) -> None:
    prompt = next(g for g in CONVERSATIONS if g["name"] == "count, low")["prompt"]
    ban = SamplingParams(temperature=0, logit_bias=tuple((t, -100.0) for t in STOP_TOKENS))
    with running(nano_gguf, n_slots=1) as server:
        async with upstream_to(server.url, **KIND) as upstream:
            answer = upstream.generate(prompt, ban, stop_tokens=[])
            await anext(answer)
            assert is_busy(server)
            await answer.aclose()
            deadline_s = time.monotonic() + 30
            while is_busy(server):
                assert time.monotonic() < deadline_s
                await asyncio.sleep(0.1)
            answer = upstream.generate(prompt, ban, stop_tokens=[])
            await anext(answer)
            server.process.kill()
            with pytest.raises(UpstreamError, match="broke off the connection"):
                async for _ in answer:
                    pass
            with pytest.raises(UpstreamError, match="does not answer"):
                await collect(upstream, CAPITAL)


async def test_another_vocabulary_is_refused(
    tmp_path: Path, upstream_to: Connect, vocabulary: Vocabulary
) -> None:
    write_other_model(tmp_path / "other.gguf")
    with running(tmp_path / "other.gguf") as server:
        async with upstream_to(server.url, **KIND) as upstream:
            with pytest.raises(UpstreamError, match=r"refuses the request .*invalid tokens"):
                await upstream.connect(*probe(vocabulary))


def write_other_model(path: Path) -> None:
    """A Llama with the 256 bytes as its vocabulary."""
    n_vocab, n_hidden, rng = 259, 32, np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(2048)
    writer.add_embedding_length(n_hidden)
    writer.add_feed_forward_length(n_hidden)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(n_vocab)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))])
    writer.add_token_scores([0.0] * n_vocab)
    writer.add_token_types([2, 3, 3, *[6] * 256])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    names = ["token_embd", "output", "blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_v"]
    names += ["blk.0.attn_output", "blk.0.ffn_gate", "blk.0.ffn_up", "blk.0.ffn_down"]
    for name in names:
        n_rows = n_hidden if name.startswith("blk") else n_vocab
        rows = rng.standard_normal((n_rows, n_hidden)).astype(np.float32)
        writer.add_tensor(f"{name}.weight", rows)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(n_hidden, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
