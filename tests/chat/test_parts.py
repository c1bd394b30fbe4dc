"""Messages rendered one by one, and kept, are as openai-harmony renders whole conversations."""

import datetime
from array import array
from concurrent.futures import ThreadPoolExecutor
from copy import copy

from hypothesis import given
from hypothesis import strategies as st
from openai_harmony import (
    Conversation,
    HarmonyEncoding,
    RenderConversationConfig,
)
from openai_harmony import Message as HarmonyMessage

from gptoss_local.harmony import ChatRequest, Message, ToolRequest, Vocabulary
from gptoss_local.harmony.budget import TokenBudget
from gptoss_local.harmony.parts import Part, RenderedParts
from gptoss_local.harmony.render import render_chat

TEXTS = st.text(max_size=40) | st.sampled_from(["<|start|>user", "<|end|>", "a\n\nb", " x "])
NAMES = st.sampled_from(["", "functions.read_file", "functions.f"])
PARTS = st.builds(
    Part,
    role=st.sampled_from(["user", "developer", "assistant"]),
    text=TEXTS,
    channel=st.sampled_from(["", "analysis", "commentary", "final"]),
    recipient=NAMES,
    content_type=st.sampled_from(["", "<|constrain|>json", "code"]),
    name=st.just(""),
) | st.builds(
    Part,
    role=st.just("tool"),
    text=TEXTS,
    channel=st.just("commentary"),
    recipient=st.just("assistant"),
    name=NAMES.filter(bool),
)


class Counting:
    """A vocabulary's rendering, and how often it was asked for."""

    def __init__(self, vocabulary: Vocabulary, max_tokens: int = 2**19) -> None:
        self._vocabulary, self.n = vocabulary, 0
        self.parts = RenderedParts(self._render, max_tokens)

    def tokens(self, part: Part) -> list[int]:
        return self.parts.tokens(part, TokenBudget()).tolist()

    def _render(self, part: Part, budget: TokenBudget) -> "array[int]":
        self.n += 1
        return self._vocabulary.rendered.tokens(part, budget)


@given(parts=st.lists(PARTS, max_size=8))
def test_parts_are_as_in_a_conversation(
    vocabulary: Vocabulary, harmony_encoding: HarmonyEncoding, parts: list[Part]
) -> None:
    messages = [
        HarmonyMessage.from_dict(
            {
                "role": part.role,
                "name": part.name or None,
                "content": part.text,
                "channel": part.channel or None,
                "recipient": part.recipient or None,
                "content_type": part.content_type or None,
            }
        )
        for part in parts
    ]
    expected = harmony_encoding.render_conversation(
        Conversation.from_messages(messages), RenderConversationConfig(auto_drop_analysis=False)
    )
    for _ in range(2):
        assert [
            token for part in parts for token in vocabulary.rendered.tokens(part, TokenBudget())
        ] == expected


def test_a_message_is_rendered_once(vocabulary: Vocabulary) -> None:
    counting = Counting(vocabulary)
    parts = [Part("user", "hi"), Part("tool", "hi", name="x"), Part("developer", "hi")]
    first = [counting.tokens(part) for part in parts]
    assert [counting.tokens(part) for part in parts] == first
    assert counting.n == len({tuple(tokens) for tokens in first}) == 3


def test_the_least_recently_used_make_way(vocabulary: Vocabulary) -> None:
    one, two, three = (Part("user", f"{word} " * 10) for word in ("one", "two", "three"))
    size = len(vocabulary.rendered.tokens(one, TokenBudget()))
    counting = Counting(vocabulary, max_tokens=2 * size)
    for part in (one, two, one, three):  # two makes way for three
        counting.tokens(part)
    assert counting.n == 3
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
    kept = sum(map(len, counting.parts._tokens.values()))
    assert counting.parts._n_tokens == kept <= 100


def test_a_continued_conversation_renders_new_messages_only(vocabulary: Vocabulary) -> None:
    messages = [Message(role="system", content="You are an agent."), Message(role="user")]
    for i in range(5):
        call = ToolRequest("read_file", {"path": f"file {i}"}, f"call_{i}")
        messages += [
            Message(role="assistant", tool_calls=(call,)),
            Message(role="tool", content=f"text of file {i}", tool_call_id=f"call_{i}"),
        ]
    counting = Counting(vocabulary)
    fresh = copy(vocabulary)
    fresh.rendered = counting.parts
    date = datetime.date(2026, 1, 2)
    render_chat(ChatRequest(messages=tuple(messages)), fresh, date)
    assert counting.n == 13
    messages.append(Message(role="user", content="And another thing?"))
    render_chat(ChatRequest(messages=tuple(messages)), fresh, date)
    assert counting.n == 14
