"""The o200k_base vocabulary in 0.8 MB: OpenAI's public rank file, packed.

The packed file (`o200k_base.xz`) is one xz stream holding the length of every token as one byte,
then the bytes of all tokens, both in rank order; a token's rank is its position. It knows nothing
of special tokens, of pre-tokenisation, or of any tokenizer library.

To remake the file from OpenAI's: `pack_ranks(Path("o200k_base.tiktoken").read_bytes())`.
"""

import base64
import lzma
from importlib import resources
from itertools import accumulate, pairwise

N_RANKS = 199_998
"""The number of tokens in o200k_base; the harmony specials follow directly after."""


def pack_ranks(tiktoken_file: bytes) -> bytes:
    """Pack a tiktoken file ("base64(token) SPACE rank" per line).

    Args:
        tiktoken_file: The whole file; ranks must count 0, 1, 2, ... without a gap.

    Returns:
        The packed form, which `unpack_ranks` reads.

    Raises:
        ValueError: The ranks have gaps, or a token is longer than 255 bytes.
    """
    tokens: list[bytes] = []
    for rank, line in enumerate(tiktoken_file.splitlines()):
        token, stated_rank = line.split()
        if int(stated_rank) != rank:
            raise ValueError(f"Line {rank} states rank {int(stated_rank)}; ranks must not skip.")
        tokens.append(base64.b64decode(token))
    planes = bytes(map(len, tokens)) + b"".join(tokens)
    # lc=4: text predicts its next byte best from four high bits of the last one (2 kB smaller).
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4}]
    return lzma.compress(planes, check=lzma.CHECK_SHA256, filters=filters)


def unpack_ranks(packed: bytes) -> list[bytes]:
    """Unpack `pack_ranks`.

    Returns:
        The tokens' bytes in rank order.
    """
    planes = lzma.decompress(packed)
    starts = accumulate(planes[:N_RANKS], initial=N_RANKS)
    return [planes[start:end] for start, end in pairwise(starts)]


def load_ranks() -> list[bytes]:
    """Read the vocabulary that ships with this package, in rank order."""
    return unpack_ranks(resources.files(__package__).joinpath("o200k_base.xz").read_bytes())
