"""Fit llama-cpp-python to the library of a newer llama.cpp, in every process of a test run.

`llama_context_params` has one field more, after `type_v`; all other structs that we use are equal,
as `test_next_llama.py` reads in the newer header.
"""

import ctypes

import llama_cpp
from llama_cpp import llama_cpp as bound

from gptoss_local.engine.llama import library

NEW = ("moe_cache_size", ctypes.c_size_t)
fields = list(bound.llama_context_params._fields_)
fields.insert([name for name, *_ in fields].index("type_v") + 1, NEW)
params = type("llama_context_params", (ctypes.Structure,), {"_fields_": fields})
for module in (bound, llama_cpp):
    module.llama_context_params = params  # type: ignore[attr-defined]
bound._lib.llama_context_default_params.restype = params
create = bound._lib.llama_init_from_model
create.argtypes = [create.argtypes[0], params]
library._check_build = lambda: None
