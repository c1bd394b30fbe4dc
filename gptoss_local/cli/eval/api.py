"""The cases of `gptoss eval api`: whether a server's answers have the shapes of OpenAI's API."""

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import httpx

from gptoss_local.cli.eval.scores import Server
from gptoss_local.errors import ServerUnavailableError

TAG = re.compile(r"<\|\w+\|>|\bassistant(?:analysis|commentary|final)\b|^analysis\b(?!\s+of\b)")
"""Text of the harmony format, which belongs in no answer."""

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_MAX_TOKENS = 2000
_TIMEOUT_S = 600


class WrongShapeError(Exception):
    pass


class Reply(NamedTuple):
    """An answer; `again` is the part of the next request that repeats it."""

    text: str
    calls: list[dict[str, Any]]
    finish: str
    again: list[dict[str, Any]]


class Case(NamedTuple):
    name: str
    about: str
    properties: dict[str, Any]
    request: str
    arguments: dict[str, Any]


_TEXT, _NUMBER = {"type": "string"}, {"type": "number"}
CALLS = (
    Case(
        "get_weather",
        "Get the current weather in a city",
        {"city": _TEXT},
        "What is the weather in Lisbon?",
        {"city": "Lisbon"},
    ),
    Case("get_system_health", "Get the health of the system", {}, "Call get_system_health.", {}),
    Case(
        "convert_currency",
        "Convert money between currencies",
        {"amount": _NUMBER, "from_currency": _TEXT, "to_currency": _TEXT},
        "Convert 250 USD to EUR.",
        {"amount": 250, "from_currency": "USD", "to_currency": "EUR"},
    ),
    Case(
        "set_timer",
        "Set a timer",
        {"minutes": {"type": "integer"}},
        "Set a timer for 15 minutes.",
        {"minutes": 15},
    ),
    Case(
        "get_stock_price",
        "Get the current price of a stock",
        {"symbol": _TEXT},
        "What is the stock price of NVDA?",
        {"symbol": "NVDA"},
    ),
    Case(
        "get_temperature",
        "Get the current temperature in a city",
        {"city": _TEXT, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
        "What is the temperature in Oslo in celsius?",
        {"city": "Oslo", "unit": "celsius"},
    ),
)


def must(condition: object, reason: str) -> None:
    if not condition:
        raise WrongShapeError(reason)


def check(server: Server) -> Iterator[tuple[str, str]]:
    """Yield each case, and the reason why it failed, or nothing."""
    for name, run in _cases(server):
        reason = ""
        try:
            run()
        except WrongShapeError as error:
            reason = str(error)
        except (LookupError, TypeError, ValueError) as error:  # of a field that is not there
            reason = f"the answer has another form: {error!r}"
        except httpx.TransportError as error:
            raise ServerUnavailableError(f"{server.url} does not answer: {error}") from error
        yield name, reason


def _cases(server: Server) -> Iterator[tuple[str, Callable[[], object]]]:
    http = httpx.Client(
        base_url=server.url,
        headers={"Authorization": f"Bearer {server.key}"} if server.key else {},
        timeout=_TIMEOUT_S,
        trust_env=not server.is_own,
    )
    for api, ask in (("chat", _ask_chat), ("responses", _ask_responses)):
        for streams in (False, True):
            asked = partial(ask, http, server.model, streams)
            name = f"{api}{', streamed' * streams}"
            yield f"{name}: text", partial(_plain, asked)
            for case in CALLS:
                yield f"{name}: {case.name}", partial(_call, asked, case)
            yield f"{name}: call, result and report", partial(_round_trip, asked, api)
            yield f"{name}: JSON schema", partial(_json_schema, asked, api)
            yield f"{name}: limit of tokens", partial(_cut, asked, api)
        yield f"{api}: error of an unknown model", partial(_unknown_model, http, api)


def _plain(ask: Callable[..., Reply]) -> None:
    reply = ask([{"role": "user", "content": "What is the capital of France?"}])
    must("Paris" in reply.text, f"the answer is {reply.text!r}")
    must(reply.finish in ("stop", "completed"), f"it ended with {reply.finish!r}")


def _call(ask: Callable[..., Reply], case: Case) -> Reply:
    reply = ask([{"role": "user", "content": case.request}], case)
    must(len(reply.calls) == 1, f"{len(reply.calls)} calls, and the text {reply.text!r}")
    must(reply.finish in ("tool_calls", "completed"), f"it ended with {reply.finish!r}")
    call = reply.calls[0]
    must(call["id"], "the call has no id")
    must(call["name"] == case.name, f"the function is {call['name']!r}")
    arguments = json.loads(call["arguments"])
    for name, value in arguments.items():
        schema = case.properties.get(name)
        must(schema is not None, f"an argument {name!r} is not declared")
        must(type(value) in _TYPES[case.properties[name]["type"]], f"{name} is {value!r}")
    must(arguments == case.arguments, f"the arguments are {call['arguments']}")
    return reply


def _round_trip(ask: Callable[..., Reply], api: str) -> None:
    reply = _call(ask, CALLS[0])
    result, call_id = json.dumps({"temperature": 31}), reply.calls[0]["id"]
    answered: dict[str, Any] = {"role": "tool", "tool_call_id": call_id, "content": result}
    if api == "responses":
        answered = {"type": "function_call_output", "call_id": call_id, "output": result}
    question = {"role": "user", "content": CALLS[0].request}
    reply = ask([question, *reply.again, answered], CALLS[0])
    must("31" in reply.text, f"the report is {reply.text!r}")


def _json_schema(ask: Callable[..., Reply], api: str) -> None:
    schema = {
        "type": "object",
        "properties": {"name": _TEXT, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    named: dict[str, Any] = {"name": "person", "schema": schema, "strict": True}
    wanted: dict[str, dict[str, Any]] = {
        "chat": {"response_format": {"type": "json_schema", "json_schema": named}},
        "responses": {"text": {"format": {"type": "json_schema", **named}}},
    }
    reply = ask([{"role": "user", "content": "Tom is 42 years old."}], **wanted[api])
    must(json.loads(reply.text) == {"name": "Tom", "age": 42}, f"the answer is {reply.text!r}")


def _cut(ask: Callable[..., Reply], api: str) -> None:
    limit = {"chat": "max_tokens", "responses": "max_output_tokens"}[api]
    reply = ask([{"role": "user", "content": "Count to 99."}], **{limit: 30})
    must(reply.finish in ("length", "incomplete"), f"it ended with {reply.finish!r}")


def _unknown_model(http: httpx.Client, api: str) -> None:
    path = {"chat": "/v1/chat/completions", "responses": "/v1/responses"}[api]
    question = [{"role": "user", "content": "hi"}]
    body = {"model": "no-such-model", "messages": question, "input": question}
    del body["input" if api == "chat" else "messages"]
    answer = http.post(path, json=body)
    must(answer.status_code in (400, 404), f"the status is {answer.status_code}")
    must(answer.json()["error"]["message"], "the error has no message")


def _ask_chat(
    http: httpx.Client,
    model: str,
    streams: bool,
    messages: list[dict[str, Any]],
    case: Case | None = None,
    **more: Any,
) -> Reply:
    body = {"model": model, "messages": messages, "temperature": 0, "reasoning_effort": "low"}
    body |= {"max_tokens": _MAX_TOKENS} | more
    if case:
        body["tools"] = [{"type": "function", "function": _declared(case)}]
    if not streams:
        answer = _checked(http.post("/v1/chat/completions", json=body)).json()
        return _chat_reply(check_completion(answer))
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    events = _events(http.post("/v1/chat/completions", json=body))
    return _chat_reply(check_chunks([data for _, data in events]))


def _chat_reply(message: dict[str, Any]) -> Reply:
    text, calls = message.get("content") or "", message.get("tool_calls") or []
    must(not TAG.search(text), f"a tag of the harmony format is in {text!r}")
    flat = [{"id": call["id"], **call["function"]} for call in calls]
    finish = message.pop("finish_reason")
    return Reply(text, flat, finish, [message])


def check_completion(answer: dict[str, Any]) -> dict[str, Any]:
    """Check an answer of /v1/chat/completions; return its message with `finish_reason`."""
    must(answer["object"] == "chat.completion", f"the object is {answer['object']!r}")
    must(answer["id"] and answer["created"] and answer["model"], "id, created or model is empty")
    (choice,) = answer["choices"]
    must(choice["index"] == 0, "the choice is not number 0")
    must(choice["message"]["role"] == "assistant", "the role is not assistant")
    finish = choice["finish_reason"]
    must(finish in ("stop", "length", "tool_calls"), f"finish_reason is {finish!r}")
    usage = answer["usage"]
    n_tokens = usage["prompt_tokens"] + usage["completion_tokens"]
    must(usage["total_tokens"] == n_tokens > 0, f"usage does not add up: {usage}")
    return {**choice["message"], "finish_reason": finish}


def check_chunks(data: list[Any]) -> dict[str, Any]:
    """Check the data of all events of a stream; return the message with `finish_reason`."""
    must(data and data[-1] == "[DONE]", "the stream does not end with [DONE]")
    chunks = data[:-1]
    if chunks[-1]["choices"] == []:
        must(chunks.pop()["usage"]["total_tokens"] > 0, "usage is empty")
    must(len({chunk["id"] for chunk in chunks}) == 1, "the chunks have several ids")
    must({c["object"] for c in chunks} == {"chat.completion.chunk"}, "an object has another type")
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    must(choices[0]["delta"]["role"] == "assistant", "the first delta has no role")
    reasons = [choice.get("finish_reason") for choice in choices]
    must(not any(reasons[:-1]) and reasons[-1], "finish_reason is not in the last choice alone")
    message: dict[str, Any] = {"role": "assistant", "content": "", "finish_reason": reasons[-1]}
    calls: list[dict[str, Any]] = []
    for delta in (choice["delta"] for choice in choices):
        for name in ("content", "reasoning"):
            if text := delta.get(name):
                message[name] = message.get(name, "") + text
        for part in delta.get("tool_calls") or ():
            if part["index"] == len(calls):
                function = {"name": part["function"]["name"], "arguments": ""}
                calls.append({"id": part["id"], "type": "function", "function": function})
            must(part["index"] == len(calls) - 1, "the calls are not in order")
            calls[-1]["function"]["arguments"] += part["function"].get("arguments") or ""
    for call in calls:
        must(isinstance(json.loads(call["function"]["arguments"]), dict), "arguments: no object")
    wanted = ("tool_calls", "length") if calls else ("stop", "length")
    must(reasons[-1] in wanted, f"finish_reason is {reasons[-1]!r} with {len(calls)} calls")
    return message | ({"tool_calls": calls} if calls else {})


def _ask_responses(
    http: httpx.Client,
    model: str,
    streams: bool,
    items: list[dict[str, Any]],
    case: Case | None = None,
    **more: Any,
) -> Reply:
    body = {"model": model, "input": items, "temperature": 0, "reasoning": {"effort": "low"}}
    body |= {"max_output_tokens": _MAX_TOKENS, "store": False, "stream": streams} | more
    if case:
        body["tools"] = [{"type": "function", **_declared(case)}]
    answer = http.post("/v1/responses", json=body)
    if streams:
        return _response_reply(check_events(_events(answer)))
    return _response_reply(check_response(_checked(answer).json()))


def _response_reply(response: dict[str, Any]) -> Reply:
    output = response["output"]
    parts = [p for item in output if item["type"] == "message" for p in item["content"]]
    text = "".join(part["text"] for part in parts)
    must(not TAG.search(text), f"a tag of the harmony format is in {text!r}")
    calls = [
        {"id": item["call_id"], "name": item["name"], "arguments": item["arguments"]}
        for item in output
        if item["type"] == "function_call"
    ]
    return Reply(text, calls, response["status"], output)


def check_response(response: dict[str, Any]) -> dict[str, Any]:
    must(response["object"] == "response", f"the object is {response['object']!r}")
    must(response["id"] and response["created_at"], "id or created_at is empty")
    status = response["status"]
    must(status in ("completed", "incomplete"), f"the status is {status!r}")
    must(all(item["id"] and item["type"] for item in response["output"]), "an item has no id")
    usage = response["usage"]
    n_tokens = usage["input_tokens"] + usage["output_tokens"]
    must(usage["total_tokens"] == n_tokens > 0, f"usage does not add up: {usage}")
    return response


def check_events(events: list[tuple[str, Any]]) -> dict[str, Any]:
    """Check all events of a stream of /v1/responses; return the whole response."""
    must(all(name == data["type"] for name, data in events), "an event is not named as its type")
    numbers = [data["sequence_number"] for _, data in events]
    must(numbers == list(range(numbers[0], numbers[0] + len(numbers))), "numbers are missing")
    first = [name for name, _ in events[:2]]
    must(first == ["response.created", "response.in_progress"], f"it begins with {first}")
    name, data = events[-1]
    must(name in ("response.completed", "response.incomplete"), f"it ends with {name}")
    response = check_response(data["response"])
    output, is_open, n_done, text = response["output"], False, 0, ""
    for name, data in events[2:-1]:
        must(data["output_index"] == n_done, f"{name} is of another item than the open one")
        must(is_open != (name == "response.output_item.added"), f"{name} is out of order")
        if name == "response.output_item.added":
            is_open, text = True, ""
        elif name == "response.output_item.done":
            must(data["item"]["id"] == output[n_done]["id"], "the output has another item")
            is_open, n_done = False, n_done + 1
        else:
            must(data["item_id"] == output[n_done]["id"], f"{name} has another item_id")
            text += data["delta"] if name.endswith(".delta") else ""
            if name.endswith((".output_text.done", ".arguments.done")):
                whole = data.get("text", data.get("arguments"))
                must(text == whole, f"the deltas of {name} make {text!r}, not {whole!r}")
            text = "" if name.endswith(".done") else text
    must(not is_open and n_done == len(output), f"{n_done} of {len(output)} items are done")
    return response


def _declared(case: Case) -> dict[str, Any]:
    schema = {"type": "object", "properties": case.properties, "required": [*case.properties]}
    return {"name": case.name, "description": case.about, "parameters": schema}


def _checked(answer: httpx.Response) -> httpx.Response:
    must(answer.is_success, f"{answer.status_code} {answer.text[:200]}")
    return answer


def _events(answer: httpx.Response) -> list[tuple[str, Any]]:
    kind = _checked(answer).headers.get("content-type", "")
    must(kind.startswith("text/event-stream"), f"the content type is {kind!r}")
    events = []
    for block in answer.text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line[0] != ":")
        if data := fields.get("data"):
            name = fields.get("event", "")
            events.append((name, data if data == "[DONE]" else json.loads(data)))
    return events
