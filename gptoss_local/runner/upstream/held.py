"""Holds answers to a grammar of ours, which upstreams do not know: each token is checked here.

At a refused token the answer is broken off and continued from before it by two short requests: it
is drawn as with the grammar there, from the allowed tokens by their probabilities.
"""

import asyncio
import functools
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path

import msgspec

from gptoss_local.base.errors import UpstreamError
from gptoss_local.engine.protocol import Generate
from gptoss_local.engine.worker.sampling.mask import Mask, MaskCompiler
from gptoss_local.runner.upstream.answer import Closer
from gptoss_local.runner.upstream.wire import AnswerChunk

_N_REFUSED = 100  # of an answer, until it is given up
_N_STEERED = 8  # requests for one token, until the answer is given up
_N_NAMED = 256  # tokens that may come are named up to so many, or else those that may not
_BIAS = 100.0  # the most that all kinds take

Send = Callable[[Generate], AsyncGenerator[AnswerChunk, None]]


async def compile_mask(grammar: str, vocabulary_file: Path) -> Mask:
    """Prepare a grammar, or raise UsageError. The first takes a second, and 85 MB that stay."""
    return await asyncio.wrap_future(_compiler(vocabulary_file).compile(grammar))


@functools.lru_cache(1)
def _compiler(vocabulary_file: Path) -> MaskCompiler:
    return MaskCompiler(vocabulary_file)


async def held_chunks(
    send: Send, asked: Generate, mask: Mask, closer: Closer
) -> AsyncGenerator[AnswerChunk, None]:
    """Yield chunks of an answer that keeps to a grammar; it ends where that allows no more."""
    rest = asked
    for _ in range(_N_REFUSED):
        is_refused = False
        async with aclosing(send(rest)) as chunks:
            async for chunk in chunks:
                tokens = _with_stop(chunk, rest, closer)
                n = 0
                while n < len(tokens) and not mask.is_complete and mask.accept(tokens[n]):
                    n += 1
                is_refused = n < len(tokens) and not mask.is_complete
                held = AnswerChunk(
                    tokens=tokens[:n],
                    logprobs=chunk.logprobs[:n],
                    end="stop" if mask.is_complete else None if is_refused else chunk.end,
                    n_cached=chunk.n_cached if rest.prompt == asked.prompt else None,
                )
                rest = _after(rest, held.tokens)
                yield held
                if mask.is_complete or is_refused:
                    break
        if not is_refused:
            return
        tokens = mask.accept_forced()[: rest.max_tokens]
        if not tokens and rest.max_tokens:
            tokens = [await _steered(send, rest, mask, closer)]
        rest = _after(rest, tokens)
        end = "stop" if mask.is_complete else None if rest.max_tokens else "length"
        yield AnswerChunk(tokens=tokens, end=end)  # type: ignore[arg-type]
        if end:
            return
    raise _given_up()


async def _steered(send: Send, rest: Generate, mask: Mask, closer: Closer) -> int:
    """Return a next token that the grammar allows, by a bias towards such tokens."""
    refused: set[int] = set()
    for _ in range(_N_STEERED):
        allowed = mask.allowed().tolist()
        bias = dict(rest.sampling.logit_bias)
        if len(allowed) <= _N_NAMED:
            # The caller's own biases stay apart from each other, within the range that can be sent.
            share = 0.5 if bias else 0.0
            bias |= {t: share * bias.get(t, 0.0) + (1 - share) * _BIAS for t in allowed}
        else:
            bias |= dict.fromkeys(refused, -_BIAS)
        sampling = msgspec.structs.replace(rest.sampling, logit_bias=tuple(bias.items()))
        one = msgspec.structs.replace(rest, sampling=sampling, max_tokens=1, n_logprobs=None)
        tokens: list[int] = []
        async for chunk in send(one):
            tokens += _with_stop(chunk, _after(rest, tokens), closer)
        if tokens and mask.accept(tokens[0]):
            return tokens[0]
        refused.update(tokens[:1])
    raise _given_up()


def _with_stop(chunk: AnswerChunk, rest: Generate, closer: Closer) -> list[int]:
    """Return the tokens of a chunk, with the stop token that the upstream keeps back."""
    last = (chunk.tokens or rest.prompt)[-1]
    if chunk.end != "stop" or last in rest.stop_tokens:
        return chunk.tokens
    stop = chunk.stop_token
    if stop is None or stop not in rest.stop_tokens:
        stop = closer([*rest.prompt, *chunk.tokens])
    return [*chunk.tokens, stop]


def _after(asked: Generate, tokens: list[int]) -> Generate:
    return msgspec.structs.replace(
        asked, prompt=[*asked.prompt, *tokens], max_tokens=(asked.max_tokens or 0) - len(tokens)
    )


def _given_up() -> UpstreamError:
    return UpstreamError(
        "the upstream does not keep to the format that was asked for",
        hint="Say in the prompt what the answer is to look like, or simplify the format.",
    )
