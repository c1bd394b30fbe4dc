"""Write what a Dynamo frontend reads of a model: its vocabulary and its limits, no weights."""

import tempfile
from pathlib import Path
from typing import Any

import msgspec

from gptoss_local.errors import disk_error
from gptoss_local.formats.o200k import VOCAB_SIZE
from gptoss_local.harmony.vocabulary import STOP_TOKENS, Vocabulary
from gptoss_local.models.nano.materialize import GENERATION_CONFIG
from gptoss_local.models.nano.tokenizer import tokenizer_config, tokenizer_json

_VERSION = 1  # of what is written; another one has another folder


def write_model_folder(cache_dir: Path, vocabulary: Vocabulary, n_ctx_train: int) -> Path:
    """Return a folder in Hugging Face's layout, written unless it is there.

    It is the same for all gpt-oss models with this context, and has no chat template: the model is
    registered for completions alone, since only our own renderer is known to render harmony right.

    Args:
        cache_dir: The user's.
        vocabulary: Of the model.
        n_ctx_train: The longest context that it was made for.

    Raises:
        DiskError: it cannot be written.
    """
    folder = cache_dir / "dynamo" / f"o200k_harmony-{n_ctx_train}-{_VERSION}"
    if folder.is_dir():
        return folder
    config = {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "vocab_size": VOCAB_SIZE,
        "max_position_embeddings": n_ctx_train,
        "eos_token_id": STOP_TOKENS[0],
    }
    files: dict[str, dict[str, Any]] = {
        "config.json": config,
        "generation_config.json": GENERATION_CONFIG,
        "tokenizer.json": tokenizer_json(vocabulary.token_bytes),
        "tokenizer_config.json": tokenizer_config(),
    }
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as place:
            written = Path(place) / folder.name
            written.mkdir()
            for name, content in files.items():
                (written / name).write_bytes(msgspec.json.encode(content))
            written.rename(folder)
    except OSError as error:
        if not folder.is_dir():  # another worker may have been faster
            message = f"{folder} cannot be written: {error.strerror}"
            raise disk_error(message, error, hint="GPTOSS_HOME says where it is.") from error
    return folder
