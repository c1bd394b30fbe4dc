"""Name what a plan is to be best at, as `GPTOSS_PRESET` does.

The presets of chats, in `gptoss_local.talk.presets`, are something else.
"""

import msgspec

from gptoss_local.settings import Settings
from gptoss_local.types import Preset

N_PROMPT, N_ANSWER = 4096, 512
"""The request that plans are compared by: an agent's turn, read and answered."""


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """The requests that are to be fast, and what they may cost.

    Attributes:
        n_seq: Answers at the same time, unless the user wants another number.
        n_together: Requests at the same time, as far as the context has room for them.
        prefers_experts: With experts in RAM, context beyond what agents begin with is left for
            prompts that need it, when the model is loaded again.
        is_quiet: Half of the cores compute, and their threads sleep while a GPU does.
    """

    n_seq: int = 4
    n_together: int = 1
    prefers_experts: bool = False
    is_quiet: bool = False

    def n_rows(self, n_seq: int, n_ctx: int) -> int:
        """Return how many of the requests are answered at the same time in such a context."""
        n_fitting = n_ctx // (N_PROMPT + N_ANSWER)
        return max(1, min(self.n_together, n_seq, n_fitting))


BALANCED = Objective()

OBJECTIVES: dict[Preset, Objective] = {
    "balanced": BALANCED,
    # One person; the second answer is for what programs ask by themselves, such as titles.
    "latency": Objective(n_seq=2, prefers_experts=True),
    "throughput": Objective(n_seq=16, n_together=16),
    "quiet": Objective(is_quiet=True),
}


def most_answers(settings: Settings) -> int:
    """Return how many requests a model answers at the same time, at most."""
    return settings.num_parallel or OBJECTIVES[settings.preset].n_seq
