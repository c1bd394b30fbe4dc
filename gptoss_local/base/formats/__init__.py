"""Foreign files and vocabularies: GGUF, ggml's types, o200k."""
