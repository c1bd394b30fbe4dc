"""How an answer ends: end x channel x recipient x cut x streamed, in the frames of each dialect."""

import itertools
import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from gptoss_local.base.errors import BrokenCallError
from gptoss_local.base.events import CallDelta, ChatEvent, Done
from gptoss_local.harmony import ChatRequest, FreeText, Message, Tool, Vocabulary
from gptoss_local.harmony.session import answer
from gptoss_local.server.dialects.anthropic.routes import MessagesWriter
from gptoss_local.server.dialects.ollama.frames import ChatWriter
from gptoss_local.server.dialects.openai.chat import ChatCompletionWriter
from gptoss_local.server.dialects.openai.responses_frames import ResponsesWriter
from gptoss_local.server.dialects.openai.responses_request import ResponsesBody
from gptoss_local.server.dialects.openai.responses_tools import ClientTools
from tests.chat.test_calls import function
from tests.chat.test_parser import BASH, SHORT, WEATHER, tagged
from tests.chat.test_thinking import PlayedEngine

WRITE = function("write_file", "path", "content", path="string", content="string")
TOOLS = (WEATHER, BASH, WRITE)
Calls = list[tuple[str, dict[str, Any]]]


class Said(NamedTuple):
    content: str
    calls: Calls  # with a cut one as far as it came
    end: str


class Engine(PlayedEngine):
    """Plays a reply, and then an answer as often as it is asked to go on."""

    def __init__(self, vocabulary: Vocabulary, text: str | list[int], then: str = "So.⟨R⟩") -> None:
        super().__init__(vocabulary, *[tagged(then)] * 6)
        first = vocabulary.encode_tagged(tagged(text)) if isinstance(text, str) else text
        self._replies.insert(0, first)


async def events_of(
    vocabulary: Vocabulary, text: str | list[int], tools: tuple[Tool, ...] = TOOLS, **fields: Any
) -> list[ChatEvent]:
    request = ChatRequest(messages=(Message(role="user", content="?"),), tools=tools, **fields)
    return [e async for e in answer(Engine(vocabulary, text), vocabulary, request)]  # type: ignore[arg-type]


def arguments(text: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except ValueError:
        return CallDelta(0, "", "", text).arguments


def of_chat(events: list[ChatEvent], *, stream: bool) -> Said:
    writer = ChatCompletionWriter("m", include_usage=False)
    frames = [frame.data for event in events for frame in writer.feed(event)]
    if not stream:
        (choice,) = msgspec.to_builtins(writer.whole())["choices"]
        message = choice["message"]
        functions = [call["function"] for call in message.get("tool_calls", ())]
        calls = [(f["name"], arguments(f["arguments"])) for f in functions]
        return Said(message["content"], calls, choice["finish_reason"])
    choices = [frame["choices"][0] for frame in frames if isinstance(frame, dict)]
    texts: dict[int, list[str]] = {}
    for piece in (p for c in choices for p in c["delta"].get("tool_calls", ())):
        name = piece["function"].get("name")
        texts.setdefault(piece["index"], [name] if name else []).append(
            piece["function"]["arguments"]
        )
    calls = [(name, arguments("".join(rest))) for name, *rest in texts.values()]
    content = "".join(c["delta"].get("content", "") for c in choices)
    return Said(content, calls, choices[-1]["finish_reason"])


def of_messages(events: list[ChatEvent], *, stream: bool) -> Said:
    writer = MessagesWriter("m")
    frames = [frame.data for event in events for frame in writer.feed(event)]
    whole = msgspec.to_builtins(writer.whole())
    if not stream:
        blocks = whole["content"]
        content = "".join(b["text"] for b in blocks if b["type"] == "text")
        calls = [(b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"]
        return Said(content, calls, whole["stop_reason"])
    content, texts = "", []
    for frame in frames:
        block, delta = frame.get("content_block", {}), frame.get("delta", {})
        if block.get("type") == "tool_use":
            texts.append([block["name"], ""])
        content += delta.get("text", "")
        if "partial_json" in delta:
            texts[-1][1] += delta["partial_json"]
    reason = next(f["delta"]["stop_reason"] for f in frames if f["type"] == "message_delta")
    return Said(content, [(name, arguments(text)) for name, text in texts], reason)


def of_responses(events: list[ChatEvent], *, stream: bool) -> Said:
    tools = [{"type": "function", "name": t.name, "parameters": t.parameters or {}} for t in TOOLS]
    body = msgspec.convert({"model": "m", "tools": tools}, ResponsesBody)
    writer = ResponsesWriter(body, ClientTools(body.tools), lambda _: None)
    *frames, end = [frame.data for event in events for frame in writer.feed(event)]
    assert end == msgspec.Raw(b"[DONE]")
    whole = writer.whole()
    calls = [i for i in whole["output"] if i["type"] == "function_call"]
    is_cut = [i["status"] == "incomplete" for i in calls]
    assert not any(is_cut) or (
        whole["status"] == "incomplete" and is_cut.index(True) == len(calls) - 1
    )
    found = [(i["name"], arguments(i["arguments"])) for i in calls]
    if stream:
        texts = [f["delta"] for f in frames if f["type"] == "response.output_text.delta"]
        return Said("".join(texts), found, whole["status"])
    messages = [i["content"] for i in whole["output"] if i["type"] == "message"]
    return Said("".join(p["text"] for parts in messages for p in parts), found, whole["status"])


def of_ollama(events: list[ChatEvent], *, stream: bool) -> Said:
    writer = ChatWriter("m")
    frames = [msgspec.to_builtins(f) for event in events for f in writer.feed(event)]
    last = msgspec.to_builtins(writer.whole())
    messages = [f["message"] for f in frames] if stream else [last["message"]]
    functions = [c["function"] for m in messages for c in m.get("tool_calls") or ()]
    content = "".join(m["content"] for m in messages)
    calls = [(f["name"], f["arguments"]) for f in functions]
    return Said(content, calls, last["done_reason"])


Read = Callable[..., Said]
# The words of a dialect for: an answer, a call, a cut call, and the limit otherwise.
DIALECTS: dict[Read, tuple[str, str, str, str]] = {
    of_chat: ("stop", "tool_calls", "length", "length"),
    of_messages: ("end_turn", "tool_use", "max_tokens", "max_tokens"),
    of_responses: ("completed", "completed", "incomplete", "incomplete"),
    of_ollama: ("stop", "stop", "length", "length"),
}


def check(events: dict[bool, list[ChatEvent]], content: str, calls: Calls, end: str) -> None:
    """Check an answer in each dialect; Ollama has no way to say that arguments are cut."""
    for read, words in DIALECTS.items():
        for stream in (False, True):
            said = read(events[stream], stream=stream)
            text = said.content.replace("\n", "")
            assert text == content, (read.__name__, stream, said)
            told = [] if read is of_ollama and end == "cut" else calls
            assert said.calls == told, (read.__name__, stream, said)
            assert said.end == words[["answer", "call", "cut", "limit"].index(end)], (
                read.__name__,
                said,
            )


A = "⟨C⟩analysis⟨M⟩think⟨E⟩⟨S⟩assistant"
JSON = '{"city":"Oslo"}'
OSLO: Calls = [("get_weather", {"city": "Oslo"})]
ROWS = "0, " * 4000
TO = "⟨C⟩commentary to=functions.get_weather ⟨K⟩json⟨M⟩"
FILE = "⟨C⟩commentary to=functions.write_file ⟨K⟩json⟨M⟩"
NO_TEXT: Calls = [("write_file", {})]
BOTH = [*OSLO, ("bash", {"command": "ls"})]
USES = (
    '{"tool_uses":[{"recipient_name":"functions.get_weather","parameters":{"city":"Oslo"}},'
    '{"recipient_name":"functions.bash","parameters":{"command":"ls"}}]}'
)
CASES: list[tuple[str, str, Calls, str]] = [
    # a call that the limit cuts
    (f'{FILE}{{"path":"a.py","content":"import os\\nimport', "",
     [("write_file", {"path": "a.py", "content": "import os\nimport"})], "cut"),
    (f'{FILE}{{"path":"a.py","content":"{"import os; " * 30}', "",
     [("write_file", {"path": "a.py", "content": "import os; " * 30})], "cut"),
    *((f'{FILE}{{"path": "a.py"{rest}', "", [("write_file", {"path": "a.py"})], "cut") for rest in
      ("", ",", ', "con', ', "content"', ', "content": ')),
    *((f'{FILE}{{"path": "a\\n{rest}', "", [("write_file", {"path": "a\n"})], "cut") for rest in
      ("", "\\", "\\u26", "\\ud83d", "\\ud83d\\u")),
    *((f"{FILE}{body}", "", NO_TEXT, "cut") for body in
      ("", "{", '{"pa', '{"path":', '{"path": 5')),
    ('⟨C⟩commentary to=functions.bash{"command":"l', "", [("bash", {"command": "l"})], "cut"),
    (f"{TO}{JSON}", "", OSLO, "limit"),
    ('⟨C⟩commentary to=functions.rm⟨M⟩{"path": "/', "", [], "cut"),
    # a header that the limit cuts
    *((f"{A}{header}", "", [], "cut") for header in
      ("⟨C⟩", "⟨C⟩comment", " to", "⟨C⟩commentary to", "⟨C⟩commentary to=", " to=functions",
       "⟨C⟩commentary to=functions", "⟨C⟩commentary to=functions.get_we", "⟨C⟩final",
       "⟨C⟩commentary⟨M⟩to=functions", "⟨C⟩commentary⟨M⟩get_wea")),
    (f"{A}⟨C⟩commentary⟨M⟩I look.⟨E⟩⟨S⟩assistant⟨C⟩commentary to=", "I look.", [], "cut"),
    # neither an answer nor a call: the model goes on
    *((text, "So.", [], "answer") for text in
      ("⟨C⟩analysis⟨M⟩It is 4.⟨R⟩", "⟨C⟩analysis⟨M⟩think⟨M⟩Paris⟨R⟩", f"{A}⟨R⟩",
       f"{A}⟨C⟩final⟨R⟩", f"{A}⟨C⟩final⟨M⟩⟨R⟩", f"{A}⟨C⟩thought⟨M⟩Hm.⟨R⟩", "⟨R⟩",
       '⟨C⟩commentary to=functions.rm⟨M⟩{"path": "/"}⟨R⟩', f"{A}⟨C⟩commentary to=⟨R⟩",
       "⟨C⟩analysis final⟨M⟩It is 4.⟨R⟩", "⟨C⟩analysis to = bash⟨M⟩It is 4.⟨R⟩")),
    # the final channel is the answer
    *((f"{A}{header}⟨M⟩Paris⟨R⟩", "Paris", [], "answer") for header in
      (" to=user⟨C⟩final", "⟨C⟩final to=user", "⟨C⟩final to=assistant", "⟨C⟩final to=bash")),
    *((f"{start}⟨C⟩final⟨M⟩Paris⟨R⟩", "Paris", [], "answer") for start in
      ("⟨S⟩user", "⟨S⟩tool", "⟨S⟩python", "⟨S⟩functions.get_weather", "⟨S⟩assistant to=all")),
    # a call that names nothing, or in another way
    *((f"{text}⟨L⟩", "", OSLO, "call") for text in
      (f"⟨C⟩analysis⟨M⟩think⟨E⟩{JSON}",
       f"⟨C⟩analysis⟨M⟩think⟨E⟩commentary to=functions.get_weather json{JSON}",
       f"⟨C⟩analysis⟨M⟩think⟨E⟩assistant commentary to=functions.get_weather json{JSON}",
       f"⟨C⟩analysis⟨M⟩think⟨E⟩to=functions.get_weather{JSON}",
       f"{A}⟨C⟩commentary⟨M⟩```json\n{JSON}\n```",
       f'{A}⟨C⟩commentary⟨M⟩[{{"name":"get_weather","arguments":{JSON}}}]',
       f'{A}⟨C⟩commentary to=functions⟨M⟩{{"name":"get_weather","arguments":{JSON}}}',
       *(f"{A}⟨C⟩commentary⟨M⟩{header}{JSON}" for header in
         ("to=functions.get_weather json", "functions.get_weather ", "get_weather: ")),
       f"{A}⟨C⟩commentary⟨M⟩get_weather({JSON})",
       f'{A}⟨C⟩commentary⟨M⟩{{"get_weather":{JSON}}}',
       f'{A}⟨C⟩commentary to=functions⟨M⟩{{"function":{{"name":"get_weather","args":{JSON}}}}}',
       f'⟨C⟩commentary to=bash⟨M⟩{{"name":"get_weather","arguments":{JSON}}}',
       *(f"{header} to=functions.get_weather ⟨K⟩json⟨M⟩{JSON}" for header in
         (f"{A}⟨C⟩commentarycommentary", "⟨E⟩⟨S⟩assistantcommentary", f"{A}⟨C⟩commentary_")),
       f"{A}⟨C⟩commentary_to=functions.get_weather ⟨K⟩json⟨M⟩{JSON}",
       f"{A}⟨K⟩json⟨M⟩{JSON}", f"{A}⟨C⟩final⟨M⟩{JSON}")),
    (f'{A}⟨C⟩commentary⟨M⟩[{JSON},{{"city":"Rome"}}]⟨L⟩', "",
     [*OSLO, ("get_weather", {"city": "Rome"})], "call"),
    (f"{A}⟨C⟩commentary to=multi_tool_use.parallel ⟨K⟩json⟨M⟩{USES}⟨L⟩", "", BOTH, "call"),
    (f"{A}⟨C⟩commentary⟨M⟩Calling it: {JSON}⟨L⟩", "Calling it: ", OSLO, "call"),
    (f"{A}⟨C⟩commentary⟨M⟩Calling it: [{JSON}]⟨L⟩", "Calling it: ", OSLO, "call"),
    # no single reading: the model is told
    (f"{A}⟨C⟩commentary⟨M⟩I will look.⟨L⟩", "I will look.So.", [], "answer"),
    (f'{A}⟨C⟩commentary⟨M⟩{{"city":"Oslo",}}⟨L⟩', "So.", [], "answer"),
    (f"{A}⟨C⟩commentary⟨M⟩Say {JSON} or {JSON}⟨L⟩", "Say So.", [], "answer"),
    (f"{TO}Oslo, please⟨E⟩⟨R⟩", "So.", [], "answer"),
    # what is only JSON
    (f"{A}⟨C⟩final⟨M⟩{JSON}⟨R⟩", JSON, [], "answer"),
    (f'{A}⟨C⟩final⟨M⟩{{"town":"Oslo"}}⟨R⟩', '{"town":"Oslo"}', [], "answer"),
    (f'{A}⟨C⟩final⟨M⟩{{"town":"Oslo"}}⟨L⟩', '{"town":"Oslo"}', [], "answer"),
    # the guard against circles lets a file of equal rows be
    (f'{FILE}{{"path":"a","content":"{ROWS}"}}⟨L⟩', "",
     [("write_file", {"path": "a", "content": ROWS})], "call"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "content", "calls", "end"), CASES, ids=lambda v: str(v)[:60])
async def test_an_end_is_the_same_in_every_dialect(
    vocabulary: Vocabulary, text: str, content: str, calls: Calls, end: str
) -> None:
    events = {on: await events_of(vocabulary, text, streams_calls=on) for on in (False, True)}
    check(events, content, calls, end)


ORDINARY = [
    f"{A}⟨C⟩final⟨M⟩It is 4.⟨R⟩",
    f"{A}⟨C⟩commentary⟨M⟩I look.⟨E⟩⟨S⟩assistant{TO}{JSON}⟨L⟩",
    f"{A} to=functions.get_weather⟨C⟩commentary ⟨K⟩json⟨M⟩{JSON}⟨L⟩",
    f" to=functions.get_weather⟨C⟩commentary json⟨M⟩{JSON}⟨L⟩",
    f"{A}⟨C⟩analysis to=python code⟨M⟩print(1)⟨L⟩",
    f'{A}⟨C⟩commentary to=functions.get_weather{{"city": "Oslo"}}⟨L⟩',
    f"{A}⟨C⟩commentary to=functions.multi_tool_use.parallel ⟨K⟩json⟨M⟩{USES}⟨L⟩",
]


@pytest.mark.parametrize("text", ORDINARY)
async def test_an_answer_may_be_cut_anywhere(vocabulary: Vocabulary, text: str) -> None:
    tokens = vocabulary.encode_tagged(tagged(text))
    contents = []
    for n in range(len(tokens)):
        said = of_chat(await events_of(vocabulary, tokens[:n]), stream=False)
        streamed = await events_of(vocabulary, tokens[:n], streams_calls=True)
        assert said == of_chat(streamed, stream=True)
        assert said.end == "length"
        assert {name for name, _ in said.calls} <= {"get_weather", "bash"}
        contents.append(said.content)
    whole = "It is 4." if "final" in text else "I look." if "I look" in text else ""
    assert all(whole.startswith(content) for content in contents), contents
    assert contents[-1] == whole


@pytest.mark.parametrize("is_wrapped", [False, True])
async def test_cut_input_of_a_custom_tool_is_text(vocabulary: Vocabulary, is_wrapped: bool) -> None:
    patch = Tool("apply_patch", free_text=FreeText())
    given = '*** Begin "Patch"\n*** Add'
    written = json.dumps({"input": given}).removesuffix('"}') if is_wrapped else given
    text = f"⟨C⟩commentary to=functions.apply_patch⟨M⟩{written}"
    body = msgspec.convert(
        {"model": "m", "tools": [{"type": "custom", "name": "apply_patch"}]}, ResponsesBody
    )
    for on in (False, True):
        events = await events_of(vocabulary, text, (patch,), streams_calls=on)
        chat = ChatCompletionWriter(
            "m", include_usage=False, custom_names=frozenset({"apply_patch"})
        )
        frames = [frame.data for event in events for frame in chat.feed(event)]
        (call,) = msgspec.to_builtins(chat.whole())["choices"][0]["message"]["tool_calls"]
        assert call["custom"] == {"name": "apply_patch", "input": given}
        deltas = [frame["choices"][0]["delta"] for frame in frames if isinstance(frame, dict)]
        assert [call] in [delta.get("tool_calls") for delta in deltas]
        responses = ResponsesWriter(body, ClientTools(body.tools), lambda _: None)
        for event in events:
            list(responses.feed(event))
        (item,) = responses.whole()["output"]
        assert (item["type"], item["input"], item["status"]) == (
            "custom_tool_call", given, "incomplete",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "end", "n_generated", "last"),
    [
        (None, "stop", 6, "<|channel|>final<|message|>So.<|return|>"),
        (3, "length", 3, "<|channel|>analysis<|return|>"),
    ],
)
async def test_all_that_the_model_wrote_counts(
    vocabulary: Vocabulary, limit: int | None, end: str, n_generated: int, last: str
) -> None:
    *_, done = await events_of(vocabulary, "⟨C⟩analysis⟨R⟩", max_tokens=limit)
    assert isinstance(done, Done)
    assert (done.end, done.usage.n_generated) == (end, n_generated)
    assert vocabulary.encoding.decode(done.tokens).endswith(f"<|end|><|start|>assistant{last}")


ENDS = ("⟨R⟩", "⟨L⟩", "⟨E⟩", "⟨E⟩⟨R⟩", "")
CHANNELS = ("", "⟨C⟩analysis", "⟨C⟩commentary", "⟨C⟩final", "⟨C⟩thought")
RECIPIENTS = ("", " to=functions.get_weather", " to=functions.rm", " to=user")
BODIES = (JSON, '{"city":"Os', "Paris", "")


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("recipient", RECIPIENTS)
async def test_every_end_of_every_message(
    vocabulary: Vocabulary, channel: str, recipient: str
) -> None:
    for end, body, before in itertools.product(ENDS, BODIES, ("", A)):
        text = f"{before}{channel}{recipient}⟨M⟩{body}{end}"
        events = {on: await events_of(vocabulary, text, streams_calls=on) for on in (False, True)}
        content = of_chat(events[False], stream=False).content.replace("\n", "")
        is_final, is_limit = "final" in channel, end in ("", "⟨E⟩")
        to_us, to_nobody = "get_weather" in recipient, "rm" in recipient and not is_final
        is_cut = to_us and not end and body != JSON
        calls: Calls = []
        if body == JSON and (to_us or to_nobody or end == "⟨L⟩"):
            calls = OSLO
        elif is_cut:
            calls = [("get_weather", {"city": "Os"} if body.startswith("{") else {})]
        elif to_us and end != "⟨R⟩" and not (is_final and body == "Paris"):  # it is repaired
            calls = [("get_weather", {"city": body.removeprefix('{"city":"')} if body else {})]
        kind = "cut" if is_cut else "limit" if is_limit else "call" if calls else "answer"
        check(events, content, calls, kind)
        is_shown = channel == "" or is_final or (channel == "⟨C⟩commentary" and not recipient)
        assert is_limit or calls or content.strip(), text
        assert not body or is_shown or body not in content, text
        assert not (to_us or to_nobody) or not body.startswith("{") or body not in content, text


async def check_alike(vocabulary: Vocabulary, tokens: list[int]) -> None:
    """Streamed and whole are alike, no tag shows, and there is an answer."""
    outcomes: list[Any] = []
    for on in (False, True):
        try:
            events = await events_of(vocabulary, tokens, streams_calls=on)
        except BrokenCallError:
            assert on
            return
        outcomes.append([read(events, stream=on) for read in DIALECTS])
    text = vocabulary.encoding.decode(tokens)
    assert outcomes[0] == outcomes[1], text
    said = outcomes[0][0]
    assert said.content.strip() or said.calls or said.end == "length", text
    assert not any(tag in str(said) for tag in SHORT.values()), text


WORDS = [*(f"⟨{letter}⟩" for letter in SHORT), "⟨C⟩", "⟨M⟩", "⟨S⟩", "⟨E⟩", "assistant", " to="]
WORDS += ["analysis", "final", "commentary", "functions.", "get_weather", " to=functions.bash"]
WORDS += [" json", JSON, '{"command": "', "ls", '"}', "[", "```", "user", "We", " think", "é", "\n"]


async def check_random(vocabulary: Vocabulary, n: int) -> None:
    for seed in range(n):
        rng = random.Random(seed)
        text = "".join(rng.choices(WORDS, k=rng.randint(1, 14)))
        await check_alike(vocabulary, vocabulary.encode_tagged(tagged(text)))


async def check_corrupted(vocabulary: Vocabulary, n: int) -> None:
    script = "for x in 1 2 3; do echo $x; done # a script that is long enough to come early"
    bodies = [
        ("bash", {"command": script}),
        ("write_file", {"path": "a.py", "content": script}),
        ("get_weather", {"city": "Oslo"}),
        ("get_weather", {"name": "bash", "arguments": {"command": "ls"}}),
    ]
    for seed in range(n):
        rng = random.Random(seed)
        name, given = rng.choice(bodies)
        call = f"{rng.choice(['', A])}⟨C⟩commentary to=functions.{name} ⟨K⟩json⟨M⟩"
        tokens = vocabulary.encode_tagged(tagged(call + json.dumps(given) + "⟨L⟩"))
        for _ in range(rng.randint(1, 2)):
            at = rng.randrange(len(tokens))
            other = vocabulary.encode_tagged(tagged(rng.choice(WORDS)))
            tokens[at : at + rng.randint(0, 2)] = rng.choice([[], other])
        await check_alike(vocabulary, tokens[: rng.randint(1, 2 * len(tokens) + 1)])


async def test_random_tags_and_broken_calls(vocabulary: Vocabulary) -> None:
    await check_random(vocabulary, 300)
    await check_corrupted(vocabulary, 200)


@pytest.mark.nightly
async def test_many_random_tags_and_broken_calls(vocabulary: Vocabulary) -> None:
    await check_random(vocabulary, 6000)
    await check_corrupted(vocabulary, 3000)
