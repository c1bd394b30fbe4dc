"""The o200k_base vocabulary in 0.8 MB: OpenAI's public rank file, packed.

`o200k_base.xz` is one xz stream: the length of every token as one byte, then their bytes, both in
rank order.
"""

import lzma
from importlib import resources
from itertools import accumulate, pairwise

from gptoss_local.formats.o200k import FIRST_SPECIAL


def load_ranks() -> list[bytes]:
    packed = resources.files(__package__).joinpath("o200k_base.xz").read_bytes()
    planes = lzma.decompress(packed)
    starts = accumulate(planes[:FIRST_SPECIAL], initial=FIRST_SPECIAL)
    return [planes[start:end] for start, end in pairwise(starts)]
