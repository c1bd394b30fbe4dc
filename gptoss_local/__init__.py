"""gptoss: a local runner for OpenAI's gpt-oss models on llama.cpp."""

__version__ = "0.1.0"
