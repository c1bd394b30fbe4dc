"""The replies of a scripted engine to questions."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gptoss_local.base.types import Effort
from gptoss_local.harmony import Vocabulary

SCRIPT_VARIABLE = "SCRIPTED_ENGINE"
"""The environment variable with the path of the script."""

PROMPTS_SUFFIX = ".prompts"
"""Of the file next to the script, in which the engine notes the prompts that it gets."""


class Reply(msgspec.Struct, kw_only=True):
    """One generation of the model.

    Attributes:
        text: In harmony, starting after `<|start|>assistant`. Without a stop token at its end it
            is cut off, as if the context were full.
        tokens: Its token ids; `Script.say` fills them in.
        tok_s: Tokens a second.
        n_per_frame: Tokens that come together, as after a draft.
        prefill_s: How long the prompt is read.
        pauses: Seconds of silence before a token, by its index.
        holds_at: Index of the token that comes once the test calls `Script.go_on`.
        fails_at: Index of the token at which the sequence fails.
        dies_at: Index of the token at which the process exits.
    """

    text: str
    tokens: list[int] = []
    tok_s: float = 500.0
    n_per_frame: int = 1
    prefill_s: float = 0.0
    pauses: dict[int, float] = {}
    holds_at: int | None = None
    is_held: bool = False
    fails_at: int | None = None
    dies_at: int | None = None


class Part(msgspec.Struct):
    """The replies to a question. An empty question or effort matches any."""

    question: list[int]
    replies: list[Reply]
    effort: list[int] = []


def answer(content: str, reasoning: str = "", **how: Any) -> Reply:
    """An answer in the final channel, after reasoning if there is some."""
    final = f"<|channel|>final<|message|>{content}<|return|>"
    return Reply(text=_after_reasoning(reasoning, final), **how)


def calls(name: str, arguments: Mapping[str, Any], reasoning: str = "", **how: Any) -> Reply:
    """A call of a function."""
    header = f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
    text = json.dumps(arguments, ensure_ascii=False)
    return Reply(text=_after_reasoning(reasoning, f"{header}{text}<|call|>"), **how)


def calls_built_in(name: str, body: str, reasoning: str = "", **how: Any) -> Reply:
    """A call of `python` or of a function of `browser`, as the model was trained to write it."""
    message = f"<|channel|>analysis to={name} code<|message|>{body}<|call|>"
    return Reply(text=_after_reasoning(reasoning, message), **how)


def _after_reasoning(reasoning: str, message: str) -> str:
    if not reasoning:
        return message
    return f"<|channel|>analysis<|message|>{reasoning}<|end|><|start|>assistant{message}"


class Script:
    """The model's replies to questions."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.parts: list[Part] = []
        self.heard: list[list[int]] = []
        self._file: Path | None = None

    @property
    def prompts(self) -> list[list[int]]:
        """The prompts of all requests to the running server so far."""
        if self._file is None or not self._file.exists():
            return self.heard
        return [msgspec.json.decode(line) for line in self._file.read_bytes().splitlines()]

    def say(self, question: str, *replies: Reply, effort: Effort | None = None) -> None:
        """Reply to a message of the user, then to the results of the calls in these replies."""
        encode = self.vocabulary.encode
        for reply in replies:
            reply.tokens = self.vocabulary.encode_tagged(reply.text)
        line = encode(f"Reasoning: {effort}") if effort else []
        self.parts.append(Part(encode(question), list(replies), line))

    def otherwise(self, *replies: Reply) -> None:
        """Reply to all other messages."""
        self.say("", *replies)

    def go_on(self) -> None:
        """Let the replies that hold now continue; not those of a server in another process."""
        for part in self.parts:
            for reply in part.replies:
                reply.is_held = False

    def write(self, path: Path) -> None:
        """Write it for a process, which notes its prompts next to it."""
        path.write_bytes(msgspec.msgpack.encode(self.parts))
        self._file = path.with_suffix(PROMPTS_SUFFIX)

    def begin(self) -> None:
        """Forget the prompts of earlier servers; this process plays the script."""
        self.heard, self._file = [], None
