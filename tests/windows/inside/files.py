"""Names, locks and renames of files, as Windows has them."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from convert.journal import Journal
from gptoss_local.base.errors import ConvertError, DiskError, UsageError
from gptoss_local.base.lock import hold, is_held
from gptoss_local.base.settings import Settings, load_settings
from gptoss_local.base.whole_file import read_text, replace, write_whole
from gptoss_local.models import nano
from gptoss_local.models.store import add_model, delete_model, find_model, list_models
from gptoss_local.models.store.blobs import disk_errors
from gptoss_local.models.store.manifests import changing
from gptoss_local.talk.history import History
from tui.attachments import attach, image_in
from tui.paste import dropped_paths, find_files


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home")


@pytest.fixture
def gguf() -> Path:
    return nano.ensure_gguf(load_settings().cache_dir)


def held_for(path: Path, seconds: float) -> threading.Thread:
    """Have a file open for a time, as a virus scanner has it."""
    file = path.open("rb")

    def close() -> None:
        time.sleep(seconds)
        file.close()

    thread = threading.Thread(target=close)
    thread.start()
    return thread


def test_a_file_that_is_open_for_a_moment_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    write_whole(file, "old")
    thread = held_for(file, 0.5)
    write_whole(file, "new")
    thread.join()
    assert read_text(file) == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


def test_a_file_that_stays_open_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    write_whole(file, "old")
    with file.open("rb"), pytest.raises(UsageError, match=r"config\.toml cannot be written"):
        write_whole(file, "new")
    assert read_text(file) == "old"


def test_the_hint_for_weights_in_use(tmp_path: Path) -> None:
    for name in ("new", "used"):
        (tmp_path / name).touch()
    with (tmp_path / "used").open("rb"):
        for change in (
            lambda: replace(tmp_path / "new", tmp_path / "used"),
            lambda: (tmp_path / "used").unlink(),
        ):
            with pytest.raises(DiskError) as raised, disk_errors():
                change()
            assert raised.value.hint.startswith("Close what uses the file; `gptoss stop`")


def test_names_of_models_have_one_case(settings: Settings, gguf: Path) -> None:
    add_model("Mine:7B", gguf, settings)
    assert find_model("mine:7b", settings).name == "mine:7b"
    (file,) = settings.models_dir.glob("*.gguf")
    file.rename(file.with_name("MINE%3A7B.GGUF"))  # as other programs may spell it
    assert "mine:7b" in {model.name for model in list_models(settings)}
    delete_model("MINE:7b", settings)
    assert not list(settings.models_dir.glob("*.gguf"))


def test_paths_beyond_260_characters(tmp_path: Path, gguf: Path) -> None:
    home = tmp_path.joinpath(*["a folder with a long name".ljust(75, "-")] * 4)
    settings = Settings(home=home)
    add_model("mine", gguf, settings)
    path = find_model("mine", settings).path
    assert path is not None
    assert len(str(path)) > 300
    history = History(settings.history_path)
    history.rename(history.new_chat("mine", "low"), "Long")
    history.close()


def test_one_conversion_of_a_file(tmp_path: Path) -> None:
    first = Journal(tmp_path / "a.gguf")
    first.begin(tmp_path, "plan", [])
    with pytest.raises(ConvertError, match="Another gptoss"):
        Journal(tmp_path / "a.gguf")
    first.close(remove=True)
    assert not first.path.exists()


def test_locks_of_the_store(settings: Settings, tmp_path: Path) -> None:
    with (
        changing(settings),
        pytest.raises(TimeoutError),
        changing(settings, timeout_s=0.1),
    ):
        pass
    file = tmp_path / "weights"
    file.write_bytes(b"x" * 100)
    assert not is_held(file)
    with file.open("rb") as held:
        hold(held)
        assert is_held(file)
        assert file.read_bytes() == b"x" * 100  # others may read it
    assert not is_held(file)


WRITER = """
import sys
from pathlib import Path
from gptoss_local.talk.history import History

history = History(Path(sys.argv[1]))
for n in range(50):
    history.new_chat("nano", "low", f"{sys.argv[2]} {n}")
history.close()
"""


def test_two_processes_write_chats(tmp_path: Path) -> None:
    file = tmp_path / "history.db"
    History(file).close()
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(file), who]) for who in "ab"]
    assert [writer.wait(100) for writer in writers] == [0, 0]
    history = History(file)
    assert len(history.chats(1000)) == 100
    history.close()


def test_paths_in_the_chat(tmp_path: Path) -> None:
    folder = tmp_path / "my src"
    folder.mkdir()
    (folder / "a.py").write_text("print(1)\r\n", newline="")
    image = folder / "a picture.png"
    image.touch()
    stop = threading.Event()
    for typed in (r"my src\*.py", "my src/*.py"):
        assert "print(1)" in attach(typed, tmp_path, stop).text
    assert "print(1)" in attach(str(folder / "a.py"), tmp_path, stop).text
    assert image_in(f"what is in {image}", tmp_path) == image
    for quote in ("", '"'):
        assert dropped_paths(f"{quote}{image}{quote}") == [str(image)]
    assert dropped_paths(f'"{image}" "{folder}"') == [str(image), str(folder)]
    assert find_files("my src/a.", tmp_path) == ["my src/a.py"]
    assert find_files(r"my src\a.", tmp_path) == ["my src/a.py"]
    assert find_files(rf"{folder}\a.", tmp_path) == [f"{folder.as_posix()}/a.py"]
