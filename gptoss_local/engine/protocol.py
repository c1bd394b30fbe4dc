"""The frames between server and engine process.

A frame is a little-endian uint32 length and that many bytes of msgpack: one tagged struct.
Commands go down (the engine's stdin), events come up (its stdout). Sequences are named by
`seq_id`, which the client picks and never uses twice.
"""

import math
from collections.abc import Sequence
from typing import BinaryIO, Literal

import msgspec

from gptoss_local.errors import GptOssError
from gptoss_local.types import (
    ContextParams,
    FinishReason,
    ModelParams,
    OffloadTimes,
    SamplingParams,
    StepTimes,
    Usage,
)

LENGTH_BYTES = 4
N_DRAFT_MAX = 15
"""With the token before them a step of 16 rows. PERF: H200, 20b shapes, every row sampled on the
device, ms a step of 1, 8, 16, 32 rows: 3.0, 10.5, 10.4, 97. Each row of logits costs VRAM, too."""


class PrefixOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The prefixes of conversations that stay: in the cache, in host memory and on disk.

    Attributes:
        checkpoint_bytes: Host memory for returning to earlier points of a conversation; 0: none.
        boundary_tokens: Ids that end a message: the points to return to.
        folder: For prefixes that outlive the process; None: nowhere.
        history: The file of chats: while it has a passphrase, no prefix is on disk.
        disk_bytes: At most, with prefixes of other models; 0: nothing is kept.
        save_after_s: Idle seconds before the engine writes there.
        keep_s: Seconds that a prefix stays in the cache without use after it was written, if others
            are used.
        model_digest: Changes when the model's file does.
    """

    checkpoint_bytes: int = 0
    boundary_tokens: tuple[int, ...] = ()
    folder: str | None = None
    history: str = ""
    disk_bytes: int = 0
    save_after_s: float = 0.0
    keep_s: float = math.inf
    model_digest: str = ""


class Load(msgspec.Struct, frozen=True, tag="load", kw_only=True):
    """First command of a process, sent once. Answered by Loading* and Loaded, or Failed.

    Attributes:
        adapter_path: A LoRA that is applied to the model; empty: none.
        is_quiet: CPU threads sleep while a GPU computes, though they wake up late then.
        offload_min_batch: Tokens from which a GPU computes with weights of the host.
        step_costs: Of an earlier process; None: to be measured.
        budget_bytes: For the graph's buffer, by place: llama.cpp's need is computed before anything
            is read, and more than this is refused. Empty: not asked.
        tunes: Measure the model instead of serving it, or only the number of tokens from which it
            is faster to bring the host's experts to a GPU. Answered by Loading* and Tuned; then it
            ends.
    """

    model_path: str
    adapter_path: str = ""
    model: ModelParams = ModelParams()
    context: ContextParams
    prefixes: PrefixOptions = PrefixOptions()
    is_quiet: bool = False
    offload_min_batch: int = 32
    step_costs: StepTimes | None = None
    budget_bytes: dict[str, int] = {}
    tunes: Literal["nothing", "all", "offload"] = "nothing"


class Generate(msgspec.Struct, frozen=True, tag="generate", kw_only=True):
    """Queue a sequence. Answered by Tokens* and Finished, or Failed.

    `max_tokens` None means until a stop token or a full context. A stop token is reported as the
    last token of the sequence. The answer follows `grammar`, one of llguidance (Lark, or its
    JSON), and ends where that allows no more. Without `drafts` every token is decoded
    in a step of its own. `n_logprobs` asks for the log-probability of every token and of that
    many of the likeliest ones in its place; None: of none. With `reports_prefill` a Prefilled comes
    after each step that reads a part of the prompt and not all of it. The highest `priority` is
    served first; among equals, each `caller` in turn: a key, and one of its connections. With
    `in_memory` neither the tokens nor anything computed from them is written to disk. What is kept
    of a sequence is used only for those with the same `salt`, of up to 16 bytes.
    """

    seq_id: int
    prompt: list[int]
    sampling: SamplingParams
    stop_tokens: list[int]
    max_tokens: int | None = None
    grammar: str | None = None
    drafts: bool = True
    n_logprobs: int | None = None
    reports_prefill: bool = False
    priority: int = 0
    caller: tuple[str, str] = ("", "")
    in_memory: bool = False
    salt: bytes = b""

    @property
    def needs_logits(self) -> bool:
        """Return whether the CPU draws each token, from its own row of logits, without drafts.

        The device would not copy the logits, and counts penalties for one row of a step at most.
        """
        sampling = self.sampling
        is_changed = sampling.penalties is not None or bool(sampling.logit_bias)
        return is_changed or self.n_logprobs is not None


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Stop a sequence before its next token; one that is unknown or over is ignored."""

    seq_id: int


class Prefetch(msgspec.Struct, frozen=True, tag="prefetch"):
    """Prefill `tokens` when idle, in place of earlier ones of the `lineage`; never answered."""

    lineage: str
    tokens: list[int]
    in_memory: bool = False
    salt: bytes = b""


class Close(msgspec.Struct, frozen=True, tag="close"):
    """Last command: save prefixes that are not saved yet, and exit. Never answered.

    Without it, the end of the commands means that the server has died, and the process exits
    immediately.
    """


class ReportBlocks(msgspec.Struct, frozen=True, tag="report_blocks"):
    """Tell from now on which blocks of so many tokens the cache holds, by BlocksChanged."""

    n_block_tokens: int


class GetStats(msgspec.Struct, frozen=True, tag="get_stats"):
    """Answered by one Stats, in the order they were asked."""


class Loading(msgspec.Struct, frozen=True, tag="loading"):
    fraction: float


class Loaded(msgspec.Struct, frozen=True, tag="loaded", kw_only=True):
    """The model is ready. `n_ctx` is the cache's size, at least the requested one.

    Attributes:
        has_gpu: llama.cpp has a device to offload to, and layers were given to it.
        buffer_bytes: By place (`CUDA0`, `CPU_Mapped`, …).
        step_costs: As measured now or given by Load; None: neither drafts nor many streams.
        description: llama.cpp's name of architecture, size and quantization.
    """

    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    size_bytes: int
    has_gpu: bool
    n_seq: int
    buffer_bytes: dict[str, int]
    step_costs: StepTimes | None = None
    description: str = ""
    n_params: int = 0


class Tuned(msgspec.Struct, frozen=True, tag="tuned", kw_only=True):
    """The measurements of a model on this machine.

    Attributes:
        decode: Tokens a second of one stream, by threads.
        prefill: Tokens a second of a prompt, by threads.
        offload: Empty unless a GPU works with experts of the host.
        step_costs: With the best number of threads; None if `offload` is not empty.
    """

    decode: tuple[tuple[int, float], ...]
    prefill: tuple[tuple[int, float], ...]
    offload: OffloadTimes
    step_costs: StepTimes | None


class Logprob(msgspec.Struct, frozen=True, array_like=True):
    """The natural logarithm of a token's probability, before any sampling setting.

    `top` holds the likeliest tokens in its place with theirs, likeliest first.
    """

    logprob: float
    top: list[tuple[int, float]]


class Tokens(msgspec.Struct, frozen=True, tag="tokens", omit_defaults=True):
    """The next tokens of a sequence, and if asked for the log-probability of each."""

    seq_id: int
    tokens: list[int]
    logprobs: list[Logprob] = []


class Prefilled(msgspec.Struct, frozen=True, tag="prefilled"):
    """The first `n_tokens` of a prompt are in the cache; `n_cached` of them were there before."""

    seq_id: int
    n_tokens: int
    n_cached: int


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    seq_id: int
    reason: FinishReason
    usage: Usage


class StoredBlocks(msgspec.Struct, frozen=True, array_like=True):
    """Blocks in a row; the first one follows `parent`, or is the start of a prompt if None.

    A hash, a signed number of 64 bits, is of a block and all tokens before it.
    """

    parent: int | None
    hashes: list[int]
    tokens: list[int]


class BlocksChanged(msgspec.Struct, frozen=True, tag="blocks"):
    """The cache holds other blocks than at the last such event; parents are stored first."""

    removed: list[int]
    stored: list[StoredBlocks]


class Failed(msgspec.Struct, frozen=True, tag="failed", kw_only=True):
    """An error of ours, by class name in `gptoss_local.errors`; `seq_id` None: the process ends."""

    seq_id: int | None
    error: str
    message: str
    hint: str


def failure(error: GptOssError, seq_id: int | None) -> Failed:
    return Failed(seq_id=seq_id, error=type(error).__name__, message=error.message, hint=error.hint)


class Stats(msgspec.Struct, frozen=True, tag="stats", kw_only=True):
    """Counters of the engine: now (`n_running` .. `checkpoint_bytes`) and since its start.

    Running sequences hold `n_cells_used`, and prefixes that are kept until the room is needed
    `n_cells_cached`. Each token of a prompt counts once, also if it is read again after a
    preemption: in `n_cached_tokens` if the request found it in the cache, else in `n_prefilled`.
    `n_decoded` are tokens of answers, `n_prefetched` were read before a request, and `n_evicted`
    fell out of the cache. `n_checks` known computations were repeated.

    `problems` are findings of the cache's integrity check: if there are any, there is a bug.
    """

    n_running: int
    n_waiting: int
    n_cells: int
    n_cells_used: int
    n_cells_cached: int
    n_checkpoints: int
    checkpoint_bytes: int
    n_steps: int
    n_prefilled: int
    n_prefetched: int
    n_decoded: int
    n_preempted: int
    n_drafted: int
    n_accepted: int
    n_cached_tokens: int
    n_evicted: int
    n_checks: int
    problems: list[str]


Command = Load | Generate | Cancel | Prefetch | ReportBlocks | GetStats | Close
Event = Loading | Loaded | Tuned | Prefilled | Tokens | Finished | BlocksChanged | Failed | Stats

_encoder = msgspec.msgpack.Encoder()
_command_decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_event_decoder: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)


def encode_frame(message: Command | Event) -> bytes:
    body = _encoder.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "little") + body


def write_frames(stream: BinaryIO, messages: Sequence[Command | Event]) -> None:
    """Write all frames. NOTE: a full pipe takes a part when the process is stopped (Ctrl-Z)."""
    if messages:
        frames = b"".join(map(encode_frame, messages))
        n_sent = stream.write(frames)
        while n_sent < len(frames):
            n_sent += stream.write(frames[n_sent:])


def decode_command(body: bytes) -> Command:
    return _command_decoder.decode(body)


def decode_event(body: bytes) -> Event:
    return _event_decoder.decode(body)
