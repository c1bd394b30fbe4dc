"""Read recorded arrivals in the format of Mooncake's traces, which Dynamo's tools read, too."""

from pathlib import Path
from typing import Annotated

import msgspec

from gptoss_local.cluster.capacity.replay import Request
from gptoss_local.errors import ContextOverflowError, PathNotFoundError, UsageError
from gptoss_local.validation import in_words

_BLOCK = 512  # tokens that a hash stands for


class _Line(msgspec.Struct):
    """A request: milliseconds since the start, its tokens, those of the answer."""

    timestamp: Annotated[float, msgspec.Meta(ge=0)]
    input_length: Annotated[int, msgspec.Meta(ge=1)]
    output_length: Annotated[int, msgspec.Meta(ge=1)]
    hash_ids: list[int] = []


def read_arrivals(path: Path, n_ctx: int) -> list[Request]:
    """Return the requests of a file with one JSON object a line.

    Two prompts share what their first equal `hash_ids` stand for, 512 tokens each; without any, a
    prompt shares nothing.

    Raises:
        PathNotFoundError: there is no such file.
        UsageError: it is another kind of file, or holds no request.
        ContextOverflowError: a request does not fit into `n_ctx` tokens.
    """
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError as error:
        raise PathNotFoundError(f"there is no file {path}") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    names: dict[int, int] = {}  # a hash has 64 bits, a token 31
    requests = []
    for number, text in enumerate(lines, 1):
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
            Request(
                at_s=line.timestamp / 1000,
                prompt=_runs(blocks, line.input_length, own=-number),
                n_answer=line.output_length,
            )
        )
    if not requests:
        raise UsageError(f"{path} holds no request")
    return requests


def _runs(blocks: list[int], n_tokens: int, *, own: int) -> tuple[tuple[int, int], ...]:
    """Return the runs of a prompt; what no block stands for is the request's own."""
    runs = []
    for block in blocks:
        if n_tokens > 0:
            runs.append((block, min(_BLOCK, n_tokens)))
            n_tokens -= _BLOCK
    return (*runs, (own, n_tokens)) if n_tokens > 0 else tuple(runs)
