"""The vocabulary of the GGUF: where it comes from, whether it is the right one, its keys.

Nothing is tokenized here.
"""

from pathlib import Path

from gguf import GGUFWriter

from convert.layout import check_link, find_weights
from convert.tokenizer_files import Tokenizer, read_hugging_face, read_model, read_rank_file
from gptoss_local.errors import ConvertError
from gptoss_local.formats.o200k import (
    NAMED_SPECIALS,
    SPECIAL_TOKENS,
    VOCAB_SIZE,
    has_its_ranks,
)

PRE_TOKENIZER = "gpt-4o"  # llama.cpp's name for how o200k cuts text before BPE
TOKENIZER_HINT = (
    "Name a file of gpt-oss's vocabulary with --tokenizer: a folder with tokenizer.json, "
    "an o200k_base.tiktoken, or the .gguf of any gpt-oss model."
)


def read_tokenizer(folder: Path, n_vocab: int, source: Path | None = None) -> Tokenizer:
    """Read the vocabulary of a checkpoint, and check it if it must be o200k_harmony.

    Args:
        folder: The checkpoint. Its own tokenizer files are used when no `source` is named.
        n_vocab: Rows of the embedding; ids without a token are filled up to it.
        source: A folder with Hugging Face tokenizer files, a `tokenizer.json`, a rank file
            (`.tiktoken`), or the `.gguf` of a gpt-oss model.

    Raises:
        ConvertError: There is no tokenizer, it is broken or too large for the embedding, or it is
            not o200k_harmony though it has 201,088 tokens.
    """
    place = source or _own_tokenizer(folder)
    if place.suffix == ".gguf":
        tokenizer = read_model(place, n_vocab)
    elif place.suffix == ".tiktoken":
        tokenizer = read_rank_file(place, n_vocab)
    elif place.suffix == ".json":
        tokenizer = read_hugging_face(place, n_vocab)
    else:
        tokenizer = read_hugging_face(place / "tokenizer.json", n_vocab)
    if n_vocab == VOCAB_SIZE:
        _check_o200k(tokenizer, place)
    return tokenizer


def add_tokenizer(writer: GGUFWriter, tokenizer: Tokenizer) -> None:
    """Add the tokenizer's keys, the arrays last."""
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


def _own_tokenizer(folder: Path) -> Path:
    """Find tokenizer.json next to the weights, or next to the `original/` that holds them."""
    weights = find_weights(folder)
    for place in (weights, folder):
        if (place / "tokenizer.json").is_file():
            check_link(place / "tokenizer.json")
            return place
    raise ConvertError(f"{weights / 'tokenizer.json'} is missing.", hint=TOKENIZER_HINT)


def _check_o200k(tokenizer: Tokenizer, place: Path) -> None:
    wrong = next((i for i in NAMED_SPECIALS if tokenizer.tokens[i] != SPECIAL_TOKENS[i]), None)
    if wrong is not None or not has_its_ranks(tokenizer.tokens):
        found = "" if wrong is None else f" {wrong} is {tokenizer.tokens[wrong]!r} in it."
        raise ConvertError(
            f"{place} does not hold o200k_harmony, the vocabulary of gpt-oss.{found}",
            hint=TOKENIZER_HINT,
        )
