"""The published form of a vocabulary, and the packed one that ships with the package."""

import base64
import lzma


def render_tiktoken(tokens: list[bytes]) -> bytes:
    """One line per token: base64(token) SPACE rank."""
    return b"".join(b"%b %d\n" % (base64.b64encode(t), rank) for rank, t in enumerate(tokens))


def pack_ranks(tiktoken_file: bytes) -> bytes:
    """Pack a tiktoken file into `o200k_base.xz`."""
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
