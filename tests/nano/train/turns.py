"""Where an answer leaves what it copies.

A rewritten file is its prompt, but for the few places where it was to change. These decide whether
an answer is right, and most of its tokens have nothing to do with them: in a rename one in
seventeen, in a change one in 45. So they weigh more.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

TURN_WEIGHT = 3.0  # of a turn, where another token of the same answer has 1

Followers = dict[tuple[int, ...], set[int]]


def followers(tokens: Sequence[int]) -> Followers:
    """What follows each token and each pair of tokens in a prompt, or in a part of it."""
    found: Followers = {}
    for i, token in enumerate(tokens):
        for n in (1, 2):
            if i >= n:
                found.setdefault(tuple(tokens[i - n : i]), set()).add(token)
    return found


def turns(
    before: Sequence[int], target: Sequence[int], read: Iterable[Followers]
) -> NDArray[np.bool_]:
    """Which tokens of an answer are another one than a copy would go on with.

    The prompt has the two tokens before it, or, if these stand nowhere, the last of them, but
    never with this one behind.

    Args:
        before: The last two tokens of the prompt.
        target: The answer.
        read: Of the prompt, in parts.
    """
    tokens, known = [*before, *target], list(read)
    found = np.zeros(len(target), np.bool_)
    for i, token in enumerate(target):
        for n in (2, 1):
            behind = [f[key] for f in known if (key := tuple(tokens[i + 2 - n : i + 2])) in f]
            if behind:
                found[i] = not any(token in f for f in behind)
                break
    return found


def weights(
    before: Sequence[int], target: Sequence[int], read: Iterable[Followers]
) -> NDArray[np.float32]:
    """What each token of an answer weighs in the loss, 1 on the average. Arguments: `turns`."""
    found = np.where(turns(before, target, read), TURN_WEIGHT, 1.0).astype(np.float32)
    return found / found.mean()
