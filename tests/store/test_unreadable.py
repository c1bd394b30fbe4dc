"""A manifest that cannot be read: every command says so, and none takes the weights it may need."""

import contextlib
import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from convert import convert_checkpoint
from gptoss_local.base.errors import GptOssError, ModelLoadError
from gptoss_local.base.settings import Settings
from gptoss_local.models.store import (
    BlobWriter,
    ModelDefaults,
    add_model,
    adopt_file,
    delete_model,
    find_blob,
    find_garbage,
    find_model,
    list_models,
    unreadable_manifests,
    unusable_models,
)
from tests.cli.conftest import fresh, run_cli  # noqa: F401
from tests.convert.tiny import write_tiny

BRIEF = ModelDefaults(system="Be brief.")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("parts")
    return convert_checkpoint(
        write_tiny(folder / "tiny"), folder / "m.gguf", max_shard_bytes=20_000
    )


@pytest.fixture
def settings(tmp_path: Path, tiny: Path, parts: list[Path]) -> Settings:
    """A model of each kind; the weights of `mine` and `large` are nowhere else."""
    made = Settings(home=tmp_path / "home")
    add_model("plain", tiny, made)
    add_model("mine", tiny, made, BRIEF)
    add_model("large", parts[0], made)
    adopt_file(tiny, made, "elsewhere")
    assert len(parts) > 1
    return made


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def misspelt_key(path: Path) -> None:
    path.write_text(path.read_text().replace('"weights"', '"wieghts"').replace('"file"', '"flie"'))


def misspelt_name(path: Path) -> None:
    path.write_text(path.read_text().replace(".gguf", "x.gguf"))


def outside(path: Path) -> None:
    path.write_text(path.read_text().replace('"weights":"', '"weights":"../weights/'))


def unspellable(path: Path) -> None:
    path.write_text(path.read_text().replace(".gguf", "\\u0000.gguf"))


def foreign(path: Path) -> None:
    path.write_text('{"name": "a page", "version": "1.0.0"}')


def newer(path: Path) -> None:
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({"version": 2, "layers": [fields.pop("weights", "")]}))


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("/nonexistent/there.json")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


FAULTS = [
    *(cut, misspelt_key, misspelt_name, outside, unspellable, foreign, newer),
    *(folder, dangling, pipe),
]


def kept(settings: Settings) -> dict[str, bytes]:
    """Weights and blobs, by their paths."""
    files = [p for name in ("weights", "blobs") for p in (settings.models_dir / name).glob("*")]
    return {str(path): path.read_bytes() for path in files}


def add_old_blob(settings: Settings, data: bytes) -> Path:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    with BlobWriter(digest, settings) as blob:
        blob.write(data)
        blob.finish()
    os.utime(find_blob(digest, settings), (0, 0))
    return find_blob(digest, settings)


def make_all_old(settings: Settings) -> None:
    for path in settings.models_dir.rglob("*"):
        with contextlib.suppress(OSError):
            os.utime(path, (0, 0), follow_symlinks=False)


@pytest.mark.parametrize("break_it", FAULTS)
@pytest.mark.parametrize("name", ["mine", "large"])
def test_no_weights_go_while_a_manifest_cannot_be_read(
    settings: Settings, tiny: Path, break_it: Callable[[Path], None], name: str
) -> None:
    path = settings.models_dir / f"{name}.json"
    add_model("other", tiny, settings, BRIEF)
    add_old_blob(settings, b"of a model, perhaps")
    their_own = set(kept(settings))
    before = kept(settings)
    break_it(path)
    make_all_old(settings)

    (error,) = unreadable_manifests(settings).values()
    assert str(path) in error.message
    assert isinstance(error, ModelLoadError)
    assert f"gptoss rm {name}" in error.hint or break_it is newer
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
    gone = their_own - left.keys()
    assert len(gone) == 1, "the weights of `other`, which was deleted"
    assert before.items() - {(each, before[each]) for each in gone} <= left.items()
    for each in find_garbage(settings, quiet_s=-1):
        each.remove()
    assert kept(settings) == left


def test_a_restored_manifest_has_its_weights_and_a_deleted_one_leaves_them_to_gc(
    settings: Settings, tiny: Path
) -> None:
    path = settings.models_dir / "mine.json"
    text = path.read_bytes()
    cut(path)
    assert find_garbage(settings, quiet_s=-1) == []
    path.write_bytes(text)
    assert find_model("mine", settings).defaults == BRIEF
    cut(path)
    before = kept(settings)
    delete_model("mine", settings)
    assert unreadable_manifests(settings) == {}
    assert kept(settings) == before, "another command takes nothing, either"
    (found,) = find_garbage(settings, quiet_s=-1)
    assert found.kind == "weights"


def test_all_commands_say_it(fresh: dict[str, str], nano_gguf: Path, tiny: Path) -> None:  # noqa: F811
    settings = Settings(home=Path(fresh["GPTOSS_HOME"]))
    add_model("plain", nano_gguf, settings)
    add_model("other", nano_gguf, settings, BRIEF)
    paths = {fault.__name__: settings.models_dir / f"{fault.__name__}.json" for fault in FAULTS}
    for fault in FAULTS:
        add_model(fault.__name__, tiny, settings, BRIEF)
        fault(paths[fault.__name__])
    make_all_old(settings)
    before = kept(settings)

    def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = run_cli(fresh, *arguments)
        assert done.returncode == code, (arguments, done.stderr)
        assert before.items() <= kept(settings).items(), arguments
        return done

    for arguments, code in (
        (("ls",), 0),
        (("gc",), 10),
        (("gc", "--interrupted", "--dry-run"), 10),
        (("verify", "--all"), 11),
        (("create", "new", "--from", "plain", "--system", "x"), 0),
        (("cp", "plain", "second"), 0),
        (("rm", "-y", "second"), 0),
        (("pull", "nano"), 0),
        (("import", str(nano_gguf), "adopted"), 0),
    ):
        said = run(*arguments, code=code).stderr
        assert [path for path in paths.values() if str(path) not in said] == [], arguments
    findings = json.loads(run("doctor", "--json", code=1).stdout)["findings"]
    problems = {each["name"] for each in findings if each["level"] == "problem"}
    assert {f"model {name}" for name in paths} <= problems
    listed = json.loads(run("ls", "--json").stdout)
    assert {each["path"] for each in listed["unreadable"]} == set(map(str, paths.values()))
    assert {"plain", "other", "new"} <= {each["name"] for each in listed["models"]}
    assert json.loads(run("gc", "--json", code=10).stdout)["unreadable"] == listed["unreadable"]
    assert set(json.loads(run("verify", "--all", "--json", code=11).stdout)["damaged"]) == set(
        paths
    )
    run("show", "cut", code=10)
    run("show", "other")

    url = f"http://127.0.0.1:{fresh['GPTOSS_PORT']}"
    models = httpx.get(f"{url}/api/tags", trust_env=False).json()["models"]
    assert {"plain", "other", "new"} <= {each["name"] for each in models}
    deleted = httpx.request("DELETE", f"{url}/api/delete", json={"model": "new"}, trust_env=False)
    assert deleted.is_success
    assert before == kept(settings)
    log = settings.server_log.read_text()
    assert [path for path in paths.values() if str(path) not in log] == []
