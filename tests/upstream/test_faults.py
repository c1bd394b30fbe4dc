"""Faults of an upstream become a clear error, or another try before the first token."""

import asyncio
from contextlib import aclosing, nullcontext
from typing import Any

import pytest

from gptoss_local.base.errors import (
    ContextOverflowError,
    ServerBusyError,
    UpstreamError,
    UsageError,
)
from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.protocol import Finished, Tokens
from gptoss_local.harmony import Vocabulary
from gptoss_local.runner.upstream.connection import following
from tests.conftest import PATIENCE_S, free_port
from tests.engine.run import asked
from tests.upstream.conftest import Connect
from tests.upstream.stand_in import Fault, StandIn, serving, status, stream, tokens_event
from tests.upstream.test_conversations import CONVERSATIONS, collect, ids

pytestmark = [pytest.mark.quick, pytest.mark.asyncio(loop_scope="module")]

PROMPT, ANSWER = CONVERSATIONS[2]["prompt"], CONVERSATIONS[2]["answer"]
USAGE_ONLY = 'data: {"choices": [], "usage": {}}\n\n'


@pytest.mark.parametrize(
    "fault",
    [
        status(429),
        status(503, retry_after="0"),
        status(500),
        stream(breaks=True),
        stream(),
        stream(USAGE_ONLY, breaks=True),
    ],
    ids=["429", "503", "500", "dies", "empty", "dies after an event"],
)
async def test_before_the_first_token_it_is_tried_again(far: Connect, fault: Fault) -> None:
    async with far(faults=[fault]) as (stand_in, upstream):
        events, _ = await collect(upstream, PROMPT)
    assert ids(events) == ANSWER
    assert len(stand_in.bodies) == 2


async def test_one_that_does_not_begin_is_left_for_another_address(
    engine: EngineClient, vocabulary: Vocabulary, stand_in: StandIn, upstream_to: Connect
) -> None:
    """The same one may still be reading the prompt."""
    stalled = StandIn("vllm", engine, vocabulary, faults=[stream(stalls=True)] * 2)
    async with serving(stalled):
        async with upstream_to(stalled, first_token_s=0.2) as upstream:
            with pytest.raises(UpstreamError, match=r"sent nothing for 0\.2 s"):
                await collect(upstream, PROMPT)
        assert len(stalled.bodies) == 1
        async with upstream_to(stalled, stand_in, first_token_s=3.0) as upstream:
            events, _ = await collect(upstream, PROMPT)
    assert ids(events) == ANSWER
    assert (len(stalled.bodies), len(stand_in.bodies)) == (2, 1)


def _n_prompt(golden: dict[str, Any]) -> int:
    return len(golden["prompt"])


OUT_OF_MEMORY = 'data: {"error": {"message": "out of memory"}}\n\n'


@pytest.mark.parametrize(
    "fault",
    [status(503, retry_after="60"), status(500), stream(breaks=True), stream(OUT_OF_MEMORY)],
    ids=["busy", "500", "dies", "says so within the stream"],
)
async def test_one_that_cannot_now_is_left_for_another(
    engine: EngineClient,
    vocabulary: Vocabulary,
    stand_in: StandIn,
    upstream_to: Connect,
    fault: Fault,
) -> None:
    """Though it has read the prompt before."""
    busy, golden = StandIn("vllm", engine, vocabulary), max(CONVERSATIONS, key=_n_prompt)
    async with serving(busy), upstream_to(busy, stand_in) as upstream:
        await collect(upstream, golden["prompt"])
        busy.faults = [fault]
        events, _ = await collect(upstream, golden["prompt"])
    assert ids(events) == golden["answer"]
    assert (len(busy.bodies), len(stand_in.bodies)) == (2, 1)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"breaks": True}, "broke off the connection"),
        ({"stalls": True}, "sent nothing for 2 s"),
        ({}, "ended the answer before it was complete"),
    ],
    ids=["dies", "stalls", "ends early"],
)
async def test_after_the_first_token_it_is_an_error(
    stand_in: StandIn, upstream_to: Connect, parts: dict[str, bool], message: str
) -> None:
    """Another try could continue with other words."""
    stand_in.faults = [stream(tokens_event(*ANSWER[:2]), **parts)]
    got = []
    async with upstream_to(stand_in, stall_s=2.0) as upstream:
        answer = upstream.generate(asked(PROMPT))
        got.append(await anext(answer))
        with pytest.raises(UpstreamError, match=message):
            await anext(answer)
        assert upstream.n_active == 0
        events, _ = await collect(upstream, PROMPT)  # the next request finds it well again
    assert [token for event in got for token in event.tokens] == ANSWER[:2]
    assert ids(events) == ANSWER


ABORTED = 'data: {"choices": [{"token_ids": [1], "finish_reason": "abort"}]}\n\n'


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ([stream("<html>hello</html>\n")], "not an event of vllm"),
        ([stream("data: {}\n\n")], "not an event of vllm"),
        ([stream('data: {"choices": [{"token_ids": ["a"]}]}\n\n')], "not an event of vllm"),
        ([stream('data: {"choices": [{"text": "Hi"}]}\n\n')], "text, and no token ids"),
        ([stream(OUT_OF_MEMORY)], "failed: out of memory"),
        ([stream(tokens_event(201_088))], "the token 201088, which gpt-oss does not have"),
        ([stream(tokens_event(-1))], "the token -1"),
        ([stream(ABORTED)], "abort"),
        ([stream("x" * 5_000_000)], "not an event"),
        ([status(404)], "overloaded"),
        ([status(429)] * 3, r"busy \(429\): overloaded"),
    ],
    ids=lambda value: value if isinstance(value, str) else "fault",
)
async def test_faults_that_stay_are_errors(far: Connect, faults: list[Fault], message: str) -> None:
    """Only a busy upstream is tried again."""
    error = ServerBusyError if "busy" in message else UpstreamError
    async with far(faults=list(faults)) as (stand_in, upstream):
        with pytest.raises(error, match=message):
            await collect(upstream, PROMPT)
    assert len(stand_in.bodies) == len(faults)


async def test_the_key_is_sent_and_never_shown(
    stand_in: StandIn, upstream_to: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in.key = "right-key"
    monkeypatch.setenv("FAR_KEY", "right-key")
    async with upstream_to(stand_in, key_env="FAR_KEY") as upstream:
        events, _ = await collect(upstream, PROMPT)
    assert ids(events) == ANSWER
    monkeypatch.setenv("FAR_KEY", "wrong-key")
    async with upstream_to(stand_in, key_env="FAR_KEY") as upstream:
        with pytest.raises(UpstreamError, match=r"refuses access \(401\)") as caught:
            await collect(upstream, PROMPT)
    assert "wrong-key" not in f"{caught.value.message} {caught.value.hint}"
    assert "FAR_KEY" in caught.value.hint
    monkeypatch.delenv("FAR_KEY")
    with pytest.raises(UsageError, match="FAR_KEY is not set"):
        async with upstream_to(stand_in, key_env="FAR_KEY"):
            pass


async def test_of_two_addresses_the_one_that_is_down_is_left_alone(
    stand_in: StandIn, upstream_to: Connect
) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    async with upstream_to(nobody, stand_in) as upstream:
        asked: list[str] = []
        for _ in range(2):
            following.set(lambda call: nullcontext(asked.append(call.url)))
            events, _ = await collect(upstream, PROMPT)
            assert ids(events) == ANSWER
        assert asked == [nobody, asked[1], asked[1]]
    async with upstream_to(nobody) as upstream:
        with pytest.raises(UpstreamError, match="does not answer"):
            await collect(upstream, PROMPT)


async def test_an_address_comes_back_once_it_says_that_it_is_well(
    engine: EngineClient,
    vocabulary: Vocabulary,
    stand_in: StandIn,
    upstream_to: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gptoss_local.runner.upstream.connection._REST_S", 0.0)
    other = StandIn("vllm", engine, vocabulary, is_ill=True, faults=[status(500)])
    async with serving(other), upstream_to(other, stand_in) as upstream:
        for _ in range(3):
            await collect(upstream, PROMPT, max_tokens=1)
        assert len(other.bodies) == 1
        other.is_ill = False
        await collect(upstream, PROMPT, max_tokens=1)
        async with asyncio.timeout(20):
            while len(other.bodies) < 2:
                await collect(upstream, PROMPT, max_tokens=1)


async def test_closing_the_answer_disconnects(stand_in: StandIn, upstream_to: Connect) -> None:
    prompt = next(g for g in CONVERSATIONS if g["name"] == "count, low")["prompt"]
    async with upstream_to(stand_in) as upstream:
        answer = upstream.generate(asked(prompt, stop_tokens=[], max_tokens=3000))
        async with aclosing(answer):
            await anext(answer)
        async with asyncio.timeout(PATIENCE_S):
            while stand_in.n_left != 1 or stand_in.n_running:
                await asyncio.sleep(0.01)
        assert upstream.n_active == 0


async def test_a_cancelled_answer_finishes_at_once(stand_in: StandIn, upstream_to: Connect) -> None:
    stand_in.faults = [stream(tokens_event(*ANSWER[:1]), stalls=True)]
    async with upstream_to(stand_in) as upstream:
        events: list[object] = []
        async for event in upstream.generate(asked(PROMPT)):
            events.append(event)
            if isinstance(event, Tokens):
                upstream.cancel(event.seq_id)
    assert isinstance(events[-1], Finished)
    assert events[-1].reason == "cancelled"
    assert events[-1].usage.n_generated == 1


@pytest.mark.parametrize("kind", ["vllm", "llama-server"])
async def test_a_prompt_that_an_upstream_finds_too_long(
    engine: EngineClient, vocabulary: Vocabulary, upstream_to: Connect, kind: str
) -> None:
    short = StandIn(kind, engine, vocabulary, n_ctx=10)
    async with serving(short), upstream_to(short, n_ctx=4096) as upstream:
        with pytest.raises(ContextOverflowError, match=r"refuses the prompt: .*10 tokens"):
            await collect(upstream, [1] * 10)
    assert len(short.bodies) == 1


async def test_the_address_with_the_least_to_do_is_asked(
    engine: EngineClient, vocabulary: Vocabulary, stand_in: StandIn, upstream_to: Connect
) -> None:
    other = StandIn("vllm", engine, vocabulary)
    waiting = [stream(tokens_event(*ANSWER[:1]), stalls=True)]
    stand_in.faults, other.faults = list(waiting), list(waiting)
    async with serving(other), upstream_to(stand_in, other) as upstream:
        first = upstream.generate(asked(PROMPT))
        second = upstream.generate(asked(PROMPT))
        async with aclosing(first), aclosing(second):
            await anext(first)
            await anext(second)
            assert upstream.n_active == 2
        assert upstream.n_active == 0
    assert (len(stand_in.bodies), len(other.bodies)) == (1, 1)
