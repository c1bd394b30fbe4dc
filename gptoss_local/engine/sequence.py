"""The state of one request inside the engine: its tokens, counts and clock."""

import time
from dataclasses import dataclass, field

from gptoss_local.engine.protocol import Generate
from gptoss_local.llama import Sampler
from gptoss_local.types import Usage


@dataclass(slots=True)
class Sequence:
    """A request on its way through prefill and decode.

    `n_past` counts the tokens whose keys and values are in the cache, so prefill lasts while
    `n_past < n_prompt`.
    """

    request: Generate
    sampler: Sampler
    n_past: int = 0
    n_generated: int = 0
    last_token: int = -1
    started_ns: int = field(default_factory=time.monotonic_ns)
    prefilled_ns: int = 0

    @property
    def n_prompt(self) -> int:
        return len(self.request.prompt)

    @property
    def is_prefilling(self) -> bool:
        return self.n_past < self.n_prompt

    def usage(self) -> Usage:
        """What it cost until now; a sequence cancelled in prefill has decoded nothing."""
        now_ns = time.monotonic_ns()
        prefilled_ns = self.prefilled_ns or now_ns
        return Usage(
            n_prompt=self.n_prompt,
            n_generated=self.n_generated,
            prefill_ns=prefilled_ns - self.started_ns,
            decode_ns=now_ns - prefilled_ns,
        )
