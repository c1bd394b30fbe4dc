"""Which tokens have rows of their own in the weights that ship."""

from bench.nano.train.vocabulary import joined_tokens
from gptoss_local.models.nano.compact import load_compact


def test_joined_tokens_have_rows() -> None:
    """Their codes do not tell what JSON writes for them."""
    assert joined_tokens() <= set(load_compact().used_ids.tolist())
