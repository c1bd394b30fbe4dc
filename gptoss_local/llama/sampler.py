"""llama.cpp's sampler chain, built from our SamplingParams."""

import secrets

import llama_cpp

from gptoss_local.llama.context import Context
from gptoss_local.types import SamplingParams


class Sampler:
    """Draws the next token of one sequence.

    Filters come first and temperature last, so `top_p` and `min_p` see the model's own
    distribution, as in llama.cpp's and Ollama's default order.
    """

    def __init__(self, params: SamplingParams) -> None:
        chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
        for sampler in _samplers(params):
            llama_cpp.llama_sampler_chain_add(chain, sampler)
        self._chain = chain

    def sample(self, context: Context, row: int = -1) -> int:
        """Return a token id drawn from logits of the last decode: of its row `row`, or the last."""
        return int(llama_cpp.llama_sampler_sample(self._chain, context.handle, row))

    def close(self) -> None:
        if self._chain:
            llama_cpp.llama_sampler_free(self._chain)
            self._chain = None


def _samplers(params: SamplingParams) -> list[int]:
    if params.temperature <= 0:
        return [llama_cpp.llama_sampler_init_greedy()]
    chain = []
    if params.top_k > 0:
        chain.append(llama_cpp.llama_sampler_init_top_k(params.top_k))
    if params.top_p < 1:
        chain.append(llama_cpp.llama_sampler_init_top_p(params.top_p, 1))
    if params.min_p > 0:
        chain.append(llama_cpp.llama_sampler_init_min_p(params.min_p, 1))
    if params.temperature != 1:
        chain.append(llama_cpp.llama_sampler_init_temp(params.temperature))
    seed = secrets.randbits(32) if params.seed is None else params.seed & 0xFFFFFFFF
    chain.append(llama_cpp.llama_sampler_init_dist(seed))
    return chain
