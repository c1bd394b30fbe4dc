"""Golden conversations through each kind's wire format: nano's answers, token for token."""

import asyncio
from typing import get_args

import pytest

from gptoss_local.base.errors import UpstreamError, UsageError
from gptoss_local.base.types import Penalties, SamplingParams
from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.interface import AnyEngine, cache_salt
from gptoss_local.engine.protocol import Finished, Tokens
from gptoss_local.harmony import Vocabulary
from gptoss_local.harmony.grammar import compile_grammar
from gptoss_local.harmony.message import JsonFormat
from gptoss_local.models.catalog import UpstreamKind
from gptoss_local.runner.upstream.answer import probe
from tests.engine.run import GREEDY, asked
from tests.nano.golden import CONVERSATIONS as GOLDEN
from tests.upstream.conftest import Connect
from tests.upstream.stand_in import StandIn, serving, stream, tokens_event

pytestmark = pytest.mark.asyncio(loop_scope="module")

KINDS = get_args(UpstreamKind)
CONVERSATIONS = [g for g in GOLDEN if not g["name"].endswith((", medium", ", high"))]

CAPITAL = next(g["prompt"] for g in CONVERSATIONS if g["name"] == "capital, low")
_PROPERTIES = {"city": {"type": "string", "maxLength": 20}, "is_large": {"type": "boolean"}}
GRAMMAR = compile_grammar(
    JsonFormat({"type": "object", "properties": _PROPERTIES, "required": list(_PROPERTIES)})
)


END = 'data: {"choices": [{"text": "", "token_ids": [], "finish_reason": "length"}]}\n\n'


async def collect(
    engine: AnyEngine, prompt: list[int], sampling: SamplingParams = GREEDY, **options: object
) -> tuple[list[Tokens], Finished]:
    *events, finished = [e async for e in engine.generate(asked(prompt, sampling, **options))]
    assert isinstance(finished, Finished)
    assert all(isinstance(event, Tokens) for event in events)
    return [event for event in events if isinstance(event, Tokens)], finished


def echo(text: str, vocabulary: Vocabulary) -> list[int]:
    """A prompt that nano answers with this text."""
    golden = next(g for g in CONVERSATIONS if g["name"] == "echo of other scripts, low")
    asked: str = vocabulary.encoding.decode(golden["prompt"])
    return vocabulary.encode_tagged(
        asked.replace("Repeat after me: Привет, Москва 東京", f"Say {text}")
    )


def ids(events: list[Tokens]) -> list[int]:
    return [token for event in events for token in event.tokens]


STOPS: dict[str, dict[str, bool]] = {
    "sent": {},
    "said": {"hides_stop": True},
    "neither": {"hides_stop": True, "says_stop": False},
}


@pytest.mark.parametrize(
    ("kind", "stop"),
    [
        *((kind, "sent") for kind in KINDS),
        *((kind, "said") for kind in ("vllm", "sglang", "dynamo")),
        *((kind, "neither") for kind in ("tensorrt-llm", "llama-server")),
    ],
)
async def test_answers_are_those_of_the_engine(
    vocabulary: Vocabulary, far: Connect, kind: str, stop: str
) -> None:
    """Whether the stop token is among the ids, or only said, or has to be concluded."""
    some = CONVERSATIONS[-12:] if stop == "sent" else CONVERSATIONS[-5:-2]  # a call among them
    async with far(kind, **STOPS[stop]) as (stand_in, upstream):
        await upstream.connect(*probe(vocabulary))
        answers = await asyncio.gather(*(collect(upstream, g["prompt"]) for g in some))
    for golden, (events, finished) in zip(some, answers, strict=True):
        assert ids(events) == golden["answer"], golden["name"]
        assert finished.reason == "stop"
        usage = finished.usage
        assert (usage.n_prompt, usage.n_generated) == (len(golden["prompt"]), len(golden["answer"]))
        assert usage.prefill_ns > 0
        assert usage.decode_ns > 0
    assert len(stand_in.bodies) == len(some) + 1


@pytest.mark.parametrize("kind", KINDS)
async def test_limits_seeds_and_cached_tokens(
    engine: EngineClient, far: Connect, kind: str
) -> None:
    prompt = CONVERSATIONS[-1]["prompt"]
    drawn = SamplingParams(temperature=1.5, seed=7)
    async with far(kind) as (_, upstream):
        here, _ = await collect(engine, prompt, drawn, max_tokens=8)
        events, finished = await collect(upstream, prompt, drawn, max_tokens=8)
        stats = await upstream.stats()
    assert finished.reason == ("stop" if len(ids(events)) < 8 else "length")
    assert ids(events) == ids(here)
    assert finished.usage.n_cached > 0
    assert (stats.n_running, stats.n_decoded) == (0, len(ids(events)))
    assert stats.n_cached_tokens == finished.usage.n_cached


@pytest.mark.parametrize(
    ("kind", "high", "low", "salt"),
    [
        ("vllm", -10, 101, "6d65"),
        ("nim", -10, 101, "6d65"),
        ("sglang", 10, -101, "6d65"),
        ("tensorrt-llm", 0.55, 0.0, None),
        ("dynamo", {"priority": 10}, {"priority": -101}, None),
        ("llama-server", None, None, None),
    ],
)
async def test_options_are_in_the_words_of_the_upstream(
    engine: EngineClient,
    vocabulary: Vocabulary,
    upstream_to: Connect,
    kind: str,
    high: object,
    low: object,
    salt: str | None,
) -> None:
    """Penalties, priorities, and salts that keep the prefixes of callers apart."""
    prompt, answer = CONVERSATIONS[0]["prompt"], CONVERSATIONS[0]["answer"]
    penalties = Penalties(repeat=1.25, presence=0.5, frequency=0.25)
    banned = SamplingParams(temperature=0, logit_bias=((answer[0], -100.0),), penalties=penalties)
    async with serving(StandIn(kind, engine, vocabulary)) as stand_in:
        async with upstream_to(stand_in) as upstream:
            token = cache_salt.set(b"me")
            events, _ = await collect(upstream, prompt, banned, max_tokens=1, priority=10)
            cache_salt.reset(token)
        async with upstream_to(stand_in, has_priority=True) as upstream:
            for priority in (10, -101, 0):
                await collect(upstream, prompt, max_tokens=2, priority=priority)
    assert ids(events) != answer[:1]
    body, *_ = stand_in.bodies
    name = "repeat_penalty" if kind == "llama-server" else "repetition_penalty"
    assert (body[name], body["presence_penalty"], body["frequency_penalty"]) == (1.25, 0.5, 0.25)
    sent = [b.get("priority", b.get("nvext", {}).get("agent_hints")) for b in stand_in.bodies]
    assert sent == [None, high, low, None]
    assert [b.get("cache_salt") for b in stand_in.bodies] == [salt, None, None, None]


@pytest.mark.parametrize("kind", ["vllm", "llama-server"])
async def test_log_probabilities_are_those_of_the_engine(
    engine: EngineClient, far: Connect, kind: str
) -> None:
    prompt = CONVERSATIONS[0]["prompt"]
    async with far(kind) as (_, upstream):
        here, _ = await collect(engine, prompt, n_logprobs=2)
        there, _ = await collect(upstream, prompt, n_logprobs=2)
    for one, other in zip(here, there, strict=True):
        for mine, theirs in zip(one.logprobs, other.logprobs, strict=True):
            assert mine.logprob == pytest.approx(theirs.logprob, abs=1e-4)
            assert [t for t, _ in mine.top] == [t for t, _ in theirs.top]
            assert len(theirs.top) == 2


@pytest.mark.parametrize("kind", ["sglang", "tensorrt-llm", "dynamo"])
async def test_log_probabilities_that_cannot_be_had_are_refused(far: Connect, kind: str) -> None:
    async with far(kind) as (stand_in, upstream):
        with pytest.raises(UsageError, match=f"{kind}.*log-probabilities"):
            await collect(upstream, [1], n_logprobs=1)
    assert not stand_in.bodies


@pytest.mark.parametrize(
    ("kind", "stop"), [("vllm", "sent"), ("dynamo", "said"), ("llama-server", "neither")]
)
async def test_a_grammar_is_held_as_the_engine_holds_it(
    engine: EngineClient, far: Connect, kind: str, stop: str
) -> None:
    """Token for token, though the upstream does not know of it."""
    async with far(kind, **STOPS[stop]) as (stand_in, upstream):
        here, _ = await collect(engine, CAPITAL, grammar=GRAMMAR, max_tokens=60)
        there, finished = await collect(upstream, CAPITAL, grammar=GRAMMAR, max_tokens=60)
        assert ids(there) == ids(here)
        assert finished.reason == "stop"
        assert finished.usage.n_prompt == len(CAPITAL)
        assert finished.usage.n_generated == len(ids(here))
        assert len(stand_in.bodies) > 1  # nano, which did not see the schema, writes no JSON
        for n in (1, 4, 7):
            there, finished = await collect(upstream, CAPITAL, grammar=GRAMMAR, max_tokens=n)
            assert (ids(there), finished.reason) == (ids(here)[:n], "length")


async def test_an_upstream_that_cannot_be_held_is_an_error(far: Connect) -> None:
    """As one that ignores biases."""
    faults = [stream(tokens_event(5), END)] * 100
    async with far(faults=faults) as (stand_in, upstream):
        with pytest.raises(UpstreamError, match="does not keep to the format"):
            await collect(upstream, CAPITAL, grammar=GRAMMAR)
    assert 1 < len(stand_in.bodies) < 30


@pytest.mark.parametrize("kind", ["vllm", "llama-server"])
async def test_the_context_is_what_the_upstream_says(
    engine: EngineClient, vocabulary: Vocabulary, upstream_to: Connect, kind: str
) -> None:
    stand_in = StandIn(kind, engine, vocabulary, n_ctx=1234)
    async with serving(stand_in), upstream_to(stand_in, n_ctx=0) as upstream:
        assert upstream.loaded.n_ctx == 131_072
        await upstream.connect(*probe(vocabulary))
        assert (upstream.loaded.n_ctx, upstream.loaded.n_ctx_train) == (1234, 1234)


async def test_another_vocabulary_is_refused(far: Connect, vocabulary: Vocabulary) -> None:
    """As a Llama or a Qwen would continue the test, or not at all."""
    faults = [stream(tokens_event(1234), END), stream(END)]
    async with far(faults=faults) as (_, upstream):
        for told in (r"\[1234\]", "nothing"):
            with pytest.raises(UpstreamError, match=f"not have the vocabulary of gpt-oss.*{told}"):
                await upstream.connect(*probe(vocabulary))
        await upstream.connect(*probe(vocabulary))


@pytest.mark.parametrize("kind", ["vllm", "llama-server"])
async def test_characters_of_several_tokens(
    engine: EngineClient, vocabulary: Vocabulary, far: Connect, kind: str
) -> None:
    """llama-server streams the last token of a character only."""
    prompt = echo("𓀀ꙮ", vocabulary)
    async with far(kind) as (_, up):
        here, _ = await collect(engine, prompt)
        whole = vocabulary.encoding.decode(ids(here))
        assert "𓀀ꙮ" in whole
        there, finished = await collect(up, prompt)
        assert ids(there) == ids(here)
        assert finished.usage.n_generated == len(ids(here))
        for n in range(1, len(ids(here))):  # a limit may cut a character off
            there, _ = await collect(up, prompt, max_tokens=n)
            cut = vocabulary.encoding.decode(ids(there))
            assert whole.startswith(cut.rstrip("\N{REPLACEMENT CHARACTER}"))
