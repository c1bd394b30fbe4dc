"""The models folder and the chats: what can be removed, and what cannot be read."""

from collections.abc import Iterator
from functools import partial

from gptoss_local.cli.doctor.diagnosis import Finding
from gptoss_local.cli.doctor.repair.fault import Fault
from gptoss_local.errors import GptOssError, HistoryError
from gptoss_local.models.store import Leftover, find_garbage, unusable_models
from gptoss_local.settings import Settings
from gptoss_local.talk.history import check_file


def store_faults(settings: Settings) -> Iterator[Fault]:
    """Yield what no model needs, models that cannot be loaded, and chats that cannot be read."""
    try:
        yield from _leftovers(find_garbage(settings))
        yield from _models(settings)
    except (GptOssError, OSError):
        pass  # the faults of a file or a folder say it
    if settings.history_path.is_file():
        try:
            check_file(settings.history_path)
        except HistoryError as error:
            fix = f"{error.hint} Chats are never changed by a repair."
            yield Fault(Finding("chats", "problem", error.message, fix.strip()))


def _leftovers(found: list[Leftover]) -> Iterator[Fault]:
    interrupted = [each for each in found if each.kind == "interrupted"]
    unneeded = [each for each in found if each.kind != "interrupted"]
    if unneeded:
        text = f"{_n_files(unneeded)} that no model needs take {_size(unneeded)}."
        yield Fault(
            Finding("leftovers", "note", text, "`gptoss gc` removes that."),
            f"Remove what no model needs ({_size(unneeded)})?",
            partial(_remove, unneeded),
        )
    if interrupted:
        text = f"{_n_files(interrupted)} of interrupted pulls take {_size(interrupted)}."
        fix = "They stay, as a pull continues from there; `gptoss gc --interrupted` removes them."
        yield Fault(Finding("interrupted pulls", "note", text, fix))


def _models(settings: Settings) -> Iterator[Fault]:
    for name, error in unusable_models(settings):
        fix = f"{error.hint} Models are never deleted by a repair: `gptoss rm {name}` does it."
        text = f"It cannot be loaded: {error.message}."
        yield Fault(Finding(f"model {name}", "problem", text, fix.strip()))


def _remove(found: list[Leftover]) -> str:
    for each in found:
        each.remove()
    left = [each for each in found if each.path.exists()]
    if left:
        raise OSError(f"{_n_files(left)} could not be removed, as {left[0].path}")
    return f"{_size(found)} freed."


def _n_files(found: list[Leftover]) -> str:
    return f"{len(found)} file{'s' * (len(found) > 1)}"


def _size(found: list[Leftover]) -> str:
    from rich.filesize import decimal

    return decimal(sum(each.size_bytes for each in found))
