"""Checks from the header of a GGUF file whether llama.cpp can run it."""

import math
import re
from collections.abc import Iterator
from pathlib import Path

from gptoss_local.base.errors import GptOssError, ModelLoadError, ModelNotFoundError, UsageError
from gptoss_local.base.formats.gguf_file import SPLIT_NAME, GGUFInfo, read_info, split_files
from gptoss_local.base.settings import Settings
from gptoss_local.models.names import name_of
from gptoss_local.models.store.manifests import read_manifests
from gptoss_local.models.store.models import find_model, list_models

_ARCHITECTURE = "gpt-oss"
_OLLAMA_ARCHITECTURE = "gptoss"

# Source: `build_lora_mm`, `build_lora_mm_id` and `build_inp_embd` in its src/llama-graph.cpp.
_ADAPTED = re.compile(
    r"(token_embd|output|blk\.\d+\.(attn_(q|k|v|qkv|output)|ffn_(gate_inp|(gate|up|down)_exps)))"
    r"\.weight"
)


def check_usable(path: Path) -> None:
    """Refuse a file (the first one if split) that would fail while loading."""
    if not path.exists():
        raise ModelNotFoundError(
            f"there is no file {path}",
            hint="All parts of a model must lie in one folder, under their own names."
            if SPLIT_NAME.search(path.name)
            else "`gptoss import` lists the models that other programs have on this machine.",
        )
    try:
        info = read_info(path)
    except ModelLoadError as error:
        hint = f"{error.message}. {error.hint}".removesuffix(" ")
        raise UsageError("supplied file was not in GGUF format", hint=hint) from error
    n_parts = info.metadata.get("split.count")
    is_first = SPLIT_NAME.search(path.name) and not info.metadata.get("split.no")
    if isinstance(n_parts, int) and n_parts > 1 and not is_first:
        raise UsageError(
            f"the file is one of the {n_parts} parts of a model, or begins with one",
            hint="Keep all parts in one folder under their own names, which end in "
            f"-00001-of-{n_parts:05d}.gguf. Parts that were joined by cat must be fetched again.",
        )
    if info.architecture == _OLLAMA_ARCHITECTURE:
        raise UsageError(
            "this is Ollama's own layout of gpt-oss, which llama.cpp cannot load",
            hint="Download the model again: gptoss pull gpt-oss:20b",
        )
    if info.metadata.get("general.type") == "adapter":
        raise UsageError(
            f"{path.name} is a LoRA adapter, and not a model",
            hint=f"Add it to its model: gptoss adapter add NAME --model MODEL {path.name}",
        )
    if info.architecture != _ARCHITECTURE:
        raise UsageError(f"gptoss runs gpt-oss only, and the file is of '{info.architecture}'")
    for part in split_files(path):
        _check_length(part, read_info(part))


def check_new(path: Path) -> None:
    """Refuse what `gptoss verify` would, but for bytes that llama.cpp does not look at."""
    from convert.verify import check_headers  # PERF: NumPy

    check_usable(path)
    try:
        findings = check_headers(path).findings
    except OSError as error:  # another process has just removed it, or its disk is gone
        raise ModelLoadError(f"cannot read {path}: {error.strerror}") from error
    for found in findings:
        if found.where not in ("padding", "length"):
            raise UsageError(
                f"the file is not a valid gpt-oss: {found.message}",
                hint=f"Convert or fetch the model again. `gptoss verify {path}` says all of it.",
            )


def check_adapter(path: Path, base: Path) -> None:
    """Refuse a LoRA that llama.cpp would not apply to a model, or only in part."""

    def refuse(why: str) -> UsageError:
        made_for = info.metadata.get("general.base_model.0.repo_url") or "the one it was trained on"
        return UsageError(
            f"the adapter {path.name} {why}", hint=f"Its base model is {made_for!s:.200}."
        )

    try:
        info = read_info(path)
    except ModelLoadError as error:
        raise UsageError(
            f"{path.name} is not a GGUF adapter: {error.message}",
            hint="Merge PEFT's files instead: gptoss convert BASE OUT.gguf --adapter DIR",
        ) from error
    kind = (info.metadata.get("general.type"), info.metadata.get("adapter.type"))
    if kind != ("adapter", "lora"):
        raise UsageError(f"{path.name} is not a LoRA adapter")
    if info.architecture != _ARCHITECTURE:
        raise refuse(f"is of '{info.architecture}' and not of gpt-oss")
    _check_length(path, info)
    alpha = info.metadata.get("adapter.lora.alpha")
    if not isinstance(alpha, float) or not math.isfinite(alpha) or not alpha:
        raise refuse(f"states the alpha {alpha}, which scales nothing")
    if "adapter.alora.invocation_tokens" in info.metadata:
        raise refuse("begins to act at certain tokens (aLoRA), which gptoss does not run")
    shapes = {t.name: t.shape for part in split_files(base) for t in read_info(part).tensors}
    held = {tensor.name: tensor.shape for tensor in info.tensors}
    if not held:
        raise refuse("holds no tensors")
    for name in held:
        stem, _, part = name.rpartition(".lora_")
        if part not in ("a", "b") or not _ADAPTED.fullmatch(stem):
            raise refuse(f"has {name}, which llama.cpp does not apply")
        if stem not in shapes:
            raise refuse(f"changes {stem}, which the model does not have")
        a, b = (held.get(f"{stem}.lora_{each}", ()) for each in "ab")
        *experts, n_out, n_in = shapes[stem]
        rank = b[-1] if b else 0
        right = ((*experts, rank, n_in), (*experts, n_out, rank))
        if stem == "token_embd.weight":  # `build_inp_embd` of llama.cpp takes rows of the first
            right = ((n_out, rank), (n_in, rank))
        if (a, b) != right or not rank:
            raise refuse(f"has factors of {a} and {b} for {stem} of {shapes[stem]}")


def unusable_models(settings: Settings) -> Iterator[tuple[str, GptOssError]]:
    listed = [entry.name for entry in list_models(settings) if entry.path and not entry.embedded]
    manifests, unreadable = read_manifests(settings)
    yield from ((name_of(path), error) for path, error in unreadable.items())
    for name in dict.fromkeys([*listed, *map(name_of, manifests)]):
        try:
            entry = find_model(name, settings)
            if entry.path:
                check_usable(entry.path)
            if entry.path and entry.adapter:
                check_adapter(entry.adapter, entry.path)
        except GptOssError as error:
            yield name, error


def _check_length(path: Path, info: GGUFInfo) -> None:
    end = info.n_described_bytes
    if end is None:
        raise UsageError(f"{path.name} has tensors of a type that llama.cpp does not have")
    if end > info.size_bytes:
        raise UsageError(
            f"{path.name} is cut off: it has {info.size_bytes:,} bytes of {end:,}",
            hint="Finish the download, or fetch the file again.",
        )
