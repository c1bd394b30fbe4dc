"""Recognizes checkpoints that cannot be converted, by names and dtypes, and suggests others."""

import re
from collections.abc import Collection, Iterable
from typing import Any

from gptoss_local.base.errors import ConvertError

ADAPTER_NAME = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
ADAPTER_FILES = (ADAPTER_NAME, ADAPTER_WEIGHTS)

_QUANTIZED_HINT = (
    "Convert the checkpoint it was quantized from, such as openai/gpt-oss-20b or the fine-tune's "
    "own 16-bit weights."
)
_ADAPTER_HINT = "Convert its base model with it: gptoss convert BASE OUT.gguf --adapter DIR"
MERGE_HINT = (
    "Merge it into its base model first: with peft, PeftModel.from_pretrained(base, adapter)"
    ".merge_and_unload().save_pretrained(FOLDER). Then convert FOLDER."
)
# Names of tensors that only these have, as they end or as a part of them.
_TENSORS = {
    re.compile(r"\.lora_[AB]\b|\.lora_embedding_|\.lora_magnitude_vector"): (
        "these are LoRA weights, which are not merged into the model",
        MERGE_HINT,
    ),
    re.compile(r"\.(absmax|quant_map|nested_\w+|SCB|quant_state\b.*|weight_format)$"): (
        "the checkpoint is quantized by bitsandbytes",
        _QUANTIZED_HINT,
    ),
    re.compile(r"\.(qweight|qzeros|g_idx)$"): (
        "the checkpoint is quantized by GPTQ or AWQ",
        _QUANTIZED_HINT,
    ),
    re.compile(
        r"(\.|_)(weight_scale\w*|input_scale|weight_packed|weight_zero_point|proj_scale(_2)?)$"
        r"|\.[kqv]_scale$"
    ): ("the checkpoint is quantized (FP8, NVFP4 or compressed-tensors)", _QUANTIZED_HINT),
    re.compile(r"\b(base_layer|original_module|modules_to_save)\."): (
        "this is a model inside a PEFT wrapper, which is not merged",
        MERGE_HINT,
    ),
    re.compile(r"\bv_head\."): (
        "this is a model with TRL's value head, which gpt-oss does not have",
        "Save the model in it alone: model.pretrained_model.save_pretrained(FOLDER).",
    ),
    re.compile(r"\.experts\.(gate|up)_proj\b"): (
        "gate and up of the experts are apart, as mlx-lm has them",
        "Convert the checkpoint that it was made from, with what was trained as --adapter.",
    ),
}


def check_quantization(stated: Any, where: str) -> None:
    if not isinstance(stated, dict) or not stated:
        return
    method = stated.get("quant_method") or next(
        (name for name in ("load_in_4bit", "load_in_8bit") if stated.get(name)),
        "MLX" if {"group_size", "bits"} <= stated.keys() else "unknown",
    )
    if method == "modelopt":
        method = stated.get("quant_algo") or method
    if method == "mxfp4":
        return
    name = "bitsandbytes" if str(method).startswith("load_in") else str(method)
    raise ConvertError(
        f"{where} says that the weights are quantized by {name}, which cannot be converted.",
        hint=f"{_QUANTIZED_HINT} If they are 16-bit all the same, take the key out of config.json.",
    )


def check_tensor_names(names: Collection[str]) -> None:
    for pattern, (what, hint) in _TENSORS.items():
        if found := sorted(name for name in names if pattern.search(name)):
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            raise ConvertError(
                f"The checkpoint holds the tensor {found[0]}{more}: {what}.", hint=hint
            )


def check_dtype(name: str, dtype: str, where: str) -> None:
    if dtype == "F64":
        raise ConvertError(
            f"{name} in {where} is F64, in which no gpt-oss is published.",
            hint="Save the model as bfloat16: with transformers, model.bfloat16()"
            ".save_pretrained(FOLDER).",
        )
    if dtype.startswith(("F8", "F4", "I", "U", "BOOL")):
        raise ConvertError(
            f"{name} in {where} is {dtype}: the checkpoint is quantized, and not as OpenAI's is.",
            hint=_QUANTIZED_HINT,
        )


def what_it_is(names: Iterable[str], place: str) -> ConvertError | None:
    found = sorted(names)
    ggufs = [name for name in found if name.lower().endswith(".gguf")]
    pickle = r"(model|consolidated|checkpoint|weights).*\.(bin|pt|pth|ckpt)$"
    pickles = [name for name in found if re.search(pickle, name, re.IGNORECASE)]
    if any(name.rpartition("/")[2] == ADAPTER_NAME for name in found):
        return ConvertError(
            f"{place} is an adapter (LoRA), not a model: it has {ADAPTER_NAME} and no weights of "
            "its own.",
            hint=_ADAPTER_HINT,
        )
    if ggufs:
        return ConvertError(
            f"{place} holds a GGUF already, {ggufs[0]}; there is nothing to convert.",
            hint="Use that file as it is: gptoss import FILE.gguf",
        )
    if pickles:
        return ConvertError(
            f"{place} holds PyTorch pickles ({pickles[0]}), which can run code when they are read.",
            hint="Save the model as safetensors first: with transformers, "
            "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW).",
        )
    return None
