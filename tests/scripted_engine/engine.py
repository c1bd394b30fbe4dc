"""Plays a script where the server expects its engine's process; see `tests.scripted_engine`."""

import asyncio
import os
import time
from collections.abc import Callable
from itertools import pairwise

import msgspec

from gptoss_local.base.errors import EngineError
from gptoss_local.base.types import FinishReason, Usage
from gptoss_local.engine import protocol
from gptoss_local.engine.protocol import (
    Cancel,
    Close,
    Event,
    Finished,
    Generate,
    GetStats,
    Load,
    Loaded,
    Logprob,
    Prefilled,
    Stats,
    Tokens,
    failure,
)
from gptoss_local.harmony.vocabulary import END, MESSAGE, START
from tests.scripted_engine.script import Part, Reply

_USER = [START, 1428, MESSAGE]
_TOOLS = (44580, 29010, 46071)  # `functions`, `python`, `browser`: the beginning of an author
_N_VOCAB = 201_088


class DiedError(Exception):
    """The script says that the process dies here."""


class Player:
    """A sequence that is played: its next frame, and when that is due."""

    def __init__(self, request: Generate, reply: Reply) -> None:
        self.request = request
        self.reply = reply
        self._n_begun = self._n_sent = n_begun(request.prompt, reply.tokens)
        self._n_read = 0
        self._has_held = False
        self._start_s = time.monotonic()
        self._first_s = self._start_s + reply.prefill_s
        self.due_s = self._start_s + (reply.prefill_s / 10 if reply.prefill_s else 0)

    def next_events(self) -> list[Event]:
        """The next frame, and the end after the last one."""
        seq_id, n_prompt = self.request.seq_id, len(self.request.prompt)
        if time.monotonic() < self._first_s - 1e-6:
            self._n_read = min(n_prompt - 1, self._n_read + n_prompt // 10)
            self.due_s = min(self._first_s, self.due_s + self.reply.prefill_s / 10)
            is_asked = self.request.reports_prefill
            return [Prefilled(seq_id, self._n_read, 0)] if is_asked else []
        first, reply = self._n_sent, self.reply
        if first == reply.holds_at and not self._has_held:
            reply.is_held = self._has_held = True
        if first == reply.holds_at and reply.is_held:
            self.due_s = time.monotonic() + 0.01
            return []
        was_begun = first > 0 and first == self._n_begun  # here it failed the last time
        if first == reply.dies_at and not was_begun:
            raise DiedError
        if first == reply.fails_at and not was_begun:
            return [failure(EngineError("the script says that this fails"), seq_id)]
        tokens = reply.tokens[first : first + reply.n_per_frame][: self._n_left()]
        self._n_sent += len(tokens)
        self.due_s += len(tokens) / reply.tok_s + reply.pauses.get(self._n_sent, 0.0)
        events: list[Event] = [Tokens(seq_id, tokens, self._logprobs(tokens))] if tokens else []
        is_stopped = bool(tokens) and tokens[-1] in self.request.stop_tokens
        if is_stopped or self._n_sent == len(reply.tokens) or self._n_left() == 0:
            events.append(self.finished("stop" if is_stopped else "length"))
        return events

    def finished(self, reason: FinishReason) -> Finished:
        decode_s = max(0.0, time.monotonic() - self._first_s)
        usage = Usage(
            n_prompt=len(self.request.prompt),
            n_generated=self._n_sent - self._n_begun,
            prefill_ns=int(self.reply.prefill_s * 1e9) + 1,
            decode_ns=int(decode_s * 1e9) + 1,
        )
        return Finished(self.request.seq_id, reason, usage)

    def _n_left(self) -> int:
        most = self.request.max_tokens
        n_sent = self._n_sent - self._n_begun
        return len(self.reply.tokens) if most is None else most - n_sent

    def _logprobs(self, tokens: list[int]) -> list[Logprob]:
        n = self.request.n_logprobs
        return [] if n is None else [Logprob(-0.1, [(token, -0.1)][:n]) for token in tokens]


class ScriptedProcess:
    """The process of an engine, as `EngineClient` sees it. Thread: one event loop.

    Args:
        parts: Of the script.
        on_prompt: Called with the token ids of each prompt.
    """

    pid = os.getpid()

    def __init__(self, parts: list[Part], on_prompt: Callable[[list[int]], None]) -> None:
        self._parts, self._on_prompt = parts, on_prompt
        self._players: dict[int, Player] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._commands = b""
        self._is_over = asyncio.Event()
        self.returncode: int | None = None
        self.stdin = self
        self.stdout, self.stderr = asyncio.StreamReader(), asyncio.StreamReader()

    async def wait(self) -> int:
        await self._is_over.wait()
        return self.returncode or 0

    def kill(self) -> None:
        self._end(-9)

    def is_closing(self) -> bool:
        return self.returncode is not None

    def close(self) -> None:
        self._end(0)

    def write(self, frames: bytes) -> None:
        self._commands += frames
        while (n := int.from_bytes(self._commands[: protocol.LENGTH_BYTES], "little")) and (
            len(self._commands) >= protocol.LENGTH_BYTES + n
        ):
            body = self._commands[protocol.LENGTH_BYTES :][:n]
            self._commands = self._commands[protocol.LENGTH_BYTES + n :]
            self._obey(protocol.decode_command(body))

    def _obey(self, command: protocol.Command) -> None:
        match command:
            case Load():
                self._send([_loaded(command)])
            case Generate():
                self._on_prompt(command.prompt)
                reply = find_reply(self._parts, command.prompt)
                self._players[command.seq_id] = Player(command, reply)
                self._play_when_due()
            case Cancel(seq_id) if seq_id in self._players:
                self._send([self._players.pop(seq_id).finished("cancelled")])
            case GetStats():
                self._send([_stats(len(self._players))])
            case Close():
                self._end(0)

    def _play(self) -> None:
        for seq_id, player in list(self._players.items()):
            while seq_id in self._players and player.due_s <= time.monotonic():
                try:
                    events = player.next_events()
                except DiedError:
                    self._end(1)
                    return
                self._send(events)
                if any(not isinstance(event, Prefilled | Tokens) for event in events):
                    del self._players[seq_id]
        self._play_when_due()

    def _play_when_due(self) -> None:
        if self._timer:
            self._timer.cancel()
        if self._players and self.returncode is None:
            wait_s = min(player.due_s for player in self._players.values()) - time.monotonic()
            self._timer = asyncio.get_running_loop().call_later(max(0.0, wait_s), self._play)

    def _send(self, events: list[Event]) -> None:
        self.stdout.feed_data(b"".join(map(protocol.encode_frame, events)))

    def _end(self, code: int) -> None:
        if self.returncode is None:
            self.returncode = code
            self._players.clear()
            for stream in (self.stdout, self.stderr):
                stream.feed_eof()
            self._is_over.set()


def find_reply(parts: list[Part], prompt: list[int]) -> Reply:
    """The reply to the user's last message, after as many results of tools as follow it."""
    starts = [n + 3 for n in range(len(prompt) - 2) if prompt[n : n + 3] == _USER]
    begin = starts[-1] if starts else 0
    end = prompt.index(END, begin) if END in prompt[begin:] else len(prompt)
    question = prompt[begin:end]
    asked = [part for part in parts if part.question == question] or [
        part for part in parts if not part.question
    ]
    of_effort = [part for part in asked if part.effort and _contains(prompt, part.effort)]
    found = (of_effort or [part for part in asked if not part.effort])[0].replies
    pairs = pairwise(prompt[end:])
    n_results = sum(first == START and second in _TOOLS for first, second in pairs)
    return found[min(n_results, len(found) - 1)]


def n_begun(prompt: list[int], reply: list[int]) -> int:
    """How many tokens of a reply the prompt ends with: the model continues a begun answer."""
    starts = (i for i, token in enumerate(prompt) if token == reply[0])
    begun = next((len(prompt) - i for i in starts if prompt[i:] == reply[: len(prompt) - i]), 0)
    if begun or MESSAGE not in prompt:
        return begun
    # A message is open for another reason: the analysis was closed, and the answer is to come.
    header = prompt[len(prompt) - 1 - prompt[::-1].index(START) :] if prompt[-1] == MESSAGE else []
    ends = (i for i in range(len(header), len(reply)) if reply[i - len(header) : i] == header)
    return next(ends, 0) if header else 0


def _contains(tokens: list[int], part: list[int]) -> bool:
    return any(tokens[n : n + len(part)] == part for n in range(len(tokens)))


def _loaded(load: Load) -> Loaded:
    return Loaded(
        n_ctx=load.context.n_ctx, n_ctx_train=131_072, n_vocab=_N_VOCAB, size_bytes=1,
        has_gpu=False, n_seq=load.context.n_seq_max, buffer_bytes={},
    )  # fmt: skip


def _stats(n_running: int) -> Stats:
    names = {field.name for field in msgspec.structs.fields(Stats)}
    zeros: dict[str, int] = dict.fromkeys(names - {"n_running", "problems"}, 0)
    return Stats(n_running=n_running, problems=[], **zeros)
