"""Reasoning ends at its budget, when the answer is wished, and when it goes in circles."""

import asyncio
import datetime
import random
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from gptoss_local.base.events import WholeAnswer
from gptoss_local.base.types import Usage
from gptoss_local.engine.protocol import Finished, Prefilled, Tokens
from gptoss_local.harmony import AnswerNow, ChatRequest, Message, Tool, Vocabulary
from gptoss_local.harmony.session import answer
from gptoss_local.harmony.thinking import Repetition
from gptoss_local.harmony.vocabulary import STOP_TOKENS


class PlayedEngine:
    """Plays one text for each generation, token by token."""

    class loaded:
        n_ctx = n_ctx_train = 131_072

    def __init__(self, vocabulary: Vocabulary, *texts: str) -> None:
        self._replies = [vocabulary.encode_tagged(text) for text in texts]
        self._cancelled = False
        self.prompts: list[list[int]] = []
        self.grammars: list[str | None] = []

    async def generate(
        self, prompt: list[int], sampling: Any, *, grammar: str | None = None, **_: Any
    ) -> AsyncGenerator[Prefilled | Tokens | Finished, None]:
        self.prompts.append(list(prompt))
        self.grammars.append(grammar)
        self._cancelled = False
        n, reason = 0, "length"
        for token in self._replies[len(self.prompts) - 1]:
            if self._cancelled:
                reason = "cancelled"
                break
            n += 1
            yield Tokens(1, [token])
            await asyncio.sleep(0)
            if token in STOP_TOKENS:
                reason = "stop"
                break
        yield Finished(1, reason, Usage(len(prompt), n, 1, 1))  # type: ignore[arg-type]

    def cancel(self, seq_id: int) -> None:
        self._cancelled = True

    def prefetch(self, lineage: str, tokens: list[int], *, in_memory: bool = False) -> None:
        pass


THOUGHT = "<|channel|>analysis<|message|>" + " ".join(f"thought{n}" for n in range(200))
F = Tool("f", "", {"type": "object", "properties": {"x": {"type": "integer"}}})
FINAL = "<|end|><|start|>assistant<|channel|>final<|message|>"


async def ask(
    engine: PlayedEngine, vocabulary: Vocabulary, now: AnswerNow | None = None, **fields: Any
) -> WholeAnswer:
    request = ChatRequest(
        messages=(Message(role="user", content="Why?"),), answer_now=now, **fields
    )
    whole = WholeAnswer()
    events = answer(engine, vocabulary, request)  # type: ignore[arg-type]
    async for event in events:
        whole.add(event)
        if now is not None and len(whole.reasoning) > 50:
            now.is_wished = True
    return whole


def written(engine: PlayedEngine, vocabulary: Vocabulary) -> str:
    """Return the second generation's prompt without the first one's."""
    first, second = engine.prompts[:2]
    assert second[: len(first)] == first
    return str(vocabulary.encoding.decode(second[len(first) :]))


@pytest.mark.parametrize("budget", [0, 1, 7, 100])
async def test_a_budget_closes_the_analysis(vocabulary: Vocabulary, budget: int) -> None:
    engine = PlayedEngine(vocabulary, THOUGHT, "So.<|return|>")
    whole = await ask(engine, vocabulary, think_budget=budget)
    assert whole.content == "So."
    assert whole.done.reason == "stop"
    assert whole.done.n_reasoning == budget
    assert len(vocabulary.encode(whole.reasoning)) == budget
    assert written(engine, vocabulary).endswith(f"{whole.reasoning}{FINAL}")
    tokens = whole.done.tokens
    assert tokens[: len(engine.prompts[1])] == engine.prompts[1]


async def test_the_answer_comes_now(vocabulary: Vocabulary) -> None:
    engine = PlayedEngine(vocabulary, THOUGHT, "So.<|return|>")
    whole = await ask(engine, vocabulary, AnswerNow())
    assert whole.content == "So."
    assert 50 < len(whole.reasoning) < 80


async def test_a_tool_may_still_be_called(vocabulary: Vocabulary) -> None:
    call = '<|channel|>commentary to=functions.f<|message|>{"x": 1}<|call|>'
    engine = PlayedEngine(vocabulary, THOUGHT, call)
    whole = await ask(engine, vocabulary, think_budget=9, tools=(F,))
    assert [c.arguments for c in whole.calls] == [{"x": 1}]
    assert written(engine, vocabulary).endswith("<|end|><|start|>assistant")


async def test_a_second_analysis_is_not_allowed(vocabulary: Vocabulary) -> None:
    engine = PlayedEngine(vocabulary, THOUGHT, THOUGHT, "So.<|return|>")
    whole = await ask(engine, vocabulary, think_budget=9, tools=(F,))
    assert whole.content == "So."
    assert whole.done.n_reasoning == 9
    assert vocabulary.encoding.decode(engine.prompts[2]).endswith(FINAL)


async def test_no_room_is_a_length(vocabulary: Vocabulary) -> None:
    engine = PlayedEngine(vocabulary, THOUGHT, "So.<|return|>")
    whole = await ask(engine, vocabulary, think_budget=9, max_tokens=10)
    assert (whole.content, whole.done.reason) == ("", "length")


async def test_analysis_in_circles_is_closed(vocabulary: Vocabulary) -> None:
    circle = THOUGHT + " Wait, let me check that again." * 400
    engine = PlayedEngine(vocabulary, circle, "So.<|return|>")
    whole = await ask(engine, vocabulary)
    assert (whole.content, whole.done.reason) == ("So.", "stop")
    assert whole.done.n_reasoning < 2_500
    free = PlayedEngine(vocabulary, f"{circle}{FINAL}So.<|return|>")
    assert len((await ask(free, vocabulary, ends_repetition=False)).reasoning) > 12_000


async def test_an_answer_in_circles_ends(vocabulary: Vocabulary) -> None:
    circle = "<|channel|>final<|message|>" + "All work and no play. " * 2_000
    engine = PlayedEngine(vocabulary, circle)
    whole = await ask(engine, vocabulary)
    assert whole.done.reason == "repetition"
    assert 4_096 <= whole.done.usage.n_generated < 5_000


def test_text_that_only_looks_alike_goes_on(vocabulary: Vocabulary) -> None:
    rng = random.Random(1)
    day = datetime.date(2026, 1, 1)
    rows = [f"| {day + datetime.timedelta(n)} | {rng.random():.3f} | open |" for n in range(600)]
    for text in ("\n".join(rows), "\n".join(f"{n:04x}: 00 00 00 00 00 00" for n in range(800))):
        guard = Repetition(4096, 256)
        assert not any(guard.feed(token) for token in vocabulary.encode(text))
