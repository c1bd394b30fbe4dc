"""Reasoning ends at its budget, when the answer is wished, and when it goes in circles."""

import asyncio
import datetime
import random
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from gptoss_local.base.events import WholeAnswer
from gptoss_local.base.types import Usage
from gptoss_local.engine.protocol import Finished, Generate, Prefilled, Tokens
from gptoss_local.harmony import ChatRequest, Message, Tool, Vocabulary
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

    async def generate(
        self, request: Generate
    ) -> AsyncGenerator[Prefilled | Tokens | Finished, None]:
        self.prompts.append(list(request.prompt))
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
        yield Finished(1, reason, Usage(len(request.prompt), n, 1, 1))  # type: ignore[arg-type]

    def cancel(self, seq_id: int) -> None:
        self._cancelled = True

    def prefetch(self, lineage: str, tokens: list[int], *, in_memory: bool = False) -> None:
        pass


THOUGHT = "<|channel|>analysis<|message|>" + " ".join(f"thought{n}" for n in range(200))
CIRCLE = THOUGHT + " Wait, let me check that again." * 400
FINAL = "<|end|><|start|>assistant<|channel|>final<|message|>"
OPEN = "<|end|><|start|>assistant"
SO = "So.<|return|>"
CALL = '<|channel|>commentary to=functions.f<|message|>{"x": 1}<|call|>'
F = Tool("f", "", {"type": "object", "properties": {"x": {"type": "integer"}}})


async def ask(engine: PlayedEngine, vocabulary: Vocabulary, **fields: Any) -> WholeAnswer:
    request = ChatRequest(messages=(Message(role="user", content="Why?"),), **fields)
    whole = WholeAnswer()
    async for event in answer(engine, vocabulary, request):  # type: ignore[arg-type]
        whole.add(event)
    return whole


@pytest.mark.parametrize(
    ("texts", "fields", "content", "n_reasoning", "last"),
    [
        *(([THOUGHT, SO], {"think_budget": n}, "So.", n, FINAL) for n in (0, 1, 7, 100)),
        ([THOUGHT, CALL], {"think_budget": 9, "tools": (F,)}, "", 9, OPEN),
        ([THOUGHT, THOUGHT, SO], {"think_budget": 9, "tools": (F,)}, "So.", 9, FINAL),
        ([CIRCLE, SO], {}, "So.", None, FINAL),
    ],
    ids=["none", "one token", "seven", "many", "then a call", "no second analysis", "circles"],
)
async def test_analysis_is_closed(
    vocabulary: Vocabulary,
    texts: list[str],
    fields: dict[str, Any],
    content: str,
    n_reasoning: int | None,
    last: str,
) -> None:
    engine = PlayedEngine(vocabulary, *texts)
    whole = await ask(engine, vocabulary, **fields)
    assert (whole.content, whole.done.reason) == (content, "stop")
    assert [call.arguments for call in whole.calls] == ([] if content else [{"x": 1}])
    assert whole.done.n_reasoning == len(vocabulary.encode(whole.reasoning))
    assert whole.done.n_reasoning in (range(2_500) if n_reasoning is None else [n_reasoning])
    prompt, *_, final = engine.prompts
    assert final[: len(prompt)] == prompt
    assert vocabulary.encoding.decode(final[len(prompt) :]).endswith(last)
    assert whole.done.tokens[: len(final)] == final


async def test_no_room_is_a_length(vocabulary: Vocabulary) -> None:
    whole = await ask(
        PlayedEngine(vocabulary, THOUGHT, SO), vocabulary, think_budget=9, max_tokens=10
    )
    assert (whole.content, whole.done.reason) == ("", "length")


def test_text_that_only_looks_alike_goes_on(vocabulary: Vocabulary) -> None:
    rng = random.Random(1)
    day = datetime.date(2026, 1, 1)
    rows = [f"| {day + datetime.timedelta(n)} | {rng.random():.3f} | open |" for n in range(600)]
    for text in ("\n".join(rows), "\n".join(f"{n:04x}: 00 00 00 00 00 00" for n in range(800))):
        guard = Repetition(4096, 256)
        assert not any(guard.feed(token) for token in vocabulary.encode(text))
