"""Masks of grammars over nano's vocabulary."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gptoss_local.engine.worker.sampling.mask import MaskCompiler
from gptoss_local.harmony import Vocabulary

Accepts = Callable[[str, str], bool]


@pytest.fixture(scope="session")
def masks(nano_gguf: Path) -> MaskCompiler:
    return MaskCompiler(nano_gguf)


@pytest.fixture(scope="session")
def accepts(masks: MaskCompiler, vocabulary: Vocabulary) -> Accepts:
    """Returns whether a text is a whole answer of a grammar, token by token."""

    def is_accepted(grammar: str, answer: str) -> bool:
        mask = masks.compile(grammar).result()
        tokens = vocabulary.encoding.encode(answer, allowed_special="all")
        return all(mask.accept(token) for token in tokens) and mask.is_complete

    return is_accepted
