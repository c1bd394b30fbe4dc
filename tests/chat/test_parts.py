"""Messages are rendered once and kept; a prompt that is too long is not finished."""

import datetime
from array import array
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy

from hypothesis import given
from hypothesis import strategies as st

from gptoss_local.base.formats.o200k import LONGEST_TOKEN_BYTES
from gptoss_local.harmony import ChatRequest, Message, RawRequest, Tool, ToolRequest, Vocabulary
from gptoss_local.harmony.budget import PromptTooLongError, TokenBudget, least_tokens
from gptoss_local.harmony.parts import Part, RenderedParts
from gptoss_local.harmony.render import render_chat


class Counting:
    """A vocabulary's rendering that counts how often it is asked."""

    def __init__(self, vocabulary: Vocabulary, max_tokens: int = 2**19) -> None:
        self._vocabulary, self.n = vocabulary, 0
        self.parts = RenderedParts(self._render, max_tokens)

    def tokens(self, part: Part) -> list[int]:
        return self.parts.tokens(part, TokenBudget()).tolist()

    def _render(self, part: Part, budget: TokenBudget) -> "array[int]":
        self.n += 1
        return self._vocabulary.rendered.tokens(part, budget)


def test_the_least_recently_used_make_way(vocabulary: Vocabulary) -> None:
    one, two, three = (Part("user", f"{word} " * 10) for word in ("one", "two", "three"))
    size = len(vocabulary.rendered.tokens(one, TokenBudget()))
    counting = Counting(vocabulary, max_tokens=2 * size)
    for part in (one, two, one, three):  # two makes way for three
        counting.tokens(part)
    for part in (one, three):
        counting.tokens(part)
    assert counting.n == 3
    counting.tokens(two)
    assert counting.n == 4
    longer = Part("user", "word " * 100)  # than all
    expected = vocabulary.rendered.tokens(longer, TokenBudget()).tolist()
    assert counting.tokens(longer) == expected


def test_threads_may_render_at_once(vocabulary: Vocabulary) -> None:
    counting = Counting(vocabulary, max_tokens=100)
    parts = [Part("user", f"number {i % 20}") for i in range(400)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(counting.tokens, parts))
    assert found == [vocabulary.rendered.tokens(part, TokenBudget()).tolist() for part in parts]


def test_a_continued_conversation_renders_new_messages_only(vocabulary: Vocabulary) -> None:
    messages = [Message(role="system", content="You are an agent."), Message(role="user")]
    for i in range(5):
        call = ToolRequest("read_file", {"path": f"file {i}"})
        messages.append(Message(role="assistant", tool_calls=(call,)))
        messages.append(Message(role="tool", content=f"text of file {i}"))
    counting = Counting(vocabulary)
    fresh = copy(vocabulary)
    fresh.rendered = counting.parts
    date = datetime.date(2026, 1, 2)
    render_chat(ChatRequest(messages=tuple(messages)), fresh, date)
    assert counting.n == 13
    messages.append(Message(role="user", content="And another thing?"))
    render_chat(ChatRequest(messages=tuple(messages)), fresh, date)
    assert counting.n == 14


# o200k makes few tokens of many characters of these.
DENSE = [" " * 128, "=" * 64, "-" * 128, "\t" * 100, "的" * 40, "👋🏽" * 20, "/" * 64, " " * 83]
TEXTS = st.lists(st.sampled_from([*DENSE, "word ", "\n", "<|end|>", ""]), max_size=20).map("".join)
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=TEXTS,
    reasoning=TEXTS,
    tool_calls=st.sampled_from([(), (ToolRequest("f", {"a": 1}),)]),
)
REQUESTS = st.builds(
    ChatRequest,
    messages=st.lists(MESSAGES, max_size=6).map(tuple),
    earlier_tokens=st.lists(st.integers(0, 1000), max_size=5).map(tuple),
    reasoning=st.booleans(),
    tools=st.sampled_from([(), (Tool("f"),)]),
)


@given(TEXTS)
def test_raw_prompts_that_fit_are_never_refused_unread(vocabulary: Vocabulary, text: str) -> None:
    assert max(map(len, vocabulary.token_bytes)) == LONGEST_TOKEN_BYTES
    assert least_tokens(RawRequest(prompt=text)) <= len(vocabulary.encode_tagged(text))


@given(REQUESTS, st.integers(0, 400))
def test_a_budget_ends_only_longer_prompts(
    vocabulary: Vocabulary, request: ChatRequest, max_tokens: int
) -> None:
    tokens = render_chat(request, vocabulary)
    assert least_tokens(request) <= len(tokens)
    budget = TokenBudget(max_tokens)
    with suppress(PromptTooLongError):
        assert render_chat(request, vocabulary, budget=budget) == tokens
        return
    assert len(tokens) > max_tokens
