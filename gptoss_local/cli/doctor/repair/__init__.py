"""Finds what is wrong with the files of gptoss itself, with the repairs that lose nothing.

No repair deletes a model, a chat or a file of the user. A repair is only described until it is
called; `gptoss_local.cli.doctor` asks before that.
"""

from collections.abc import Callable, Iterator

from gptoss_local.cli.doctor.repair.fault import Fault
from gptoss_local.cli.doctor.repair.folders import folder_faults
from gptoss_local.cli.doctor.repair.settings_files import settings_faults
from gptoss_local.cli.doctor.repair.shell import shell_faults
from gptoss_local.cli.doctor.repair.store import store_faults
from gptoss_local.settings import Settings

__all__ = ["Fault", "find_faults"]


def find_faults(settings: Settings, completion_script: Callable[[str], str]) -> Iterator[Fault]:
    """Look at files, folders, the store and the shell, in the order in which to repair them.

    Later ones are looked for once earlier ones have been taken, as a repair may show more.
    """
    yield from settings_faults(settings)
    yield from folder_faults(settings)
    yield from store_faults(settings)
    yield from shell_faults(completion_script)
