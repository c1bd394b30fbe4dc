"""The parser never confuses text, headers and calls, no matter how a model slips."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptoss_local.base.formats.o200k import FIRST_SPECIAL
from gptoss_local.harmony import ContentDelta, ReasoningDelta, Tool, ToolCall, Vocabulary
from gptoss_local.harmony.built_in import built_in
from gptoss_local.harmony.header import is_rest_of_header
from gptoss_local.harmony.parser import BadCall, HarmonyParser, RawParser
from tests.chat.test_calls import function

Read = tuple[str, str, list[tuple[str, dict[str, Any]]]]


BASH = function("bash", "command", command="string")
WEATHER = function("get_weather", "city", city="string")
GREP = function("grep", "pattern", pattern="string", path="string", line="integer")
NOW = function("now")
TOOLS = (BASH, WEATHER, GREP, NOW)
NAMES = ("browser.search", "browser.open", "browser.find", "python")
BUILT_IN = tuple(tool for name in NAMES if (tool := built_in(name)))
ANY = (Tool("f"), Tool("g"), Tool("say"), Tool("say hi"))
SHORT = {
    "C": "<|channel|>", "M": "<|message|>", "E": "<|end|>", "S": "<|start|>",
    "K": "<|constrain|>", "L": "<|call|>", "R": "<|return|>",
}  # fmt: skip


def tagged(text: str) -> str:
    """Spell out tags: `⟨C⟩` stands for `<|channel|>`, ⟨K⟩ for constrain, ⟨L⟩ for call."""
    for letter, tag in SHORT.items():
        text = text.replace(f"⟨{letter}⟩", tag)
    return text


def join(parser: HarmonyParser, tokens: list[int]) -> tuple[str, str, list[ToolCall]]:
    """Return reasoning, content and calls."""
    events = [event for token in tokens for event in parser.feed(token)] + parser.finish()
    return (
        "".join(e.text for e in events if isinstance(e, ReasoningDelta)),
        "".join(e.text for e in events if isinstance(e, ContentDelta)),
        [e for e in events if isinstance(e, ToolCall)],
    )


def read(vocabulary: Vocabulary, text: str, tools: tuple[Tool, ...] = TOOLS, **how: bool) -> Read:
    parser = HarmonyParser(vocabulary, tools, **how)
    reasoning, content, calls = join(parser, vocabulary.encode_tagged(tagged(text)))
    return reasoning, content, [(call.name, call.arguments) for call in calls]


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("⟨C⟩analysis⟨M⟩Easy.⟨E⟩⟨S⟩assistant⟨C⟩final⟨M⟩Hi 👋🏽!⟨R⟩", "Easy.", "Hi 👋🏽!"),
        ("Plain words⟨R⟩", "", "Plain words"),
        ("⟨M⟩no channel⟨R⟩", "", "no channel"),
        ("⟨C⟩final⟨M⟩x⟨S⟩assistant⟨C⟩final⟨M⟩y", "", "x\n\ny"),
        ("⟨C⟩analysis⟨M⟩t⟨C⟩final⟨M⟩a⟨R⟩", "t", "a"),
        ("⟨C⟩final⟨M⟩a⟨M⟩b⟨R⟩", "", "ab"),
        ("⟨S⟩assistant⟨C⟩final⟨M⟩a⟨R⟩", "", "a"),
        ("⟨C⟩bogus⟨M⟩a⟨R⟩", "a", ""),
        ("⟨E⟩⟨E⟩⟨S⟩", "", ""),
        ("⟨C⟩final Hello there⟨R⟩", "", "Hello there"),
        ("⟨C⟩analysis Hm.⟨E⟩⟨S⟩assistant⟨C⟩final: Hi⟨R⟩", "Hm.", "Hi"),
        ("⟨C⟩analysis⟨M⟩a⟨E⟩⟨S⟩assistant", "a", ""),
        ("⟨C⟩analysis⟨M⟩a⟨E⟩⟨S⟩assistant⟨C⟩analysis⟨M⟩b⟨E⟩⟨S⟩assistant⟨C⟩final⟨M⟩c⟨R⟩",
         "a\n\nb", "c"),
        ("⟨C⟩final⟨M⟩a⟨E⟩⟨S⟩functions.f to=assistant⟨C⟩commentary⟨M⟩made up⟨E⟩", "", "a"),
        ("⟨C⟩analysis Maybe call to=functions.bash with ls.⟨E⟩",
         "Maybe call to=functions.bash with ls.", ""),
        ("⟨C⟩analysis⟨M⟩a⟨E⟩⟨S⟩assistant Hi. Run scp --to=host file, then stop.",
         "a", "Hi. Run scp --to=host file, then stop."),
        ("⟨C⟩commentary to=functions.bash ⟨K⟩write: edit file with content.⟨E⟩",
         "write: edit file with content.", ""),
        ("⟨C⟩commentary to=functions.bash rm -rf /⟨L⟩", "rm -rf /", ""),
        ("⟨C⟩final to=5 is enough⟨R⟩", "", "to=5 is enough"),
        # junk of a broken header, and a proper message after it
        ("⟨C⟩??⟨E⟩⟨S⟩assistant⟨C⟩analysis⟨M⟩think⟨E⟩⟨S⟩assistant⟨C⟩final⟨M⟩Hi⟨R⟩",
         "think\n\n??", "Hi"),
        ("⟨C⟩commentary 2?⟨E⟩⟨S⟩assistant⟨C⟩final⟨M⟩Hi⟨R⟩", "2?", "Hi"),
        ("⟨C⟩We need to answer the user.⟨E⟩⟨S⟩assistant⟨C⟩final⟨M⟩Hi⟨R⟩",
         "We need to answer the user.", "Hi"),
        ("The answer is 4.⟨C⟩final⟨M⟩It is 4.⟨R⟩", "The answer is 4.", "It is 4."),
        ("⟨C⟩final we see⟨M⟩Hi⟨R⟩", "we see", "Hi"),
        # and without one, it is the answer
        ("⟨C⟩??⟨E⟩⟨S⟩assistant⟨C⟩analysis⟨M⟩think⟨R⟩", "think", "??"),
        ("⟨C⟩Hello⟨E⟩", "", "Hello"),
        ("⟨C⟩final Hello⟨E⟩⟨S⟩assistant there", "", "Hello\n\nthere"),
        # a function's name without the tag of a call
        ("⟨C⟩functions.bash⟨M⟩We should run bash.⟨E⟩", "We should run bash.", ""),
        ("⟨C⟩analysis functions.bash⟨M⟩We run it.⟨E⟩", "We run it.", ""),
        ("⟨C⟩commentary⟨M⟩Use {} here.⟨E⟩", "", "Use {} here."),
        ('⟨C⟩commentary⟨M⟩{"city":"Oslo"}⟨E⟩', "", '{"city":"Oslo"}'),
        ('⟨C⟩final⟨M⟩{"city":"Oslo"}⟨R⟩', "", '{"city":"Oslo"}'),
        ('⟨S⟩functions.get_weather⟨C⟩commentary⟨M⟩{"city":"Oslo"}⟨E⟩', '{"city":"Oslo"}', ""),
        # channels in another case
        ("⟨C⟩Analysis⟨M⟩think⟨E⟩⟨S⟩assistant⟨C⟩FINAL⟨M⟩Hi⟨R⟩", "think", "Hi"),
        ("⟨C⟩analysis code is poetry⟨E⟩", "code is poetry", ""),
        ("⟨C⟩finally⟨M⟩a⟨R⟩", "a", ""),
        # the final channel is the answer, whoever it names and whoever speaks
        *((f"{header}⟨M⟩Paris⟨R⟩", "", "Paris") for header in
          ("⟨C⟩final to=user", "⟨C⟩final to=assistant", " to=user⟨C⟩final", "⟨S⟩user⟨C⟩final",
           "⟨S⟩tool⟨C⟩final", "⟨S⟩functions.get_weather⟨C⟩final", "⟨C⟩final to=functions.bash",
           "⟨S⟩assistant to=all⟨C⟩final")),
        ("⟨C⟩finalParis is it⟨R⟩", "", "Paris is it"),
        ("⟨C⟩analysisWe need⟨E⟩", "We need", ""),
    ],
)  # fmt: skip
def test_slips_lose_no_text_and_show_no_tag(
    vocabulary: Vocabulary, text: str, reasoning: str, content: str
) -> None:
    assert read(vocabulary, text) == (reasoning, content, [])


def test_open_channels(vocabulary: Vocabulary) -> None:
    """A second message of a kind is a paragraph of its own, as in a whole answer."""
    assert read(vocabulary, "Hi⟨R⟩", opens_final=True) == ("", "Hi", [])
    text = "so 4.⟨E⟩⟨S⟩assistant⟨C⟩analysis⟨M⟩Yes.⟨E⟩⟨S⟩assistant⟨C⟩final⟨M⟩Hi⟨R⟩"
    assert read(vocabulary, text, opens_analysis=True) == ("so 4.\n\nYes.", "Hi", [])
    assert read(vocabulary, "so 4", opens_analysis=True) == ("so 4", "", [])


@settings(max_examples=4 * settings.default.max_examples)  # type: ignore[union-attr]
@given(data=st.data())
def test_text_without_tags_is_content(vocabulary: Vocabulary, data: st.DataObject) -> None:
    words = [" to=functions.bash", "to=", "functions.bash", " analysis", "final", "commentary"]
    words += ["assistant", "user", " json", '{"command": "ls"}', "\0", "\1", "é漢👋🏽"]
    words += ["https://x.org/a?photo=12&b=1", "Run: send --to=alice", "goto=functions.bash"]
    pieces = st.sampled_from([*words, "\n", " ", "-", "("]) | st.text(max_size=8)
    text = data.draw(st.lists(pieces, max_size=12).map("".join)).encode("utf-8", "replace").decode()
    end = data.draw(st.sampled_from(["", "⟨R⟩", "⟨E⟩"]))
    if text.strip().startswith("to="):
        end = "⟨R⟩"
    is_text = bool(text.strip()) and not (end == "" and is_rest_of_header(text))
    assert read(vocabulary, text + end) == ("", text * is_text, [])


A = "⟨C⟩analysis⟨M⟩think⟨E⟩⟨S⟩assistant"
BODY = '⟨M⟩{"city":"Oslo"}'
OSLO = [("get_weather", {"city": "Oslo"})]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("⟨C⟩commentary to=functions.say hi ⟨K⟩json⟨M⟩{}⟨L⟩", [("say hi", {})]),
        # without a tag
        ("⟨C⟩commentary to=functions.f ⟨K⟩json{}⟨L⟩", [("f", {})]),
        ("⟨C⟩commentary to=functions.f⟨M⟩{}⟨S⟩assistant", [("f", {})]),
        ("⟨C⟩commentary to=functions.f⟨M⟩{}", [("f", {})]),
        ('⟨C⟩commentary to=functions.get_weather{"city":"Oslo"}⟨L⟩', OSLO),
        ('⟨C⟩commentary to=functions.get_weather({"city":"Oslo"})⟨L⟩', OSLO),
        ('⟨C⟩commentary to=functions.get_weather:{"city":"Oslo"}⟨L⟩', OSLO),
        ('⟨C⟩commentary to=functions.get_weather={"city":"Oslo"}⟨E⟩', OSLO),
        ('⟨C⟩commentary to=get_weather {"city": "Oslo"}⟨L⟩', OSLO),
        ('⟨C⟩commentary to=functions.get_weather{"city":"Oslo"}⟨M⟩⟨L⟩', OSLO),
        ('⟨C⟩commentary to=functions.get_weather ⟨K⟩json{"city":"Oslo"}⟨L⟩', OSLO),
        ('⟨S⟩assistant to=functions.get_weather {"city":"Oslo"}⟨L⟩', OSLO),
        (' to=functions.get_weather{"city":"Oslo"}⟨L⟩', OSLO),
        ('⟨C⟩commentary 2?⟨E⟩⟨S⟩assistant⟨C⟩commentary to=get_weather⟨M⟩{"city":"Oslo"}⟨L⟩', OSLO),
        ("⟨C⟩commentary to=functions.now⟨L⟩", [("now", {})]),
        ("⟨C⟩commentary to=functions.now ⟨K⟩json⟨L⟩", [("now", {})]),
        ("⟨C⟩commentary to=functions.now⟨E⟩", [("now", {})]),
        ("⟨C⟩commentary to=functions.now{}⟨L⟩", [("now", {})]),
        # the recipient is forgotten, or elsewhere
        *((f"{A}{header}{BODY}⟨L⟩", OSLO) for header in
          ("⟨C⟩functions.get_weather ⟨K⟩json", " to=assistant⟨C⟩analysis", "⟨C⟩commentary",
           "⟨C⟩analysis", "⟨C⟩analysis functions.getWeather")),
        (f"⟨S⟩functions.get_weather⟨C⟩commentary{BODY}⟨L⟩", OSLO),
        (f"functions.get_weather⟨C⟩commentary{BODY}⟨L⟩", OSLO),
        (f"⟨C⟩commentary functions.get_weather{BODY}⟨E⟩", OSLO),
        # without arguments
        *((f"⟨C⟩commentary to=functions.now⟨M⟩{body}⟨L⟩", [("now", {})]) for body in
          ("", "null", "[]", '""', "{,}", "```json\n{}\n```", "{}.", " { } ", "None")),
        ("⟨C⟩commentary to=functions.now⟨M⟩{}{}⟨L⟩", [("now", {})] * 2),
    ],
)  # fmt: skip
def test_calls_in_every_spelling(
    vocabulary: Vocabulary, text: str, calls: list[tuple[str, Any]]
) -> None:
    assert read(vocabulary, text, (*TOOLS, *ANY))[1:] == ("", calls)


def test_preamble_and_calls(vocabulary: Vocabulary) -> None:
    text = (
        "⟨C⟩commentary⟨M⟩I look it up.⟨E⟩⟨S⟩assistant⟨C⟩commentary to=functions.now⟨M⟩{}⟨E⟩"
        '⟨S⟩assistant⟨C⟩commentary to=functions.grep⟨M⟩{"pattern": "x"}\n{"pattern": "y"}⟨L⟩'
    )
    parser = HarmonyParser(vocabulary, TOOLS)
    _, content, calls = join(parser, vocabulary.encode_tagged(tagged(text)))
    assert content == "I look it up."
    arguments = [{}, {"pattern": "x"}, {"pattern": "y"}]
    assert [(call.index, call.arguments) for call in calls] == list(enumerate(arguments))
    assert len({call.id for call in calls}) == 3
    assert all(call.id.startswith("call_") and len(call.id) == 13 for call in calls)


@pytest.mark.parametrize("body", ["not json", "[1, 2]", '{"a": ', "12", '{"a":' * 4000])
def test_a_body_that_fits_no_function_is_reasoning(vocabulary: Vocabulary, body: str) -> None:
    text = f"⟨C⟩commentary to=functions.f ⟨K⟩json⟨M⟩{body}⟨L⟩"
    assert read(vocabulary, text, ANY) == (body, "", [])


@pytest.mark.parametrize(
    "after", ["⟨C⟩final⟨M⟩done⟨R⟩", "⟨S⟩assistant⟨C⟩final⟨M⟩done⟨R⟩", "⟨R⟩", ""]
)
@pytest.mark.parametrize("body", ['{"command":"rm -rf /tmp/x', '{"command":', "rm -rf /tmp/x", ""])
@pytest.mark.parametrize("opening", ["⟨M⟩", ""])
def test_cut_calls_are_not_completed(
    vocabulary: Vocabulary, opening: str, body: str, after: str
) -> None:
    """Cut by another message, or by the end of the answer; by the limit, see test_ends."""
    text = f"⟨C⟩commentary to=functions.bash {opening}{body}{after}"
    reasoning, content, calls = read(vocabulary, text)
    assert calls == []
    assert reasoning == (body if after else "")
    assert content == ("done" if "done" in after else "")


@pytest.mark.parametrize("role", ["user", "system", " user", "tool", "functions.f"])
@pytest.mark.parametrize("opening", ["⟨M⟩", "⟨C⟩final⟨M⟩", " "])
def test_invented_speakers_are_no_answer(vocabulary: Vocabulary, role: str, opening: str) -> None:
    """A model that ends its answer with `<|end|>` may continue with the next question."""
    more = f"⟨S⟩{role}{opening}And of Italy?⟨E⟩⟨S⟩assistant⟨C⟩final⟨M⟩Rome.⟨R⟩"
    assert read(vocabulary, "⟨C⟩final⟨M⟩Paris.⟨E⟩" + more, ANY) == ("", "Paris.", [])
    content = "And of Italy?\n\nRome." if "final" in opening else "Rome."
    assert read(vocabulary, "⟨C⟩analysis⟨M⟩Hm.⟨E⟩" + more, ANY)[1:] == (content, [])
    assert len(read(vocabulary, f"⟨E⟩⟨S⟩{role} to=functions.f⟨M⟩{{}}⟨L⟩", ANY)[2]) == 1


@pytest.mark.parametrize("role", ["functions.get_weather to=assistant", "user", "weather", "tool"])
@pytest.mark.parametrize("first", ["⟨C⟩commentary to=now⟨M⟩{}⟨E⟩", "⟨C⟩final⟨M⟩So.⟨E⟩"])
def test_an_answer_ends_where_somebody_else_speaks(
    vocabulary: Vocabulary, first: str, role: str
) -> None:
    more = f'⟨S⟩{role}⟨C⟩commentary⟨M⟩{{"temp":9}}⟨E⟩⟨S⟩assistant⟨C⟩final⟨M⟩It is 9.⟨R⟩'
    assert read(vocabulary, first + more) == read(vocabulary, first)
    parser = HarmonyParser(vocabulary, TOOLS)
    join(parser, vocabulary.encode_tagged(tagged(first + more)))
    assert parser.is_over


@pytest.mark.parametrize(
    ("text", "bad", "reasoning", "content"),
    [
        ('⟨C⟩commentary to=functions.rm⟨M⟩{"path": "/"}⟨L⟩',
         BadCall("functions.rm", "undeclared"), '{"path": "/"}', ""),
        ("⟨C⟩analysis to=python code⟨M⟩print(1)⟨L⟩",
         BadCall("python", "undeclared"), "print(1)", ""),
        ("⟨C⟩analysis to=python code print(1)⟨L⟩",
         BadCall("python", "undeclared"), "code print(1)", ""),
        ("⟨C⟩functions.nothing⟨M⟩{}⟨L⟩", BadCall("functions.nothing", "undeclared"), "{}", ""),
        ("⟨C⟩commentary to=functions.bash ⟨K⟩json⟨M⟩First `rm -rf build`, but…⟨L⟩",
         BadCall("functions.bash", "unfit"), "First `rm -rf build`, but…", ""),
        ("⟨C⟩commentary ⟨K⟩functions.bash⟨M⟩First remove it.⟨L⟩",
         BadCall("functions.bash", "unfit"), "First remove it.", ""),
        ("⟨C⟩analysis⟨M⟩I call it now.⟨L⟩", BadCall("", "unnamed"), "I call it now.", ""),
        ('⟨C⟩analysis to=assistant⟨M⟩{"town": "Oslo"}⟨L⟩',
         BadCall("", "unnamed"), '{"town": "Oslo"}', ""),
        ("⟨C⟩commentary⟨M⟩I look.⟨L⟩", BadCall("", "unnamed"), "", "I look."),
        ('⟨C⟩commentary⟨M⟩{"city":"Oslo",}⟨L⟩',
         BadCall("", "unnamed"), '{"city":"Oslo",}', ""),
        ('⟨C⟩commentary to=functions.rm⟨M⟩{"path": "/"}⟨E⟩',
         BadCall("functions.rm", "undeclared"), '{"path": "/"}', ""),
        ("⟨C⟩final⟨M⟩Paris.⟨L⟩", None, "", "Paris."),
        ("⟨C⟩commentary to=functions.now⟨M⟩{}⟨E⟩⟨L⟩", None, "", ""),
    ],
)  # fmt: skip
def test_a_call_that_fits_nothing_can_be_corrected(
    vocabulary: Vocabulary, text: str, bad: BadCall | None, reasoning: str, content: str
) -> None:
    """Its body is reasoning."""
    parser = HarmonyParser(vocabulary, TOOLS)
    tokens = vocabulary.encode_tagged(tagged(text))
    events = [event for token in tokens for event in parser.feed(token)]
    assert any(isinstance(event, ToolCall) for event in events) == ("{}⟨E⟩" in text)
    assert parser.bad_call == bad
    assert read(vocabulary, text)[:2] == (reasoning, content)
    answered = (content + "\n\n" * bool(content) + "Well.") if bad else content
    if bad:
        assert read(vocabulary, text + "⟨C⟩final⟨M⟩Well.⟨R⟩")[1] == answered


CODE = "xs = [1, 2]\nprint('日本' * 2, {x for x in xs})\n"


@pytest.mark.parametrize(
    ("header", "body", "name", "arguments"),
    [
        ("⟨C⟩analysis to=python code", CODE, "python", {"code": CODE}),
        (" to=python⟨C⟩analysis code", CODE, "python", {"code": CODE}),
        ("⟨C⟩commentary to=python", "[x for x in 'ab']", "python", {"code": "[x for x in 'ab']"}),
        ("⟨C⟩analysis to=python code", "{'a': 1}", "python", {"code": "{'a': 1}"}),
        ("⟨C⟩analysis to=python code", '{"a": 1}', "python", {"code": '{"a": 1}'}),
        ("⟨C⟩analysis to=python ⟨K⟩json", '{"code": "f()\\n"}', "python", {"code": "f()\n"}),
        ("⟨C⟩analysis to=functions.python code", "1 + 1", "python", {"code": "1 + 1"}),
        ("⟨C⟩analysis to=python code", "", "python", {"code": ""}),
        ("⟨C⟩analysis to=browser.search code", '{"query": "x"}', "browser.search", {"query": "x"}),
        ("⟨C⟩commentary to=functions.browser.open json", '{"id": 1}', "browser.open", {"id": 1}),
    ],
)  # fmt: skip
def test_the_tools_that_harmony_trained(
    vocabulary: Vocabulary, header: str, body: str, name: str, arguments: dict[str, Any]
) -> None:
    """Built in or declared by a client, they are called in the analysis and with bare code."""
    own = (function("python", code="string"), Tool("browser.search"), Tool("browser.open"))
    found = ("", "", [(name, arguments)])
    for how in ({}, {"streams_calls": True}):
        assert read(vocabulary, f"{header}⟨M⟩{body}⟨L⟩", BUILT_IN, **how) == found
    if "browser" in name or body == "1 + 1":  # other code could be arguments with a slip
        assert read(vocabulary, f"{header}⟨M⟩{body}⟨L⟩", own) == found


def test_only_whole_calls_of_python_run(vocabulary: Vocabulary) -> None:
    assert read(vocabulary, "⟨C⟩analysis to=python code⟨M⟩rm('a", BUILT_IN)[2] == []
    named_otherwise = '⟨C⟩commentary to=functions.shell⟨M⟩{"code": "x"}⟨L⟩'
    assert read(vocabulary, named_otherwise, BUILT_IN)[2] == []


@settings(max_examples=4 * settings.default.max_examples)  # type: ignore[union-attr]
@given(data=st.data())
def test_no_slip_of_a_header_loses_a_call(vocabulary: Vocabulary, data: st.DataObject) -> None:
    """The function is named anywhere a header has a place for a word, and `<|call|>` ends it."""

    def pick(*options: Any) -> Any:
        return data.draw(st.sampled_from(options))

    name, arguments = pick(OSLO[0], ("grep", {"pattern": "x"}))
    to = f"{pick('', 'to=', 'to= ', ' to=', ' ')}{pick('functions.', '')}{name}"
    channel = pick("commentary", "analysis", "Commentary", "")
    some, kind = channel or "commentary", pick("", " ⟨K⟩json", " json", "⟨K⟩json ", " code")
    header = pick(
        f" {to}⟨C⟩{some}{kind}", f"⟨S⟩assistant {to}⟨C⟩{some}{kind}", f"⟨C⟩{channel} {to}{kind}",
        f"⟨C⟩{some}⟨K⟩{to.strip()}", f"⟨C⟩{some}⟨C⟩{channel} {to}{kind}",
    )  # fmt: skip
    before = pick("", A, f"{A}⟨C⟩commentary⟨M⟩I look.⟨E⟩⟨S⟩assistant")
    text = f"{before}{header}⟨M⟩{msgspec.json.encode(arguments).decode()}⟨L⟩"
    said = "think" * (A in before), "I look." * ("look" in before)
    assert read(vocabulary, text) == (*said, [(name, arguments)]), text


ANSWERS: list[tuple[str, str, list[tuple[str, Any]]]] = [
    ("⟨C⟩analysis⟨M⟩Perhaps alpha to=functions.bash beta.⟨E⟩"
     "⟨S⟩assistant⟨C⟩commentary⟨M⟩Gamma I look.⟨E⟩⟨S⟩assistant⟨C⟩commentary to=functions.bash "
     '⟨K⟩json⟨M⟩{"command": "delta --to=epsilon"}⟨L⟩',
     "alpha beta Gamma delta epsilon", [("bash", {"command": "delta --to=epsilon"})]),
    ("⟨C⟩analysis⟨M⟩Alpha beta.⟨E⟩"
     "⟨S⟩assistant⟨C⟩final⟨M⟩Gamma: run `x to=functions.bash rm`, delta.⟨R⟩",
     "Alpha beta Gamma delta", []),
    ('⟨S⟩assistant to=functions.grep⟨C⟩commentary json⟨M⟩{"pattern": "alpha", "path": "beta"}⟨L⟩',
     "alpha beta", [("grep", {"pattern": "alpha", "path": "beta"})]),
]  # fmt: skip


@pytest.mark.parametrize("number", range(3))
def test_one_wrong_tag_loses_no_word_and_makes_no_call(vocabulary: Vocabulary, number: int) -> None:
    """Each tag of an answer is left out, or replaced by any other, and so are some pairs."""
    answer, words, right = ANSWERS[number]
    parts = answer.replace("⟨", "\n⟨").replace("⟩", "⟩\n").split("\n")
    places = [i for i, part in enumerate(parts) if part.startswith("⟨")]
    others = ["", *(f"⟨{letter}⟩" for letter in SHORT)]
    changes = [[(place, other)] for place in places for other in others]
    rng = random.Random(number)
    for _ in range(300):
        changes.append([(rng.choice(places), rng.choice(others)) for _ in range(2)])
    for change in changes:
        mutated = list(parts)
        for place, other in change:
            mutated[place] = other
        reasoning, content, calls = read(vocabulary, "".join(mutated))
        shown = reasoning + content + str(calls)
        is_cut_call = mutated[-2:] == ["", ""] or not mutated[-1]
        assert is_cut_call or all(w in shown for w in words.split()), ("".join(mutated), shown)
        assert all(call in right for call in calls), ("".join(mutated), calls)
        assert len(calls) <= 1


GOOD = [
    "⟨C⟩analysis⟨M⟩Think 漢.⟨E⟩⟨S⟩assistant⟨C⟩final⟨M⟩Hi 👋🏽!⟨R⟩",
    "⟨C⟩analysis⟨M⟩T⟨E⟩⟨S⟩assistant⟨C⟩commentary⟨M⟩Wait.⟨E⟩"
    '⟨S⟩assistant⟨C⟩commentary to=functions.f ⟨K⟩json⟨M⟩{"a": [1, {"b": "x y"}]}⟨L⟩',
    " to=functions.g⟨C⟩commentary json⟨M⟩{'a': True,}⟨L⟩⟨S⟩functions.g to=assistant⟨C⟩commentary"
    "⟨M⟩ok⟨E⟩",
]
WORDS = [*(f"⟨{letter}⟩" for letter in SHORT), "assistant", " to=functions.f", " to=python"]
WORDS += ["analysis", "final", "commentary", " json", '{"a"', ": 1}", "[", "}", '"', "\\", "é"]
WORDS += ["\n", " ", "user"]


@settings(max_examples=4 * settings.default.max_examples)  # type: ignore[union-attr]
@given(data=st.data())
def test_mutated_answers_never_raise_or_leak(vocabulary: Vocabulary, data: st.DataObject) -> None:
    """Answers with pieces cut, repeated, put in and swapped, which end after any token."""
    draw = data.draw
    tokens = vocabulary.encode_tagged(tagged(draw(st.sampled_from(["", *GOOD]))))
    for _ in range(draw(st.integers(0, 4))):
        at, n = draw(st.integers(0, len(tokens))), draw(st.integers(0, 5))
        match draw(st.sampled_from(["cut", "repeat", "insert", "random"])):
            case "cut":
                del tokens[at : at + n]
            case "repeat":
                tokens[at:at] = tokens[at : at + n]
            case "insert":
                words = draw(st.lists(st.sampled_from(WORDS), max_size=25 if not tokens else n))
                tokens[at:at] = vocabulary.encode_tagged(tagged("".join(words)))
            case _:
                tokens[at:at] = draw(st.lists(st.integers(0, 201_087), max_size=n))
    for end in range(len(tokens) + 1):
        reasoning, content, calls = join(HarmonyParser(vocabulary, ANY), tokens[:end])
        for call in calls:
            assert call.name in ("f", "g")
            msgspec.json.encode(call)
        shown = reasoning + content + "".join(f"{c.name}{c.arguments}" for c in calls)
        assert not any(tag in shown for tag in SHORT.values()), tokens[:end]
        for mark in (0, 1):  # bytes that the parser uses itself
            said = [vocabulary.token_bytes[t] for t in tokens[:end] if t < FIRST_SPECIAL]
            assert shown.count(chr(mark)) <= b"".join(said).count(mark)


def test_characters_split_over_tokens(vocabulary: Vocabulary) -> None:
    text = "🜚𓀀é漢"
    tokens = [vocabulary.token_bytes.index(bytes([b])) for b in text.encode()]  # byte by byte
    parser = HarmonyParser(vocabulary, opens_final=True)
    pieces = [e.text for t in tokens for e in parser.feed(t) if isinstance(e, ContentDelta)]
    assert pieces == list(text)


def test_raw_spells_the_tags(vocabulary: Vocabulary) -> None:
    text = "<|channel|>final<|message|>é<|end|>"
    tokens = vocabulary.encode_tagged(text + "<|return|>")
    assert join(RawParser(vocabulary), tokens)[1] == text  # type: ignore[arg-type]
