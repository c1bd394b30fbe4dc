"""Read measurements of `gptoss bench`, and recorded arrivals in the format of Mooncake's traces."""

from pathlib import Path
from typing import Annotated

import msgspec

from gptoss_local.cluster.capacity.profile import Profile, from_benchmark
from gptoss_local.cluster.capacity.simulated_engine import Arrival
from gptoss_local.errors import ContextOverflowError, UsageError
from gptoss_local.runner.measuring import AtDepth, AtWidth
from gptoss_local.validation import in_words
from gptoss_local.whole_file import read_text

_Count = Annotated[int, msgspec.Meta(ge=1)]


_BLOCK = 512  # tokens that a hash stands for


class BenchSource(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    profile: Profile
    notes: list[str]


class _Shape(msgspec.Struct):
    n_batch: _Count
    n_seq: _Count


class _Placement(msgspec.Struct):
    layers_per_gpu: list[int] = []


class _Plan(msgspec.Struct):
    shape: _Shape
    placement: _Placement


class _Benchmark(msgspec.Struct):
    model: str
    n_ctx: _Count
    depths: Annotated[list[AtDepth], msgspec.Meta(min_length=1)]
    widths: list[AtWidth]
    plan: _Plan


class _BenchFile(msgspec.Struct):
    """The needed part of a printed benchmark; handwritten ones have a `source`."""

    benchmark: _Benchmark
    date: str = ""
    source: str = ""


def read_bench(path: Path) -> BenchSource:
    try:
        content = read_text(path, hint="`gptoss bench MODEL --json` prints one.")
        file = msgspec.json.decode(content, type=_BenchFile)
    except msgspec.DecodeError as error:
        raise UsageError(
            f"{path} is not what `gptoss bench --json` prints: {in_words(error)}"
        ) from error
    found = file.benchmark
    rates = [rate for d in found.depths for rate in (d.prefill_tok_s, d.decode_tok_s)]
    if min([*rates, *(w.decode_tok_s for w in found.widths)]) <= 0:
        raise UsageError(f"{path} has a speed of 0 tokens/s", hint="Measure again.")
    profile = from_benchmark(
        sorted(found.depths, key=lambda d: d.n_tokens),
        sorted(found.widths, key=lambda w: w.n_streams),
        n_ctx=found.n_ctx,
        n_batch=found.plan.shape.n_batch,
        n_seq=found.plan.shape.n_seq,
        has_gpu=any(found.plan.placement.layers_per_gpu),
    )
    of_date = f" of {file.date}" if file.date else ""
    notes = [f"Step times are those in {path}{of_date}."]
    return BenchSource(
        model=found.model, profile=profile, notes=[*notes, file.source] if file.source else notes
    )


class _Line(msgspec.Struct):
    timestamp: Annotated[float, msgspec.Meta(ge=0)]
    input_length: Annotated[int, msgspec.Meta(ge=1)]
    output_length: Annotated[int, msgspec.Meta(ge=1)]
    hash_ids: list[int] = []


def read_arrivals(path: Path, n_ctx: int) -> list[Arrival]:
    """Return requests, a JSON object a line; equal first `hash_ids` share 512 tokens each."""
    names: dict[int, int] = {}  # a hash has 64 bits, a token 31
    requests = []
    for number, text in enumerate(read_text(path).split("\n"), 1):
        if not text.strip():
            continue
        try:
            line = msgspec.json.decode(text, type=_Line)
        except msgspec.DecodeError as error:
            raise UsageError(f"line {number} of {path}: {in_words(error)}") from error
        n_tokens = line.input_length + line.output_length
        if n_tokens > n_ctx:
            raise ContextOverflowError(
                f"line {number} of {path} has {n_tokens:,} tokens, and the context holds {n_ctx:,}"
            )
        blocks = [names.setdefault(name, len(names)) for name in line.hash_ids]
        requests.append(
            Arrival(
                at_s=line.timestamp / 1000,
                prompt=_runs(blocks, line.input_length, own=-number),
                n_answer=line.output_length,
            )
        )
    if not requests:
        raise UsageError(f"{path} holds no request")
    return requests


def _runs(blocks: list[int], n_tokens: int, *, own: int) -> tuple[tuple[int, int], ...]:
    """Return the runs of a prompt; tokens without a block are the request's own."""
    runs = []
    for block in blocks:
        if n_tokens > 0:
            runs.append((block, min(_BLOCK, n_tokens)))
            n_tokens -= _BLOCK
    return (*runs, (own, n_tokens)) if n_tokens > 0 else tuple(runs)
