"""Messages rendered one by one, and kept, are as openai-harmony renders whole conversations."""

from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st
from openai_harmony import (
    Conversation,
    HarmonyEncoding,
    RenderConversationConfig,
    RenderOptions,
    Role,
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
    role=st.sampled_from([Role.USER, Role.DEVELOPER, Role.ASSISTANT]),
    text=TEXTS,
    channel=st.sampled_from(["", "analysis", "commentary", "final"]),
    recipient=NAMES,
    content_type=st.sampled_from(["", "<|constrain|>json"]),
) | st.builds(
    Part,
    role=st.just(Role.TOOL),
    text=TEXTS,
    channel=st.just("commentary"),
    recipient=st.just("assistant"),
    name=NAMES.filter(bool),
)


class CountingEncoding:
    """openai-harmony's, which counts what it is asked."""

    def __init__(self, encoding: HarmonyEncoding) -> None:
        self._encoding, self.n = encoding, 0

    def render(self, message: HarmonyMessage, options: RenderOptions) -> list[int]:
        self.n += 1
        tokens: list[int] = self._encoding.render(message, options)
        return tokens


@given(parts=st.lists(PARTS, max_size=8))
def test_parts_are_as_in_a_conversation(vocabulary: Vocabulary, parts: list[Part]) -> None:
    messages = [
        HarmonyMessage.from_dict(
            {
                "role": part.role.value,
                "name": part.name or None,
                "content": part.text,
                "channel": part.channel or None,
                "recipient": part.recipient or None,
                "content_type": part.content_type or None,
            }
        )
        for part in parts
    ]
    expected = vocabulary.encoding.render_conversation(
        Conversation.from_messages(messages), RenderConversationConfig(auto_drop_analysis=False)
    )
    for _ in range(2):
        assert [
            token for part in parts for token in vocabulary.rendered.tokens(part, TokenBudget())
        ] == expected


def test_a_message_is_rendered_once(vocabulary: Vocabulary) -> None:
    encoding = CountingEncoding(vocabulary.encoding)
    rendered = RenderedParts(encoding)
    parts = [Part(Role.USER, "hi"), Part(Role.USER, "hi", name="x"), Part(Role.DEVELOPER, "hi")]
    first = [rendered.tokens(part, TokenBudget()).tolist() for part in parts]
    assert [rendered.tokens(part, TokenBudget()).tolist() for part in parts] == first
    assert encoding.n == len({tuple(tokens) for tokens in first}) == 3


def test_the_least_recently_used_make_way(vocabulary: Vocabulary) -> None:
    encoding = CountingEncoding(vocabulary.encoding)
    one, two, three = (Part(Role.USER, f"{word} " * 10) for word in ("one", "two", "three"))
    size = len(vocabulary.rendered.tokens(one, TokenBudget()))
    rendered = RenderedParts(encoding, max_tokens=2 * size)
    for part in (one, two, one, three):  # two makes way for three
        rendered.tokens(part, TokenBudget())
    assert encoding.n == 3
    for part in (one, three):
        rendered.tokens(part, TokenBudget())
    assert encoding.n == 3
    rendered.tokens(two, TokenBudget())
    assert encoding.n == 4
    longer = Part(Role.USER, "word " * 100)
    assert rendered.tokens(longer, TokenBudget()) == vocabulary.rendered.tokens(
        longer, TokenBudget()
    )  # longer than all


def test_threads_may_render_at_once(vocabulary: Vocabulary) -> None:
    rendered = RenderedParts(vocabulary.encoding, max_tokens=100)
    parts = [Part(Role.USER, f"number {i % 20}") for i in range(400)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda part: rendered.tokens(part, TokenBudget()), parts))
    assert found == [vocabulary.rendered.tokens(part, TokenBudget()) for part in parts]
    kept = sum(map(len, rendered._tokens.values()))
    assert rendered._n_tokens == kept <= 100


def test_a_conversation_that_goes_on_renders_what_is_new(vocabulary: Vocabulary) -> None:
    messages = [Message(role="system", content="You are an agent."), Message(role="user")]
    for i in range(5):
        call = ToolRequest("read_file", {"path": f"file {i}"}, f"call_{i}")
        messages += [
            Message(role="assistant", tool_calls=(call,)),
            Message(role="tool", content=f"text of file {i}", tool_call_id=f"call_{i}"),
        ]
    encoding = CountingEncoding(vocabulary.encoding)
    fresh = Vocabulary(vocabulary.encoding, vocabulary.token_bytes)
    fresh.rendered = RenderedParts(encoding)
    render_chat(ChatRequest(messages=tuple(messages)), fresh)
    assert encoding.n == 12
    messages.append(Message(role="user", content="And another thing?"))
    render_chat(ChatRequest(messages=tuple(messages)), fresh)
    assert encoding.n == 13
