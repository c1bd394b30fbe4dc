"""Conversations: the date they keep, the turns that are left out to make them fit, and the model's
own text, which is put back before and in its calls where a client does not send it back.

Many clients drop the reasoning of a tool loop, so the model repeats itself. A call's random id
names the step of an answer; with its tokens the engine's cached prefix holds.
"""

import bisect
import datetime
import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256

import msgspec

from gptoss_local.api.gptoss import HarmonyPiece
from gptoss_local.base.events import GAP, WholeAnswer
from gptoss_local.base.fair_store import FairStore
from gptoss_local.base.off_loop import Check
from gptoss_local.harmony.budget import PromptTooLongError, TokenBudget
from gptoss_local.harmony.inspection import inspect_tokens
from gptoss_local.harmony.message import ChatRequest, Message, ToolRequest
from gptoss_local.harmony.render import render_chat
from gptoss_local.harmony.vocabulary import START, Vocabulary

_N_CONVERSATIONS = 1000


def lineage(request: ChatRequest) -> str:
    """Name a conversation by its owner, its messages up to the user's first one, and its tools."""
    n = next((i for i, m in enumerate(request.messages) if m.role == "user"), 0)
    beginning = (request.owner, request.messages[: n + 1], request.tools)
    return sha256(msgspec.json.encode(beginning)).hexdigest()


class StartDates:
    """Remembers dates for system messages: a prefix must not change at midnight.

    Conversations of an owner that begin in the same words are one, and the later start counts.
    """

    def __init__(self, today: Callable[[], datetime.date] = datetime.date.today) -> None:
        self._today = today
        self._dates = FairStore[datetime.date](_N_CONVERSATIONS, lambda _: 1)

    def date_of(self, request: ChatRequest) -> datetime.date:
        name = lineage(request)
        is_later_turn = any(message.role == "assistant" for message in request.messages)
        known = self._dates.get("", name) if is_later_turn else None
        date = known or self._today()
        self._dates.put("", name, date)
        return date


def shorten(
    request: ChatRequest, vocabulary: Vocabulary, n_ctx: int, check: Check = lambda: None
) -> tuple[ChatRequest, int]:
    """Make a conversation fit, if possible; slow, so call it on a thread.

    Whole turns go, so that no result loses its call: a user's message and all up to the next one.
    The last turn and all system messages stay, and a quarter of `n_ctx` is left for the answer.
    Returns the request, and how many messages are left out; none if it cannot be made to fit.
    """

    def is_within(n_turns_less: int, n_tokens: int) -> bool:
        budget = TokenBudget(n_tokens, check)
        try:
            prompt = render_chat(_without(request, n_turns_less), vocabulary, budget=budget)
        except PromptTooLongError:
            return False
        return len(prompt) < n_tokens

    n_turns = sum(message.role == "user" for message in request.messages)
    if is_within(0, n_ctx):
        return request, 0
    n_less = bisect.bisect_left(
        range(n_turns), True, lo=min(1, n_turns), key=lambda n: is_within(n, n_ctx - n_ctx // 4)
    )
    if n_less == n_turns:
        return request, 0
    shorter = _without(request, n_less)
    return shorter, len(request.messages) - len(shorter.messages)


def _without(request: ChatRequest, n_turns: int) -> ChatRequest:
    starts = [i for i, message in enumerate(request.messages) if message.role == "user"]
    start = starts[n_turns] if n_turns else 0
    kept = [m for i, m in enumerate(request.messages) if i >= start or m.role == "system"]
    return msgspec.structs.replace(request, messages=tuple(kept))


_MAX_BYTES = 32 * 1024 * 1024
_TOKEN_BYTES = 4
_CHANNELS = ("analysis", "commentary", "final")


class _Step(msgspec.Struct):
    """An answer that ended in calls; `is_exact`: its tokens say just what the client got."""

    calls: tuple[ToolRequest, ...]
    reasoning: str
    content: str
    tokens: "array[int]"
    n_bytes: int
    is_exact: bool | None = None


class Recall:
    """The steps of the last answers, in bounded memory; safe for threads."""

    def __init__(self) -> None:
        self._steps = FairStore[_Step](_MAX_BYTES, lambda step: step.n_bytes)  # by first calls

    def add(self, owner: str, answer: WholeAnswer, tokens: Sequence[int]) -> None:
        """Keep an answer that ended in calls; without tokens it cannot be repeated exactly."""
        calls = tuple(ToolRequest(c.name, c.arguments, c.id) for c in answer.calls)
        n_characters = len(answer.reasoning) + len(answer.content) + len(repr(calls))
        n_bytes = n_characters + len(tokens) * _TOKEN_BYTES
        step = _Step(calls, answer.reasoning, answer.content, array("i", tokens), n_bytes)
        self._steps.put(owner, calls[0].id, step)

    def fill_in(self, request: ChatRequest, vocabulary: Vocabulary) -> ChatRequest:
        """Return the request with the model's own steps where the client's text agrees."""
        messages: list[Message] = []
        for is_assistant, group in itertools.groupby(
            request.messages, lambda message: message.role == "assistant"
        ):
            run = list(group)
            messages += self._fill_in_run(request.owner, run, vocabulary) if is_assistant else run
        return msgspec.structs.replace(request, messages=tuple(messages))

    def _fill_in_run(self, owner: str, run: list[Message], vocabulary: Vocabulary) -> list[Message]:
        calls = tuple(call for message in run for call in message.tool_calls)
        step = self._find(owner, calls)
        if step is None:
            return run
        reasoning = GAP.join(m.reasoning for m in run if m.reasoning)
        content = GAP.join(m.content for m in run if m.content)
        is_same = _is_same(reasoning, step.reasoning) and _is_same(content, step.content)
        if is_same and calls == step.calls:
            if step.is_exact is None:
                step.is_exact = _says(step.tokens, step, vocabulary)
            if step.is_exact:
                tokens = tuple(step.tokens)
                whole = Message(role="assistant", reasoning=step.reasoning, content=step.content)
                return [msgspec.structs.replace(whole, tool_calls=calls, tokens=tokens)]
        if reasoning or not step.reasoning:
            return run
        return [Message(role="assistant", reasoning=step.reasoning), *run]

    def _find(self, owner: str, calls: tuple[ToolRequest, ...]) -> _Step | None:
        step = self._steps.get(owner, calls[0].id if calls else "")
        return step if step and step.calls[: len(calls)] == calls else None


def _is_same(sent: str, known: str) -> bool:
    """Return whether a client sent a text as it got it, but for blanks, or not at all."""
    return not sent.strip() or sent.split() == known.split()


def _says(tokens: Sequence[int], step: _Step, vocabulary: Vocabulary) -> bool:
    """Return whether tokens are well-formed and say what the client got, without any repair."""
    if not tokens:
        return False
    opened = [START, *vocabulary.encode("assistant")]
    pieces = inspect_tokens([*opened, *tokens], (), (), vocabulary)
    if not all(p.author == "assistant" and p.channel in _CHANNELS for p in pieces):
        return False
    said = [(p.channel == "analysis", p.text) for p in pieces if not p.recipient]
    reasoning = GAP.join(text for is_reasoning, text in said if is_reasoning)
    content = GAP.join(text for is_reasoning, text in said if not is_reasoning)
    called = list(_calls(p for p in pieces if p.recipient))
    return (
        reasoning == step.reasoning
        and content == step.content
        and called == [(f"functions.{call.name}", call.arguments) for call in step.calls]
    )


def _calls(pieces: Iterable[HarmonyPiece]) -> Iterator[tuple[str, object]]:
    for piece in pieces:
        try:
            yield piece.recipient, msgspec.json.decode(piece.text)
        except msgspec.DecodeError:
            yield piece.recipient, None
