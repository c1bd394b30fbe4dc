"""Files that a later version of gptoss wrote: each is named, with its version, and stays as it is.

Settings, presets, keys and models.toml have no version, as people write them: a name that is not
known is refused there. What is only a cache has a place for each version.
"""

import json
import os
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convert.journal import Journal, journal_path
from gptoss_local.api_keys import add_key, read_keys
from gptoss_local.engine.worker.cache import prefix_store
from gptoss_local.engine.worker.cache.prefix_store import PrefixStore
from gptoss_local.errors import (
    ConvertError,
    GptOssError,
    NewerModelError,
    UsageError,
)
from gptoss_local.machine.plan import measured
from gptoss_local.models.catalog import check_models_file
from gptoss_local.models.store import (
    ModelDefaults,
    add_model,
    delete_model,
    find_garbage,
    find_model,
    list_models,
    unusable_models,
)
from gptoss_local.models.store.blobs import remove_unused
from gptoss_local.settings import Settings, config_path, load_settings
from gptoss_local.talk.history import History
from gptoss_local.talk.presets import Preset, presets_path, save_preset
from gptoss_local.talk.tools.consent import Consents
from gptoss_local.talk.tools.tool import RunnableTool
from tests.cli.conftest import run_cli
from tests.plan.machines import machine

BRIEF = ModelDefaults(system="Be brief.")


@pytest.fixture
def config_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    config_path().parent.mkdir(parents=True)
    return config_path().parent


def refuses(
    kind: type[GptOssError], path: Path, version: int, use: Callable[[], object]
) -> GptOssError:
    """Check that a use names the file and its version, and changes nothing."""
    before = {each: each.read_bytes() for each in path.parent.iterdir() if each.is_file()}
    with pytest.raises(kind) as caught:
        use()
    assert {e: e.read_bytes() for e in path.parent.iterdir() if e.is_file()} == before
    assert f"{path} was written by a newer gptoss (version {version} of" in caught.value.message
    assert caught.value.hint.startswith("Update gptoss")
    return caught.value


def test_an_exported_chat(history: History) -> None:
    text = json.dumps({"format": "gptoss-chat", "version": 2, "conversation": {}})
    with pytest.raises(UsageError, match=r"newer gptoss \(version 2 of the file, this one knows 1"):
        history.import_json(text)
    assert history.chats() == []


@pytest.fixture
def from_the_future(tmp_path: Path, nano_gguf: Path) -> tuple[Settings, Path]:
    """A model whose manifest has weights in a field that nobody knows yet."""
    settings = Settings(home=tmp_path / "home")
    add_model("mine", nano_gguf, settings, BRIEF)
    path = settings.models_dir / "mine.json"
    fields = json.loads(path.read_bytes())
    assert "version" not in fields, "the first version is what a file without one has"
    fields |= {"version": 99, "layers_of_weights": [fields.pop("weights")]}
    path.write_text(json.dumps(fields))
    return settings, path


def test_a_manifest(from_the_future: tuple[Settings, Path], nano_gguf: Path) -> None:
    settings, path = from_the_future
    refuses(NewerModelError, path, 99, lambda: find_model("mine", settings))
    refuses(NewerModelError, path, 99, lambda: add_model("mine", nano_gguf, settings))
    refuses(NewerModelError, path, 99, lambda: add_model("mine", nano_gguf, settings, BRIEF))
    assert [name for name, _ in unusable_models(settings)] == ["mine"]
    add_model("other", nano_gguf, settings, BRIEF)
    assert [entry.name for entry in list_models(settings)][:1] == ["other"]


def test_weights_of_an_unknown_manifest_stay(from_the_future: tuple[Settings, Path]) -> None:
    """It is not known which it needs; once the user has deleted it, they are left over."""
    settings, path = from_the_future
    (weights,) = (settings.models_dir / "weights").iterdir()
    blob = settings.models_dir / "blobs" / f"sha256-{'0' * 64}"
    blob.parent.mkdir()
    blob.write_bytes(b"of a model, perhaps")
    os.utime(blob, (0, 0))
    for _ in range(2):
        assert find_garbage(settings, quiet_s=-1) == []
        remove_unused(settings)
        assert weights.is_file()
        assert blob.is_file()
    delete_model("mine", settings)
    assert not path.exists()
    assert {each.path for each in find_garbage(settings, quiet_s=-1)} >= {weights}


def test_ls_says_what_it_cannot_read(from_the_future: tuple[Settings, Path]) -> None:
    settings, path = from_the_future
    done = run_cli(os.environ | {"GPTOSS_HOME": str(settings.home)}, "ls")
    assert done.returncode == 0
    assert "mine" not in done.stdout
    assert f"gptoss: {path} was written by a newer gptoss" in done.stderr
    done = run_cli(os.environ | {"GPTOSS_HOME": str(settings.home)}, "run", "mine", "hi")
    assert done.returncode == 10
    assert f"{path} was written by a newer gptoss" in done.stderr


def test_an_interrupted_conversion(tmp_path: Path) -> None:
    target = tmp_path / "model.gguf"
    path = journal_path(target)
    path.write_text('{"type":"blueprint","format":7,"pieces":[]}\n')
    refuses(ConvertError, path, 7, lambda: Journal(target))


def test_permissions(tmp_path: Path) -> None:
    async def run(_: dict[str, Any]) -> str:
        return ""

    path = tmp_path / "allowed-tools.json"
    path.write_text('{"version": 3, "allowed": {"a": {"b": {"until": 1}}}}')
    consents = Consents(path)
    tool = RunnableTool("b", "", {}, run, "does nothing", "a")
    assert not consents.has(tool), "so it is asked again"
    refuses(UsageError, path, 3, lambda: consents.add(tool))
    refuses(UsageError, path, 3, lambda: consents.forget("a"))


def test_measurements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "_VERSION", 99)
    theirs = measured.measured_path(tmp_path, "weights", machine())
    measured.write_measured(theirs, measured.Measured(version=99))
    before = theirs.read_bytes()
    monkeypatch.undo()
    ours = measured.measured_path(tmp_path, "weights", machine())
    assert measured.read_measured(ours) == measured.Measured()
    measured.write_measured(ours, measured.Measured(tuning_failed=True))
    assert theirs.read_bytes() == before


def test_prefixes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, state = array("i", range(300)), np.arange(64, dtype=np.uint8)
    monkeypatch.setattr(prefix_store, "_MAGIC", b"gptoss prefix 99\n")
    PrefixStore(tmp_path, "key", 1 << 20).write(tokens, 1, state, [])
    (theirs,) = tmp_path.rglob("*.prefix")
    before = theirs.read_bytes()
    monkeypatch.undo()
    store = PrefixStore(tmp_path, "key", 1 << 20)
    assert store.find(tokens, 300) == (None, 0)
    store.write(tokens, 1, state, [])
    assert PrefixStore(tmp_path, "key", 1 << 20).find(tokens, 300)[1] == 300
    assert theirs.read_bytes() == before


def test_what_people_edit(config_home: Path) -> None:
    """The name that is not known is said with its file, and nothing is written over it."""
    later = int(time.time())
    texts: dict[Path, tuple[str, Callable[[], object]]] = {
        config_path(): (f"from_{later} = 1\n", load_settings),
        presets_path(): (
            f"[a]\nfrom_{later} = 1\n",
            lambda: save_preset("b", Preset(system="b")),
        ),
        config_home / "models.toml": (
            f'[[model]]\nname = "a"\nfile = "a.gguf"\nfrom_{later} = 1\n',
            lambda: check_models_file(config_home / "models.toml"),
        ),
        config_home / "keys.toml": (
            f'[[keys]]\nname = "a"\nsha256 = "{"0" * 64}"\nfrom_{later} = 1\n',
            lambda: add_key(config_home / "keys.toml", "b"),
        ),
    }
    for path, (text, use) in texts.items():
        path.write_text(text)
        with pytest.raises(UsageError) as caught:
            use()
        assert str(path) in caught.value.message
        assert f"from_{later}" in caught.value.message
        assert path.read_text() == text
        path.unlink()
    with pytest.raises(UsageError):
        read_keys(config_home / "keys.toml")
