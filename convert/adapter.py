"""Merges a LoRA adapter, as PEFT saves it, into the tensors of a checkpoint while they are read.

Each tensor of it has a place in the checkpoint, or is refused by name. Source: `get_delta_weight`
of `ParamWrapper` and `Linear`, PEFT's tuners/lora/layer.py; `get_pattern_key`, utils/other.py.
"""

import functools
import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from convert.files import (
    FLOAT_DTYPES,
    STORAGE,
    FileReader,
    SourceTensor,
    read_header,
    read_json,
    reading,
)
from convert.foreign import ADAPTER_FILES, ADAPTER_NAME, ADAPTER_WEIGHTS, MERGE_HINT
from convert.journal import Shard
from convert.tensor_map import PlannedTensor
from convert.tensor_names import new_names
from convert.tensor_types import widen_bf16
from gptoss_local.base.errors import ConvertError
from gptoss_local.base.validation import in_words

Values = NDArray[np.float32]

_FACTOR = re.compile(r"base_model\.model\.(.+)\.lora_(embedding_)?([AB])(\.default)?(\.weight)?")
_LINEAR = re.compile(r"(.*\.experts\.(?:gate_up|down)_proj)s\.(\d+)\.weight")
# What may be stated in any way, as it changes nothing of the factors that are in the file, or how
# they are merged. Every other setting of PEFT must be off.
_WITHOUT_EFFECT = {
    *("auto_mapping", "base_model_name_or_path", "corda_config", "eva_config", "exclude_modules"),
    *("inference_mode", "layers_pattern", "layers_to_transform", "loftq_config", "lora_dropout"),
    *("lora_ga_config", "megatron_config", "megatron_core", "modules_to_save", "peft_type"),
    *("peft_version", "qalora_group_size", "revision", "runtime_config", "target_modules"),
    *("target_parameters", "task_type"),
}
# Other starts, such as pissa, change the base model as well.
_PLAIN = {
    "init_lora_weights": ("true", "false", "none", "gaussian", "eva", "orthogonal", "mica"),
    "bias": ("none",),
}


class _Config(msgspec.Struct, frozen=True):
    r: Annotated[int, msgspec.Meta(ge=1)]
    lora_alpha: float
    use_rslora: bool = False
    rank_pattern: dict[str, int] | None = None
    alpha_pattern: dict[str, float] | None = None

    def __post_init__(self) -> None:
        for pattern in (*(self.rank_pattern or ()), *(self.alpha_pattern or ())):
            try:
                re.compile(pattern)
            except re.error as error:  # which msgspec expects to be a ValueError
                raise ValueError(f"the pattern {pattern!a:.40} is wrong: {error}") from error


class _Pair(msgspec.Struct, frozen=True):
    """Two factors of a change; of those `is_exchanged`, `a` has the outputs."""

    a: SourceTensor
    b: SourceTensor
    scale: float
    n_experts: int = 1
    is_exchanged: bool = False


class LowRank(msgspec.Struct, frozen=True):
    """The change of one tensor: a pair of factors, or one for each expert (None: unchanged)."""

    pairs: tuple[_Pair | None, ...]
    n_out: int
    n_in: int

    def rows(self, first: int, n: int) -> Values:
        a, b = _factors(self)
        found = np.empty((n, self.n_in), np.float32)
        done = 0
        while done < n:
            expert, row = divmod(first + done, self.n_out)
            step = min(n - done, self.n_out - row)
            found[done : done + step] = b[expert][row : row + step] @ a[expert]
            done += step
        return found


class Adapter:
    """An adapter in a folder; ConvertError if it is not a LoRA, or cannot be merged here."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        path = folder / ADAPTER_NAME
        check_adapter_files(folder)
        stated: dict[str, Any] = read_json(path)
        if (kind := stated.get("peft_type")) != "LORA":
            raise ConvertError(f"{path} is of the kind {kind!a:.40}, not LORA.", hint=MERGE_HINT)
        try:
            self._config = msgspec.convert(stated, _Config)
        except msgspec.ValidationError as error:
            raise ConvertError(
                f"{path} is not as PEFT writes it: {in_words(error, stated)}.",
                hint="Correct the value, or save the adapter again with peft.",
            ) from error
        known = {*_WITHOUT_EFFECT, *_Config.__struct_fields__}
        for key, value in stated.items():
            is_off = str(value).lower() in _PLAIN[key] if key in _PLAIN else not value
            if not is_off and key not in known:
                what = f"{path} states {key}: {value!a:.60}, which is not merged here."
                raise ConvertError(what, hint=MERGE_HINT)
        self.base = str(stated.get("base_model_name_or_path") or "")
        self._version = str(stated.get("peft_version") or "0.17")  # which did not write it
        with reading(folder):
            self._held = read_header(folder / ADAPTER_WEIGHTS)
        self._deltas: dict[str, LowRank] = {}

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        with reading(self._folder):
            for name in ADAPTER_FILES:
                with (self._folder / name).open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()

    def apply(self, shard: Shard) -> Shard:
        tensors = {
            name: msgspec.structs.replace(tensor, delta=self._deltas.get(name))
            for name, tensor in shard.tensors.items()
        }
        return msgspec.structs.replace(shard, tensors=tensors)

    def match(self, plan: Sequence[PlannedTensor]) -> list[PlannedTensor]:
        """Match the adapter with a checkpoint's tensors, and mark the merged ones in its plan."""
        places = {name: tensor for tensor in plan for name in tensor.sources}
        pairs: defaultdict[str, dict[int, _Pair]] = defaultdict(dict)
        factors = self._factor_names()
        swapped = self._is_swapped(factors, places)
        for stem, (a, b) in factors.items():
            name, expert, tensor = self._place(stem, self._held[a], self._held[b], places, swapped)
            n_out, n_in, n_experts = _sizes(tensor)
            is_packed = n_experts > 1 and expert is None
            n = n_experts if is_packed else 1
            is_embedding = ".lora_embedding_" in a
            pair = _Pair(
                self._held[a], self._held[b], self._scale(stem, name, a, n), n,
                is_exchanged=is_embedding or (is_packed and swapped),
            )  # fmt: skip
            sizes = (n_in, n_out) if pair.is_exchanged else (n_out, n_in)
            if (pair.b.shape[0], pair.a.shape[1]) != sizes:
                raise self._wrong(f"{a} and {b} do not fit {name}")
            pairs[name][expert or 0] = pair
        for name, by_expert in pairs.items():
            n_out, n_in, n_experts = _sizes(places[name])
            is_packed = n_experts == 1 or by_expert[min(by_expert)].n_experts > 1
            n = 1 if is_packed else n_experts
            self._deltas[name] = LowRank(tuple(by_expert.get(i) for i in range(n)), n_out, n_in)
        return [
            msgspec.structs.replace(tensor, is_merged=not self._deltas.keys().isdisjoint(names))
            for tensor in plan
            for names in [tensor.sources]
        ]

    def _factor_names(self) -> dict[str, tuple[str, str]]:
        found: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for name, tensor in self._held.items():
            match = _FACTOR.fullmatch(name)
            if match is None or tensor.dtype not in FLOAT_DTYPES or len(tensor.shape) != 2:
                raise self._wrong(f"the tensor {name} is not a factor of a LoRA")
            found[match[1]][match[3]] = name
        for stem, parts in found.items():
            if len(parts) != 2:
                raise self._wrong(f"{stem} has one factor and not two")
        if not found:
            raise self._wrong("it holds no tensors")
        return {stem: (parts["A"], parts["B"]) for stem, parts in found.items()}

    def _is_swapped(
        self, factors: dict[str, tuple[str, str]], places: dict[str, PlannedTensor]
    ) -> bool:
        """Return whether packed experts have in and out exchanged; any that is not square tells.

        `down_proj` of OpenAI's models is square and fits both ways. PEFT exchanges none before
        0.19, and from then on as its version and transformers' happen to be.
        """
        sizes = {_sizes(t)[:2] for t in places.values() if t.name.endswith("_exps.weight")}
        held = {
            (self._held[b].shape[0], self._held[a].shape[1])
            for stem, (a, b) in factors.items()
            if _module(stem).endswith(".mlp.experts")
        }
        if any(each not in sizes and each[::-1] in sizes for each in held):
            return True
        is_told = any(each in sizes and each[::-1] not in sizes for each in held)
        if held & sizes and not is_told and not re.fullmatch(r"0\.1[78](\.\d+)?", self._version):
            raise ConvertError(
                f"The adapter {self._folder} changes square matrices of the experts alone, and "
                f"{ADAPTER_NAME} does not tell whether PEFT {self._version!a:.20} exchanged their "
                "axes.",
                hint=f"{MERGE_HINT} Take the versions of peft and transformers of the training.",
            )
        return False

    def _place(
        self,
        stem: str,
        a: SourceTensor,
        b: SourceTensor,
        places: dict[str, PlannedTensor],
        swapped: bool,
    ) -> tuple[str, int | None, PlannedTensor]:
        """Find the tensor that a pair changes, and the expert if it is of one in a matrix."""
        module = _module(stem)
        ((name,),) = new_names([f"{module}.weight"], str(self._folder)).values()
        if name in places:
            return name, None, places[name]
        if linear := _LINEAR.fullmatch(name):
            for held in _spellings(linear[1]):
                if held in places and int(linear[2]) < _sizes(places[held])[2]:
                    return held, int(linear[2]), places[held]
        if module.endswith(".mlp.experts"):  # its parameters differ in their shapes
            ends = (b.shape[0], a.shape[1])
            for part in ("gate_up_proj", "down_proj"):
                for held in _spellings(name.removesuffix("weight") + part):
                    n_out, n_in, _ = _sizes(places[held]) if held in places else (0, 0, 0)
                    if ends == ((n_in, n_out) if swapped else (n_out, n_in)):
                        return held, None, places[held]
        raise self._wrong(f"it changes {module}, which the checkpoint does not have")

    def _scale(self, stem: str, name: str, a: str, n_experts: int) -> float:
        config, key = self._config, _module(stem)
        if key.endswith(".mlp.experts"):
            key += ".gate_up_proj" if "gate_up_proj" in name else ".down_proj"
        r = _by_pattern(config.rank_pattern, key, config.r)
        alpha = _by_pattern(config.alpha_pattern, key, config.lora_alpha)
        held = self._held[a].shape[0]
        if r <= 0 or held != r * n_experts or not math.isfinite(alpha):
            raise self._wrong(f"{a} has {held} rows where {r} times {n_experts} are stated")
        scale: float = alpha / (math.sqrt(r) if config.use_rslora else r)
        return scale

    def _wrong(self, what: str) -> ConvertError:
        return ConvertError(
            f"The adapter {self._folder} cannot be merged: {what}.",
            hint="Name the base model that it was trained on (base_model_name_or_path in "
            f"{ADAPTER_NAME}). {MERGE_HINT}",
        )


def _module(stem: str) -> str:
    return stem.replace(".base_layer", "")


def _spellings(matrix: str) -> Sequence[str]:
    return (f"{matrix}_blocks", matrix, f"{matrix}.weight")


def _sizes(tensor: PlannedTensor) -> tuple[int, int, int]:
    shape = tensor.source_shape
    n_out, n_in = shape[-2:] if len(shape) > 1 else (shape[0], 0)
    if tensor.transposed:
        n_out, n_in = n_in, n_out
    return n_out, n_in, shape[0] if len(shape) == 3 else 1


def _by_pattern(patterns: dict[str, Any] | None, key: str, default: Any) -> Any:
    for pattern, value in (patterns or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", key):
            return value
    return default


@functools.lru_cache(8)
def _factors(delta: LowRank) -> tuple[list[Values], list[Values]]:
    """Read the scaled factors of a change for each expert: (rank, n_in) and (n_out, rank)."""
    all_a: list[Values] = []
    all_b: list[Values] = []
    for pair in delta.pairs:
        if pair is None:
            all_a.append(np.zeros((0, delta.n_in), np.float32))
            all_b.append(np.zeros((delta.n_out, 0), np.float32))
            continue
        a = _read(pair.a).reshape(pair.n_experts, -1, pair.a.shape[1])
        b = _read(pair.b).reshape(pair.b.shape[0], -1, pair.n_experts).transpose(2, 0, 1)
        for one_a, one_b in zip(a, b, strict=True):
            inner, outer = (one_b.T, one_a.T) if pair.is_exchanged else (one_a, one_b)
            all_a.append(np.ascontiguousarray(inner))
            all_b.append(outer * np.float32(pair.scale))
    return all_a, all_b


def _read(tensor: SourceTensor) -> Values:
    with FileReader() as reader:
        data = reader.read(tensor.path, tensor.offset, tensor.n_bytes)
    stored = data.view(STORAGE[tensor.dtype]).reshape(tensor.shape)
    values = widen_bf16(stored) if tensor.dtype == "BF16" else stored.astype(np.float32)
    if not np.isfinite(values).all():
        raise ConvertError(
            f"{tensor.path} holds a value that is not finite, in a factor of {list(tensor.shape)}.",
            hint="Train it again, or save an earlier state of it with peft.",
        )
    return values


def check_adapter_files(folder: Path) -> None:
    """Refuse a folder without PEFT's two files; the weights alone may be a pickle."""
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "does not exist"
        raise ConvertError(
            f"The adapter {folder} {what}.",
            hint=f"Name the folder with {ADAPTER_NAME}, or a repository: OWNER/NAME.",
        )
    if not (folder / ADAPTER_NAME).is_file():
        raise ConvertError(
            f"{folder} has no {ADAPTER_NAME}, so it is not an adapter of PEFT.",
            hint="Name the folder that peft's save_pretrained wrote.",
        )
    pickle = folder / "adapter_model.bin"
    if pickle.is_file() and not (folder / ADAPTER_WEIGHTS).is_file():
        raise ConvertError(
            f"{pickle} is a PyTorch pickle, which can run code when it is read.",
            hint=f"Save the adapter again with peft, which writes {ADAPTER_WEIGHTS} now.",
        )
    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise ConvertError(
            f"{folder / ADAPTER_WEIGHTS} is missing.", hint="Finish the download first."
        )


def tokenizer_of(adapter: Path | None) -> Path | None:
    """Return the adapter's folder if it has a tokenizer, which trainers save there."""
    return adapter if adapter is not None and (adapter / "tokenizer.json").is_file() else None


def check_no_adapter(names: Collection[str], place: str) -> None:
    """Refuse a checkpoint with an adapter next to it, which transformers would apply."""
    for name in reversed(ADAPTER_FILES):
        if name in names:
            raise ConvertError(
                f"{place} holds a model and an adapter, {name}.",
                hint=f"Merge it: --adapter {place}. To convert the model alone, convert a folder "
                "without the adapter's files.",
            )
