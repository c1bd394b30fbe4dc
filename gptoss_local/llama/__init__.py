"""The only importer of llama_cpp: a small, typed, safe wrapper over llama.cpp's C API.

It speaks of token ids, positions and sequences. It knows neither text nor requests, and it turns
every failure of the library into an error of ours.
"""

from gptoss_local.llama.context import Context, ContextParams
from gptoss_local.llama.library import has_gpu
from gptoss_local.llama.model import Model
from gptoss_local.llama.sampler import Sampler

__all__ = ["Context", "ContextParams", "Model", "Sampler", "has_gpu"]
