"""The published form of a vocabulary."""

import base64


def render_tiktoken(tokens: list[bytes]) -> bytes:
    """One line per token: base64(token) SPACE rank."""
    return b"".join(b"%b %d\n" % (base64.b64encode(t), rank) for rank, t in enumerate(tokens))
