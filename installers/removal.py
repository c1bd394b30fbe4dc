"""Remove the files of gptoss's receipt, and on request models and chats."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import llama_wheel
import service
import shell_setup
from environments import python_of
from receipt import Places, Receipt
from steps import Log, SetupError, answer_of

Confirm = Callable[[str], None]  # it asks the user, and raises SetupError for a no
_ENDS = ("-wal", "-shm", ".private")  # of files next to the chats
_ASK = """
import json, platformdirs
from gptoss_local.base.settings import load_settings
s = load_settings()
config = platformdirs.user_config_path("gptoss")
print(json.dumps([str(p) for p in (s.models_dir, s.history_path, config, s.cache_dir, s.log_dir)]))
"""
_STOP = """
import os, sys, psutil
found = []
for process in psutil.process_iter(["cmdline"]):
    words = (process.info["cmdline"] or [])[:2]
    if process.pid != os.getpid() and any(word.startswith(sys.argv[1]) for word in words):
        process.terminate()
        found.append(process)
for process in psutil.wait_procs(found, timeout=20)[1]:
    process.kill()
"""


def uninstall(
    log: Log, places: Places, receipt: Receipt, purge: bool, dry_run: bool, confirm: Confirm
) -> None:
    """Remove the program; with `purge`, models, chats, settings, caches and logs, too."""
    environment = places.app / receipt.environment
    owned = _owned(environment)
    if purge and owned is None:
        hint = "Uninstall without --purge, and delete what you want gone by hand."
        raise SetupError("The installed gptoss does not say where its models and chats are.", hint)
    data = [path for path in owned or [] if path.exists()]
    data = [path for path in data if not any(other in path.parents for other in data)]
    print(f"Removal of gptoss {receipt.version}")
    for path in [places.app, *map(Path, receipt.files)]:
        print(f"  goes   {path}")
    for name in receipt.edited:
        print(f"  goes   our line in {name}")
    for path in data:
        print(f"  {'goes ' if purge else 'stays'}  {path} ({_size(path) / 1e6:.0f} MB)")
    if dry_run:
        print("\nNothing was changed.")
        return
    confirm("Remove all that, models and chats, too?" if purge else "Remove the program?")
    stop_programs(places, environment)
    if receipt.has_service:
        service.remove(log)
    shell_setup.undo(places, receipt)
    for path in [*data, places.log] if purge else []:
        _remove(path)
    _remove(places.app)  # last: the Python that runs this may lie in it
    for folder in {places.app.parent, places.log.parent, *(path.parent for path in data)}:
        if folder.name == "gptoss" and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    print("gptoss is removed.")


def stop_programs(places: Places, environment: Path) -> None:
    answer_of([python_of(environment), "-c", _STOP, places.app / "env-"])


def _owned(environment: Path) -> list[Path] | None:
    shown = answer_of([python_of(environment), "-c", _ASK])
    if shown is None:
        return None
    paths = [Path(name) for name in json.loads(shown)]
    beside = [path.with_name(path.name + end) for path in paths[1:2] for end in _ENDS]
    return [*paths, *beside, llama_wheel.cache_folder()]


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:  # on Windows, a file in use
        raise SetupError(f"{path} could not be removed: {error}", "Delete it by hand.") from error


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if not file.is_symlink() and file.is_file())
