"""Random texts and conversations have openai-harmony's tokens, and long words take a moment."""

import datetime
import json
import random
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai_harmony import (
    Author,
    Conversation,
    DeveloperContent,
    HarmonyEncoding,
    ReasoningEffort,
    RenderConversationConfig,
    Role,
    SystemContent,
    ToolDescription,
    ToolNamespaceConfig,
)
from openai_harmony import Message as Harmony

from gptoss_local.base.formats.o200k import SPECIAL_TOKENS
from gptoss_local.base.types import Effort
from gptoss_local.harmony import ChatRequest, Message, Tool, ToolRequest, Vocabulary
from gptoss_local.harmony.budget import TokenBudget
from gptoss_local.harmony.built_in import built_in
from gptoss_local.harmony.parts import Part
from gptoss_local.harmony.render import render_chat
from gptoss_local.harmony.vocabulary import _BORDER

SEED = 20261127
N_TEXTS, N_CONVERSATIONS = 1_500, 150
DATE = datetime.date(2026, 1, 2)
TAGS = list(SPECIAL_TOKENS.values())[:30]
NAMES = ("python", "browser.search", "browser.open", "browser.find")
BUILT_IN = [tool for name in NAMES if (tool := built_in(name))]
SCRIPTS = [(0x370, 0x590), (0x590, 0x700), (0x900, 0xE00), (0x3040, 0x3100), (0xAC00, 0xD7A4)]
WORDS = "the file's I'LL don’t HTTPServer a1b2 Zürich naïve ﬁ ǅ return self._x x² ½ ٣ Ⅷ"
SOURCE = """def f(x: int) -> str:
\t# it's
    return f'{x:>10}'\r\n\r\n\r\n
<a href="/b/c">&amp;</a>
"""


def spans(rng: random.Random) -> str:
    """Return a piece of text of one kind."""

    def of(*ranges: tuple[int, int], most: int = 20) -> str:
        first, last = rng.choice(ranges)
        return "".join(chr(rng.randrange(first, last)) for _ in range(rng.randint(1, most)))

    def run(of: list[str], most: int) -> str:
        return rng.choice(of) * rng.randint(1, most)

    kinds: list[Callable[[], str]] = [
        lambda: of((0, 0x20), (0x7F, 0xA1)),  # control characters
        lambda: of((0x20, 0x7F)),
        lambda: of((0x4E00, 0x9FFF)),
        lambda: of(*SCRIPTS),
        lambda: of((0x1F300, 0x1F700), (0x2600, 0x2800), (0x200B, 0x2010), (0xFE00, 0xFE10)),
        lambda: of((0x300, 0x370), (0x2000, 0x206F), (0xE000, 0xE100), (0xFFF0, 0x10000)),
        lambda: of((0x10000, sys.maxunicode)),
        lambda: of((0xD800, 0xE000), most=3),  # halves of surrogate pairs
        lambda: rng.choice(TAGS)[: rng.randint(1, 30)],
        lambda: rng.choice(TAGS) * rng.randint(1, 3),
        lambda: str(rng.randrange(10 ** rng.randint(1, 30))),
        lambda: "".join(rng.choices([" ", "\n", "\r", "\t", "\u00a0", "\u3000", "\x0b"], k=9)),
        lambda: run([" ", "\n", "\r\n", "\t", "\n\n", " \n"], 60),
        lambda: run(
            ["=", "-", "─", ".", "#", "a", "A", "ab", "漢", "é", "0", "👍🏽", "'s", "/"], 60
        ),
        lambda: " ".join(rng.choices(WORDS.split(), k=rng.randint(1, 20))),
        lambda: SOURCE[rng.randrange(len(SOURCE)) :],
    ]
    return rng.choice(kinds)()


def some_text(rng: random.Random) -> str:
    return "".join(spans(rng) for _ in range(rng.randint(0, 8)))


def texts(rng: random.Random) -> Iterator[str]:
    for _ in range(N_TEXTS):
        yield some_text(rng)
    for word in (" ", "\n", "a", "漢", ".", "A", "0", "👍🏽", "\t ", "<|end|>"):  # very long runs
        yield f"x{word * 4_000}y"
    yield "".join(spans(rng) for _ in range(20_000))  # many pieces


def test_texts(vocabulary: Vocabulary, harmony_encoding: HarmonyEncoding) -> None:
    rng = random.Random(SEED)
    for text in texts(rng):
        expected = harmony_encoding.encode(text, disallowed_special=())
        assert vocabulary.encode(text) == expected, repr(text)


def test_every_token(vocabulary: Vocabulary, harmony_encoding: HarmonyEncoding) -> None:
    words = [token.decode(errors="replace") for token in vocabulary.token_bytes]
    for i in range(0, len(words), 100):
        text = "\n".join(words[i : i + 100])
        expected = harmony_encoding.encode(text, disallowed_special=())
        assert vocabulary.encode(text) == expected, repr(text)


def test_tags_are_tokens_where_they_are_meant(
    vocabulary: Vocabulary, harmony_encoding: HarmonyEncoding
) -> None:
    tags = {"<|start|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|end|>", "<|return|>"}
    rng, known = random.Random(SEED + 1), {*tags, "<|call|>"}
    for _ in range(N_TEXTS):
        text = "".join(rng.choice([some_text(rng), *known]) for _ in range(8))
        expected = harmony_encoding.encode(text, allowed_special=known, disallowed_special=())
        assert vocabulary.encode_tagged(text) == expected, repr(text)


def conversation(rng: random.Random) -> tuple[ChatRequest, list[Harmony]]:
    """Return a random conversation in our words and in openai-harmony's."""

    def text() -> str:
        return some_text(rng).encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    ours: list[Message] = []
    theirs: list[Harmony] = []
    of = Harmony.from_role_and_content

    def ask() -> None:
        ours.append(Message(role="user", content=text(), name=rng.choice(["", "Ada", "é=漢"])))
        author = Author(role=Role.USER, name=ours[-1].name or None)
        theirs.append(Harmony.from_author_and_content(author, ours[-1].content))

    def call(*, is_finished: bool) -> None:
        """A finished turn loses its reasoning and its calls of built-in tools."""
        own = [tool.name for tool in tools]
        name = rng.choice(["f0", "functions.f", "a<|end|>b", "ls\n", "漢字", "x" * 2_000, *own])
        arguments = {"code" if name == "python" else text(): text()}
        reasoning, result = text(), text()
        request = ToolRequest(name, arguments)
        ours.append(Message(role="assistant", reasoning=reasoning, tool_calls=(request,)))
        ours.append(Message(role="tool", content=result))
        if reasoning and not is_finished:
            theirs.append(of(Role.ASSISTANT, reasoning).with_channel("analysis"))
        body = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
        channel, recipient, kind = "commentary", f"functions.{name}", "<|constrain|>json"
        if name in own:
            if is_finished:
                return
            body = arguments["code"] if name == "python" else body
            channel, recipient, kind = "analysis", name, "code"
        said = of(Role.ASSISTANT, body).with_channel(channel)
        author = Author(role=Role.TOOL, name=recipient)
        answer = Harmony.from_author_and_content(author, result).with_channel(channel)
        theirs.append(said.with_recipient(recipient).with_content_type(kind))
        theirs.append(answer.with_recipient("assistant"))

    tools = [tool for tool in BUILT_IN if rng.random() < 0.3]
    functions = [Tool(f"f{i}", text()) for i in range(rng.randint(0, 2))]
    effort: Effort = rng.choice(["low", "medium", "high"])
    system = SystemContent.new().with_conversation_start_date(DATE.isoformat())
    system = system.with_reasoning_effort(ReasoningEffort(effort.capitalize()))
    for namespace in (ToolNamespaceConfig.browser(), ToolNamespaceConfig.python()):
        known = [tool.name for tool in tools if tool.name.split(".")[0] == namespace.name]
        namespace.tools = [e for e in namespace.tools if f"{namespace.name}.{e.name}" in known]
        if known:
            system = system.with_tools(namespace)
    theirs.append(of(Role.SYSTEM, system))
    developer, instructions = DeveloperContent.new(), text()
    if instructions:
        ours.append(Message(role="system", content=instructions))
        developer = developer.with_instructions(instructions)
    if functions:
        described = [ToolDescription.new(t.name, t.description) for t in functions]
        developer = developer.with_function_tools(described)
    if instructions or functions:
        theirs.append(of(Role.DEVELOPER, developer))
    for _ in range(rng.randint(0, 3)):
        ask()
        for _ in range(rng.choice([0, 0, 1, 2])):
            call(is_finished=True)
        ours.append(Message(role="assistant", content=text() or ".", reasoning=text()))
        theirs.append(of(Role.ASSISTANT, ours[-1].content).with_channel("final"))
    ask()
    for _ in range(rng.choice([0, 0, 1, 3])):
        call(is_finished=False)
    request = ChatRequest(messages=tuple(ours), tools=(*tools, *functions), effort=effort)
    return request, theirs


def test_whole_conversations(vocabulary: Vocabulary, harmony_encoding: HarmonyEncoding) -> None:
    rng, keeps_all = random.Random(SEED + 2), RenderConversationConfig(auto_drop_analysis=False)
    for _ in range(N_CONVERSATIONS):
        request, messages = conversation(rng)
        expected = harmony_encoding.render_conversation_for_completion(
            Conversation.from_messages(messages), Role.ASSISTANT, keeps_all
        )
        assert render_chat(request, vocabulary, DATE) == expected, request


N = 300_000  # characters: openai-harmony takes 40 s
LONG = ["a", " ", "\n", "👋🏽", "a\u0301", "漢", ".", "─", "ACGT", "\r\n", "A", "'s", "é"]


@pytest.mark.timing
@pytest.mark.parametrize("word", LONG)
def test_long_words_take_a_moment(vocabulary: Vocabulary, word: str) -> None:
    """Tools print dots, lines, and alphabets without spaces."""
    text = "Output: " + word * (N // len(word)) + " end"
    start_s = time.monotonic()
    tokens = vocabulary.encode(text)
    assert time.monotonic() - start_s < 10
    assert vocabulary.encoding.decode(tokens) == text
    result = Part("tool", text, "commentary", "assistant", name="f")
    rendered = vocabulary.encoding.decode(vocabulary.rendered.tokens(result, TokenBudget()))
    header = "<|start|>f to=assistant<|channel|>commentary<|message|>"
    assert rendered == f"{header}{text}<|end|>"


UNITS = [*WORDS.split(), *LONG, "12345", "->", "//", "...", "\n\n    ", "\u3000", "<|end|>", "$5"]
TEXTS = st.lists(st.sampled_from(UNITS), max_size=60).map("".join)


@given(TEXTS | st.text(alphabet="aZ漢1 .,'\n\u0301é²", max_size=400))
def test_pieces_that_end_at_a_border_have_the_tokens_of_the_whole(
    vocabulary: Vocabulary, text: str
) -> None:
    for border in _BORDER.finditer(text):
        parts = text[: border.start()], text[border.start() :]
        tokens = [token for part in parts for token in vocabulary.encode(part)]
        assert tokens == vocabulary.encoding.encode(text, disallowed_special=()), parts
