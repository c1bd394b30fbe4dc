"""Files that people edit: whether each can be read. One that cannot is moved aside, not changed."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from gptoss_local.api_keys import read_keys
from gptoss_local.cli.doctor.diagnosis import Finding
from gptoss_local.cli.doctor.repair.fault import Fault
from gptoss_local.errors import UsageError
from gptoss_local.models.catalog import check_models_file
from gptoss_local.settings import Settings, check_config, config_path, user_models_file
from gptoss_local.talk.presets import presets_path, read_presets
from gptoss_local.talk.tools.mcp.config import check_file, mcp_path


def settings_faults(settings: Settings) -> Iterator[Fault]:
    """Yield a fault for each file that cannot be read."""
    checks: list[tuple[Path, Callable[[], object]]] = [
        (config_path(), check_config),
        (user_models_file(), partial(check_models_file, user_models_file())),
        (presets_path(), read_presets),
        (mcp_path(), partial(check_file, mcp_path())),
    ]
    for path, check in checks:
        if path.is_file() and (error := _error(check)):
            finding = _finding(path, error, "Correct it, or let it be moved aside.")
            yield Fault(
                finding, f"Move {path} aside, and go without it?", partial(_move_aside, path)
            )
    keys = settings.api_keys_file
    if keys is not None and (error := _error(partial(read_keys, keys))):
        # Without it the server would refuse all keys, or need none.
        yield Fault(_finding(keys, error, "Correct it; a file of keys is never moved."))


def _error(check: Callable[[], object]) -> UsageError | None:
    try:
        check()
    except UsageError as error:
        return error
    return None


def _finding(path: Path, error: UsageError, fix: str) -> Finding:
    text = error.message if error.message.endswith(".") else f"{error.message}."
    return Finding(path.name, "problem", text, f"{error.hint} {fix}".strip())


def _move_aside(path: Path) -> str:
    n = 1
    while (aside := path.with_name(f"{path.name}.broken-{n}")).exists():
        n += 1
    path.rename(aside)
    return f"It is {aside} now."
