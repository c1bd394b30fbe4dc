"""The frames between server and engine process: a little-endian uint32 length, then msgpack.

Commands go to the engine's stdin, events come from its stdout. The client picks each `seq_id` and
never reuses it.
"""

import math
from collections.abc import Sequence
from typing import BinaryIO, Literal

import msgspec

from gptoss_local.base.errors import GptOssError
from gptoss_local.base.types import (
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
"""16 rows with the token before them. PERF: H200, 20b shapes, every row sampled on the device, ms
of 1, 8, 16, 32 rows: 3.0, 10.5, 10.4, 97. Each row of logits costs VRAM, too.
"""


class PrefixOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The places of conversations' prefixes: in the cache, in host memory and on disk.

    Attributes:
        checkpoint_bytes: Host memory for returning to earlier points of a conversation; 0: none.
        boundary_tokens: Ids that end a message, the points to return to.
        folder: For prefixes that outlive the process; None: nowhere.
        history: The file of chats: while it has a passphrase, no prefix is on disk.
        disk_bytes: At most, with prefixes of other models; 0: nothing is kept.
        save_after_s: Idle seconds before prefixes are written.
        keep_s: Seconds that a written prefix stays in the cache unused while others are used.
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
        adapter_path: A LoRA for the model; empty: none.
        is_quiet: CPU threads sleep while a GPU computes, though they wake up late then.
        offload_min_batch: Tokens from which a GPU computes with weights of the host.
        step_costs: Of an earlier process; None: measure them.
        budget_bytes: By place, for the graph's buffer: a load that needs more is refused before
            anything is read. Empty: no limit.
        tunes: Measure the model, or only `offload_min_batch`, instead of serving it. Answered by
            Loading* and Tuned; then the process ends.
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

    `seq_id`, `drafts`, `caller` and `salt` are the client's to set.

    Attributes:
        max_tokens: None: until a stop token, which is reported, or a full context.
        grammar: For llguidance (Lark, or its JSON); the answer ends where it must.
        drafts: Allow several tokens a step.
        n_logprobs: Likeliest tokens to report in place of each token, with its own; None: nothing.
        reports_prefill: Send Prefilled after each step that reads a part of the prompt.
        priority: The highest is served first; among equals, callers take turns.
        caller: A key, and one of its connections.
        in_memory: Nothing computed from the tokens is written to disk.
        salt: Of up to 16 bytes; only sequences with the same salt share prefixes.
    """

    seq_id: int = 0
    prompt: list[int]
    sampling: SamplingParams
    stop_tokens: list[int] = []
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
        """Return whether the CPU draws each token, from its own row of logits, without drafts."""
        sampling = self.sampling
        is_changed = sampling.penalties is not None or bool(sampling.logit_bias)
        return is_changed or self.n_logprobs is not None


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Stop a sequence before its next token; an unknown one is ignored."""

    seq_id: int


class Prefetch(msgspec.Struct, frozen=True, tag="prefetch"):
    """Prefill `tokens` when idle, in place of earlier ones of the `lineage`; never answered."""

    lineage: str
    tokens: list[int]
    in_memory: bool = False
    salt: bytes = b""


class Close(msgspec.Struct, frozen=True, tag="close"):
    """Last command: save unsaved prefixes, and exit. Never answered."""


class ReportBlocks(msgspec.Struct, frozen=True, tag="report_blocks"):
    """Report by BlocksChanged, from now on, the cached blocks of this many tokens."""

    n_block_tokens: int


class GetStats(msgspec.Struct, frozen=True, tag="get_stats"):
    """Answered by one Stats each, in order."""


class Loading(msgspec.Struct, frozen=True, tag="loading"):
    fraction: float


class Loaded(msgspec.Struct, frozen=True, tag="loaded", kw_only=True):
    """The model is ready. `n_ctx` is the cache's size, at least the requested one.

    Attributes:
        has_gpu: Layers are on a device.
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
    """The measurements of a model on this machine: tokens a second, by threads.

    `offload` is empty unless a GPU works with experts of the host; `step_costs` is None if it does.
    """

    decode: tuple[tuple[int, float], ...]
    prefill: tuple[tuple[int, float], ...]
    offload: OffloadTimes
    step_costs: StepTimes | None


class Logprob(msgspec.Struct, frozen=True, array_like=True):
    """The natural logarithm of a token's probability before sampling, and the likeliest tokens'."""

    logprob: float
    top: list[tuple[int, float]]


class Tokens(msgspec.Struct, frozen=True, tag="tokens", omit_defaults=True):
    """The next tokens of a sequence, and if asked for the log-probability of each."""

    seq_id: int
    tokens: list[int]
    logprobs: list[Logprob] = []


class Prefilled(msgspec.Struct, frozen=True, tag="prefilled"):
    """`n_tokens` of a prompt are in the cache, `n_cached` of them from earlier."""

    seq_id: int
    n_tokens: int
    n_cached: int


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    seq_id: int
    reason: FinishReason
    usage: Usage


class StoredBlocks(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive blocks after `parent`, or from the start of a prompt.

    A hash, a signed number of 64 bits, is of a block and all tokens before it.
    """

    parent: int | None
    hashes: list[int]
    tokens: list[int]


class BlocksChanged(msgspec.Struct, frozen=True, tag="blocks"):
    """Changes of the cache since the last such event; parents are stored first."""

    removed: list[int]
    stored: list[StoredBlocks]


class Failed(msgspec.Struct, frozen=True, tag="failed", kw_only=True):
    """An error by its class name in `gptoss_local.base.errors`; `seq_id` None: the process ends."""

    seq_id: int | None
    error: str
    message: str
    hint: str


def failure(error: GptOssError, seq_id: int | None) -> Failed:
    return Failed(seq_id=seq_id, error=type(error).__name__, message=error.message, hint=error.hint)


class Stats(msgspec.Struct, frozen=True, tag="stats", kw_only=True):
    """Counters of the engine: now (`n_running` .. `checkpoint_bytes`) and since its start.

    Attributes:
        n_cells_used: Held by running sequences.
        n_cells_cached: Held by prefixes until the room is needed.
        n_cached_tokens: Of prompts, found in the cache by the request.
        n_prefilled: Other tokens of prompts; each counts once, also after a preemption.
        n_decoded: Tokens of answers.
        n_prefetched: Tokens read before a request.
        n_evicted: Tokens that left the cache.
        n_checks: Known computations repeated.
        problems: Of the cache's integrity check; any one is a bug.
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
    """Write all frames. NOTE: while the process is stopped (Ctrl-Z), a full pipe accepts a part."""
    if messages:
        frames = b"".join(map(encode_frame, messages))
        n_sent = stream.write(frames)
        while n_sent < len(frames):
            n_sent += stream.write(frames[n_sent:])


def decode_command(body: bytes) -> Command:
    return _command_decoder.decode(body)


def decode_event(body: bytes) -> Event:
    return _event_decoder.decode(body)
