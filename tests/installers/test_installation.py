"""Parts of an installation with faults that cannot be caused from outside."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import installation
import llama_wheel
import pytest
import receipt
import removal
from gpu_choice import Choice
from installation import Order
from llama_release import UnreachableError
from receipt import Places, Receipt
from steps import Log, SetupError

from tests.installers.conftest import INSTALLERS

RTX_4090 = Choice(("cuda-13.4",), reason="RTX 4090")


Capture = pytest.CaptureFixture[str]


class Usage(NamedTuple):
    free: int


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "share/gptoss/app", tmp_path / "bin", tmp_path / "install.log")


def order(tmp_path: Path, choice: Choice) -> Order:
    return Order("/nowhere", choice, tmp_path / "wheels", "", False, False)


def test_full_disk_is_seen_before_the_first_byte(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(2 * 10**9))
    with pytest.raises(SetupError, match=r"2\.0 GB are free .* 4 needed") as caught:
        installation.install(Log(places.log), places, order(tmp_path, RTX_4090))
    assert "--wheels" in caught.value.hint
    assert "--backend cpu needs 1" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("broken", "blind", "way"),
    [
        ((), (), "cuda-13.4"),
        (("cuda-13.4",), (), "cuda-12.8"),  # no such file, or nano does not answer
        ((), ("cuda-13.4", "cuda-12.8"), "vulkan"),  # the driver is too old for them
        (("cuda-13.4", "cuda-12.8", "vulkan", "cpu"), (), None),
    ],
)
def test_the_next_way_is_tried_until_nano_answers(
    places: Places,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: tuple[str, ...],
    blind: tuple[str, ...],
    way: str | None,
) -> None:
    made, choice = Receipt("1", "env-1"), Choice(("cuda-13.4", "cuda-12.8", "vulkan", "cpu"))

    def put(*arguments: object) -> dict[str, str]:
        if arguments[-1] in broken:
            raise SetupError(f"{arguments[-1]} is not there.", "Ask GitHub.")
        return {f"{arguments[-1]}.zip": "digest"}

    monkeypatch.setattr(installation, "put_llama", put)
    monkeypatch.setattr(installation, "has_gpu", lambda _: made.llama not in blind)
    monkeypatch.setattr(installation, "check_answer", lambda *_: "the GPU")
    log, package = Log(places.log), installation.Package(tmp_path, "1", None)  # type: ignore[arg-type]
    wanted = (log, tmp_path, package, order(tmp_path, choice), made)
    if way:
        assert installation._find_llama(*wanted) == "the GPU"
        assert (made.llama, made.digests) == (way, {f"{way}.zip": "digest"})
        return
    with pytest.raises(SetupError, match=r"No llama\.cpp suits .* cpu is not there") as no:
        installation._find_llama(*wanted)
    assert "Ask GitHub" in no.value.hint
    assert "cuda-12.8 is not there. Ask GitHub. Now vulkan." in places.log.read_text()


@pytest.mark.parametrize("compiles", [True, False])
def test_without_github_what_is_compiled_comes_next(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiles: bool
) -> None:
    """No release is asked for again, and a card does not end on the CPU for a lost network."""
    tried: list[object] = []

    def put(*arguments: object) -> dict[str, str]:
        tried.append(arguments[-1])
        if str(arguments[-1]).startswith("cuda"):
            raise UnreachableError("GitHub does not answer.", "Run this again.")
        if not compiles:
            raise SetupError("It did not build.", "Read the log.")
        return {}

    monkeypatch.setattr(installation, "put_llama", put)
    monkeypatch.setattr(installation, "has_gpu", lambda _: True)
    monkeypatch.setattr(installation, "check_answer", lambda *_: "the GPU")
    log, package = Log(places.log), installation.Package(tmp_path, "1", None)  # type: ignore[arg-type]
    made, ways = Receipt("1", "env-1"), ("cuda-13.4", "cuda-12.8", "compiled for CUDA", "cpu")
    wanted = (log, tmp_path, package, order(tmp_path, Choice(ways)), made)
    if compiles:
        assert installation._find_llama(*wanted) == "the GPU"
    else:
        with pytest.raises(SetupError, match=r"^GitHub does not answer\.$") as no:
            installation._find_llama(*wanted)
        assert no.value.hint == f"Run this again. Log: {places.log}"
    assert tried == ["cuda-13.4", "compiled for CUDA"]


def test_a_slow_doctor_does_not_undo_what_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "answer_of", lambda *_, **__: None)
    (note,) = installation.problems(tmp_path)
    assert note.startswith("gptoss doctor")


def test_build_without_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: Places
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="needs a C") as caught:
        llama_wheel.build(Log(places.log), "1.0", "", tmp_path / "wheels")
    assert "apt install g++" in caught.value.hint


def test_a_processor_gets_no_wheel_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = llama_wheel.wheel_folder(tmp_path, "1.0", "")
    assert here == llama_wheel.wheel_folder(tmp_path, "1.0", "")
    assert here != llama_wheel.wheel_folder(tmp_path, "1.1", "")
    assert here != llama_wheel.wheel_folder(tmp_path, "1.0", "-DGGML_CUDA=ON")
    monkeypatch.setattr(llama_wheel.platform, "machine", lambda: "aarch64")
    assert here != llama_wheel.wheel_folder(tmp_path, "1.0", "")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a user with an installation, models, chats, settings, and files of other programs."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    python = receipt.places().app / "env-1/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')  # it knows gptoss_local
    python.chmod(0o755)
    for name in (*THEIRS, *OURS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("# settings that are valid")
    receipt.write(receipt.places().app, Receipt("1", "env-1", files=[str(tmp_path / OURS[0])]))
    return tmp_path


THEIRS = (".local/bin/other", ".cache/other/file", ".config/other.toml", ".local/share/x/gptoss")
OURS = (
    ".local/bin/gptoss",
    ".local/share/gptoss/models/mine.gguf",
    ".local/share/gptoss/chats.sqlite3",
    ".local/share/gptoss/chats.sqlite3-wal",
    ".config/gptoss/config.toml",
    ".cache/gptoss/wheels/a/b.whl",
    ".local/state/gptoss/log/server.log",
)


def files_in(home: Path) -> set[str]:
    return {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}


@pytest.mark.parametrize("is_purge", [False, True])
def test_what_uninstalling_leaves(home: Path, capsys: Capture, is_purge: bool) -> None:
    """Models, chats and settings, unless all of gptoss goes; never files of others."""
    linked = home / ".local/share/gptoss/models/adopted.gguf"
    linked.symlink_to(home / THEIRS[0])  # a model that is used where it lies
    places, before = receipt.places(), files_in(home)
    made = receipt.read(places.app)
    assert made
    removal.uninstall(Log(places.log), places, made, is_purge, True, lambda _: None)
    assert files_in(home) == before  # dry
    asked: list[str] = []
    removal.uninstall(Log(places.log), places, made, is_purge, False, asked.append)
    models = home / ".local/share/gptoss/models"
    shown = capsys.readouterr().out
    if is_purge:
        assert asked == ["Remove all that, models and chats, too?"]
        assert files_in(home) == set(THEIRS)
        assert not list(home.rglob("*gptoss*/"))
        for path in (models, models.with_name("chats.sqlite3"), home / ".cache/gptoss"):
            assert f"goes   {path} " in shown
    else:
        assert files_in(home) == {*THEIRS, *OURS[1:], str(linked.relative_to(home))}
        assert f"stays  {models} " in shown


def test_two_installers_do_not_work_at_once(tmp_path: Path) -> None:
    path = tmp_path / "log" / "install.log"
    script = "import sys; from steps import Log; from pathlib import Path\n"
    script += "with Log(Path(sys.argv[1])).alone(): print(1, flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(
        command, cwd=INSTALLERS, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"1\n"
        with pytest.raises(SetupError, match="Another gptoss installer"), Log(path).alone():
            pass
        other.kill()
        other.wait()
    with Log(path).alone():
        Log(path).say("the first line")
    assert "the first line" in path.read_text()


def test_a_package_that_is_not_the_pinned_one_is_refused(tmp_path: Path) -> None:
    """As a compromised index would serve it."""
    folder = tmp_path / "installers"
    shutil.copytree(INSTALLERS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "requirements.txt").write_text(f"idna==3.20 --hash=sha256:{'0' * 64}\n")
    code = (
        "import environments, sys; from pathlib import Path; from steps import Log; "
        "environments.install_dependencies(Log(Path('log')), Path(sys.executable))"
    )
    environment = os.environ | {"PYTHONPATH": str(folder), "PIP_TARGET": str(tmp_path / "out")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in (tmp_path / "log").read_text()
    assert not (tmp_path / "out" / "idna").exists()
