"""The vocabulary of the GGUF: where it comes from, whether it is the right one, its keys."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
from gguf import GGUFWriter

from convert.layout import check_link, find_weights
from convert.tokenizer_files import (
    ID_KEYS,
    Tokenizer,
    read_hugging_face,
    read_model,
    read_rank_file,
)
from gptoss_local.base.errors import ConvertError
from gptoss_local.base.formats.o200k import FIRST_SPECIAL, is_harmony_sized, vocabulary_faults

PRE_TOKENIZER = "gpt-4o"  # llama.cpp's name for how o200k cuts text before BPE
_OWN_IDS = {"bos": 199998, "eos": 200002}  # or llama.cpp takes GPT-2's
TOKENIZER_HINT = (
    "Name a file of gpt-oss's vocabulary with --tokenizer: a folder with tokenizer.json, "
    "an o200k_base.tiktoken, or the .gguf of any gpt-oss model."
)


def read_tokenizer(folder: Path, n_vocab: int, source: Path | None = None) -> Tokenizer:
    """Read the vocabulary of a checkpoint, and judge it.

    Args:
        folder: The checkpoint. Its own tokenizer files are used when no `source` is named.
        n_vocab: Rows of the embedding; ids without a token are filled up to it.
        source: A folder with Hugging Face tokenizer files, a `tokenizer.json`, a rank file
            (`.tiktoken`), or the `.gguf` of a gpt-oss model.
    """
    place = source or own_tokenizer(folder)
    if place is None:
        missing = find_weights(folder) / "tokenizer.json"
        raise ConvertError(f"{missing} is missing.", hint=TOKENIZER_HINT)
    if place.suffix == ".gguf":
        tokenizer = read_model(place, n_vocab)
    elif place.suffix == ".tiktoken":
        tokenizer = read_rank_file(place, n_vocab)
    elif place.suffix == ".json":
        tokenizer = read_hugging_face(place, n_vocab)
    else:
        tokenizer = read_hugging_face(place / "tokenizer.json", n_vocab)
    if is_harmony_sized(tokenizer.tokens):
        ids = _OWN_IDS | tokenizer.special_ids
        tokenizer = msgspec.structs.replace(tokenizer, special_ids=ids)
    for _, fault in find_faults(tokenizer):
        raise ConvertError(
            f"{place} does not hold o200k_harmony, the vocabulary of gpt-oss. {fault}",
            hint=TOKENIZER_HINT,
        )
    return tokenizer


def find_faults(tokenizer: Tokenizer) -> Iterator[tuple[str, str]]:
    """Yield the GGUF's key and a sentence for everything that is wrong by itself."""
    yield from vocabulary_faults(tokenizer.tokens, tokenizer.types, tokenizer.merges)
    least = FIRST_SPECIAL if is_harmony_sized(tokenizer.tokens) else 0
    for kind, token_id in tokenizer.special_ids.items():
        if not (0 if kind == "pad" else least) <= token_id < len(tokenizer.tokens):
            key = ID_KEYS[kind]
            yield key, f"{key} is {token_id}, which is not one of the special tokens."


def add_tokenizer(writer: GGUFWriter, tokenizer: Tokenizer) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_TOKENIZER)
    setters = {
        "bos": writer.add_bos_token_id,
        "eos": writer.add_eos_token_id,
        "pad": writer.add_pad_token_id,
    }
    for kind, token_id in tokenizer.special_ids.items():
        setters[kind](token_id)
    writer.add_add_bos_token(False)  # a rendered harmony prompt is complete
    writer.add_add_eos_token(False)
    if tokenizer.chat_template is not None:
        writer.add_chat_template(tokenizer.chat_template)
    writer.add_token_list(tokenizer.tokens)
    writer.add_token_types(tokenizer.types)
    writer.add_token_merges(tokenizer.merges)


def own_tokenizer(folder: Path) -> Path | None:
    for place in (find_weights(folder), folder):
        if (place / "tokenizer.json").is_file():
            check_link(place / "tokenizer.json")
            return place
    return None
