"""Harmony tells whether an upstream has gpt-oss at all, and how its answers end."""

from gptoss_local.harmony.vocabulary import CALL, MESSAGE, RETURN, START, Vocabulary
from gptoss_local.runner.upstream.answer import Closer

_PROBE = "<|start|>user<|message|>Hi<|end|><|start|>assistant<|channel|>"
_CHANNELS = ("analysis", "commentary", "final")


def probe(vocabulary: Vocabulary) -> tuple[list[int], set[int]]:
    """Return a prompt and its possible next tokens with any gpt-oss; asking costs one token."""
    expected = {vocabulary.encode(channel)[0] for channel in _CHANNELS}
    return vocabulary.encode_tagged(_PROBE), expected


def closer(vocabulary: Vocabulary) -> Closer:
    """Return a function that tells the stop token of tokens which an upstream ended without.

    A message to a recipient is a call, and any other one that ends an answer is its last.
    """

    def close(tokens: list[int]) -> int:
        begin = max((i for i, token in enumerate(tokens) if token == START), default=0)
        header = tokens[begin:]
        if MESSAGE in header:
            header = header[: header.index(MESSAGE)]
        text = vocabulary.encoding.decode(header)
        return CALL if " to=" in text else RETURN

    return close
