"""Several processes change one store at once, and are killed at any point."""

import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from convert import convert_checkpoint
from convert.verify import structure
from gptoss_local.base.errors import ModelLoadError
from gptoss_local.base.settings import Settings
from gptoss_local.models.store import (
    ModelDefaults,
    add_model,
    delete_model,
    find_garbage,
    find_model,
    list_models,
)
from tests.convert.tiny import write_tiny

N_PROCESSES, N_KILLS = 3, 8

# Adds, replaces, copies, deletes and lists for ever; a model of its own is there all the time.
WORK = """
import hashlib, itertools, random, sys
from pathlib import Path
from gptoss_local.base.errors import GptOssError, ModelNotFoundError
from gptoss_local.base.settings import Settings
from gptoss_local.models.store import *

seed, home, *files = sys.argv[1:]
files = [Path(file) for file in files]
settings, choice = Settings(home=Path(home)), random.Random(int(seed))
names = ["a", "b:7b", "me/c"]
for n in itertools.count():
    file, name = choice.choice(files), choice.choice(names)
    defaults = choice.choice([None, ModelDefaults(system=f"{seed}-{n}")])
    try:
        match choice.randrange(6):
            case 0 | 1:
                add_model(name, file, settings, defaults, in_place=choice.random() < 0.3)
            case 2:
                delete_model(name, settings)
            case 3:
                data = file.read_bytes()
                digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
                with BlobWriter(digest, settings) as blob:
                    blob.write(data)
                    blob.finish()
                add_model(name, find_blob(digest, settings), settings, defaults)
            case 4:
                entry = find_model(name, settings)
                add_model("copy", entry.path, settings, entry.defaults, in_place=entry.is_in_place)
            case 5:
                list_models(settings)
                for each in find_garbage(settings):
                    each.remove()
    except ModelNotFoundError:
        pass
    except GptOssError as error:  # another process was faster: told as an error, never half done
        told = ("No such file", "not in GGUF", "1 files are missing")
        if not any(words in error.message for words in told):
            raise
    add_model("steady", file, settings, defaults)
    print(n, flush=True)
"""


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two small models with different bytes."""
    found = []
    for n_layers in (1, 2):
        source = write_tiny(tmp_path / f"tiny{n_layers}")
        target = tmp_path / f"tiny{n_layers}.gguf"
        found += convert_checkpoint(source, target, dense="q8_0" if n_layers == 1 else "bf16")
    return found


@pytest.mark.parametrize("defaults", [None, ModelDefaults(system="Be brief.")])
def test_a_name_that_two_give_at_once_is_not_lost(
    tmp_path: Path,
    files: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    defaults: ModelDefaults | None,
) -> None:
    """The other comes between our placing and our removing, and gives it the other kind of file."""
    settings, unlink = Settings(home=tmp_path / "home"), Path.unlink
    others = None if defaults else ModelDefaults(system="Be kind.")
    other = threading.Thread(target=add_model, args=("both", files[1], settings, others))

    def wait_and_unlink(path: Path, missing_ok: bool = False) -> None:
        if path.suffix != ".part" and not other.ident:
            other.start()
            other.join(0.3)
            assert other.is_alive()
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", wait_and_unlink)
    add_model("both", files[0], settings, defaults)
    other.join()
    entry = find_model("both", settings)
    assert entry.path is not None
    assert entry.path.read_bytes() == files[1].read_bytes()
    assert entry.defaults == (others or ModelDefaults())


def test_a_file_that_vanishes_while_it_is_checked_is_named(
    tmp_path: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_padding = structure._check_padding

    def vanish(path: Path, *rest: Any) -> None:
        path.unlink()
        check_padding(path, *rest)

    monkeypatch.setattr(structure, "_check_padding", vanish)
    with pytest.raises(ModelLoadError, match=r"cannot read .*: No such file or directory"):
        add_model("gone", files[0], Settings(home=tmp_path / "home"))


def test_changes_from_several_processes_that_are_killed(tmp_path: Path, files: list[Path]) -> None:
    settings, chance = Settings(home=tmp_path / "home"), random.Random(5)
    contents = {file.read_bytes() for file in files}
    log = tmp_path / "log"
    with log.open("w") as out:

        def start(seed: int) -> subprocess.Popen[str]:
            command = [sys.executable, "-c", WORK, str(seed), str(settings.home), *map(str, files)]
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=out, text=True)

        running = [start(seed) for seed in range(N_PROCESSES)]
        try:
            for n_killed in range(N_KILLS):
                victim = running.pop(0)
                assert victim.stdout is not None
                for _ in range(chance.randrange(1, 30)):  # steps that it has done
                    assert victim.stdout.readline(), log.read_text()[-2000:]
                assert find_model("steady", settings).name == "steady"
                victim.kill()
                victim.communicate()
                running.append(start(100 + n_killed))
        finally:
            for process in running:
                process.kill()
                process.communicate()
    assert "Error" not in log.read_text(), log.read_text()[-2000:]
    for entry in list_models(settings):
        if not entry.embedded:
            assert entry.path is not None
            assert entry.path.read_bytes() in contents, entry
    names = {entry.name for entry in list_models(settings) if not entry.embedded}
    assert "steady" in names
    for each in find_garbage(settings, quiet_s=-1):
        each.remove()
    assert names == {entry.name for entry in list_models(settings) if not entry.embedded}
    for name in names:
        delete_model(name, settings)
    left = [path for path in settings.models_dir.rglob("*") if path.is_file()]
    assert left == []
    assert {file.read_bytes() for file in files} == contents
    assert all(os.stat(file).st_nlink == 1 for file in files)
