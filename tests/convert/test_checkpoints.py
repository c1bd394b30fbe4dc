"""Checkpoints in the wild: converted, or refused with their kind and a way out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from convert import convert_checkpoint
from convert.tensor_types import dequantize, widen_bf16
from convert.verify import verify_model
from tests.convert.gguf_file import GgufFile, read_gguf
from tests.convert.tiny import (
    Tensors,
    refuse,
    tiny_config,
    tiny_tensors,
    write_json,
    write_safetensors,
    write_sharded,
    write_tiny,
)

EXPERTS = "model.layers.0.mlp.experts"
GATE_UP, DOWN = f"{EXPERTS}.gate_up_proj", f"{EXPERTS}.down_proj"


def convert(folder: Path, **options: Any) -> tuple[GgufFile, list[str]]:
    """Convert, and check the result against its checkpoint; returns it with the notes."""
    notes: list[str] = []
    target = folder.with_name(f"{folder.name}.gguf")
    convert_checkpoint(folder, target, on_note=notes.append, **options)
    report = verify_model(target, against=folder)
    assert report.is_proven, report.findings
    assert {tensor.match for tensor in report.tensors} <= {"equal"}
    return read_gguf(target), notes


def same(ours: GgufFile, theirs: GgufFile) -> bool:
    """Whether two files hold the same tensors, byte by byte."""
    return ours.tensors.keys() == theirs.tensors.keys() and all(
        ours.tensors[name].data.tobytes() == tensor.data.tobytes()
        for name, tensor in theirs.tensors.items()
    )


def widened(tensors: Tensors, dtype: str) -> Tensors:
    """The same values in another dtype; they are chosen to fit."""
    kind = {"F32": np.float32, "F16": np.float16}[dtype]
    return {
        name: (dtype, widen_bf16(values).astype(kind)) if held == "BF16" else (held, values)
        for name, (held, values) in tensors.items()
    }


@pytest.fixture
def published(tmp_path: Path) -> GgufFile:
    return convert(write_tiny(tmp_path / "published"))[0]


@pytest.mark.parametrize("dtype", ["F32", "F16"])
@pytest.mark.parametrize(("dense", "experts"), [("q8_0", "bf16"), ("bf16", "mxfp4")])
def test_other_floats(tmp_path: Path, dtype: str, dense: str, experts: Any) -> None:
    """The same values give the same file, no matter how they were stored."""
    tensors = tiny_tensors(experts=experts)
    expected, _ = convert(write_tiny(tmp_path / "bf16", tensors=tensors), dense=dense)
    other = write_tiny(tmp_path / "other", tensors=widened(tensors, dtype))
    file, notes = convert(other, dense=dense)
    assert same(file, expected)
    assert file.tensors["blk.0.ffn_up_exps.weight"].qtype == GGMLQuantizationType.MXFP4
    rounded = f"6 tensors are {dtype} in the checkpoint and become BF16; values that do not fit"
    assert [note[: len(rounded)] for note in notes if "experts" not in note] == (
        [rounded] if dense == "bf16" else []
    )


def test_rounded_experts_are_counted(tmp_path: Path) -> None:
    """Values that were MXFP4 before do not change."""
    tensors = tiny_tensors(experts="bf16")
    published = tiny_tensors()
    for name in ("gate_up_proj", "down_proj"):
        experts = f"model.layers.0.mlp.experts.{name}"
        blocks, scales = (published[f"{experts}_{part}"][1] for part in ("blocks", "scales"))
        values = dequantize(blocks, scales).swapaxes(1, 2)
        tensors[experts] = ("F32", np.ascontiguousarray(values))
    _, notes = convert(write_tiny(tmp_path / "plain", tensors=tensors))
    assert notes == ["none of 30,720 values of the experts changed as they became MXFP4"]
    down = tensors["model.layers.0.mlp.experts.down_proj"][1]
    down += np.float32(2**-9) * (down == down[0, 0, 0])
    n_changed = (down == down[0, 0, 0]).sum()
    _, (note,) = convert(write_tiny(tmp_path / "tuned", tensors=tensors))
    assert note.startswith(f"{n_changed:,} of 30,720 values of the experts changed")
    assert note.endswith("--experts bf16 keeps them")
    assert convert(tmp_path / "tuned", experts="bf16")[1] == [
        "3 tensors are F32 in the checkpoint and become BF16; values that do not fit are rounded"
    ]


@pytest.mark.parametrize("held", ["model.embed_tokens.weight", "lm_head.weight"])
def test_tied_head(tmp_path: Path, published: GgufFile, held: str) -> None:
    """llama.cpp needs two tensors."""
    tensors, config = tiny_tensors(), tiny_config(tie_word_embeddings=True)
    both, notes = convert(write_tiny(tmp_path / "both", config=config, tensors=tensors))
    assert same(both, published)
    assert ["has both; each is used as it is" in note for note in notes] == [True]
    other = ({"model.embed_tokens.weight", "lm_head.weight"} - {held}).pop()
    del tensors[other]
    file, _ = convert(write_tiny(tmp_path / "tied", config=config, tensors=tensors))
    embedding, head = (file.tensors[f"{name}.weight"] for name in ("token_embd", "output"))
    assert embedding.data.tobytes() == head.data.tobytes()
    refuse(write_tiny(tmp_path / "untied", tensors=tensors), f"lacks the tensor {other}")


@pytest.mark.parametrize(
    "pattern", ["model-{:05d}-of-{:05d}", "pytorch_model-{:05d}-of-{:05d}", "tune-{:02d}-of-{:02d}"]
)
@pytest.mark.parametrize("n_shards", [1, 3])
def test_shards_without_an_index(
    tmp_path: Path, published: GgufFile, pattern: str, n_shards: int
) -> None:
    folder = write_tiny(tmp_path / "tiny")
    (folder / "model.safetensors").unlink()
    write_sharded(folder, tiny_tensors(), n_shards, pattern=pattern)
    (folder / "model.safetensors.index.json").unlink()
    assert same(convert(folder)[0], published)
    if n_shards > 1:
        min(folder.glob("*-of-*")).unlink()
        refuse(folder, "The shard .*1-of-.*3.safetensors is missing")
        return
    next(folder.glob("*.safetensors")).rename(folder / "my tune.safetensors")
    assert same(convert(folder)[0], published)
    write_safetensors(folder / "other.safetensors", {})
    refuse(folder, "holds 2 safetensors files and no model.safetensors.index.json")


PREFIXES: dict[str, Callable[[str], str]] = {
    "torch.compile": lambda name: f"_orig_mod.{name}",
    "DataParallel": lambda name: f"module.{name}",
    "PEFT": lambda name: f"base_model.model.{name}",
    "several": lambda name: f"module._orig_mod.{name}",
    "FSDP, inside": lambda name: name.replace("layers.0.", "layers.0._fsdp_wrapped_module."),
    "router as a linear layer": lambda name: name.replace("mlp.router.", "mlp.router.linear."),
}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_names_as_training_leaves_them(tmp_path: Path, published: GgufFile, prefix: str) -> None:
    tensors = {PREFIXES[prefix](name): each for name, each in tiny_tensors().items()}
    folder = write_tiny(tmp_path / "tiny", tensors=tensors, n_shards=3)
    assert same(convert(folder)[0], published)


@pytest.mark.parametrize("is_fused", [True, False])
@pytest.mark.parametrize("kept", ["mxfp4", "bf16"])
def test_a_linear_layer_per_expert(tmp_path: Path, is_fused: bool, kept: Any) -> None:
    """As Unsloth, TRL and others split experts to train them: output rows first."""
    tensors = tiny_tensors(experts="bf16")
    folder = write_tiny(tmp_path / "whole", tensors=tensors)
    expected, _ = convert(folder, experts=kept)
    for part, source in (("gate_up", GATE_UP), ("down", DOWN)):
        weights, biases = tensors.pop(source)[1], tensors.pop(f"{source}_bias")[1]
        for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            for kind, values in (("weight", weight.T), ("bias", bias)):
                if part == "gate_up" and not is_fused:
                    tensors[f"{EXPERTS}.{i}.gate_proj.{kind}"] = ("BF16", values[0::2])
                    tensors[f"{EXPERTS}.{i}.up_proj.{kind}"] = ("BF16", values[1::2])
                else:
                    tensors[f"{EXPERTS}.{part}_projs.{i}.{kind}"] = ("BF16", values)
    tensors = {name: (dtype, np.ascontiguousarray(v)) for name, (dtype, v) in tensors.items()}
    for n_shards in (1, 4):
        split = write_tiny(tmp_path / f"split-{n_shards}", tensors=tensors, n_shards=n_shards)
        assert same(convert(split, experts=kept)[0], expected)
    del tensors[f"{EXPERTS}.down_projs.3.weight"]
    refuse(write_tiny(tmp_path / "broken", tensors=tensors), r"lacks the tensor .*down_projs\.3")


CARDS = {
    "license: [apache-2.0, mit]": ("general.license", "apache-2.0, mit"),
    "version: 1.0": ("general.version", "1.0"),
    "tags: [gpt-oss, 2025]": ("general.tags", ["gpt-oss", "2025"]),
    "language: [en, no]": ("general.languages", ["en", "no"]),
    "thumbnail: x: y": ("general.license", None),
    "license: [": ("general.license", None),
    "base_model: [{name: 3}]": ("general.license", None),
    "tags: !!python/object:os.system x": ("general.tags", None),
    "license: \udcff": ("general.author", None),
}


@pytest.mark.parametrize("line", CARDS)
def test_a_model_card_never_stops_a_conversion(
    tmp_path: Path, published: GgufFile, line: str
) -> None:
    folder = write_tiny(tmp_path / "tiny")
    card = f"---\n{line}\n---\n# A model\n".encode(errors="surrogateescape")
    (folder / "README.md").write_bytes(card)
    (folder / "chat_template.jinja").write_text("{{ messages }} ä", encoding="utf-8")
    file, notes = convert(folder)
    assert same(file, published)
    assert file.keys["tokenizer.chat_template"][1] == "{{ messages }} ä"
    key, value = CARDS[line]
    if value is not None:
        assert file.keys[key][1] == value
    elif line.startswith(("thumbnail", "license: [")):
        assert "README.md was left out, as its head is not valid YAML" in notes[0]


def test_a_generation_config_neither(tmp_path: Path, published: GgufFile) -> None:
    folder = write_tiny(tmp_path / "tiny")
    stated = {"top_k": 1 << 40, "temperature": 0.5, "repetition_penalty": 1.1, "use_cache": True}
    stated |= {"eos_token_id": [200002, 200020], "num_beams": 1, "bad_words_ids": []}
    write_json(folder / "generation_config.json", stated)
    file, notes = convert(folder)
    assert same(file, published)
    assert file.keys["general.sampling.temp"][1] == 0.5
    odd, unused, kept = notes
    assert "was left out: a GGUF cannot hold" in odd
    assert unused == (
        "generation_config.json states repetition_penalty, eos_token_id: not used here"
    )
    assert kept.startswith("general.sampling.temp: not used here")


BYTES, QUANTIZED = np.zeros((96, 64), np.uint8), "Convert the checkpoint it was quantized from"
Q = "model.layers.0.self_attn.q_proj"
GATE = "model.layers.0.mlp.experts.gate_proj"
SQUARE = tiny_config(intermediate_size=64)


def by(method: str) -> dict[str, Any]:
    return tiny_config(quantization_config={"quant_method": method, "bits": 4})


def exchanged(config: dict[str, Any]) -> Tensors:
    """Exchange the axes of experts; a square `down_proj` fits both ways, `gate_up_proj` tells."""
    tensors = tiny_tensors(config, experts="bf16")
    for name in (GATE_UP, DOWN):
        dtype, values = tensors[name]
        tensors[name] = (dtype, np.ascontiguousarray(values.swapaxes(1, 2)))
    return tensors


UNUSABLE: dict[str, tuple[dict[str, Any], str, str]] = {
    "bitsandbytes": ({"config": by("bitsandbytes")}, "quantized by bitsandbytes", QUANTIZED),
    "GPTQ": ({"config": by("gptq")}, "quantized by gptq", QUANTIZED),
    "FP8": ({"config": by("fp8")}, "quantized by fp8", QUANTIZED),
    "anything else": ({"config": by("hqq")}, "quantized by hqq", QUANTIZED),
    "MLX": (
        {"config": tiny_config(quantization={"group_size": 64, "bits": 4})},
        "quantized by MLX",
        QUANTIZED,
    ),
    "NVFP4": (
        {
            "config": tiny_config(
                quantization_config={"quant_method": "modelopt", "quant_algo": "NVFP4"}
            )
        },
        "quantized by NVFP4",
        QUANTIZED,
    ),
    "exchanged axes": (
        {"tensors": exchanged(tiny_config())},
        r"experts\.\w+_proj in .* is BF16",
        "axes are exchanged",
    ),
    "exchanged axes of a square": (
        {"config": SQUARE, "tensors": exchanged(SQUARE)},
        r"experts\.\w+_proj in .* is BF16",
        "axes are exchanged",
    ),
    **{
        f"tensors of {kind}": ({"tensors": tiny_tensors() | more}, match, hint)
        for kind, more, match, hint in (
            ("bitsandbytes", {f"{Q}.weight.absmax": ("U8", BYTES)}, "bitsandbytes", QUANTIZED),
            ("FP8", {f"{Q}.weight": ("F8_E4M3", BYTES)}, "is F8_E4M3: the check", QUANTIZED),
            ("int8", {f"{Q}.weight": ("I8", BYTES)}, "is I8: the checkpoint is", QUANTIZED),
            ("GPTQ", {f"{Q}.qweight": ("I32", BYTES)}, "GPTQ or AWQ", QUANTIZED),
            ("NVFP4", {f"{DOWN}_scale_2": ("BF16", np.zeros(5, "u2"))}, "FP8, NVFP4", QUANTIZED),
            ("scales", {f"{Q}.weight_scale": ("BF16", BYTES.astype("u2"))}, "FP8, NV", QUANTIZED),
            ("FP8 caches", {"x.self_attn.k_scale": ("BF16", BYTES.astype("u2"))}, "FP8", QUANTIZED),
            ("TRL", {"v_head.summary.weight": ("BF16", BYTES.astype("u2"))}, "TRL", "pretrained_m"),
            ("mlx", {f"{GATE}.weight": ("BF16", BYTES.astype("u2"))}, "mlx-lm", "made from"),
            ("LoRA", {f"{Q}.lora_A.weight": ("BF16", BYTES.astype("u2"))}, "LoRA", "merge_and"),
        )
    },
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_made_for_other_programs(tmp_path: Path, name: str) -> None:
    made, match, hint = UNUSABLE[name]
    told = refuse(write_tiny(tmp_path / "tiny", **made), match)
    assert hint in told
    assert ("take the key out of config.json" in told) == ("config" in made and "axes" not in hint)


def test_the_same_model_in_other_words(tmp_path: Path) -> None:
    """A BOM of Windows' editors, tables of RoPE, and the newer dtype of MXFP4's scales."""
    folder, paths = write_tiny(tmp_path / "tiny"), [tmp_path / f"{n}.gguf" for n in range(2)]
    convert_checkpoint(folder, paths[0])
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_bytes(b"\xef\xbb\xbf" + (folder / name).read_bytes())
    tensors = tiny_tensors()
    for name in [name for name in tensors if name.endswith("_scales")]:
        tensors[name] = ("F8_E8M0", tensors[name][1])
    table = "model.layers.0.self_attn.rotary_emb.inv_freq"
    tensors[table] = ("F32", np.zeros(16, np.float32))
    write_safetensors(folder / "model.safetensors", tensors)
    convert_checkpoint(folder, paths[1])
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize(
    ("names", "match", "hint"),
    [
        (["adapter_config.json", "adapter_model.safetensors"], "is an adapter", "--adapter DIR"),
        (["config.json", "pytorch_model.bin"], "PyTorch pickles", "save_pretrained"),
        (["model-Q4_K_M.gguf"], "holds a GGUF already", "gptoss import"),
        (["config.json"], "holds neither model.safetensors nor", "download from Hugging"),
    ],
)
def test_folders_without_a_checkpoint(
    tmp_path: Path, names: list[str], match: str, hint: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(b"")
    if "config.json" in names:
        write_json(folder / "config.json", tiny_config())
    assert hint in refuse(folder, match)


def test_the_folder_around_openais_layout(tmp_path: Path) -> None:
    """Its tokenizer is used, and another one may be named."""
    folder = tmp_path / "tiny"
    write_tiny(folder / "original", layout="original")
    words = write_tiny(tmp_path / "words")
    around, itself, untyped, own = (tmp_path / f"{n}.gguf" for n in range(4))
    convert_checkpoint(folder, around, tokenizer=words)
    convert_checkpoint(folder / "original", itself, tokenizer=words)
    convert_checkpoint(folder, untyped, tokenizer=words)
    write_tiny(folder)
    (folder / "model.safetensors").unlink()  # only the small files of that layout were fetched
    convert_checkpoint(folder, own)
    assert len({path.read_bytes() for path in (around, itself, untyped, own)}) == 1


def test_hugging_face_wins_where_both_are(tmp_path: Path, published: GgufFile) -> None:
    folder = write_tiny(tmp_path / "tiny")
    write_tiny(folder / "original", layout="original", tensors=tiny_tensors(seed=1))
    assert same(convert(folder)[0], published)
