"""Checks from the header of a GGUF file whether llama.cpp can run it, also of all models here."""

from collections.abc import Iterator
from pathlib import Path

from gptoss_local.errors import GptOssError, ModelLoadError, UsageError
from gptoss_local.formats.gguf_file import GGUFInfo, read_array, read_info, split_files
from gptoss_local.formats.o200k import MERGES_KEY, TOKENS_KEY, TYPES_KEY, vocabulary_faults
from gptoss_local.models.names import name_of
from gptoss_local.models.store.manifests import read_manifests
from gptoss_local.models.store.models import find_model, list_models
from gptoss_local.settings import Settings

_ARCHITECTURE = "gpt-oss"
_OLLAMA_ARCHITECTURE = "gptoss"
_PRE_TOKENIZERS = ("gpt-4o", "default", None)

# Tensors that the loader demands, of the first layer and outside the layers. Source: llama.cpp's
# src/models/openai-moe.cpp.
_NEEDED = (
    *("token_embd.weight", "output_norm.weight", "output.weight"),
    *("blk.0.attn_norm.weight", "blk.0.post_attention_norm.weight", "blk.0.attn_output.weight"),
    *("blk.0.attn_sinks.weight", "blk.0.ffn_gate_inp.weight", "blk.0.ffn_gate_exps.weight"),
    *("blk.0.ffn_up_exps.weight", "blk.0.ffn_down_exps.weight"),
)


def check_usable(path: Path) -> None:
    """Refuse a file that would only fail when it is loaded.

    Args:
        path: The file, the first one if it is split.
    """
    try:
        info = read_info(path)
    except ModelLoadError as error:
        raise UsageError("supplied file was not in GGUF format", hint=error.message) from error
    if info.architecture == _OLLAMA_ARCHITECTURE:
        raise UsageError(
            "this is Ollama's own layout of gpt-oss, which llama.cpp cannot load",
            hint="Download the model again: gptoss pull gpt-oss:20b",
        )
    if info.metadata.get("general.type") == "adapter":
        raise UsageError(
            f"{path.name} is a LoRA adapter, and not a model",
            hint="Merge the adapter as PEFT saved it: gptoss convert BASE OUT.gguf --adapter DIR",
        )
    if info.architecture != _ARCHITECTURE:
        raise UsageError(f"gptoss runs gpt-oss only, and the file is of '{info.architecture}'")
    _check_length(path, info)
    pre = info.metadata.get("tokenizer.ggml.pre")
    if pre not in _PRE_TOKENIZERS:
        raise UsageError(
            f"the file states the pre-tokenizer {pre!a:.40}, and gpt-oss has {_PRE_TOKENIZERS[0]}",
            hint="Convert or fetch the model again.",
        )
    names = _tensor_names(path, info)
    missing = [name for name in _NEEDED if name not in names]
    if not names & {"blk.0.attn_q.weight", "blk.0.attn_qkv.weight"}:
        missing.append("blk.0.attn_q.weight")
    if missing:
        raise UsageError(
            f"the file lacks the tensor {missing[0]}, so llama.cpp cannot load it",
            hint="Convert or fetch the model again.",
        )


def check_new(path: Path) -> None:
    """Refuse what `check_usable` refuses, and a vocabulary that is not gpt-oss's."""
    check_usable(path)
    tokens, types, merges = (read_array(path, k) for k in (TOKENS_KEY, TYPES_KEY, MERGES_KEY))
    for _, fault in vocabulary_faults(tokens, types, merges):
        raise UsageError(
            f"the vocabulary of the file is not gpt-oss's. {fault}",
            hint="Convert or fetch the model again.",
        )


def unusable_models(settings: Settings) -> Iterator[tuple[str, GptOssError]]:
    """Yield the models that have a name here and cannot be loaded, and why."""
    listed = [entry.name for entry in list_models(settings) if entry.path and not entry.embedded]
    manifests, unreadable = read_manifests(settings)
    yield from ((name_of(path), error) for path, error in unreadable.items())
    for name in dict.fromkeys([*listed, *map(name_of, manifests)]):
        try:
            if path := find_model(name, settings).path:
                check_usable(path)
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


def _tensor_names(path: Path, info: GGUFInfo) -> set[str]:
    others = [read_info(part) for part in split_files(path)[1:]]
    for part, other in zip(split_files(path)[1:], others, strict=True):
        _check_length(part, other)
    return {tensor.name for each in (info, *others) for tensor in each.tensors}
