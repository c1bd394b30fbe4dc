"""Estimates of a prompt's length, before and during its rendering."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptoss_local.base.formats.o200k import LONGEST_TOKEN_BYTES
from gptoss_local.harmony import ChatRequest, Message, RawRequest, Tool, ToolRequest, Vocabulary
from gptoss_local.harmony.budget import PromptTooLongError, TokenBudget, least_tokens
from gptoss_local.harmony.render import render_chat

DENSE = [" " * 128, "=" * 64, "-" * 128, "\t" * 100, "的" * 40, "👋🏽" * 20, "/" * 64, " " * 83]
"""Texts of which o200k makes few tokens for many characters."""

TEXTS = st.lists(st.sampled_from([*DENSE, "word ", "\n", "<|end|>", ""]), max_size=20).map("".join)
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=TEXTS,
    reasoning=TEXTS,
    tool_calls=st.just(())
    | st.builds(ToolRequest, st.just("f"), st.just({"a": 1})).map(lambda c: (c,)),
)
REQUESTS = st.builds(
    ChatRequest,
    messages=st.lists(MESSAGES, max_size=6).map(tuple),
    earlier_tokens=st.lists(st.integers(0, 1000), max_size=5).map(tuple),
    reasoning=st.booleans(),
    tools=st.sampled_from([(), (Tool("f"),)]),
)


def test_no_token_is_longer_than_the_longest(vocabulary: Vocabulary) -> None:
    assert max(map(len, vocabulary.token_bytes)) == LONGEST_TOKEN_BYTES


@given(TEXTS)
def test_raw_prompts_that_fit_are_never_refused_unread(vocabulary: Vocabulary, text: str) -> None:
    assert least_tokens(RawRequest(prompt=text)) <= len(vocabulary.encode_tagged(text))


@given(REQUESTS, st.integers(0, 400))
def test_a_budget_ends_only_longer_prompts(
    vocabulary: Vocabulary, request: ChatRequest, max_tokens: int
) -> None:
    tokens = render_chat(request, vocabulary)
    budget = TokenBudget(max_tokens)
    with suppress(PromptTooLongError):
        assert render_chat(request, vocabulary, budget=budget) == tokens
        return
    assert len(tokens) > max_tokens


def test_rendering_ends_when_it_is_no_longer_wanted(vocabulary: Vocabulary) -> None:
    """Within a message, within calls, and where a part is remembered."""

    class GoneError(Exception):
        pass

    def leave_after(n: int) -> Callable[[], None]:
        left = iter(range(n))

        def check() -> None:
            if next(left, None) is None:
                raise GoneError

        return check

    long: dict[str, Any] = {"content": "many words " * 10_000}
    calls = tuple(ToolRequest("f", {"a": i}) for i in range(50))
    for messages in (
        (Message(role="user", **long),),
        (Message(role="assistant", tool_calls=calls),),
        (Message(role="user", content="hi"), Message(role="assistant", **long)),
    ):
        request = ChatRequest(messages=messages)
        render_chat(request, vocabulary)
        with pytest.raises(GoneError):
            render_chat(request, vocabulary, budget=TokenBudget(check=leave_after(1)))
