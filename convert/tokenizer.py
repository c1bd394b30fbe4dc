"""The GGUF's vocabulary, from a checkpoint's tokenizer files.

It copies tokens and merges and states their types; it never tokenizes.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from gguf import GGUFWriter, TokenType

from convert.config import read_json
from gptoss_local.errors import ConvertError

PRE_TOKENIZER = "gpt-4o"  # llama.cpp's name for how o200k cuts text before BPE

_TokenId = Annotated[int, msgspec.Meta(ge=0)]


class _Bpe(msgspec.Struct, frozen=True):
    type: Literal["BPE"]
    vocab: dict[str, _TokenId]
    merges: list[str | tuple[str, str]]  # "left right" before transformers 4.45, then pairs


class _AddedToken(msgspec.Struct, frozen=True):
    id: _TokenId
    content: str
    special: bool


class _TokenizerFile(msgspec.Struct, frozen=True):
    model: _Bpe
    added_tokens: list[_AddedToken]


class Tokenizer(msgspec.Struct, frozen=True):
    """What llama.cpp needs to tokenize, indexed by token id.

    Attributes:
        tokens: Byte-level BPE spelling, one printable character per byte.
        types: `gguf.TokenType` values.
        merges: "left right", first merged first.
        special_ids: Of "bos", "eos" and "pad", those that the checkpoint names.
        chat_template: Jinja source, if the checkpoint has one.
    """

    tokens: list[str]
    types: list[int]
    merges: list[str]
    special_ids: dict[str, int]
    chat_template: str | None


def read_tokenizer(folder: Path, n_vocab: int) -> Tokenizer:
    """Read `tokenizer.json` and what the files beside it say of special tokens.

    Args:
        folder: The checkpoint.
        n_vocab: Rows of the embedding; ids without a token are filled up to it.

    Raises:
        ConvertError: A file is missing or broken, or an id lies beyond the embedding.

    Source: `get_vocab_base` in llama.cpp's conversion/base.py; `SpecialVocab` in gguf.
    """
    path = folder / "tokenizer.json"
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_TokenizerFile)
    except FileNotFoundError as error:
        raise ConvertError(f"{path} is missing.", hint="Finish the download first.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConvertError(f"{path} is not a BPE tokenizer: {error}.") from error
    tokens = [f"[PAD{token_id}]" for token_id in range(n_vocab)]
    types = [int(TokenType.UNUSED)] * n_vocab
    type_of = dict.fromkeys(file.model.vocab.values(), TokenType.NORMAL)
    type_of |= {token.id: _added_type(token) for token in file.added_tokens}
    if max(type_of, default=0) >= n_vocab:
        raise ConvertError(f"{path} holds the token id {max(type_of)}; vocab_size is {n_vocab}.")
    for text, token_id in file.model.vocab.items():
        tokens[token_id] = text
    for token in file.added_tokens:
        tokens[token.id] = token.content
    for token_id, token_type in type_of.items():
        types[token_id] = token_type
    settings = _read_if_present(folder / "tokenizer_config.json")
    return Tokenizer(
        tokens=tokens,
        types=types,
        merges=[_join(merge) for merge in file.model.merges],
        special_ids=_special_ids(folder, settings, file.added_tokens, n_vocab),
        chat_template=_chat_template(folder, settings),
    )


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


def _added_type(token: _AddedToken) -> TokenType:
    looks_special = token.content.startswith("<|") and token.content.endswith("|>")
    return TokenType.CONTROL if token.special or looks_special else TokenType.USER_DEFINED


def _join(merge: str | tuple[str, str]) -> str:
    return merge if isinstance(merge, str) else f"{merge[0]} {merge[1]}"


def _read_if_present(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _special_ids(
    folder: Path, settings: dict[str, Any], added: Iterable[_AddedToken], n_vocab: int
) -> dict[str, int]:
    """Take each id from the first file that states it; tokenizer_config.json names the text."""
    id_of = {token.content: token.id for token in added}
    configs = [_read_if_present(folder / f) for f in ("config.json", "generation_config.json")]
    found: dict[str, int] = {}
    for kind in ("bos", "eos", "pad"):
        token = settings.get(f"{kind}_token")
        text = token.get("content", "") if isinstance(token, dict) else token
        stated = [id_of.get(str(text)), *(config.get(f"{kind}_token_id") for config in configs)]
        token_id = next((i for i in stated if isinstance(i, int)), None)
        if token_id is not None:
            found[kind] = token_id
            if not 0 <= token_id < n_vocab:
                raise ConvertError(f"{kind}_token_id is {token_id}, beyond vocab_size, {n_vocab}.")
    return found


def _chat_template(folder: Path, settings: dict[str, Any]) -> str | None:
    template = settings.get("chat_template")
    if isinstance(template, str):
        return template
    path = folder / "chat_template.jinja"
    return path.read_text(encoding="utf-8") if path.is_file() else None
