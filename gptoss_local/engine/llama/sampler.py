"""llama.cpp's sampler chain, built from our SamplingParams; it runs on the device or on the CPU."""

import ctypes
import secrets
from collections.abc import Sequence
from typing import Any

import llama_cpp
import msgspec
import numpy as np
import numpy.typing as npt

from gptoss_local.base.errors import ComputeError, EngineError
from gptoss_local.base.formats.o200k import FIRST_SPECIAL, MAX_VOCAB_SIZE
from gptoss_local.base.types import SamplingParams
from gptoss_local.engine.llama.chains import LIKELIEST, Chain, chain_end
from gptoss_local.engine.llama.context import Context

N_BLOCK = 448  # tokens of a block: about as many as there are blocks
_MIN_TEMPERATURE = 1e-6  # clients that must not say 0 say 1e-10, or their smallest number
_MAX_MIN_P = 0.9999  # above it, a device may keep no token: rounding hides the threshold
_IMPOSSIBLE = 1e-7  # odds of a token that no rounding leads to from a likelier one
_ROUNDING = 1e-3  # of a sum of 201,088 odds in float32; 1e-5 was seen
_N_CTX_MAX = 131_072  # no answer of gpt-oss is longer; the library keeps 4 bytes for each
_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
"""`llama_token_data` of llama.h."""


class Sampler:
    """Draws the next token of one sequence; filters come first and temperature last, as in Ollama.

    A sampler starts on the CPU; `bind` moves it, with its random state, to the device, where the
    same seed gives other tokens. Chains with penalties, which count the tokens of `accept`, stay.
    With a top-k up to LIKELIEST's the random state stays on the CPU, which draws from the likeliest
    tokens that the device finds: there, each further filter would be ten small kernels.
    """

    def __init__(self, params: SamplingParams) -> None:
        self._pointer: Any = _chain(_samplers(params))
        self._kind = msgspec.structs.replace(params, seed=None)
        self._context: Context | None = None  # where it is bound
        has_few = 0 < params.top_k <= LIKELIEST.top_k and not _is_greedy(params)
        self._draws_here = has_few and params.penalties is None and not params.logit_bias

    @property
    def is_bound(self) -> bool:
        return self._context is not None

    def bind(self, context: Context, seq_id: int) -> bool:
        """Sample `seq_id` on the device; False: this chain stays on the CPU.

        A chain of the same kind that is there already is reused; otherwise the graph is rebuilt.
        """
        pointer, present = self._own_pointer(), context.chains.get(seq_id)
        kind = LIKELIEST if self._draws_here else self._kind
        if present is None or present.kind != kind:
            if self._draws_here:
                top_k = llama_cpp.llama_sampler_init_top_k(LIKELIEST.top_k)
                pointer = _chain([top_k, chain_end()])
            if not context.chains.attach(seq_id, Chain(pointer, kind)):
                return False
        elif not self._draws_here:
            llama_cpp.llama_sampler_copy(pointer, present.pointer)
            llama_cpp.llama_sampler_free(pointer)
            self._pointer = present.pointer
        self._context = context
        return True

    def unbind(self) -> None:
        """Take a copy with the same random state back to the CPU.

        The chain stays for the next sampler; for the CPU, `Chains.detach` must follow.
        """
        if self._context is not None:
            self._context.handle  # noqa: B018 (raises if it is closed, and the chain with it)
            if not self._draws_here:
                # NOTE: the chain itself would skip on the CPU all samplers that ran on the device
                self._pointer = llama_cpp.llama_sampler_clone(self._pointer)
            self._context = None

    def sample(self, context: Context, row: int = -1) -> int:
        """Return the token drawn from row `row` of the last batch, or from its last output."""
        kind = self._kind
        if self._context is None and kind.penalties is not None:
            # the library's own loop would count every draw
            return self._draw(context.logits(row), np.arange(context.n_vocab))
        if self._context is not None or kind.has_filters or kind.logit_bias:
            if self._context is not None and self._draws_here and not context.n_kept(row):
                raise ComputeError("the model runner was stopped: the device kept no tokens")
            # takes the device's token, or draws from those that it kept, or from all
            token = int(llama_cpp.llama_sampler_sample(self._pointer, context.handle, row))
            if not 0 <= token < context.n_vocab:  # from a device: data from outside
                raise ComputeError(
                    f"the model runner was stopped: it drew token {token}, which does not exist"
                )
            return token
        if _is_greedy(kind):
            return int(context.logits(row).argmax())
        return self._draw_in_two(context.logits(row))

    def sample_allowed(self, context: Context, row: int, allowed: npt.NDArray[np.intp]) -> int:
        """Return the token drawn from row `row`, on the CPU, as if only `allowed` ones existed.

        The device must not have sampled this sequence, or the logits have not been copied.
        """
        if len(allowed) == 0:
            raise EngineError("no token is allowed")
        return self._draw(context.logits(row), allowed)

    def accept(self, tokens: Sequence[int]) -> None:
        """Count tokens of the answer, drawn or not, for the penalties of those after them."""
        if self._kind.penalties is None:
            return
        pointer = self._own_pointer()
        for token in tokens:
            llama_cpp.llama_sampler_accept(pointer, token)

    def _draw(self, logits: npt.NDArray[np.float32], allowed: npt.NDArray[np.intp]) -> int:
        return draw_on_cpu(self._own_pointer(), logits, allowed)

    def _draw_in_two(self, logits: npt.NDArray[np.float32]) -> int:
        """Draw a block of tokens by its sum of probabilities, then a token of the block.

        PERF: 0.3 ms where the library takes 1.9, as it makes a candidate of every token.
        """
        temperature = self._kind.temperature
        odds = np.exp((logits - logits.max()) / np.float32(temperature))
        sums = np.add.reduceat(odds, np.arange(0, len(odds), N_BLOCK))
        with np.errstate(divide="ignore"):  # the chain divides by the temperature again
            block = self._draw(np.log(sums) * np.float32(temperature), np.arange(len(sums)))
        start = block * N_BLOCK
        return self._draw(logits, np.arange(start, min(start + N_BLOCK, len(logits))))

    def close(self) -> None:
        if self._pointer and (self._context is None or self._draws_here):
            llama_cpp.llama_sampler_free(self._pointer)
        self._pointer = self._context = None

    def _own_pointer(self) -> Any:
        if not self._pointer or self._context is not None:
            raise EngineError("the sampler is closed, or bound already")
        return self._pointer


def draw_on_cpu(
    pointer: Any, logits: npt.NDArray[np.float32], allowed: npt.NDArray[np.intp]
) -> int:
    """Run a chain over `allowed`, (n,) ids, with `logits` (n_vocab,), and return its choice."""
    candidates = np.zeros(len(allowed), _CANDIDATE)
    candidates["id"] = allowed
    candidates["logit"] = logits[allowed]
    array = llama_cpp.llama_token_data_array(
        data=ctypes.cast(candidates.ctypes.data, ctypes.POINTER(llama_cpp.llama_token_data)),
        size=len(allowed),
        selected=-1,
        sorted=False,
    )
    llama_cpp.llama_sampler_apply(pointer, ctypes.byref(array))
    return int(array.data[array.selected].id)


def is_near(
    logits: npt.NDArray[np.float32], params: SamplingParams, drawn: int, wanted: int
) -> bool:
    """Return whether rounding alone may have led to one of two tokens instead of the other.

    That is so if the tokens between them have almost no probability together, either by id or from
    the likeliest token down, the orders in which it is summed. `logits` is (n_vocab,).
    """
    if drawn == wanted:
        return True
    if not 0 <= drawn < len(logits):
        return False
    if logits[drawn] == logits[wanted]:
        return True
    if _is_greedy(params):
        return False
    odds = np.exp((logits - logits.max()) / params.temperature, dtype=np.float64)
    odds /= odds.sum()
    if odds[drawn] < _IMPOSSIBLE <= odds[wanted]:
        return False
    order = np.argsort(-logits, kind="stable")
    places = np.argsort(order)[[drawn, wanted]]
    orders = (odds, sorted((drawn, wanted))), (odds[order], sorted(places))
    return any(each[low + 1 : high].sum() < _ROUNDING for each, (low, high) in orders)


def _is_greedy(params: SamplingParams) -> bool:
    return params.temperature < _MIN_TEMPERATURE


def _chain(samplers: list[int]) -> Any:
    pointer = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    for sampler in samplers:
        llama_cpp.llama_sampler_chain_add(pointer, sampler)
    return pointer


def _samplers(params: SamplingParams) -> list[int]:
    chain = []
    if biases := params.logit_bias:
        array = (llama_cpp.llama_logit_bias * len(biases))(*biases)
        chain.append(llama_cpp.llama_sampler_init_logit_bias(MAX_VOCAB_SIZE, len(biases), array))
    if (p := params.penalties) is not None:
        last_n = _N_CTX_MAX if p.last_n is None else min(p.last_n, _N_CTX_MAX)
        sampler = llama_cpp.llama_sampler_init_penalties(
            MAX_VOCAB_SIZE, last_n, p.repeat, p.frequency, p.presence
        )
        chain.append(sampler)
    if _is_greedy(params):
        return [*chain, llama_cpp.llama_sampler_init_greedy(), chain_end()]
    if 0 < params.top_k < FIRST_SPECIAL:  # of more tokens than there are, llama.cpp's device aborts
        chain.append(llama_cpp.llama_sampler_init_top_k(params.top_k))
    if params.top_p < 1:
        chain.append(llama_cpp.llama_sampler_init_top_p(params.top_p, 1))
    if params.min_p > 0:
        chain.append(llama_cpp.llama_sampler_init_min_p(min(params.min_p, _MAX_MIN_P), 1))
    if params.temperature != 1:
        chain.append(llama_cpp.llama_sampler_init_temp(params.temperature))
    seed = secrets.randbits(32) if params.seed is None else params.seed & 0xFFFFFFFF
    chain.append(llama_cpp.llama_sampler_init_dist(seed))
    return [*chain, chain_end()]
