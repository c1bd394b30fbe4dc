"""`python` and `browser` as harmony declares them, calls them, and answers them."""

from pathlib import Path
from typing import Any

import openai_harmony as harmony
import pytest

from gptoss_local.engine.worker.sampling.mask import MaskCompiler
from gptoss_local.harmony import ChatRequest, Message, Tool, ToolRequest, Vocabulary
from gptoss_local.harmony.built_in import built_in
from gptoss_local.harmony.grammar import compile_grammar
from gptoss_local.harmony.message import JsonFormat
from gptoss_local.harmony.parser import HarmonyParser
from gptoss_local.harmony.render import render_chat
from tests.chat.masked import accepts
from tests.chat.test_parser import join

pytestmark = pytest.mark.quick

NAMES = ("browser.search", "browser.open", "browser.find", "python")
TOOLS = tuple(tool for name in NAMES if (tool := built_in(name)))
CODE = "xs = [1, 2]\nprint('日本' * 2, {x for x in xs})\n"


@pytest.fixture(scope="module")
def masks(nano_gguf: Path) -> MaskCompiler:
    return MaskCompiler(nano_gguf)


def rendered(vocabulary: Vocabulary, *messages: Message, tools: tuple[Tool, ...] = TOOLS) -> str:
    tokens = render_chat(ChatRequest(messages=messages, tools=tools), vocabulary)
    return str(vocabulary.encoding.decode(tokens))


def turn(*calls: ToolRequest, **fields: Any) -> Message:
    return Message(role="assistant", tool_calls=calls, **fields)


def test_only_declared_tools_are_shown(vocabulary: Vocabulary) -> None:
    two = rendered(vocabulary, tools=(TOOLS[1], TOOLS[2], Tool("f", "Does it.")))
    assert "type open" in two
    assert "type search" not in two
    assert "## python" not in two
    assert "type f = () => any" in two
    assert "namespace browser" not in rendered(vocabulary, tools=(TOOLS[3],))
    own = built_in("python", "Runs Python without files.")
    assert own is not None
    assert "## python\n\nRuns Python without files.\n" in rendered(vocabulary, tools=(own,))


def test_a_running_loop_renders_as_openai_harmony_does(
    vocabulary: Vocabulary, harmony_encoding: harmony.HarmonyEncoding
) -> None:
    messages = (
        Message(role="user", content="How many?"),
        turn(ToolRequest("python", {"code": CODE}, "a"), reasoning="Let me count."),
        Message(role="tool", content="2\n", tool_call_id="a"),
        turn(ToolRequest("browser.search", {"query": "日本", "topn": 3})),
        Message(role="tool", content="[0] ...", tool_name="browser.search"),
    )
    of = harmony.Message.from_role_and_content
    tool, me = harmony.Role.TOOL, harmony.Role.ASSISTANT

    def result(name: str, text: str) -> harmony.Message:
        author = harmony.Author(role=tool, name=name)
        message = harmony.Message.from_author_and_content(author, text)
        return message.with_channel("analysis").with_recipient("assistant")

    def call(name: str, text: str) -> harmony.Message:
        message = of(me, text).with_channel("analysis").with_recipient(name)
        return message.with_content_type("code")

    parts = [
        of(harmony.Role.USER, "How many?"),
        of(me, "Let me count.").with_channel("analysis"),
        call("python", CODE),
        result("python", "2\n"),
        call("browser.search", '{"query":"日本","topn":3}'),
        result("browser.search", "[0] ..."),
    ]
    theirs = "".join(harmony_encoding.decode(harmony_encoding.render(part)) for part in parts)
    assert rendered(vocabulary, *messages).endswith(f"<|end|>{theirs}<|start|>assistant")


def test_a_finished_turn_keeps_its_answer_alone(vocabulary: Vocabulary) -> None:
    """As with openai-harmony, calls of built-in tools go with the reasoning, others stay."""
    messages = (
        Message(role="user", content="How many?"),
        turn(ToolRequest("python", {"code": CODE}, "a"), reasoning="Let me count."),
        Message(role="tool", content="tool result", tool_call_id="a"),
        turn(ToolRequest("f", {"x": 1}, "b")),
        Message(role="tool", content="of f", tool_call_id="b"),
        Message(role="assistant", content="Two."),
        Message(role="user", content="Sure?"),
    )
    text = rendered(vocabulary, *messages, tools=(*TOOLS, Tool("f")))
    assert "tool result" not in text
    assert "Let me count" not in text
    assert "xs = [1, 2]" not in text
    assert "of f" in text
    assert '{"x":1}' in text
    assert text.endswith("Two.<|end|><|start|>user<|message|>Sure?<|end|><|start|>assistant")


def test_a_function_may_be_called_python(vocabulary: Vocabulary) -> None:
    own = Tool("python", "Runs a script.", {"type": "object", "properties": {"script": {}}})
    messages = (
        Message(role="user", content="Go"),
        turn(ToolRequest("python", {"script": "x"}, "a")),
        Message(role="tool", content="done", tool_call_id="a"),
    )
    text = rendered(vocabulary, *messages, tools=(own,))
    assert "to=functions.python" in text
    assert "<|start|>functions.python" in text


@pytest.mark.parametrize(
    ("header", "body", "code"),
    [
        ("<|channel|>analysis to=python code", CODE, CODE),
        (" to=python<|channel|>analysis code", CODE, CODE),
        ("<|channel|>commentary to=python", "[x for x in 'ab']", "[x for x in 'ab']"),
        ("<|channel|>analysis to=python code", "{'a': 1}", "{'a': 1}"),
        ("<|channel|>analysis to=python code", '{"a": 1}', '{"a": 1}'),
        ("<|channel|>analysis to=python <|constrain|>json", '{"code": "f()\\n"}', "f()\n"),
        ("<|channel|>analysis to=functions.python code", "1 + 1", "1 + 1"),
        ("<|channel|>analysis to=python code", "", ""),
    ],
)
def test_code_comes_as_it_was_written(
    vocabulary: Vocabulary, header: str, body: str, code: str
) -> None:
    for streams_calls in (False, True):
        tokens = vocabulary.encode_tagged(f"{header}<|message|>{body}<|call|>")
        parser = HarmonyParser(vocabulary, TOOLS, streams_calls=streams_calls)
        reasoning, content, (call,) = join(parser, tokens)
        assert (reasoning, content) == ("", "")
        assert (call.name, call.arguments) == ("python", {"code": code})


def test_cut_code_is_not_called(vocabulary: Vocabulary) -> None:
    tokens = vocabulary.encode_tagged("<|channel|>analysis to=python code<|message|>rm('a")
    _, _, calls = join(HarmonyParser(vocabulary, TOOLS), tokens)
    assert calls == []


def test_arguments_do_not_make_a_call_of_python(vocabulary: Vocabulary) -> None:
    text = '<|channel|>commentary to=functions.shell<|message|>{"code": "x"}<|call|>'
    parser = HarmonyParser(vocabulary, TOOLS)
    assert join(parser, vocabulary.encode_tagged(text))[2] == []


@pytest.mark.parametrize(
    "call",
    [
        "<|channel|>analysis to=python code<|message|>print(1)<|call|>",
        " to=python<|channel|>analysis code<|message|>print(1)<|call|>",
        '<|channel|>commentary to=browser.search <|constrain|>json<|message|>{"query":1}<|call|>',
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
        "<|channel|>analysis to=python code<|message|>print(1)<|call|>",
    ],
)
def test_a_format_leaves_room_for_calls(
    vocabulary: Vocabulary, masks: MaskCompiler, call: str
) -> None:
    grammar = compile_grammar(JsonFormat(), TOOLS)
    assert accepts(masks, vocabulary, grammar, call)
    only = compile_grammar(JsonFormat(), (Tool("f"), *TOOLS), must_call=["f"])
    assert not accepts(masks, vocabulary, only, call)
    other = call.replace("python", "other").replace("search", "x")
    assert not accepts(masks, vocabulary, grammar, other)
