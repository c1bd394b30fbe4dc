"""A finding with the repair that goes with it, if there is one."""

from collections.abc import Callable
from dataclasses import dataclass

from gptoss_local.cli.doctor.diagnosis import Finding


@dataclass(frozen=True)
class Fault:
    """Something that is not as it should be.

    Attributes:
        finding: What is wrong; its `fix` says what the user can do, or why nothing is done here.
        question: Asks whether to repair it; empty if there is no repair.
        repair: Does it and says what was done. Raises OSError or GptOssError.
    """

    finding: Finding
    question: str = ""
    repair: Callable[[], str] | None = None
