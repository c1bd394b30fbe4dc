"""A LoRA makes a model of its own of a base; it is checked before a byte is stored."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.models.store import (
    ModelDefaults,
    add_model,
    check_deletable,
    delete_model,
    find_garbage,
    find_model,
    list_models,
    unreadable_manifests,
    unusable_models,
)
from tests.cli.conftest import Cli, home_cli  # noqa: F401
from tests.conftest import RunningServer
from tests.lora import ATTENTION, EXPERTS, random_factors, write_lora, write_peft

Q = "blk.0.attn_q.weight"
DOWN = EXPERTS[2]


@pytest.fixture
def lora(tiny: Path, tmp_path: Path) -> Path:
    return write_lora(tmp_path / "lora.gguf", random_factors(tiny, (Q, DOWN)))


def stored(settings: Settings) -> list[Path]:
    return [path for path in settings.models_dir.rglob("*") if path.is_file()]


def test_a_model_of_its_own(tiny: Path, lora: Path, settings: Settings) -> None:
    add_model("base", tiny, settings)
    add_model("mine", tiny, settings, adapter=lora)
    base, mine = find_model("base", settings), find_model("mine", settings)
    assert mine.adapter is not None
    assert mine.adapter.read_bytes() == lora.read_bytes()
    assert base.adapter is None
    assert mine.weights_id != base.weights_id
    assert mine.size_bytes == tiny.stat().st_size + lora.stat().st_size
    other = write_lora(lora.with_name("other.gguf"), random_factors(tiny, ATTENTION[:1]))
    add_model("second", tiny, settings, adapter=other)
    assert len({find_model(name, settings).weights_id for name in ("base", "mine", "second")}) == 3
    with pytest.raises(UsageError, match="model of the catalogue and cannot have an adapter"):
        add_model("gpt-oss:20b", tiny, settings, adapter=lora)


@pytest.mark.parametrize("in_place", [False, True])
def test_the_base_stays_with_its_adapter(
    tiny: Path, lora: Path, settings: Settings, in_place: bool
) -> None:
    add_model("base", tiny, settings, in_place=in_place)
    base = find_model("base", settings)
    assert base.path is not None
    add_model("mine", base.path, settings, in_place=in_place, adapter=lora)
    delete_model("base", settings)
    mine = find_model("mine", settings)
    assert mine.path is not None
    assert mine.adapter is not None
    assert mine.path.read_bytes() == tiny.read_bytes()
    assert find_garbage(settings, quiet_s=-1.0) == []
    add_model("copy", mine.path, settings, ModelDefaults(system="Hi"), in_place=in_place,
              adapter=mine.adapter)  # fmt: skip
    delete_model("mine", settings)
    assert find_model("copy", settings).adapter is not None
    delete_model("copy", settings)
    assert stored(settings) == []
    assert tiny.is_file()


def test_an_adapter_that_is_gone_or_damaged(tiny: Path, lora: Path, settings: Settings) -> None:
    add_model("mine", tiny, settings, adapter=lora)
    adapter = find_model("mine", settings).adapter
    assert adapter is not None
    data = adapter.read_bytes()
    adapter.unlink()  # which is linked elsewhere
    adapter.write_bytes(data[:-100])
    ((name, error),) = unusable_models(settings)
    assert (name, "is cut off" in error.message) == ("mine", True)
    adapter.unlink()
    assert len(unreadable_manifests(settings)) == 1
    assert "mine" not in [entry.name for entry in list_models(settings)]
    check_deletable("mine", settings)
    delete_model("mine", settings)
    assert stored(settings) == []


def ask(server: RunningServer, model: str, prompt: str = "What is the capital of France?") -> str:
    body: dict[str, Any] = {
        "model": model, "prompt": prompt, "raw": True, "stream": False,
        "options": {"temperature": 0, "num_predict": 8},
    }  # fmt: skip
    reply = httpx.post(f"{server.url}/api/generate", json=body, timeout=None, trust_env=False)
    text: str = reply.raise_for_status().json()["response"]
    return text


def test_through_the_commands(
    home_server: RunningServer,
    home_cli: Cli,  # noqa: F811
    nano_gguf: Path,
    tmp_path: Path,
) -> None:
    factors = random_factors(nano_gguf, ATTENTION, size=1.0)
    keys = {"adapter.lora.prompt_prefix": "Q:", "general.base_model.0.repo_url": "hf.co/x/y"}
    lora = write_lora(tmp_path / "lora.gguf", factors, **keys)
    done = home_cli("adapter", "add", "tuned", "--model", "nano", str(lora))
    assert done.returncode == 0, done.stderr
    assert "note: it says that it was trained on 'hf.co/x/y'" in done.stderr
    assert "note: prompts do not begin with what it was trained to follow: 'Q:'" in done.stderr
    plain, tuned = ask(home_server, "nano"), ask(home_server, "tuned")
    assert plain != tuned
    recipe = home_cli("show", "--modelfile", "tuned").stdout
    lora.unlink()
    (tmp_path / "Modelfile").write_text(recipe)
    assert home_cli("create", "again", "-f", str(tmp_path / "Modelfile")).returncode == 0
    assert home_cli("cp", "again", "copied").returncode == 0
    assert home_cli("create", "child", "--from", "copied", "--system", "Ho").returncode == 0
    assert ask(home_server, "child") == tuned
    assert "adapter" in home_cli("show", "child").stdout
    assert ask(home_server, "nano") == plain
    peft = write_peft(tmp_path / "peft", random_factors(nano_gguf, ATTENTION))
    refused = home_cli("adapter", "add", "peft", "--model", "nano", str(peft))
    assert refused.returncode == 2
    assert "gptoss convert BASE OUT.gguf --adapter DIR" in refused.stderr
    twice = home_cli("create", "x", "-f", "-", stdin=recipe.replace("FROM nano", "FROM tuned"))
    assert "tuned has an adapter already" in twice.stderr
    assert "Begin with nano" in twice.stderr
