"""Answers under the mask of a format: given ones, and ones drawn at random."""

import random
from typing import Any

from gptoss_local.engine.worker.sampling.mask import Mask, MaskCompiler
from gptoss_local.harmony import JsonFormat, Vocabulary
from gptoss_local.harmony.grammar import compile_grammar
from gptoss_local.harmony.vocabulary import RETURN

_N_FREE = 60  # tokens of any kind, before the answer is led to its end
_N_MAX = 300
_ENDS = ['"', "}", "]", ":", ",", "0", "null", "{", "[", "a"]  # the first that is allowed
_LIKELY = [
    *" \n{}[],:\"'\\-.+_/@#%ESTZ", *"0123456789", *"abcdefxyzABCDEFXYZ", *"äß日😀\x7f\u2028\ufeff",
    "true", "false", "null", '","', '":', '{"', '"}', "00", "123", "2024", "-02", "-29", " the",
    "name", "value", "yz", "mn", "x-", "a@b", ".com", "P1", "T1", "red", "green", "item", "kind",
    "cat", "dog", "\\n", "\\u", "  ", "\t",
]  # fmt: skip


def accepts(masks: MaskCompiler, vocabulary: Vocabulary, grammar: str, answer: str) -> bool:
    """Whether `answer` is a whole answer of the grammar, token by token."""
    mask = masks.compile(grammar).result()
    tokens = vocabulary.encoding.encode(answer, allowed_special="all")
    return all(mask.accept(token) for token in tokens) and mask.is_complete


class Drawer:
    """Draws random answers under a mask."""

    def __init__(self, masks: MaskCompiler, vocabulary: Vocabulary) -> None:
        self._masks = masks
        self._vocabulary = vocabulary
        self._ends = [vocabulary.encoding.encode(text)[0] for text in _ENDS]
        self._likely = [vocabulary.encoding.encode(text)[0] for text in _LIKELY]

    def takes(self, schema: dict[str, Any], answer: str) -> bool:
        """Whether `answer` may be given to a schema."""
        grammar = compile_grammar(JsonFormat(schema), opens_final=True)
        return accepts(self._masks, self._vocabulary, grammar, answer + "<|return|>")

    def draw(self, schema: dict[str, Any], rng: random.Random) -> str | None:
        """Return an answer; None if it comes to no end."""
        grammar = compile_grammar(JsonFormat(schema), opens_final=True)
        mask = self._masks.compile(grammar).result()
        tokens: list[int] = []
        while not mask.is_complete:
            if len(tokens) == _N_MAX:
                return None
            tokens.append(self._next(mask, rng, is_free=len(tokens) < _N_FREE))
        assert tokens.pop() == RETURN
        return b"".join(self._vocabulary.token_bytes[token] for token in tokens).decode()

    def _next(self, mask: Mask, rng: random.Random, *, is_free: bool) -> int:
        """Accept a token and return it; few are tried first, as a whole mask takes milliseconds."""
        some = rng.sample(self._likely, 8) if is_free else []
        for token in [RETURN, *some, *self._ends, *rng.sample(self._likely, 40)]:
            if mask.accept(token):
                return token
        token = rng.choice(mask.allowed().tolist())
        assert mask.accept(token)
        return token
