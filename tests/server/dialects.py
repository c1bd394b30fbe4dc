"""The four dialects of a chat as their own SDKs speak them, asked and read in one neutral form.

said = dialect.ask([user("Weather?")], tools=[WEATHER], stream=True)
dialect.ask([user("Weather?"), *said.turns, dialect.result(said.calls[0], "9 C")])
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar, NamedTuple

import anthropic
import ollama
import openai

WEATHER: dict[str, Any] = {
    "name": "get_current_weather",
    "description": "Gets the current weather in the provided location.",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string", "description": "The name of the city"}},
        "required": ["location"],
    },
}
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}

Turn = dict[str, Any]
Words = dict[str, Callable[[Any], dict[str, Any]]]


class Call(NamedTuple):
    id: str
    name: str
    arguments: dict[str, Any]


class Said(NamedTuple):
    """An answer.

    Attributes:
        end: `stop`, `length` or `calls`, or a stop sequence where the dialect tells it.
        turns: As the client sends them back.
        n_pieces: How many pieces of text or arguments a stream had.
    """

    reasoning: str
    content: str
    calls: list[Call]
    end: str
    n_prompt: int
    n_generated: int
    turns: list[Any]
    n_pieces: int = 1

    @property
    def told(self) -> tuple[str, str, list[tuple[str, dict[str, Any]]], str]:
        """Return the fields that all dialects share."""
        calls = [(call.name, call.arguments) for call in self.calls]
        end = "calls" if self.calls and self.end == "stop" else self.end
        return self.reasoning, self.content, calls, end


def user(text: Any) -> Turn:
    return {"role": "user", "content": text}


class Dialect:
    """One dialect by its SDK; a stream is put together by the SDK if it can.

    Wishes are those that it has `words` for; tools are functions without a wrapper, and `more` are
    fields as the dialect names them.
    """

    path: ClassVar[str]
    words: ClassVar[Words]
    always: ClassVar[dict[str, Any]] = {}

    def ask(
        self, turns: Sequence[Any], *, stream: bool = False, more: Any = None, **wishes: Any
    ) -> Said:
        fields: dict[str, Any] = {"model": "nano"} | self.always
        for name, value in wishes.items():
            for key, word in self.words[name](value).items():
                fields[key] = fields.get(key, {}) | word if isinstance(word, dict) else word
        fields |= more or {}
        return self._stream(list(turns), fields) if stream else self._whole(list(turns), fields)

    def result(self, call: Call, text: str) -> Turn:
        """Return the turn with the result of a call."""
        raise NotImplementedError

    def _whole(self, turns: list[Any], fields: dict[str, Any]) -> Said:
        raise NotImplementedError

    def _stream(self, turns: list[Any], fields: dict[str, Any]) -> Said:
        raise NotImplementedError


class Ollama(Dialect):
    path = "/api/chat"
    words: ClassVar[Words] = {
        "tools": lambda v: {"tools": [{"type": "function", "function": f} for f in v]},
        "limit": lambda v: {"options": {"num_predict": v}},
        "stop": lambda v: {"options": {"stop": v}},
        "temperature": lambda v: {"options": {"temperature": v}},
        "schema": lambda v: {"format": v},
    }

    def __init__(self, sdk: ollama.Client) -> None:
        self._sdk = sdk

    def _whole(self, turns: list[Any], fields: dict[str, Any]) -> Said:
        reply: Any = self._sdk.chat(messages=turns, **fields)
        return self._said(reply, reply.message, 1)

    def _stream(self, turns: list[Any], fields: dict[str, Any]) -> Said:
        frames: list[Any] = list(self._sdk.chat(messages=turns, stream=True, **fields))
        assert [frame.done for frame in frames] == [False] * (len(frames) - 1) + [True]
        whole = ollama.Message(
            role="assistant",
            content="".join(frame.message.content or "" for frame in frames),
            thinking="".join(frame.message.thinking or "" for frame in frames),
            tool_calls=[call for frame in frames for call in frame.message.tool_calls or ()],
        )
        return self._said(frames[-1], whole, len(frames))

    def _said(self, last: Any, message: ollama.Message, n_pieces: int) -> Said:
        found = [call.function for call in message.tool_calls or ()]
        calls = [Call(str(n), f.name, dict(f.arguments)) for n, f in enumerate(found)]
        counts = (last.prompt_eval_count or 0, last.eval_count or 0)
        said = message.thinking or "", message.content or "", calls, last.done_reason
        return Said(*said, *counts, [message.model_dump(exclude_none=True)], n_pieces)

    def result(self, call: Call, text: str) -> Turn:
        return {"role": "tool", "tool_name": call.name, "content": text}


class Chat(Dialect):
    path = "/v1/chat/completions"
    words: ClassVar[Words] = {
        "tools": lambda v: {"tools": [{"type": "function", "function": f} for f in v]},
        "limit": lambda v: {"max_completion_tokens": v},
        "stop": lambda v: {"stop": v},
        "temperature": lambda v: {"temperature": v},
        "schema": lambda v: {
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": v}}
        },
        "one_call": lambda v: {"parallel_tool_calls": not v},
        "must_call": lambda v: {
            "tool_choice": "required"
            if v is True
            else {"type": "function", "function": {"name": v}}
        },
    }

    def __init__(self, sdk: openai.OpenAI) -> None:
        self._sdk = sdk

    def _whole(self, turns: list[Any], fields: dict[str, Any]) -> Said:
        return self._said(self._sdk.chat.completions.create(messages=turns, **fields), 1)

    def _stream(self, turns: list[Any], fields: dict[str, Any]) -> Said:
        fields = fields | {"stream_options": {"include_usage": True}}
        with self._sdk.chat.completions.stream(messages=turns, **fields) as events:
            chunks = [event.chunk for event in events if event.type == "chunk"]
            whole = events.current_completion_snapshot  # the final one is an error if it was cut
        assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
        assert chunks[0].choices[0].delta.role == "assistant"
        ids = [c.id for chunk in chunks for ch in chunk.choices for c in ch.delta.tool_calls or ()]
        assert len(list(filter(None, ids))) == len(whole.choices[0].message.tool_calls or ())
        return self._said(whole, len(chunks))

    def _said(self, whole: Any, n_pieces: int) -> Said:
        (choice,) = whole.choices
        message = choice.message
        extra = message.model_extra or {}
        assert extra.get("reasoning", "") == extra.get("reasoning_content", "")
        found = message.tool_calls or ()
        calls = [
            Call(c.id, c.function.name, json.loads(c.function.arguments))
            for c in found
            if choice.finish_reason != "length"
        ]
        assert choice.finish_reason != "stop" or not calls
        end = "stop" if choice.finish_reason == "tool_calls" else choice.finish_reason
        usage = whole.usage
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
        return Said(
            *(extra.get("reasoning", ""), message.content or "", calls, end),
            *(usage.prompt_tokens, usage.completion_tokens),
            [message.model_dump(exclude_none=True)],
            n_pieces,
        )

    def result(self, call: Call, text: str) -> Turn:
        return {"role": "tool", "tool_call_id": call.id, "content": text}


class Responses(Dialect):
    path = "/v1/responses"
    words: ClassVar[Words] = {
        "tools": lambda v: {"tools": [{"type": "function", "strict": None, **f} for f in v]},
        "limit": lambda v: {"max_output_tokens": v},
        "temperature": lambda v: {"temperature": v},
        "schema": lambda v: {"text": {"format": {"type": "json_schema", "name": "x", "schema": v}}},
        "one_call": lambda v: {"parallel_tool_calls": not v},
        "must_call": lambda v: {
            "tool_choice": "required" if v is True else {"type": "function", "name": v}
        },
    }

    def __init__(self, sdk: openai.OpenAI) -> None:
        self._sdk = sdk

    def _whole(self, turns: list[Any], fields: dict[str, Any]) -> Said:
        return self._said(self._sdk.responses.create(input=turns, **fields), 1)

    def _stream(self, turns: list[Any], fields: dict[str, Any]) -> Said:
        events: list[Any] = list(self._sdk.responses.create(input=turns, stream=True, **fields))
        final = events[-1].response
        if final.error:
            raise openai.OpenAIError(final.error.message)
        assert [event.sequence_number for event in events] == list(range(len(events)))
        done = [e for e in events if e.type == "response.output_item.done"]
        assert [e.item for e in done] == final.output
        for event in events:
            if (item_id := getattr(event, "item_id", None)) is not None:
                assert final.output[event.output_index].id == item_id, event.type
        text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
        assert text == final.output_text
        return self._said(final, sum(e.type.endswith(".delta") for e in events))

    def _said(self, whole: Any, n_pieces: int) -> Said:
        of = {
            kind: [i for i in whole.output if i.type == kind] for kind in ("reasoning", "message")
        }
        thoughts = [part.text for item in of["reasoning"] for part in item.content]
        assert thoughts == [part.text for item in of["reasoning"] for part in item.summary]
        found = [i for i in whole.output if i.type == "function_call" and i.status == "completed"]
        calls = [Call(item.call_id, item.name, json.loads(item.arguments)) for item in found]
        end = "length" if whole.status == "incomplete" else "stop"
        assert whole.status in ("incomplete", "completed")
        assert (whole.incomplete_details is None) == (end == "stop")
        is_cut = whole.output[-1].status == "incomplete" if whole.output else False
        assert is_cut == (end == "length" and whole.output[-1].type != "reasoning")
        usage = whole.usage
        assert usage.total_tokens == usage.input_tokens + usage.output_tokens
        return Said(
            *("\n\n".join(thoughts), whole.output_text, calls, end),
            *(usage.input_tokens, usage.output_tokens),
            [item.model_dump(exclude_none=True) for item in whole.output],
            n_pieces,
        )

    def result(self, call: Call, text: str) -> Turn:
        return {"type": "function_call_output", "call_id": call.id, "output": text}


class Messages(Dialect):
    path = "/v1/messages"
    always: ClassVar[dict[str, Any]] = {"max_tokens": 9000}
    words: ClassVar[Words] = {
        "tools": lambda v: {
            "tools": [{"name": f["name"], "input_schema": f["parameters"]} for f in v]
        },
        "limit": lambda v: {"max_tokens": v},
        "stop": lambda v: {"stop_sequences": v},
        "temperature": lambda v: {"extra_body": {"temperature": v}},
        "schema": lambda v: {"output_config": {"format": {"type": "json_schema", "schema": v}}},
        "one_call": lambda v: {"tool_choice": {"type": "auto", "disable_parallel_tool_use": v}},
        "must_call": lambda v: {
            "tool_choice": {"type": "any"} if v is True else {"type": "tool", "name": v}
        },
    }

    def __init__(self, sdk: anthropic.Anthropic) -> None:
        self._sdk = sdk

    def _whole(self, turns: list[Any], fields: dict[str, Any]) -> Said:
        return self._said(self._sdk.messages.create(messages=turns, **fields), 1)

    def _stream(self, turns: list[Any], fields: dict[str, Any]) -> Said:
        with self._sdk.messages.stream(messages=turns, **fields) as events:
            n_pieces = sum(event.type == "content_block_delta" for event in events)
            return self._said(events.get_final_message(), n_pieces)

    def _said(self, whole: Any, n_pieces: int) -> Said:
        of: dict[str, list[Any]] = {"thinking": [], "text": [], "tool_use": []}
        for block in whole.content:
            of[block.type].append(block)
        assert all(block.signature for block in of["thinking"])
        is_cut = whole.stop_reason == "max_tokens"
        calls = [Call(b.id, b.name, b.input) for b in of["tool_use"] if not is_cut]
        assert whole.stop_reason != "end_turn" or not calls
        ends = {"end_turn": "stop", "tool_use": "stop", "max_tokens": "length"}
        end = ends.get(whole.stop_reason) or whole.stop_reason
        assert (whole.stop_sequence is not None) == (end == "stop_sequence")
        usage = whole.usage
        return Said(
            "\n\n".join(block.thinking for block in of["thinking"]),
            "".join(block.text for block in of["text"]),
            calls,
            whole.stop_sequence or end,
            usage.input_tokens + (usage.cache_read_input_tokens or 0),
            usage.output_tokens,
            [{"role": "assistant", "content": [b.model_dump() for b in whole.content]}],
            n_pieces,
        )

    def result(self, call: Call, text: str) -> Turn:
        return user([{"type": "tool_result", "tool_use_id": call.id, "content": text}])


NAMES = ("ollama", "chat", "responses", "messages")


@contextmanager
def speak(url: str, key: str = "k") -> Iterator[dict[str, Dialect]]:
    """Open the SDKs, which check the types of all that they get, by NAMES."""
    checked: Any = {"api_key": key, "max_retries": 0, "_strict_response_validation": True}
    with ExitStack() as stack:
        of_openai = stack.enter_context(openai.OpenAI(base_url=f"{url}/v1", **checked))
        of_anthropic = stack.enter_context(anthropic.Anthropic(base_url=url, **checked))
        of_ollama = stack.enter_context(ollama.Client(url, trust_env=False))
        yield {
            "ollama": Ollama(of_ollama),
            "chat": Chat(of_openai),
            "responses": Responses(of_openai),
            "messages": Messages(of_anthropic),
        }
