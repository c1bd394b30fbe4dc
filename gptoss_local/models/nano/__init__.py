"""The embedded nano model: a tiny but genuine gpt-oss, to try every path without a download."""

from gptoss_local.models.nano.cache import MODEL_NAME, cached_gguf, ensure_gguf, leftovers
