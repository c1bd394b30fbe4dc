"""The frames between server and engine process.

A frame is a little-endian uint32 length and that many bytes of msgpack: one tagged struct.
Commands go down (the engine's stdin), events come up (its stdout). Both sides speak of many
sequences by `seq_id`, which the client picks and never uses twice.
"""

import msgspec

from gptoss_local.types import FinishReason, SamplingParams, Usage

LENGTH_BYTES = 4


class Load(msgspec.Struct, frozen=True, tag="load", kw_only=True):
    """First command of a process, sent once. Answered by Loading* and Loaded, or Failed."""

    model_path: str
    n_ctx: int
    n_threads_prefill: int
    n_threads_decode: int
    n_gpu_layers: int = -1


class Generate(msgspec.Struct, frozen=True, tag="generate", kw_only=True):
    """Queue a sequence. Answered by Tokens* and Finished, or Failed.

    `max_tokens` None means until a stop token or a full context. A stop token is reported as the
    last token of the sequence.
    """

    seq_id: int
    prompt: list[int]
    sampling: SamplingParams
    stop_tokens: list[int]
    max_tokens: int | None = None


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Stop a sequence before its next token; one that is unknown or over is ignored."""

    seq_id: int


class Loading(msgspec.Struct, frozen=True, tag="loading"):
    fraction: float


class Loaded(msgspec.Struct, frozen=True, tag="loaded", kw_only=True):
    """The model is ready. `n_ctx` is what the cache holds, at least what was asked for.

    `has_gpu`: llama.cpp has a device to offload to, and layers were given to it.
    """

    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    size_bytes: int
    has_gpu: bool


class Tokens(msgspec.Struct, frozen=True, tag="tokens"):
    seq_id: int
    tokens: list[int]


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    seq_id: int
    reason: FinishReason
    usage: Usage


class Failed(msgspec.Struct, frozen=True, tag="failed", kw_only=True):
    """An error of ours, by class name in `gptoss_local.errors`; `seq_id` None: the load failed."""

    seq_id: int | None
    error: str
    message: str
    hint: str


Command = Load | Generate | Cancel
Event = Loading | Loaded | Tokens | Finished | Failed

_encoder = msgspec.msgpack.Encoder()
_command_decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_event_decoder: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)


def encode_frame(message: Command | Event) -> bytes:
    body = _encoder.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "little") + body


def decode_command(body: bytes) -> Command:
    return _command_decoder.decode(body)


def decode_event(body: bytes) -> Event:
    return _event_decoder.decode(body)
