"""`gptoss serve` on a machine with memory for a small context only."""

from gptoss_local.__main__ import main
from gptoss_local.runner import planning
from tests.plan.machines import GIB, machine

planning.read_machine = lambda _: machine(ram_gib=2, available_bytes=round(0.5 * GIB))
main()
