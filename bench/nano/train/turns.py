"""Where an answer leaves what it copies.

A rewritten file is its prompt, but for the few places where it was to change. These decide whether
an answer is right, and most of its tokens have nothing to do with them: in a rename one in
twenty-three, in a change one in a hundred. So they weigh more while most is learned, but not at the
end: who misses few turns by turning too often has gained nothing.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from bench.nano.data.document import BranchTokens

N_BEFORE = (8, 4, 2)  # tokens by which a place that may be copied from is known
TURN_SHARE = 0.15  # of an answer's weight, for all its turns, where that is more than theirs
MAX_TURN_WEIGHT = 6.0  # of a turn, where another token of the same answer has 1
FOCUS_UNTIL, FOCUS_END = 0.4, 0.8  # shares of the time, between which turns lose that weight

Followers = dict[tuple[int, ...], set[int]]


def followers(tokens: Sequence[int]) -> Followers:
    """What follows each run of 2, 4 and 8 tokens in a prompt, or in a part of it."""
    found: Followers = {}
    for n in N_BEFORE:
        for i in range(n, len(tokens)):
            found.setdefault(tuple(tokens[i - n : i]), set()).add(tokens[i])
    return found


def turns(
    before: Sequence[int], target: Sequence[int], read: Iterable[Followers]
) -> NDArray[np.bool_]:
    """Which tokens of an answer are another one than a copy would go on with.

    The prompt has the tokens before it (eight, else four, else two), but never with this one
    behind.

    Args:
        before: The last eight tokens of the prompt.
        target: The answer.
        read: Of the prompt, in parts.
    """
    tokens, known = [*before, *target], list(read)
    found = np.zeros(len(target), np.bool_)
    for i, token in enumerate(target, start=len(before)):
        for n in N_BEFORE:
            behind = [f[key] for f in known if (key := tuple(tokens[max(0, i - n) : i])) in f]
            if behind:
                found[i - len(before)] = not any(token in f for f in behind)
                break
    return found


def branch_turns(
    context: Sequence[int], branch: BranchTokens, read: Followers
) -> NDArray[np.bool_]:
    """Which tokens of a branch's answer are turns; `read` are the followers in the context."""
    prompt = [*context[-max(N_BEFORE) :], *branch.prompt]
    return turns(prompt[-max(N_BEFORE) :], branch.target, (read, followers(prompt)))


def turn_weights(turned: NDArray[np.bool_]) -> NDArray[np.float32]:
    """How many times the usual each token of an answer weighs in the loss: turns more, others 1."""
    n_turns = max(1, int(turned.sum()))
    fair = TURN_SHARE / (1 - TURN_SHARE) * (len(turned) - n_turns) / n_turns
    return np.where(turned, np.clip(fair, 1.0, MAX_TURN_WEIGHT), 1.0).astype(np.float32)


def turn_focus(progress: float) -> float:
    """How much of their weight turns have, by the share of the training that is over."""
    return min(1.0, max(0.0, (FOCUS_END - progress) / (FOCUS_END - FOCUS_UNTIL)))
