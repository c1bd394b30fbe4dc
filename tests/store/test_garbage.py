"""Garbage is found; files of living processes and of unreadable manifests stay."""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from filelock import FileLock

from gptoss_local.base.errors import GptOssError, ModelLoadError
from gptoss_local.base.settings import Settings
from gptoss_local.models.store import (
    BlobWriter,
    ModelDefaults,
    add_blob,
    add_model,
    adopt_file,
    delete_model,
    find_blob,
    find_garbage,
    find_model,
    known_sha256,
    list_models,
    unreadable_manifests,
    unusable_models,
)
from tests.cli.conftest import fresh, run_cli  # noqa: F401
from tests.conftest import wait_until

OTHER_DISK = Path("/dev/shm")
BRIEF = ModelDefaults(system="Be brief.")


@pytest.fixture
def filled(settings: Settings, tiny: Path, parts: list[Path]) -> Settings:
    """A model of each kind; the weights of `mine` and `large` are nowhere else."""
    add_model("plain", tiny, settings)
    add_model("mine", tiny, settings, BRIEF)
    add_model("large", parts[0], settings)
    adopt_file(tiny, settings, "elsewhere")
    return settings


def _newer(text: str) -> str:
    return json.dumps({"version": 2, "layers": [json.loads(text).pop("weights", "")]})


TEXTS: dict[str, Callable[[str], str]] = {
    "cut": lambda text: text[:-5],
    "misspelt-key": lambda text: text.replace('"weights"', '"wieghts"').replace('"file"', '"flie"'),
    "misspelt-name": lambda text: text.replace(".gguf", "x.gguf"),
    "outside": lambda text: text.replace('"weights":"', '"weights":"../weights/'),
    "unspellable": lambda text: text.replace(".gguf", "\\u0000.gguf"),
    "foreign": lambda _: '{"name": "a page", "version": "1.0.0"}',
    "newer": _newer,
}
FILES: dict[str, Callable[[Path], None]] = {
    "folder": Path.mkdir,
    "dangling": lambda path: path.symlink_to("/nonexistent/there.json"),
    "pipe": os.mkfifo,
}
FAULTS = [*TEXTS, *FILES]


def damage(path: Path, fault: str = "cut") -> None:
    """Make a manifest one that cannot be read."""
    text = path.read_text()
    if fault in TEXTS:
        path.write_text(TEXTS[fault](text))
    else:
        path.unlink()
        FILES[fault](path)


def kept(settings: Settings) -> dict[str, bytes]:
    """Weights and blobs, by their paths."""
    files = [p for name in ("weights", "blobs") for p in (settings.models_dir / name).glob("*")]
    return {str(path): path.read_bytes() for path in files}


def make_all_old(settings: Settings) -> None:
    for path in settings.models_dir.rglob("*"):
        with contextlib.suppress(OSError):
            os.utime(path, (0, 0), follow_symlinks=False)


def write_blob(data: bytes, settings: Settings) -> str:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    with BlobWriter(digest, settings) as blob:
        blob.write(data)
        blob.finish()
    return digest


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["mine", "large"])
def test_no_weights_go_while_a_manifest_cannot_be_read(
    filled: Settings, tiny: Path, fault: str, name: str
) -> None:
    settings, path = filled, filled.models_dir / f"{name}.json"
    before_other = kept(settings)
    add_model("other", tiny, settings, BRIEF)
    write_blob(b"of a model, perhaps", settings)
    before = kept(settings)
    damage(path, fault)
    make_all_old(settings)

    (error,) = unreadable_manifests(settings).values()
    assert str(path) in error.message
    assert isinstance(error, ModelLoadError)
    assert f"gptoss rm {name}" in error.hint or fault == "newer"
    assert name in dict(unusable_models(settings))
    assert {"plain", "elsewhere", "other"} <= {entry.name for entry in list_models(settings)}

    for each in find_garbage(settings, quiet_s=-1):
        each.remove()
    assert kept(settings) == before
    delete_model("other", settings)
    add_model("new", tiny, settings, BRIEF)
    adopt_file(tiny, settings, "adopted")
    with contextlib.suppress(GptOssError):
        find_model(name, settings)
    left = kept(settings)
    assert before_other.items() <= left.items()
    for each in find_garbage(settings, quiet_s=-1):
        each.remove()
    assert kept(settings) == left


def test_a_restored_manifest_has_its_weights_and_a_deleted_one_leaves_them_to_gc(
    filled: Settings,
) -> None:
    path = filled.models_dir / "mine.json"
    text = path.read_bytes()
    damage(path)
    assert find_garbage(filled, quiet_s=-1) == []
    path.write_bytes(text)
    assert find_model("mine", filled).defaults == BRIEF
    damage(path)
    before = kept(filled)
    delete_model("mine", filled)
    assert unreadable_manifests(filled) == {}
    assert kept(filled) == before, "another command takes nothing, either"
    (found,) = find_garbage(filled, quiet_s=-1)
    assert found.kind == "weights"


def test_all_commands_say_it(fresh: dict[str, str], tiny: Path) -> None:  # noqa: F811
    settings = Settings(home=Path(fresh["GPTOSS_HOME"]))
    add_model("plain", tiny, settings)
    paths = {fault: settings.models_dir / f"{fault}.json" for fault in FAULTS}
    for fault, path in paths.items():
        add_model(fault, tiny, settings, BRIEF)
        damage(path, fault)
    make_all_old(settings)
    before = kept(settings)

    def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = run_cli(fresh, *arguments)
        assert done.returncode == code, (arguments, done.stderr)
        assert before.items() <= kept(settings).items(), arguments
        return done

    for arguments in (
        ("create", "new", "--from", "plain", "--system", "x"),
        ("import", str(tiny), "adopted"),
        ("rm", "-y", "adopted"),
    ):
        said = run(*arguments).stderr
        assert [path for path in paths.values() if str(path) not in said] == [], arguments
    findings = json.loads(run("doctor", "--json", code=1).stdout)["findings"]
    problems = {each["name"] for each in findings if each["level"] == "problem"}
    assert {f"model {name}" for name in paths} <= problems
    listed = json.loads(run("ls", "--json").stdout)
    assert {each["path"] for each in listed["unreadable"]} == set(map(str, paths.values()))
    assert {"plain", "new"} <= {each["name"] for each in listed["models"]}
    assert json.loads(run("gc", "--json", code=10).stdout)["unreadable"] == listed["unreadable"]
    damaged = json.loads(run("verify", "--all", "--json", code=11).stdout)["damaged"]
    assert set(damaged) == set(paths)
    run("show", "cut", code=10)

    url = f"http://127.0.0.1:{fresh['GPTOSS_PORT']}"
    models = httpx.get(f"{url}/api/tags", trust_env=False).json()["models"]
    assert {"plain", "new"} <= {each["name"] for each in models}
    deleted = httpx.request("DELETE", f"{url}/api/delete", json={"model": "new"}, trust_env=False)
    assert deleted.is_success
    added = kept(settings).keys() - before.keys()  # an unreadable model might need them, too
    assert {Path(path).suffix for path in added} == {".gguf"}
    log = settings.server_log.read_text()
    assert [path for path in paths.values() if str(path) not in log] == []


UPLOAD = """
import sys
from pathlib import Path
from gptoss_local.base.settings import Settings
from gptoss_local.models.store import BlobWriter
with BlobWriter("sha256:" + "0" * 64, Settings(home=Path(sys.argv[1]))) as blob:
    blob.write(b"x" * 100_000)
    print("begun", flush=True)
    sys.stdin.read()
"""


def test_an_upload_that_waits(settings: Settings) -> None:
    """Its file is no garbage, however old it looks, until its process has died."""
    command = [sys.executable, "-c", UPLOAD, str(settings.home)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    make_all_old(settings)
    assert find_garbage(settings) == []
    with BlobWriter(f"sha256:{hashlib.sha256(b'y').hexdigest()}", settings):
        pass  # another upload sweeps
    assert [path.suffix for path in (settings.models_dir / "blobs").iterdir()] == [".part"]
    process.kill()
    process.communicate()
    make_all_old(settings)
    (found,) = find_garbage(settings)
    assert found.kind == "blob"
    found.remove()
    assert find_garbage(settings) == []


MAKE = """
import sys
from pathlib import Path
from gptoss_local.base.settings import Settings
from gptoss_local.models.store import add_model
home, file = map(Path, sys.argv[1:])
add_model("mine", file, Settings(home=home))
"""


@pytest.mark.skipif(not OTHER_DISK.is_dir(), reason="needs another file system")
def test_weights_that_are_copied_for_hours(settings: Settings, parts: list[Path]) -> None:
    """A disk without links: the first file waits while the second one is copied."""
    settings.cache_dir.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=OTHER_DISK) as folder:
        there = [Path(shutil.copy(part, folder)) for part in parts]
        command = [sys.executable, "-c", MAKE, str(settings.home), str(there[0])]
        with FileLock(settings.cache_dir / "models.lock"):  # as on a slow disk
            process = subprocess.Popen(command)
            wait_until(lambda: list(settings.models_dir.glob("*.part")))
            found = find_garbage(settings, quiet_s=-1)
            assert [each for each in found if each.kind == "weights"] == []
            process.kill()
            process.wait()
        found = find_garbage(settings, quiet_s=-1)
        left = {each.path for each in found if each.kind == "weights"}
        assert left == set((settings.models_dir / "weights").iterdir())
        assert len(left) == len(parts)


def test_a_blob_goes_with_the_last_of_its_names(
    settings: Settings, tmp_path: Path, tiny: Path
) -> None:
    settings.models_dir.mkdir(parents=True)
    file = tmp_path / "arrived"
    file.write_bytes(tiny.read_bytes())
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    add_model("a", file, settings)
    blob = add_blob(file, f"sha256:{digest}", settings)
    add_model("b", blob, settings, ModelDefaults(system="x"))
    for name in ("a", "b"):
        assert known_sha256(find_model(name, settings).path or Path(), settings) == digest
    assert known_sha256(tiny, settings) is None
    delete_model("a", settings)
    assert find_blob(f"sha256:{digest}", settings) == blob
    delete_model("b", settings)
    assert [path for path in settings.models_dir.rglob("*") if path.is_file()] == []


def test_gc_removes_what_nobody_needs(settings: Settings, tiny: Path) -> None:
    folder = settings.models_dir
    add_model("plain", tiny, settings)
    add_model("brief", tiny, settings, ModelDefaults(system="x"))
    digest = [write_blob(data, settings) for data in (b"up", b"shared")][-1]
    (folder / "weights" / "1-linked.gguf").hardlink_to(find_blob(digest, settings))
    (folder / "x.1234.part").write_bytes(b"123")
    (folder / "weights" / "1-lost.gguf").write_bytes(b"12345")
    (folder / "m.gguf.download" / "m").mkdir(parents=True)
    (folder / "m.gguf.download" / "m" / "shard").write_bytes(b"1234567")
    (folder / "m.gguf.partial").write_bytes(b"1")
    # The others may be work in progress.
    assert {each.kind for each in find_garbage(settings)} == {"interrupted"}
    found = find_garbage(settings, quiet_s=-1)
    assert sorted((each.kind, each.size_bytes) for each in found) == [
        ("blob", 2),
        ("blob", 6),
        ("interrupted", 1),
        ("interrupted", 7),
        ("part", 3),
        ("weights", 0),  # as the blob has its bytes
        ("weights", 5),
    ]
    for each in found:
        each.remove()
    assert find_garbage(settings, quiet_s=-1) == []
    assert {entry.name for entry in list_models(settings)} == {"brief", "plain", "nano"}
    assert find_model("brief", settings).path is not None
    assert {path.name for path in folder.iterdir()} >= {"plain.gguf", "brief.json", "weights"}


@pytest.mark.quick
def test_weights_stay_that_an_unreadable_manifest_may_share(settings: Settings, tiny: Path) -> None:
    add_model("mine", tiny, settings, BRIEF)
    backup = settings.models_dir / "backup.json"
    backup.write_bytes((settings.models_dir / "mine.json").read_bytes())
    text = backup.read_bytes()
    backup.write_bytes(text[:-9])
    delete_model("mine", settings)
    backup.write_bytes(text)
    assert find_model("backup", settings).path is not None


@pytest.mark.quick
@pytest.mark.parametrize("is_link", [True, False])
def test_a_models_folder_that_is_none_is_named(tmp_path: Path, *, is_link: bool) -> None:
    settings = Settings(home=tmp_path)
    if is_link:
        settings.models_dir.symlink_to(tmp_path / "unmounted")
    else:
        settings.models_dir.write_text("")
    (error,) = unreadable_manifests(settings).values()
    assert str(settings.models_dir) in error.message
    assert ("unmounted, which is gone" in error.message) == is_link
    assert [entry.embedded for entry in list_models(settings)] == [True]
