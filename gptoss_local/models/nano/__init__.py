"""The embedded nano model: a tiny but genuine gpt-oss, shipped inside the package.

It has the full o200k_harmony vocabulary, MXFP4 experts, sliding and full attention, sinks and YaRN,
and answers in real harmony, so that every path of the program can be tried without a download.
`ensure_gguf` gives the model file, `cached_gguf` only if it exists already; `materialize` in the
module of that name writes the checkpoint it is converted from. This package does not run the model.
"""

from gptoss_local.models.nano.cache import MODEL_NAME, cached_gguf, ensure_gguf, leftovers

__all__ = ["MODEL_NAME", "cached_gguf", "ensure_gguf", "leftovers"]
