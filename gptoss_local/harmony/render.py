"""Messages -> harmony tokens, token for token as openai-harmony renders them, but for tools.

All text is encoded as text: no user, tool result or tool name can forge a message by `<|start|>`.
"""

import contextlib
import datetime
import json
import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gptoss_local.base.types import Effort
from gptoss_local.harmony.budget import TokenBudget
from gptoss_local.harmony.built_in import body_of, declarations, is_built_in
from gptoss_local.harmony.message import ChatRequest, JsonFormat, Message, Tool
from gptoss_local.harmony.parser import BadCall
from gptoss_local.harmony.parts import Part
from gptoss_local.harmony.typescript import render_tools
from gptoss_local.harmony.vocabulary import (
    CALL,
    CHANNEL,
    END,
    MESSAGE,
    START,
    STOP_TOKENS,
    Vocabulary,
)


def arrange(messages: Iterable[Message]) -> list[Message]:
    """Split the assistant's messages into single steps, in the order that harmony has them.

    A step has reasoning, content or calls alone, or the model's own tokens of them all. Content
    before a call or a result is a preamble. Messages between a call and its result go before the
    call.
    """
    arranged: list[Message] = []
    steps: list[Message] = []  # of the assistant, since the last message of another role
    for message in messages:
        if message.role == "assistant":
            steps += _steps(message)
        else:
            arranged += [*_in_order(steps, goes_on=message.role == "tool"), message]
            steps = []
    return [*arranged, *_in_order(steps, goes_on=False)]


def is_final(message: Message) -> bool:
    is_said = message.role == "assistant" and bool(message.content)
    return is_said and not message.tool_calls and not message.is_preamble


def _steps(message: Message) -> Iterator[Message]:
    if message.tokens:
        yield message
        return
    if message.reasoning:
        yield Message(role="assistant", reasoning=message.reasoning)
    if message.content:
        is_preamble = message.is_preamble
        yield Message(role="assistant", content=message.content, is_preamble=is_preamble)
    if message.tool_calls:
        yield Message(role="assistant", tool_calls=message.tool_calls)


def _in_order(steps: Sequence[Message], *, goes_on: bool) -> list[Message]:
    """Mark preambles; `goes_on` says that the result of a call follows."""
    n = next((i for i in range(len(steps), 0, -1) if steps[i - 1].tool_calls), 0)
    before, after = list(steps[:n]), list(steps[n:])
    if goes_on:
        calls: list[Message] = []
        while before and before[-1].tool_calls:
            calls.insert(0, before.pop())
        before, after = [*before, *after, *calls], []
    said = [msgspec.structs.replace(s, is_preamble=True) if s.content else s for s in before]
    return said + after


IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."
_ANALYSIS = "analysis"
_MAX_NAME = 64
_NAME = re.compile(r"[\w.-]{1,64}")
_UNNAMED = "unknown"  # a function that no message names


def render_chat(
    request: ChatRequest,
    vocabulary: Vocabulary,
    date: datetime.date | None = None,
    budget: TokenBudget | None = None,
) -> list[int]:
    """Render the prompt for the next assistant turn, ending in `<|start|>assistant`.

    `date` is today by default. An answer that the request has begun stands open at the end.
    Reasoning of finished turns, with its calls of built-in tools, is dropped, as by gpt-oss's chat
    template; openai-harmony drops it in the first finished turn only. Without reasoning, the
    prompt opens the final channel, or with tools, which must stay callable, has the lowest effort.

    Raises:
        PromptTooLongError: it would be longer than the budget.
    """
    tokens = ended(request.earlier_tokens)
    budget = budget or TokenBudget()
    budget.spend(len(tokens))
    vocabulary.check(tokens, "context")
    if not tokens:
        effort = request.effort if request.reasoning else "low"
        today = date or datetime.date.today()
        text = system_text(effort, today.isoformat(), request.tools)
        tokens += vocabulary.rendered.tokens(Part("system", text), budget)
    for part in _history(request):
        if isinstance(part, Part):
            tokens += vocabulary.rendered.tokens(part, budget)
        else:
            budget.spend(len(part))
            tokens += [START, *vocabulary.encode("assistant"), *ended(part)]
    tokens += [START, *vocabulary.encode("assistant")]
    begun = begun_answer(request)
    if begun is not None and begun.reasoning:
        tokens += [CHANNEL, *vocabulary.encode("analysis"), MESSAGE]
        tokens += vocabulary.encode(begun.reasoning, budget)
        if begun.content:
            tokens += [END, START, *vocabulary.encode("assistant")]
    if opens_final(request):
        tokens += [CHANNEL, *vocabulary.encode("final"), MESSAGE]
    if begun is not None:
        tokens += vocabulary.encode(begun.content, budget)
    return tokens


def system_text(effort: Effort, date: str, tools: Sequence[Tool] = ()) -> str:
    """Source: `Render<SystemContent>` in openai-harmony's encoding.rs."""
    about = f"{IDENTITY}\nKnowledge cutoff: 2024-06\nCurrent date: {date}"
    channels = "# Valid channels: analysis, commentary, final. "
    channels += "Channel must be included for every message."
    if not all(tool.is_built_in for tool in tools):
        channels += "\nCalls to these tools must go to the commentary channel: 'functions'."
    declared = declarations(tools)
    sections = (about, f"Reasoning: {effort}", declared, channels)
    return "\n\n".join(section for section in sections if section)


def correction(bad_call: BadCall, tools: Sequence[Tool], vocabulary: Vocabulary) -> list[int]:
    """Return the reply to a bad call, and the beginning of the next message's header."""
    recipient, problem = bad_call
    names = [t.name if t.is_built_in else f"functions.{t.name}" for t in tools]
    known = f"There are: {', '.join(names)}." if names else "There are no tools: answer without."
    name = recipient[:_MAX_NAME]
    text = {
        "undeclared": f"Error: there is no tool {name}. {known}",
        "unnamed": f"Error: this call names no tool with to=. {known}",
        "unfit": f"Error: the arguments of {name} must be a JSON object that fits it. Call again.",
    }[problem]
    author = recipient if _NAME.fullmatch(recipient) else f"functions.{_UNNAMED}"
    part = Part("tool", text, "commentary", "assistant", name=author)
    rendered = vocabulary.rendered.tokens(part, TokenBudget())
    return [*rendered, START, *vocabulary.encode("assistant")]


def end_of_analysis(vocabulary: Vocabulary, *, opens_final: bool) -> list[int]:
    opening = [END, START, *vocabulary.encode("assistant")]
    return [*opening, CHANNEL, *vocabulary.encode("final"), MESSAGE] if opens_final else opening


def render_history(
    request: ChatRequest, answer: str, vocabulary: Vocabulary, date: datetime.date | None = None
) -> list[int]:
    """Render the next turn's prompt up to a user's message, with `answer` but not its reasoning."""
    messages, begun = request.messages, begun_answer(request)
    if begun is not None:
        messages, answer = messages[:-1], begun.content + answer
    reply, question = Message(role="assistant", content=answer), Message(role="user")
    messages = (*messages, reply, question)
    tokens = render_chat(msgspec.structs.replace(request, messages=messages), vocabulary, date)
    starts = [i for i, token in enumerate(tokens) if token == START]
    return tokens[: starts[-2]]  # of the question; the very last one opens the next answer


def opens_final(request: ChatRequest) -> bool:
    begun = begun_answer(request)
    if begun is not None:
        return bool(begun.content)
    return not request.reasoning and not request.tools


def opens_analysis(request: ChatRequest) -> bool:
    """Return whether the rendered prompt ends inside reasoning, which the answer continues."""
    begun = begun_answer(request)
    return begun is not None and not begun.content


def begun_answer(request: ChatRequest) -> Message | None:
    """Return the assistant's message at the end of a conversation, which the answer continues.

    Reasoning alone continues as reasoning. A format or a call that must be made binds an answer
    from its start, so no message is continued. Source: Ollama's harmony/harmonyparser.go
    (AddImplicitStartOrPrefill).
    """
    last = request.messages[-1] if request.messages else None
    if last is None or request.format is not None or request.must_call:
        return None
    if last.role == "assistant" and not (last.content or last.tool_calls):
        is_free = request.reasoning and not any(tool.strict for tool in request.tools)
        return last if last.reasoning and is_free else None
    return last if is_final(last) else None


def ended(tokens: Sequence[int]) -> list[int]:
    """Return the tokens of an earlier answer, its last message ended as it stands in a history.

    `<|end|>` replaces `<|return|>`, or is added to an answer that was cut off. Source:
    docs/format.md of openai/harmony.
    """
    tokens = list(tokens)
    if tokens and tokens[-1] in STOP_TOKENS and tokens[-1] != CALL:
        tokens.pop()
    if not tokens or tokens[-1] in (END, CALL):
        return tokens
    begin = max((i for i, token in enumerate(tokens) if token == START), default=None)
    if begin is not None and MESSAGE not in tokens[begin:]:  # a header that nothing follows
        return tokens[:begin]
    return [*tokens, END]


def _history(request: ChatRequest) -> Iterator[Part | tuple[int, ...]]:
    """Yield the messages, or their tokens if known; all that leads makes one developer message."""
    messages = request.messages if begun_answer(request) is None else request.messages[:-1]
    n_leading = next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))
    instructions = "\n\n".join(m.content for m in messages[:n_leading] if m.content)
    if content := "\n\n".join(_sections(instructions, request)):
        yield Part("developer", content)
    calls = _CallLog(request.tools)
    arranged = arrange(messages[n_leading:])
    n_finished = max((i + 1 for i, m in enumerate(arranged) if is_final(m)), default=0)
    for i, message in enumerate(arranged):
        if i < n_finished:  # without analysis, to which calls of built-in tools belong
            message = msgspec.structs.replace(message, tokens=())
            yield from (p for p in _parts(message, calls) if p.channel != _ANALYSIS)
        elif message.tokens:
            calls.add(message)
            yield message.tokens
        else:
            yield from _parts(message, calls)


def _parts(message: Message, calls: "_CallLog") -> Iterator[Part]:
    match message.role:
        case "system":
            yield Part("developer", _instructions(message.content))
        case "user":
            name = f"user:{message.name}" if message.name else ""
            yield Part("user", message.content, name=name)
        case "assistant":
            calls.add(message)
            yield from _assistant(message, calls)
        case "tool":
            name = calls.answered_by(message)
            channel = _ANALYSIS if calls.is_built_in(name) else "commentary"
            author = name if calls.is_built_in(name) else f"functions.{name}"
            yield Part("tool", message.content, channel, "assistant", name=author)


def _sections(instructions: str, request: ChatRequest) -> Iterator[str]:
    if instructions:
        yield _instructions(instructions)
    if functions := [tool for tool in request.tools if not tool.is_built_in]:
        yield render_tools([("functions", "", functions)])
    if isinstance(request.format, JsonFormat) and request.format.schema.keys() - {"type"}:
        yield _response_format(request.format)


def _instructions(text: str) -> str:
    return f"# Instructions\n\n{text}" if text else ""


def _response_format(wanted: JsonFormat) -> str:
    """Source: docs/format.md of openai/harmony, "Structured output": the last section."""
    schema = msgspec.json.encode(wanted.schema).decode()
    about = "".join(f"// {line}\n" for line in wanted.description.splitlines())
    return f"# Response Formats\n\n## {wanted.name}\n\n{about}{schema}"


def _assistant(message: Message, calls: "_CallLog") -> Iterator[Part]:
    if message.reasoning:
        yield Part("assistant", message.reasoning, _ANALYSIS)
    if message.content:
        channel = "commentary" if message.is_preamble else "final"
        yield Part("assistant", message.content, channel)
    for call in message.tool_calls:
        if calls.is_built_in(call.name):
            yield Part("assistant", body_of(call), _ANALYSIS, call.name, "code")
            continue
        arguments = call.arguments
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
        recipient = f"functions.{call.name or _UNNAMED}"
        yield Part("assistant", arguments, "commentary", recipient, "<|constrain|>json")


class _CallLog:
    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = tools
        self._names: dict[str, str] = {}  # by id; some programs repeat them in each turn
        self._open: list[tuple[str, str]] = []  # (id, name) in order

    def is_built_in(self, name: str) -> bool:
        return is_built_in(name, self._tools)

    def add(self, message: Message) -> None:
        calls = [(call.id, call.name or _UNNAMED) for call in message.tool_calls]
        self._open += calls
        self._names |= {call_id: name for call_id, name in calls if call_id}

    def answered_by(self, result: Message) -> str:
        """Return the function that `result` comes from: by id, else by name, else by order."""
        if name := self._names.get(result.tool_call_id):
            with contextlib.suppress(ValueError):  # a second part of the same result
                self._open.remove((result.tool_call_id, name))
            return name
        for index, (_, name) in enumerate(self._open):
            if result.tool_name in ("", name):
                del self._open[index]
                return name
        return result.tool_name or _UNNAMED
