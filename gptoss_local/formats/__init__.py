"""Files and vocabularies of others, as they are: GGUF, ggml's types, o200k."""
