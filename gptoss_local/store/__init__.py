"""Models on disk: which there are, where their files lie, what their headers say."""

from gptoss_local.gguf_file import GGUFInfo, read_info, read_tokens
from gptoss_local.store.models import ModelEntry, find_model, list_models

__all__ = ["GGUFInfo", "ModelEntry", "find_model", "list_models", "read_info", "read_tokens"]
