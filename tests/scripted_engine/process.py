"""The engine process that plays a script; see `tests.scripted_engine`."""

import os
import queue
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import msgspec

from gptoss_local.engine import protocol
from gptoss_local.engine.protocol import (
    Cancel,
    Close,
    Command,
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
from gptoss_local.errors import EngineError
from gptoss_local.harmony.vocabulary import END, MESSAGE, START
from gptoss_local.types import FinishReason, Usage
from tests.scripted_engine import PROMPTS_SUFFIX, SCRIPT_VARIABLE, Part, Reply

_USER = [START, 1428, MESSAGE]
_TOOLS = (44580, 29010, 46071)  # `functions`, `python`, `browser`: the beginning of an author
_N_VOCAB = 201_088


class Player:
    """A sequence that is played: when its next frame is due, and what that is."""

    def __init__(self, request: Generate, reply: Reply) -> None:
        self.request = request
        self.reply = reply
        self._n_begun = self._n_sent = n_begun(request.prompt, reply.tokens)
        self._n_read = 0
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
        was_begun = first > 0 and first == self._n_begun  # here it failed the last time
        if first == reply.dies_at and not was_begun:
            os._exit(1)
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


def main() -> None:
    path = Path(os.environ[SCRIPT_VARIABLE])
    parts = msgspec.msgpack.decode(path.read_bytes(), type=list[Part])
    commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(commands,), daemon=True).start()
    players: dict[int, Player] = {}
    while True:
        now_s = time.monotonic()
        wait_s = min((max(0.0, p.due_s - now_s) for p in players.values()), default=None)
        try:
            command = commands.get(timeout=wait_s)
        except queue.Empty:
            for seq_id, player in list(players.items()):
                while seq_id in players and player.due_s <= time.monotonic():
                    events = player.next_events()
                    _send(events)
                    if any(not isinstance(event, Prefilled | Tokens) for event in events):
                        del players[seq_id]
            continue
        match command:
            case Load():
                _send([_loaded(command)])
            case Generate():
                with path.with_suffix(PROMPTS_SUFFIX).open("ab") as file:
                    file.write(msgspec.json.encode(command.prompt) + b"\n")
                players[command.seq_id] = Player(command, find_reply(parts, command.prompt))
            case Cancel(seq_id) if seq_id in players:
                _send([players.pop(seq_id).finished("cancelled")])
            case GetStats():
                _send([_stats(len(players))])
            case Close() | None:
                return


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


def _read(commands: "queue.SimpleQueue[Command | None]") -> None:
    stdin = sys.stdin.buffer
    while header := stdin.read(protocol.LENGTH_BYTES):
        commands.put(protocol.decode_command(stdin.read(int.from_bytes(header, "little"))))
    commands.put(None)


def _send(events: list[Event]) -> None:
    sys.stdout.buffer.write(b"".join(map(protocol.encode_frame, events)))
    sys.stdout.buffer.flush()


def _loaded(load: Load) -> Loaded:
    return Loaded(
        n_ctx=load.context.n_ctx, n_ctx_train=131_072, n_vocab=_N_VOCAB, size_bytes=1,
        has_gpu=False, n_seq=load.context.n_seq_max, buffer_bytes={},
    )  # fmt: skip


def _stats(n_running: int) -> Stats:
    names = {field.name for field in msgspec.structs.fields(Stats)}
    zeros: dict[str, int] = dict.fromkeys(names - {"n_running", "problems"}, 0)
    return Stats(n_running=n_running, problems=[], **zeros)


if __name__ == "__main__":
    main()
    os._exit(0)  # the reader thread holds stdin
