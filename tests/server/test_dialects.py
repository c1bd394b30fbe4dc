"""Conversations as data, through each dialect's own SDK, streamed and whole."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest

from gptoss_local.harmony import Vocabulary
from tests.conftest import RunningServer
from tests.json_schema import satisfies
from tests.scripted_engine import Reply, Script, answer, calls, calls_built_in
from tests.server.asked import Asked, run_asked
from tests.server.dialects import NAMES, PERSON, WEATHER, Dialect, speak, user
from tests.tui.documents import BLOCKS, at_random

TEXT = "\n\n".join(BLOCKS.values()) + at_random(random.Random(1), 8)
PROGRAM = "".join(f'def f{n}():\n    return "日本語 {n}"  # 🎉 </div>\n\n' for n in range(60))
FILE = {"path": "a/ü.py", "text": PROGRAM}
WRITE = {
    "name": "write",
    "description": "Writes.",
    "parameters": {"type": "object", "properties": {name: {"type": "string"} for name in FILE}},
}
F = {
    "name": "f",
    "description": "",
    "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}},
}
NEXT = "<|end|><|start|>assistant"
CALL = '<|channel|>commentary to=functions.f<|message|>{"x": 1}'
TWO = f'{CALL}{NEXT}<|channel|>commentary to=functions.f<|message|>{{"x": 2}}<|call|>'
RESULT = f'{CALL}<|end|><|start|>functions.f to=assistant<|channel|>commentary<|message|>{{"t": 9}}'
INVENTED = f"{RESULT}{NEXT}<|channel|>final<|message|>9.<|return|>"
NAMED = '<|channel|>commentary <|constrain|>functions.f<|message|>{"x": 1}<|call|>'
BEGUN = calls("write", FILE).text[:900]
FAST: Any = {"tok_s": 20_000, "n_per_frame": 8}

SCRIPT: dict[str, list[Reply]] = {
    "Plain": [answer("Fine.")],
    "Everything": [answer(TEXT, "**All**, 日本語 🎉.", **FAST)],
    "Write": [calls("write", FILE, "A file.", **FAST), answer("Written.")],
    "Said": [
        Reply(text=f"<|channel|>commentary<|message|>I call.{NEXT}{CALL}<|call|>"),
        answer("Done."),
    ],
    "Two": [Reply(text=TWO), answer("One result."), answer("Both.")],
    "Cut": [Reply(text="<|channel|>final<|message|>This is c")],
    "Cut thought": [Reply(text="<|channel|>analysis<|message|>I th")],
    "Cut call": [Reply(text=BEGUN, **FAST)],
    "Stray": [Reply(text=f"{BEGUN}<|channel|>final<|message|>Hm.<|return|>")],
    "Fails": [answer("I begin and fail.", fails_at=5)],
    "Named": [Reply(text=NAMED)],
    "Invent": [Reply(text=INVENTED)],
    "Compute": [calls_built_in("python", "print(1)", "Hm."), answer("One.")],
    "Count": [answer("1, 2, 3, 4, 5, 6, 7, 8", "To 8.")],
}  # fmt: skip

ONE, OTHER = ("f", {"x": 1}), ("f", {"x": 2})
CASES: list[tuple[str, dict[str, Any], Any]] = [
    ("Plain", {}, ("", "Fine.", [], "stop")),
    ("Everything", {}, ("**All**, 日本語 🎉.", TEXT, [], "stop")),
    ("Write", {"tools": [F, WRITE]}, ("A file.", "", [("write", FILE)], "calls")),
    ("Said", {"tools": [F]}, ("", "I call.", [ONE], "calls")),
    ("Two", {"tools": [F]}, ("", "", [ONE, OTHER], "calls")),
    ("Two", {"tools": [F], "one_call": False}, ("", "", [ONE, OTHER], "calls")),
    ("Two", {"tools": [F], "one_call": True}, ("", "", [ONE], "calls")),
    ("Named", {"tools": [F]}, ("", "", [ONE], "calls")),
    ("Invent", {"tools": [F]}, ("", "", [ONE], "calls")),
    ("Compute", {}, ("Hm.\n\nprint(1)", "One.", [], "stop")),
    ("Cut", {}, ("", "This is c", [], "length")),
    ("Cut thought", {}, ("I th", "", [], "length")),
    ("Cut call", {"tools": [WRITE]}, ("", None, [], "length")),
    ("Count", {"limit": 20}, ("To 8.", "1, 2, 3", [], "length")),
    ("Count", {"stop": ["zz", ", 7"]}, ("To 8.", "1, 2, 3, 4, 5, 6", [], "stop")),
]


@pytest.fixture(scope="module")
def asked(nano_home: Path, vocabulary: Vocabulary) -> Iterator[Asked]:
    script = Script(vocabulary)
    for question, replies in SCRIPT.items():
        script.say(question, *replies)
    script.otherwise(answer("Well.", "Hm."))
    with run_asked(nano_home, vocabulary, script) as running:
        yield running


@pytest.fixture(scope="module")
def spoken(asked: Asked) -> Iterator[dict[str, Dialect]]:
    with speak(asked.url) as dialects:
        yield dialects


@pytest.fixture(params=NAMES)
def dialect(spoken: dict[str, Dialect], request: pytest.FixtureRequest) -> Dialect:
    return spoken[request.param]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("question", "wishes", "told"), CASES)
def test_a_conversation(
    asked: Asked, dialect: Dialect, question: str, wishes: dict[str, Any], told: Any, stream: bool
) -> None:
    """None as the content: each dialect has its own way to mark a placeholder."""
    if not dialect.words.keys() >= wishes.keys():
        pytest.skip("it has no word for this")
    n_before = len(asked.prompts)
    said = dialect.ask([user(question)], stream=stream, **wishes)
    reasoning, content, called, end = said.told
    if wishes.get("stop") and dialect.path == "/v1/messages":
        end = {", 7": "stop"}[end]
    assert (reasoning, content if told[1] is not None else None, called, end) == told
    assert said.n_prompt == len(asked.prompts[n_before])
    if wishes.get("limit"):
        assert said.n_generated == wishes["limit"]
    elif len(wishes) < 2 and question in ("Plain", "Everything", "Write", "Said", "Two"):
        assert said.n_generated == len(SCRIPT[question][0].tokens)
    if stream and question in ("Everything", "Write"):
        is_whole = question == "Write" and dialect.path == "/api/chat"  # calls are objects there
        assert (said.n_pieces > 20) != is_whole


@pytest.mark.quick
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("question", "last"), [("Write", "Written."), ("Said", "Done."), ("Two", "Both.")]
)
def test_results_go_back(
    asked: Asked, dialect: Dialect, question: str, last: str, stream: bool
) -> None:
    tools = [F, WRITE]
    said = dialect.ask([user(question)], tools=tools, stream=stream)
    results = [dialect.result(call, f"result {n}") for n, call in enumerate(said.calls)]
    turns = [user(question), *said.turns, *results]
    assert dialect.ask(turns, tools=tools, stream=stream).content == last
    name = f"functions.{said.calls[0].name}"
    assert asked.texts(name) == [f"result {n}" for n in range(len(said.calls))]
    sent = [json.loads(text) for _, to, text in asked.done() if to]
    assert sent == [call.arguments for call in said.calls]
    turns = [*turns, {"role": "assistant", "content": last}, user("Plain")]
    assert dialect.ask(turns, tools=tools, stream=stream).content == "Fine."
    assert not [text for channel, _, text in asked.done() if channel == "analysis"]


FAILURES = (openai.OpenAIError, anthropic.APIError, ollama.ResponseError)


def test_a_failure_amid_a_stream_is_an_error_of_the_sdk(dialect: Dialect) -> None:
    with pytest.raises(FAILURES, match="the script says that this fails"):
        dialect.ask([user("Fails")], stream=True)
    if dialect.path == "/api/chat":  # nothing of the call is out yet
        assert dialect.ask([user("Stray")], tools=[WRITE], stream=True).told[2:] == ([], "stop")
        return
    with pytest.raises(FAILURES, match=r"call of 'functions\.write' broke off"):
        dialect.ask([user("Stray")], tools=[WRITE], stream=True)


def test_a_system_message_in_the_place_of_each_dialect(asked: Asked) -> None:
    text, hi = "Be brief.", user("Hi")
    parts = [{"type": "text", "text": text}]
    system, developer = ({"role": role, "content": text} for role in ("system", "developer"))
    turns = {"messages": [hi], "max_tokens": 99}
    for path, body in (
        ("/api/generate", {"prompt": "Hi", "system": text}),
        ("/api/chat", {"messages": [system, hi]}),
        ("/v1/chat/completions", {"messages": [system | {"content": parts}, hi]}),
        ("/v1/chat/completions", {"messages": [developer, hi]}),
        ("/v1/messages", turns | {"system": text}),
        ("/v1/messages", turns | {"system": parts}),
        ("/v1/responses", {"input": "Hi", "instructions": text}),
        ("/v1/responses", {"input": [developer, hi]}),
    ):
        assert asked.post(path, **body).status_code == 200
        assert asked.texts() == ["# Instructions\n\nBe brief.", "Hi"], path


def test_thinking_that_is_hidden_comes_back_sealed(asked: Asked) -> None:
    body = {"max_tokens": 99, "thinking": {"type": "adaptive", "display": "omitted"}}
    said = asked.post("/v1/messages", messages=[user("Said it")], **body).json()["content"]
    assert (said[0]["thinking"], said[0]["signature"]) == ("", "gptoss:Hm.")


# With the real engine: samples, masks and counts.

OTHER_TOOL = {
    "name": "other",
    "description": "",
    "parameters": {"type": "object", "properties": {}},
}
THOUGHT = "The user asks for the capital of France. It is Paris."


@pytest.fixture(params=NAMES)
def nano(server: RunningServer, request: pytest.FixtureRequest) -> Iterator[Dialect]:
    with speak(server.url) as dialects:
        yield dialects[request.param]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_nano_answers_the_same_in_every_dialect(nano: Dialect, stream: bool) -> None:
    asked = [user("What is the capital of France?")]
    said = nano.ask(asked, stream=stream, temperature=0)
    assert said.told == (THOUGHT, "The capital of France is Paris.", [], "stop")
    assert (said.n_prompt, said.n_generated) == (74, 30)
    asked = [user("What is the weather in Tokyo?")]
    said = nano.ask(asked, tools=[WEATHER], temperature=0, stream=stream)
    (call,) = said.calls
    assert (call.name, call.arguments) == (WEATHER["name"], {"location": "Tokyo"})
    result = nano.result(call, '{"temperature": 21, "description": "sunny"}')
    asked += [*said.turns, result]
    said = nano.ask(asked, tools=[WEATHER], temperature=0, stream=stream)
    assert said.content == "It is 21 degrees and sunny in Tokyo."


def test_a_schema_binds_the_answer(nano: Dialect) -> None:
    """Next to tools it adds to the prompt, and binds the end of their loop."""
    hello: dict[str, Any] = {"turns": [user("hello")], "tools": [WEATHER], "temperature": 0}
    free, bound = nano.ask(**hello), nano.ask(**hello, schema=PERSON)
    assert satisfies(json.loads(bound.content), PERSON)
    assert bound.n_prompt > free.n_prompt + 20
    extract = 'Extract name and age as JSON: "Bob Smith is 42 years old."'
    for text in ("hello", extract):
        found = json.loads(nano.ask([user(text)], schema=PERSON, temperature=0).content)
        assert satisfies(found, PERSON)
    assert found == {"name": "Bob Smith", "age": 42}


@pytest.mark.parametrize("choice", [True, WEATHER["name"]])
def test_a_call_is_forced(nano: Dialect, choice: Any) -> None:
    if "must_call" not in nano.words:
        pytest.skip("it has no word for this")
    tools = [WEATHER] if choice is True else [OTHER_TOOL, WEATHER]
    said = nano.ask([user("hello")], tools=tools, must_call=choice, temperature=0, limit=300)
    (call,) = said.calls
    assert call.name == WEATHER["name"]
    assert isinstance(call.arguments["location"], str)
    assert not nano.ask([user("hello")], tools=tools, temperature=0).calls


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_allowed_tools(http: httpx.Client, path: str) -> None:
    """A list of tools, of which one must be called, or only these may be."""
    is_chat = path == "/v1/chat/completions"

    def spelled(tool: dict[str, Any]) -> dict[str, Any]:
        return {"type": "function"} | ({"function": tool} if is_chat else tool)

    turns = [user("What is the weather in Tokyo?")]
    body: dict[str, Any] = {"model": "nano", "temperature": 0, "messages": turns, "input": turns}
    body["tools"] = [spelled(WEATHER), spelled(OTHER_TOOL)]

    def ask(mode: str, *names: str) -> httpx.Response:
        spec = {"mode": mode, "tools": [spelled({"name": name}) for name in names]}
        choice = {"type": "allowed_tools"} | ({"allowed_tools": spec} if is_chat else spec)
        return http.post(path, json=body | {"tool_choice": choice})

    assert '"name":"get_current_weather"' in ask("auto", "get_current_weather").text
    forced = ask("required", "other").json()
    call = forced["choices"][0]["message"]["tool_calls"][0] if is_chat else forced["output"][-1]
    assert (call["function"] if is_chat else call)["name"] == "other"
    silent = http.post(path, json=body | {"tool_choice": "none"}).text
    assert '"tool_calls"' not in silent
    assert '"function_call"' not in silent
    for refused in (ask("auto", "nope"), ask("sometimes", "other"), ask("required")):
        assert refused.status_code == 400
        assert "tool_choice" in refused.json()["error"]["message"]


def test_counts(http: httpx.Client) -> None:
    """Count the prompt, even without an answer, its cached part, and the reasoning."""
    turns = [user("What is the capital of France?")]
    body: dict[str, Any] = {"model": "nano", "messages": turns, "input": turns, "temperature": 0}

    def usage(path: str, **fields: Any) -> Any:
        for _ in range(2):
            reply = http.post(path, json=body | fields).json()
        return reply["usage"]

    said = usage("/v1/messages", max_tokens=200)
    assert said["cache_read_input_tokens"] > 50
    assert said["input_tokens"] + said["cache_read_input_tokens"] == 74
    begun = http.post("/v1/messages", json=body | {"stream": True, "max_tokens": 200}).text
    assert f'"cache_read_input_tokens":{said["cache_read_input_tokens"]}' in begun.split("\n\n")[0]
    chat, responses = usage("/v1/chat/completions"), usage("/v1/responses")
    assert chat["prompt_tokens_details"]["cached_tokens"] > 50
    assert responses["input_tokens_details"]["cached_tokens"] > 50
    assert (chat["prompt_tokens"], responses["input_tokens"]) == (74, 74)
    assert chat["completion_tokens_details"] == {"reasoning_tokens": 13}
    assert responses["output_tokens_details"] == {"reasoning_tokens": 13}
    for path in ("/v1/messages/count_tokens", "/v1/responses/input_tokens"):
        assert http.post(path, json=body).json()["input_tokens"] == 74


def test_efforts(http: httpx.Client) -> None:
    def n_thought(path: str = "/v1/chat/completions", **fields: Any) -> int:
        body = {"model": "nano", "messages": [user("What is the capital of France?")]}
        reply = http.post(path, json=body | {"temperature": 0, "max_tokens": 300} | fields).json()
        if path == "/v1/messages":
            return len(reply["content"]) - 1
        message = reply["choices"][0]["message"]
        assert "Paris" in message["content"]
        return len(message.get("reasoning", ""))

    assert n_thought(reasoning_effort="none") == 0
    assert n_thought(reasoning={"effort": "none"}, reasoning_effort="high") == 0
    assert n_thought(reasoning_effort="low") < n_thought(reasoning_effort="high")
    named = {"chat_template_kwargs": {"reasoning_effort": "low"}}
    assert n_thought(**named) == n_thought(reasoning_effort="low")
    assert n_thought("/v1/messages", thinking={"type": "disabled"}) == 0
    assert n_thought("/v1/messages") == 1
