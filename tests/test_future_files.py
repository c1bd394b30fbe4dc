"""Files that a later version of gptoss wrote: each is named, with its version, and stays as it is.

Settings, presets, keys and models.toml have no version, as people write them: a name that is not
known is refused there. A cache has a place for each version.
"""

import json
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convert.journal import Journal, journal_path
from gptoss_local.engine.worker.cache import prefix_store
from gptoss_local.engine.worker.cache.prefix_store import PrefixStore
from gptoss_local.errors import (
    ConvertError,
    GptOssError,
    NewerModelError,
    UsageError,
)
from gptoss_local.machine.plan import measured
from gptoss_local.models.store import (
    ModelDefaults,
    add_model,
    find_model,
    list_models,
    unusable_models,
)
from gptoss_local.settings import Settings, config_path
from gptoss_local.talk.history import History
from gptoss_local.talk.tools.consent import Consents
from gptoss_local.talk.tools.tool import RunnableTool
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
    """A model with its weights in a field of the manifest that this version does not know."""
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
