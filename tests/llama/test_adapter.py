"""A LoRA that llama.cpp applies gives the results of merged weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from convert import convert_checkpoint
from gptoss_local.base.errors import ModelLoadError
from gptoss_local.engine.llama import Model
from gptoss_local.models.store import read_info
from tests.convert.gguf_file import Tensor, read_gguf
from tests.convert.write_gguf import write_without_vocabulary
from tests.engine.run import make_context
from tests.lora import (
    ALPHA,
    ATTENTION,
    EXPERTS,
    OTHERS,
    RANK,
    Factors,
    random_factors,
    write_lora,
    write_peft,
)

Values = NDArray[np.float32]


@pytest.fixture(scope="module")
def base(nano_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """nano with weights of bf16, which merging rounds as little as a file can."""
    path = tmp_path_factory.mktemp("base") / "base.gguf"
    return convert_checkpoint(nano_checkpoint, path, dense="bf16")[0]


def log_probabilities(path: Path, adapter: Path | None = None) -> Values:
    model = Model(path, adapter=adapter)
    context = make_context(model, n_ctx=512, n_batch=64)
    context.decode(range(1000, 1040), position=0)
    logits = context.logits(-1).astype(np.float64)
    model.close()
    shifted: Values = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def in_f32(source: Path, target: Path, factors: Factors) -> Path:
    """Write a GGUF in which nothing is rounded, with a change merged."""
    file = read_gguf(source)
    for name, tensor in file.tensors.items():
        if name != "token_embd.weight":
            values = tensor.values().astype(np.float32)
            if name in factors:
                a, b = factors[name]
                values = values + np.float32(ALPHA / RANK) * (b @ a)
            data = np.ascontiguousarray(values, np.float32).view(np.uint8).reshape(-1)
            file.tensors[name] = Tensor(GGMLQuantizationType.F32, values.shape, data)
    write_without_vocabulary(target, file)
    return target


@pytest.fixture(scope="module")
def exact_base(base: Path) -> Path:
    return in_f32(base, base.with_name("exact.gguf"), {})


def distance(one: Values, other: Values) -> float:
    return float(np.sqrt(np.mean((one - other) ** 2)))


@pytest.mark.parametrize(
    "names", [ATTENTION, EXPERTS, OTHERS], ids=["attention", "experts", "router and head"]
)
def test_loaded_and_merged_agree(
    base: Path,
    exact_base: Path,
    nano_checkpoint: Path,
    tmp_path: Path,
    names: tuple[str, ...],
) -> None:
    factors = random_factors(base, names, size=1.0 if names == OTHERS else 0.05)
    if names == EXPERTS:  # one matrix of PEFT's has both, and so one first factor
        gate, up, _ = EXPERTS
        factors[up] = (factors[gate][0], factors[up][1])
    lora = write_lora(tmp_path / "lora.gguf", factors)
    exact = in_f32(base, tmp_path / "exact.gguf", factors)
    loaded, merged = log_probabilities(exact_base, lora), log_probabilities(exact)
    effect = distance(loaded, log_probabilities(exact_base))
    assert effect > 0.5
    assert distance(loaded, merged) < 0.01 * effect, "no more than a cache of f16 rounds"
    peft = write_peft(tmp_path / "peft", factors)
    converted = tmp_path / "converted.gguf"
    kept: Any = {"experts": "bf16"} if names == EXPERTS else {}
    convert_checkpoint(nano_checkpoint, converted, dense="bf16", adapter=peft, **kept)
    error = distance(log_probabilities(base, lora), log_probabilities(converted))
    assert error < 0.1 * effect, "merging rounds to bf16"


def test_a_file_that_llama_cpp_refuses(base: Path, tmp_path: Path) -> None:
    factors = random_factors(base, ATTENTION)
    lora = write_lora(tmp_path / "lora.gguf", factors, arch="llama")
    with pytest.raises(ModelLoadError, match="LoRA arch mismatch"):
        Model(base, adapter=lora)
    assert read_info(lora).architecture == "llama"
