"""The o200k_base vocabulary, packed: every token's length as a byte, then all bytes, by rank."""

import lzma
from importlib import resources
from itertools import accumulate, pairwise

from gptoss_local.base.formats.o200k import FIRST_SPECIAL


def load_ranks() -> list[bytes]:
    packed = resources.files(__package__).joinpath("o200k_base.xz").read_bytes()
    planes = lzma.decompress(packed)
    starts = accumulate(planes[:FIRST_SPECIAL], initial=FIRST_SPECIAL)
    return [planes[start:end] for start, end in pairwise(starts)]
