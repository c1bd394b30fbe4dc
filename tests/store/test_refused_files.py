"""A file that could not be loaded is refused, in words of its own, before a byte is stored."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from gptoss_local.base.errors import ModelLoadError, ModelNotFoundError, UsageError
from gptoss_local.base.formats.o200k import TYPES_KEY
from gptoss_local.base.settings import Settings
from gptoss_local.engine.llama import Model
from gptoss_local.models.store import add_model, adopt_file, list_models, look_at_file, read_info
from tests.convert.gguf_file import Tensor, read_gguf
from tests.convert.write_gguf import without_sums, write_gguf
from tests.lora import EXPERTS, Factors, random_factors, write_lora
from tests.store.gguf_parts import as_ollama_wrote_it

Q = "blk.0.attn_q.weight"
DOWN = EXPERTS[2]


def stored(settings: Settings) -> list[Path]:
    return [path for path in settings.models_dir.rglob("*") if path.is_file()]


MODELS: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "cut off": (lambda tiny, path: path.write_bytes(tiny.read_bytes()[:-5000]),
                "is cut off: it has [0-9,]+ bytes of [0-9,]+"),
    "an adapter": (lambda tiny, path: write_gguf(path, {"general.type": ("STRING", "adapter")}, {}),
                   "is a LoRA adapter, and not a model"),
    "a part with another name": (
        lambda tiny, path: write_gguf(
            path,
            read_gguf(tiny).keys | {"split.count": ("UINT16", 3), "split.no": ("UINT16", 0)},
            read_gguf(tiny).tensors,
        ),
        "is one of the 3 parts of a model",
    ),
    "the second part, named as the first": (
        lambda tiny, path: write_gguf(
            path, {"split.count": ("UINT16", 2), "split.no": ("UINT16", 1)}, {}
        ),
        "is one of the 2 parts of a model",
    ),
    "of Ollama": (as_ollama_wrote_it, "Ollama's own layout"),
}  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("name", MODELS)
def test_models(tiny: Path, tmp_path: Path, settings: Settings, name: str) -> None:
    write, match = MODELS[name]
    path = tmp_path / "model.gguf"
    write(tiny, path)
    for use in (
        lambda: adopt_file(path, settings),
        lambda: add_model("mine", path, settings),
        lambda: look_at_file(path, settings),
    ):
        with pytest.raises(UsageError, match=match) as caught:
            use()
        assert caught.value.hint
    assert [entry.name for entry in list_models(settings)] == ["nano"]


FAULTS: dict[str, tuple[dict[str, tuple[str, Any]], set[str], str]] = {
    "pre-tokenizer": (
        {"tokenizer.ggml.pre": ("STRING", "gpt-4ö")}, set(), "pre is gpt-4ö where gpt-oss needs"),
    "types": ({TYPES_KEY: ("ARRAY/UINT8", [1] * 24)}, set(), "of another type than llama"),
    "number": ({"gpt-oss.rope.freq_base": ("FLOAT64", 1e5)}, set(), "freq_base is not of type"),
    "alignment": ({"general.alignment": ("UINT64", 32)}, set(), "alignment is 32; llama.cpp needs"),
    "no bias": ({}, {"blk.0.attn_k.bias"}, "the first is blk.0.attn_k.bias"),
    "no layer": ({"gpt-oss.block_count": ("UINT32", 2)}, set(), "19 tensors are missing"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_what_llama_cpp_would_refuse_or_compute_otherwise(
    tiny: Path, tmp_path: Path, settings: Settings, name: str
) -> None:
    keys, without, match = FAULTS[name]
    file, path = read_gguf(tiny), tmp_path / "model.gguf"
    tensors = {name: tensor for name, tensor in file.tensors.items() if name not in without}
    write_gguf(path, file.keys | keys, tensors)
    with pytest.raises(UsageError, match=match) as caught:
        adopt_file(path, settings)
    assert "gptoss verify" in caught.value.hint


@pytest.mark.parametrize("is_whole", [True, False])
def test_tensors_as_others_lay_them_out(
    tiny: Path, tmp_path: Path, settings: Settings, *, is_whole: bool
) -> None:
    """Q, K and V in one tensor, and the scales of NVFP4: llama.cpp loads both."""
    file, path, tensors = read_gguf(tiny), tmp_path / "model.gguf", {}
    for kind, qtype in (("weight", GGMLQuantizationType.Q8_0), ("bias", GGMLQuantizationType.F32)):
        parts = [file.tensors.pop(f"blk.0.attn_{each}.{kind}") for each in "qkv"]
        shape = (sum(part.shape[0] for part in parts) - (not is_whole), *parts[0].shape[1:])
        data = np.concatenate([part.data for part in parts])
        data = data[: len(data) * shape[0] // (shape[0] + (not is_whole))]
        tensors[f"blk.0.attn_qkv.{kind}"] = Tensor(qtype, shape, data)
    ones = np.ones(5, np.float32).view(np.uint8)
    tensors["blk.0.ffn_up_exps.scale"] = Tensor(GGMLQuantizationType.F32, (5,), ones)
    write_gguf(path, without_sums(file), file.tensors | tensors)
    if is_whole:
        assert adopt_file(path, settings).path == path
        Model(path).close()
    else:
        with pytest.raises(UsageError, match=r"attn_qkv.weight is \[64, 159\] where .* 160"):
            adopt_file(path, settings)


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "`git lfs pull` fetches"),
        (b"\n<html><head>", "is a web page"),
        (b"GGML" + bytes(90), "Convert or fetch it again"),
    ],
)
def test_what_came_instead(tmp_path: Path, settings: Settings, content: bytes, hint: str) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(UsageError, match="not in GGUF format") as caught:
        adopt_file(tmp_path / "m.gguf", settings)
    assert hint in caught.value.hint
    with pytest.raises(ModelNotFoundError, match="there is no file") as missing:
        adopt_file(tmp_path / "m-00002-of-00002.gguf", settings)
    assert "in one folder" in missing.value.hint


def test_files_like_nanos(nano_gguf: Path, tmp_path: Path, settings: Settings) -> None:
    path, data = tmp_path / "m.gguf", nano_gguf.read_bytes()
    length = b"\x05\0\0\0\0\0\0\0"
    old, new = (length + f"\u0120 {letter}".encode() for letter in "tu")
    path.write_bytes(data.replace(old, new, 1))
    with pytest.raises(UsageError, match="not a valid gpt-oss: The merges differ"):
        adopt_file(path, settings)
    path.write_bytes(data.replace(b"blk.0.ffn_up_exps.weight", b"blk.0.ffn_xx_exps.weight", 1))
    with pytest.raises(UsageError, match=r"gpt-oss has no tensor blk\.0\.ffn_xx_exps"):
        adopt_file(path, settings)
    as_ollama_wrote_it(nano_gguf, path)
    with pytest.raises(ModelLoadError, match="unknown model architecture: 'gptoss'"):
        Model(path)  # else it could be taken
    for n_bytes in (0, 3, 20, 200, 5000, 400_000):
        path.write_bytes(data[:n_bytes])
        with pytest.raises(ModelLoadError, match=r"m\.gguf"):
            read_info(path)


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


ADAPTERS: dict[str, tuple[Callable[[Path, Factors], object], str]] = {
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


@pytest.mark.quick
@pytest.mark.parametrize("name", ADAPTERS)
def test_adapters(tiny: Path, tmp_path: Path, settings: Settings, name: str) -> None:
    write, match = ADAPTERS[name]
    path = tmp_path / "lora.gguf"
    write(path, random_factors(tiny, (Q, DOWN)))
    with pytest.raises(UsageError, match=match):
        add_model("mine", tiny, settings, adapter=path)
    assert stored(settings) == []
