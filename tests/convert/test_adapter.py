"""LoRA adapters of PEFT, merged while a checkpoint is converted, as PEFT itself merges them."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from convert import convert_checkpoint, plan_conversion
from convert.tensor_types import dequantize, widen_bf16
from convert.verify import verify_model
from gptoss_local.base.errors import ConvertError
from gptoss_local.base.formats.gguf_file import read_tokens
from tests.convert.gguf_file import read_gguf
from tests.convert.tiny import (
    Tensors,
    tiny_config,
    tiny_tensors,
    tiny_tokenizer,
    write_json,
    write_safetensors,
    write_tiny,
)

Values = NDArray[np.float32]
WEIGHTS = "adapter_model.safetensors"
LAYER = "model.layers.0"
EXPERTS = f"{LAYER}.mlp.experts"
Q = f"{LAYER}.self_attn.q_proj"
CONFIG = tiny_config(num_hidden_layers=2)
N_EXPERTS, N_EMBD, N_FF = 5, 64, 32
PARAMETERS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
ADAPTERS: dict[str, dict[str, Any]] = {
    "attention": {"target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]},
    "rank-stabilised": {"target_modules": ["q_proj"], "use_rslora": True, "r": 16},
    "patterns": {
        "target_modules": ["q_proj", "o_proj"],
        "rank_pattern": {"o_proj": 2},
        "alpha_pattern": {"layers.1.self_attn.q_proj": 64},
    },
    "ends": {"target_modules": ["embed_tokens", "lm_head"]},
    "experts": {"target_modules": ["q_proj"], "target_parameters": PARAMETERS},
    "down, rank-stabilised": {
        "target_modules": [],
        "target_parameters": PARAMETERS[1:],
        "use_rslora": True,
    },
    "router": {"target_modules": [], "target_parameters": ["mlp.router.weight"]},
    "patterns of experts": {
        "target_modules": [],
        "target_parameters": PARAMETERS,
        "rank_pattern": {"mlp.experts.down_proj": 2},
        "alpha_pattern": {"mlp.experts.gate_up_proj": 32},
    },
}
NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "lm_head.weight": "output.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "mlp.router.weight": "ffn_gate_inp.weight",
}


def parts_of_experts(gate_up: Any, down: Any, layer: int) -> dict[str, Values]:
    """Return the tensors of llama.cpp; the arguments are (experts, in, out)."""
    parts = {"gate": gate_up[..., ::2], "up": gate_up[..., 1::2], "down": down}
    return {f"blk.{layer}.ffn_{n}_exps.weight": v.swapaxes(1, 2) for n, v in parts.items()}


def as_llama_cpp_names(weights: dict[str, Any]) -> dict[str, Values]:
    found = {}
    for name, tensor in weights.items():
        *layer, rest = name.removeprefix("model.layers.").split(".", 1)
        in_layer = name.startswith("model.layers.")
        if ours := NAMES.get(rest if in_layer else name):
            found[f"blk.{layer[0]}.{ours}" if in_layer else ours] = tensor.numpy().copy()
        elif name.endswith("gate_up_proj"):
            down = weights[name.replace("gate_up_proj", "down_proj")]
            parts = parts_of_experts(tensor.numpy(), down.numpy(), int(layer[0]))
            found |= {part: values.copy() for part, values in parts.items()}
    return found


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
@pytest.mark.filterwarnings("ignore:.*did not match any targeted module:RuntimeWarning")
@pytest.mark.parametrize("name", ADAPTERS)
def test_as_peft_merges_it(tmp_path: Path, name: str) -> None:
    import torch  # here, as they take seconds, also where these tests do not run
    from peft import LoraConfig, get_peft_model
    from transformers import GptOssForCausalLM

    torch.manual_seed(1)
    tensors = tiny_tensors(CONFIG, experts="bf16")
    base = write_tiny(tmp_path / "base", config=CONFIG, tensors=tensors)
    plain = GptOssForCausalLM.from_pretrained(base, dtype=torch.float32)
    before = as_llama_cpp_names(plain.state_dict())
    config = {"r": 4, "lora_alpha": 8, "init_lora_weights": False} | ADAPTERS[name]
    adapted = get_peft_model(plain, LoraConfig(**config))
    adapted.save_pretrained(tmp_path / "adapter", save_embedding_layers=False)
    merged = as_llama_cpp_names(adapted.merge_and_unload().state_dict())
    path = tmp_path / "m.gguf"
    convert_checkpoint(base, path, adapter=tmp_path / "adapter", dense="bf16", experts="bf16")
    stored = read_gguf(path).tensors
    for tensor, values in merged.items():
        np.testing.assert_allclose(stored[tensor].values(), values, rtol=2**-8, atol=1e-5)
    assert any(not np.allclose(values, before[tensor]) for tensor, values in merged.items())


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
@pytest.mark.filterwarnings("ignore:lora with eva initialization:UserWarning")
@pytest.mark.parametrize("start", [True, "gaussian", "eva", "orthogonal", "mica"])
def test_as_peft_loads_and_merges_it(tmp_path: Path, start: Any) -> None:
    """However its factors began, training has changed them; loading begins them once more."""
    import torch
    from peft import EvaConfig, LoraConfig, PeftModel, get_peft_model
    from transformers import GptOssForCausalLM

    torch.manual_seed(2)
    base = write_tiny(
        tmp_path / "base", config=CONFIG, tensors=tiny_tensors(CONFIG, experts="bf16")
    )
    load = partial(GptOssForCausalLM.from_pretrained, base, dtype=torch.float32)
    stated: Any = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
    stated |= {"eva_config": EvaConfig()} if start == "eva" else {}
    config = LoraConfig(**stated, init_lora_weights=start)
    trained = get_peft_model(load(), config)
    for name, values in trained.named_parameters():
        if ".lora_" in name:
            values.data.normal_()
    trained.save_pretrained(str(tmp_path / "adapter"))
    merged = PeftModel.from_pretrained(load(), tmp_path / "adapter").merge_and_unload()
    path = tmp_path / "m.gguf"
    convert_checkpoint(base, path, adapter=tmp_path / "adapter", dense="bf16", experts="bf16")
    right = as_llama_cpp_names(merged.state_dict())["blk.1.attn_q.weight"]
    stored = read_gguf(path).tensors["blk.1.attn_q.weight"].values()
    np.testing.assert_allclose(stored, right, rtol=2**-8, atol=1e-5)
    assert not np.allclose(stored, load().state_dict()[f"model.layers.1.{Q[15:]}.weight"].numpy())


class Lora(NamedTuple):
    a: Values
    b: Values


def lora(seed: int, n_in: int, n_out: int, r: int = 4, n_experts: int = 1) -> Lora:
    rng = np.random.default_rng(seed)
    a = rng.normal(0, 0.3, (r * n_experts, n_in)).astype(np.float32)
    return Lora(a, rng.normal(0, 0.3, (n_out, r * n_experts)).astype(np.float32))


def write_adapter(folder: Path, loras: dict[str, Lora], **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    stated = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none"} | config
    write_json(folder / "adapter_config.json", stated)
    tensors: Tensors = {}
    for stem, pair in loras.items():
        for part, values in zip("AB", pair, strict=True):
            tensors[f"base_model.model.{stem}.lora_{part}.weight"] = ("F32", values)
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    return folder


def change_of_experts(pair: Lora) -> Values:
    """As PEFT's ParamWrapper computes it: (experts, in, out)."""
    a = pair.a.reshape(N_EXPERTS, -1, pair.a.shape[1])
    b = pair.b.reshape(pair.b.shape[0], -1, N_EXPERTS)
    return np.einsum("ore,eri->eio", b, a) * np.float32(2)


def base_experts(tensors: Tensors, name: str) -> Values:
    """(experts, in, out), whichever way they are held."""
    if name in tensors:
        return widen_bf16(tensors[name][1])
    blocks, scales = (tensors[f"{name}_{part}"][1] for part in ("blocks", "scales"))
    return dequantize(blocks, scales).swapaxes(1, 2)


def exchanged(pair: Lora) -> Lora:
    """The same change with factors for exchanged axes, as some versions of PEFT write it."""
    r = pair.a.shape[0] // N_EXPERTS
    a = pair.a.reshape(N_EXPERTS, r, -1)
    b = pair.b.reshape(-1, r, N_EXPERTS)
    new_a = b.transpose(2, 1, 0).reshape(N_EXPERTS * r, -1)
    new_b = a.transpose(2, 1, 0).reshape(-1, r * N_EXPERTS)
    return Lora(np.ascontiguousarray(new_a), np.ascontiguousarray(new_b))


@pytest.mark.parametrize(
    ("source", "kept", "layout", "n_ff", "is_exchanged"),
    [
        ("mxfp4", "mxfp4", "original", N_FF, False),
        ("mxfp4", "bf16", "hugging_face", N_FF, False),
        ("bf16", "bf16", "original", N_FF, False),
        # gate and up tell that the axes are exchanged; a square `down_proj` does not
        ("bf16", "bf16", "hugging_face", N_EMBD, True),
    ],
)
def test_experts(
    tmp_path: Path, source: Any, kept: Any, layout: Any, n_ff: int, is_exchanged: bool
) -> None:
    """`target_parameters`: the second parameter's wrapper is around the first one's."""
    config = CONFIG | {"intermediate_size": n_ff}
    tensors = tiny_tensors(config, experts=source)
    base = write_tiny(tmp_path / "base", config=config, tensors=tensors, layout=layout)
    gate_up = lora(1, N_EMBD, 2 * n_ff, n_experts=N_EXPERTS)
    down = lora(2, n_ff, N_EMBD, n_experts=N_EXPERTS)
    loras = {f"{EXPERTS}.base_layer": gate_up, EXPERTS: down}
    if is_exchanged:
        loras = {name: exchanged(pair) for name, pair in loras.items()}
    adapter = write_adapter(tmp_path / "adapter", loras)
    words = write_tiny(tmp_path / "words")
    options: Any = {"adapter": adapter, "experts": kept, "tokenizer": words}
    (path,) = convert_checkpoint(base, tmp_path / "m.gguf", **options)
    merged = (
        base_experts(tensors, f"{EXPERTS}.{name}") + change_of_experts(pair)
        for name, pair in (("gate_up_proj", gate_up), ("down_proj", down))
    )
    for name, values in parts_of_experts(*merged, layer=0).items():
        stored = read_gguf(path).tensors[name].values()
        if kept == "bf16":
            np.testing.assert_allclose(stored, values, rtol=2**-7, atol=1e-4)
        else:
            assert np.abs(stored - values).max() < np.abs(values).max() / 4
    assert verify_model(path, against=base, adapter=adapter, tokenizer=words).is_proven


def test_a_linear_layer_of_one_expert(tmp_path: Path) -> None:
    """As some trainers make of each expert, over a base with one matrix."""
    tensors, pair = tiny_tensors(CONFIG), lora(1, N_FF, N_EMBD)
    base = write_tiny(tmp_path / "base", config=CONFIG, tensors=tensors)
    adapter = write_adapter(tmp_path / "adapter", {f"{EXPERTS}.down_projs.3": pair})
    (path,) = convert_checkpoint(base, tmp_path / "m.gguf", adapter=adapter, experts="bf16")
    right = base_experts(tensors, f"{EXPERTS}.down_proj").swapaxes(1, 2).copy()
    right[3] += pair.b @ pair.a * np.float32(2)
    stored = read_gguf(path).tensors
    down, gate = (stored[f"blk.0.ffn_{part}_exps.weight"] for part in ("down", "gate"))
    np.testing.assert_allclose(down.values(), right, rtol=2**-8, atol=1e-5)
    assert gate.qtype.name == "MXFP4", "what does not change keeps its bits"


@pytest.mark.parametrize(
    ("loras", "config", "match"),
    [
        ({"model.layers.9.self_attn.q_proj": lora(1, 64, 96)}, {}, "layers.9"),
        ({Q: lora(1, 32, 96)}, {}, "do not fit"),
        ({Q: lora(1, 64, 96, 8)}, {}, "8 rows where 4"),
        ({Q: lora(1, 64, 96)}, {"use_dora": True}, "use_dora"),
        ({Q: lora(1, 64, 96)}, {"bias": "all"}, "bias"),
        *(
            ({Q: lora(1, 64, 96)}, {key: value}, f"adapter_config.json .*{key}")
            for key, value in (
                *(("init_lora_weights", s) for s in ("pissa", "pissa_niter_4", "olora", "loftq")),
                *(("init_lora_weights", s) for s in ("corda", "lora_ga", "unheard of")),
                *(("kasa_config", {"beta": 1}), ("monteclora_config", {"n": 2}), ("new", True)),
                *(("lora_alpha", "8"), ("r", 0), ("rank_pattern", {"q_proj": "4"})),
            )
        ),
        ({Q: lora(1, 64, 96)}, {"alpha_pattern": {"[": 4}}, r"the pattern '\[' is wrong"),
        ({Q: Lora(np.full((4, 64), np.nan, np.float32), lora(1, 64, 96).b)}, {}, "not finite"),
        ({}, {"peft_type": "IA3"}, "'IA3', not LORA"),
        ({}, {}, "holds no tensors"),
    ],
)
def test_unmergeable_adapters_are_refused(
    tmp_path: Path, loras: dict[str, Lora], config: dict[str, Any], match: str
) -> None:
    base = write_tiny(tmp_path / "base", config=CONFIG)
    adapter = write_adapter(tmp_path / "adapter", loras, **config)
    with pytest.raises(ConvertError, match=match) as caught:
        convert_checkpoint(base, tmp_path / "m.gguf", adapter=adapter)
    assert "peft" in caught.value.hint
    assert adapter.name in caught.value.message
    assert {path.name for path in tmp_path.iterdir()} == {"base", "adapter"}


def test_settings_that_are_off(tmp_path: Path) -> None:
    """As PEFT writes all of its fields, and newer ones add more."""
    base = write_tiny(tmp_path / "base", config=CONFIG)
    off: dict[str, Any] = {"rank_pattern": None, "alpha_pattern": None, "kasa_config": None}
    off |= {
        "use_new": False,
        "loftq_config": {},
        "qalora_group_size": 16,
        "init_lora_weights": "Gaussian",
    }
    folders = [
        write_adapter(tmp_path / name, {Q: lora(1, 64, 96)}, **config)
        for name, config in (("plain", {}), ("full", off))
    ]
    paths = [tmp_path / f"{folder.name}.gguf" for folder in folders]
    for path, adapter in zip(paths, folders, strict=True):
        convert_checkpoint(base, path, adapter=adapter)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize(
    ("version", "is_taken"),
    [(None, True), ("0.17.1", True), ("0.18.1", True), ("0.18.2.dev0", False), ("0.19.0", False)],
)
def test_square_experts_alone(tmp_path: Path, version: Any, *, is_taken: bool) -> None:
    """Nothing in the file tells whether PEFT 0.19 exchanged their axes."""
    config = CONFIG | {"intermediate_size": N_EMBD}
    tensors, pair = tiny_tensors(config), lora(2, N_EMBD, N_EMBD, n_experts=N_EXPERTS)
    base = write_tiny(tmp_path / "base", config=config, tensors=tensors)
    adapter = write_adapter(tmp_path / "adapter", {EXPERTS: pair}, peft_version=version)
    target = tmp_path / "m.gguf"
    if not is_taken:
        with pytest.raises(ConvertError, match=f"PEFT '{version}' exchanged") as caught:
            convert_checkpoint(base, target, adapter=adapter)
        assert "merge_and_unload" in caught.value.hint
        return
    convert_checkpoint(base, target, adapter=adapter, experts="bf16")
    right = base_experts(tensors, f"{EXPERTS}.down_proj") + change_of_experts(pair)
    stored = read_gguf(target).tensors["blk.0.ffn_down_exps.weight"].values()
    np.testing.assert_allclose(stored, right.swapaxes(1, 2), rtol=2**-7, atol=1e-4)


def test_the_tokenizer_that_was_saved_with_it(tmp_path: Path) -> None:
    """A trainer adds tokens to it, and none to the base's."""
    base, target = write_tiny(tmp_path / "base", config=CONFIG), tmp_path / "m.gguf"
    stated, notes = {"base_model_name_or_path": "openai/gpt-oss-20b"}, list[str]()
    adapter = write_adapter(tmp_path / "adapter", {Q: lora(1, 64, 96)}, **stated)
    saved = tiny_tokenizer()
    saved["added_tokens"].append({"id": 23, "content": " Parigi", "special": False})
    write_json(adapter / "tokenizer.json", saved)
    for chosen, token in ((None, " Parigi"), (base, "[PAD23]")):
        notes.clear()
        convert_checkpoint(base, target, adapter=adapter, tokenizer=chosen, on_note=notes.append)
        assert read_tokens(target)[23] == token
        trained, *others = notes
        assert trained == "the adapter says that it was trained on 'openai/gpt-oss-20b'"
        assert others == [f"the tokenizer is the adapter's, of {adapter}"] * (not chosen)
        assert verify_model(target, against=base, adapter=adapter, tokenizer=chosen).is_proven


@pytest.mark.parametrize(
    ("damage", "match", "hint"),
    [
        (shutil.rmtree, "adapter does not exist", "OWNER/NAME"),
        (
            lambda folder: [folder.rename(f"{folder}s"), folder.write_text("")],
            "is a file, not a folder",
            "adapter_config.json",
        ),
        (lambda folder: (folder / "adapter_config.json").unlink(), "no adapter_config", "folder"),
        (
            lambda folder: (folder / WEIGHTS).rename(folder / "adapter_model.bin"),
            "adapter_model.bin is a PyTorch pickle",
            WEIGHTS,
        ),
        (lambda folder: (folder / WEIGHTS).unlink(), f"{WEIGHTS} is missing", "download"),
    ],
)
def test_folders_that_are_no_adapters(tmp_path: Path, damage: Any, match: str, hint: str) -> None:
    base = write_tiny(tmp_path / "base", config=CONFIG)
    damage(write_adapter(tmp_path / "adapter", {Q: lora(1, 64, 96)}))
    with pytest.raises(ConvertError, match=match) as caught:
        plan_conversion(base, tmp_path / "m.gguf", adapter=tmp_path / "adapter")
    assert hint in caught.value.hint


def test_base_and_adapter_in_one_folder(tmp_path: Path) -> None:
    """transformers would apply the adapter; it is never left out in silence."""
    base, target = write_tiny(tmp_path / "base", config=CONFIG), tmp_path / "m.gguf"
    write_adapter(base, {"lm_head": lora(1, 64, 24)})
    for convert in (convert_checkpoint, plan_conversion):
        with pytest.raises(ConvertError, match="a model and an adapter") as caught:
            convert(base, target)
        assert f"--adapter {base}" in caught.value.hint
    convert_checkpoint(base, target, adapter=base)
    assert verify_model(target, against=base, adapter=base).is_proven
    other = write_adapter(tmp_path / "other", {"lm_head": lora(2, 64, 24)})
    plans = [plan_conversion(base, target, adapter=each) for each in (base, other)]
    assert plans[0].fingerprint != plans[1].fingerprint, "a journal of the one goes on"
    extra = {"base_model.model.lm_head.weight": ("F32", np.zeros((24, 64), np.float32))}
    write_safetensors(other / "adapter_model.safetensors", extra)
    with pytest.raises(ConvertError, match=r"lm_head\.weight is not a factor of a LoRA"):
        convert_checkpoint(base, target, adapter=other)
