"""The frames between server and engine process: a little-endian uint32 length, then msgpack.

Commands go to the engine's stdin, events come from its stdout. The client picks each `seq_id` and
never reuses it.
"""

import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
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
    """Limits of kept prefixes: in the cache, in host memory and on disk."""

    checkpoint_bytes: int = 0  # host memory for returning to earlier points of a conversation
    boundary_tokens: tuple[int, ...] = ()  # ids that end a message, the points to return to
    folder: str | None = None  # of prefixes that outlive the process
    history: str = ""  # the file of chats: while it has a passphrase, no prefix is on disk
    disk_bytes: int = 0  # at most, with prefixes of other models; 0: nothing is kept
    save_after_s: float = 0.0  # idle seconds before prefixes are written
    keep_s: float = math.inf  # that a written prefix stays cached while only others are used
    model_digest: str = ""


class Load(msgspec.Struct, frozen=True, tag="load", kw_only=True):
    """First command of a process, sent once. Answered by Loading* and Loaded, or Failed."""

    model_path: str
    adapter_path: str = ""  # a LoRA for the model
    model: ModelParams = ModelParams()
    context: ContextParams
    prefixes: PrefixOptions = PrefixOptions()
    is_quiet: bool = False  # CPU threads sleep while a GPU computes, though they wake up late then
    offload_min_batch: int = 32  # tokens from which a GPU computes with weights of the host
    step_costs: StepTimes | None = None  # of an earlier process; None: measure them
    budget_bytes: dict[str, int] = {}
    """Room for the graph's buffer, by place: a load that needs more is refused at once."""
    tunes: Literal["nothing", "all", "offload"] = "nothing"
    """Measure the model, or only `offload_min_batch`. Answered by Loading* and Tuned; then the
    process ends."""


class Generate(msgspec.Struct, frozen=True, tag="generate", kw_only=True):
    """Queue a sequence. Answered by Tokens* and Finished, or Failed.

    `seq_id`, `drafts`, `caller` and `salt` are the client's to set.
    """

    seq_id: int = 0
    prompt: list[int]
    sampling: SamplingParams
    stop_tokens: list[int] = []
    max_tokens: int | None = None  # None: until a stop token, which is reported, or a full context
    grammar: str | None = None  # for llguidance (Lark, or its JSON); the answer ends where it must
    drafts: bool = True  # allow several tokens a step
    n_logprobs: int | None = None  # likeliest tokens to report in place of each, with its own
    reports_prefill: bool = False  # send Prefilled after each step that reads a part of the prompt
    priority: int = 0  # the highest is served first; among equals, callers take turns
    caller: tuple[str, str] = ("", "")  # a key, and one of its connections
    in_memory: bool = False  # nothing computed from the tokens is written to disk
    salt: bytes = b""  # of up to 16 bytes; only sequences with the same salt share prefixes

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
    """The model is ready."""

    n_ctx: int  # of the cache, at least as many as requested
    n_ctx_train: int
    n_vocab: int
    size_bytes: int
    has_gpu: bool  # layers are on a device
    n_seq: int
    buffer_bytes: dict[str, int]  # by place (`CUDA0`, `CPU_Mapped`, …)
    step_costs: StepTimes | None = None  # None: neither drafts nor many streams
    description: str = ""  # llama.cpp's name of architecture, size and quantization
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


def block_hashes(
    tokens: Sequence[int], n_block_tokens: int, parent: int | None = None
) -> Iterator[int]:
    """Yield a signed number of 64 bits for each whole block, of it and all tokens before it."""
    for end in range(n_block_tokens, len(tokens) + 1, n_block_tokens):
        before = b"" if parent is None else parent.to_bytes(8, "little", signed=True)
        block = array("i", tokens[end - n_block_tokens : end]).tobytes()
        digest = blake2b(before + block, digest_size=8).digest()
        parent = int.from_bytes(digest, "little", signed=True)
        yield parent


class StoredBlocks(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive blocks after `parent`, or from the start of a prompt; see `block_hashes`."""

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
    """Counters of the engine: now (`n_running` .. `checkpoint_bytes`) and since its start."""

    n_running: int = 0
    n_waiting: int = 0
    n_cells: int = 0
    n_cells_used: int = 0  # held by running sequences
    n_cells_cached: int = 0  # held by prefixes until the room is needed
    n_checkpoints: int = 0
    checkpoint_bytes: int = 0
    n_steps: int = 0
    n_prefilled: int = 0  # tokens of prompts not found in the cache; each counts once
    n_prefetched: int = 0  # tokens read before a request
    n_decoded: int = 0  # tokens of answers
    n_preempted: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    n_cached_tokens: int = 0  # of prompts, found in the cache by the request
    n_evicted: int = 0  # tokens that left the cache
    n_checks: int = 0  # known computations repeated
    problems: list[str] = []  # of the cache's integrity check; any one is a bug


Command = Load | Generate | Cancel | Prefetch | ReportBlocks | GetStats | Close
Event = Loading | Loaded | Tuned | Prefilled | Tokens | Finished | BlocksChanged | Failed | Stats

_encoder = msgspec.msgpack.Encoder()
decode_command: Callable[[bytes], Command] = msgspec.msgpack.Decoder(Command).decode
decode_event: Callable[[bytes], Event] = msgspec.msgpack.Decoder(Event).decode


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
