"""The embedded nano model: a tiny but genuine gpt-oss, shipped inside the package.

It has the full vocabulary, MXFP4 experts, sliding and full attention, sinks and YaRN, and answers
in real harmony, so that every path of the program works without a download.
"""

from gptoss_local.models.nano.cache import MODEL_NAME, cached_gguf, ensure_gguf, leftovers

__all__ = ["MODEL_NAME", "cached_gguf", "ensure_gguf", "leftovers"]
