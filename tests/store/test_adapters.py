"""A LoRA makes a model of its own of a base; it is checked before a byte is stored."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
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
from tests.cli.conftest import Cli, home_cli, run_cli  # noqa: F401
from tests.conftest import RunningServer, run_server
from tests.lora import ATTENTION, EXPERTS, Factors, random_factors, write_lora, write_peft

Q = "blk.0.attn_q.weight"
DOWN = EXPERTS[2]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home")


@pytest.fixture
def lora(tiny: Path, tmp_path: Path) -> Path:
    return write_lora(tmp_path / "lora.gguf", random_factors(tiny, (Q, DOWN)))


def stored(settings: Settings) -> list[Path]:
    return [path for path in settings.models_dir.rglob("*") if path.is_file()]


def cut(path: Path, factors: Factors) -> None:
    write_lora(path, factors)
    path.write_bytes(path.read_bytes()[:-8])


def alone(path: Path, factors: Factors) -> None:
    write_lora(path, factors)
    path.write_bytes(path.read_bytes().replace(b".lora_b", b".lora_c", 1))


def other_experts(path: Path, factors: Factors) -> None:
    a, b = factors[DOWN]
    write_lora(path, {DOWN: (a[:-1], b[:-1])})


def exchanged(path: Path, factors: Factors) -> None:
    a, b = factors[Q]
    write_lora(path, {Q: (np.ascontiguousarray(a.T), np.ascontiguousarray(b.T))})


def with_keys(**keys: Any) -> Callable[[Path, Factors], object]:
    return lambda path, factors: write_lora(path, factors, **keys)


def renamed(name: str) -> Callable[[Path, Factors], object]:
    return lambda path, factors: write_lora(path, {name: factors[Q]})


REFUSED: dict[str, tuple[Callable[[Path, Factors], object], str]] = {
    "model": (with_keys(**{"general.type": "model"}), "is not a LoRA adapter"),
    "vector": (with_keys(**{"adapter.type": "control_vector"}), "is not a LoRA adapter"),
    "other arch": (with_keys(arch="llama"), "is of 'llama'"),
    "no alpha": (with_keys(**{"adapter.lora.alpha": None}), "the alpha None"),
    "zero alpha": (with_keys(**{"adapter.lora.alpha": 0.0}), "the alpha 0"),
    "odd alpha": (with_keys(**{"adapter.lora.alpha": math.nan}), "the alpha nan"),
    "cut off": (cut, "is cut off"),
    "one factor": (alone, r"factors of \(4, 64\) and \(\)"),
    "other layer": (renamed("blk.9.attn_q.weight"), "which the model does not have"),
    "norm": (renamed("blk.0.attn_norm.weight"), "which llama.cpp does not apply"),
    "other sizes": (renamed("blk.0.attn_k.weight"), "has factors of"),
    "experts": (other_experts, "has factors of"),
    "transposed": (exchanged, "has factors of"),
    "empty": (lambda path, _: write_lora(path, {}), "holds no tensors"),
    "text": (lambda path, _: path.write_text("hi"), "is not a GGUF adapter"),
    "folder": (lambda path, _: path.mkdir(), "is not a GGUF adapter"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(tiny: Path, tmp_path: Path, settings: Settings, name: str) -> None:
    write, match = REFUSED[name]
    path = tmp_path / "lora.gguf"
    write(path, random_factors(tiny, (Q, DOWN)))
    with pytest.raises(UsageError, match=match):
        add_model("mine", tiny, settings, adapter=path)
    assert stored(settings) == []


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
    adapter.unlink()
    adapter.write_bytes(data[:-100])
    assert [(name, "is cut off" in error.message) for name, error in unusable_models(settings)] == [
        ("mine", True)
    ]
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
    lora = write_lora(tmp_path / "lora.gguf", random_factors(nano_gguf, ATTENTION, size=1.0))
    done = home_cli("adapter", "add", "tuned", "--model", "nano", str(lora))
    assert done.returncode == 0, done.stderr
    plain = ask(home_server, "nano")
    tuned = ask(home_server, "tuned")
    assert plain != tuned
    (tmp_path / "Modelfile").write_text("FROM nano\nADAPTER ./lora.gguf\nSYSTEM Hi\n")
    assert home_cli("create", "same", "-f", str(tmp_path / "Modelfile")).returncode == 0
    assert ask(home_server, "same") == tuned
    recipe = home_cli("show", "--modelfile", "same").stdout
    lora.unlink()
    (tmp_path / "Modelfile").write_text(recipe)
    assert home_cli("create", "again", "-f", str(tmp_path / "Modelfile")).returncode == 0
    assert home_cli("cp", "again", "copied").returncode == 0
    assert home_cli("create", "child", "--from", "copied", "--system", "Ho").returncode == 0
    for name in ("again", "copied", "child"):
        assert ask(home_server, name) == tuned
        assert "adapter" in home_cli("show", name).stdout
    assert ask(home_server, "nano") == plain
    peft = write_peft(tmp_path / "peft", random_factors(nano_gguf, ATTENTION))
    refused = home_cli("adapter", "add", "peft", "--model", "nano", str(peft))
    assert refused.returncode == 2
    assert "gptoss convert BASE OUT.gguf --adapter DIR" in refused.stderr
    twice = home_cli("create", "x", "-f", "-", stdin=recipe.replace("FROM nano", "FROM tuned"))
    assert "tuned has an adapter already" in twice.stderr
    assert "Begin with nano" in twice.stderr
    assert home_cli("verify", "--all", "--quiet").returncode == 0


def test_saved_prefixes_are_of_one_model(empty_home: Path, nano_gguf: Path, tmp_path: Path) -> None:
    lora = write_lora(tmp_path / "lora.gguf", random_factors(nano_gguf, ATTENTION, size=1.0))
    saves = {"prefix_disk_bytes": str(2**30), "prefix_save_s": "1000"}  # as the server stops
    prompt = "The river is quiet near the old house. " * 60
    for reads in ("nano", "tuned"):
        with run_server(empty_home, **saves) as server:
            run_cli(server.environment, "adapter", "add", "tuned", "--model", "nano", str(lora))
            if reads == "nano":
                plain = ask(server, "nano", prompt)
            else:  # its base has saved the same prompt
                tuned = ask(server, "tuned", prompt)
                assert tuned == ask(server, "tuned", prompt)
    assert tuned != plain
    assert len(list((empty_home / "cache" / "prefixes").glob("*/*.prefix"))) == 2
