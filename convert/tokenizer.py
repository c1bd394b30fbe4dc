"""The vocabulary of the GGUF: read from each kind of file that has one, judged, and its keys."""

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from gguf import GGUFWriter, TokenType

from convert.files import read_bytes, read_json
from gptoss_local.base.errors import ConvertError, ModelLoadError
from gptoss_local.base.formats.gguf_file import read_array, read_info
from gptoss_local.base.formats.o200k import (
    END_OF_PROMPT,
    FIRST_SPECIAL,
    MERGES_KEY,
    SPECIAL_TOKENS,
    SPLIT_REGEX,
    TOKENS_KEY,
    TYPES_KEY,
    derive_merges,
    is_harmony_sized,
    parse_ranks,
    vocabulary_faults,
)
from gptoss_local.base.validation import in_words

SETTINGS_NAME, ADDED_NAME = "tokenizer_config.json", "added_tokens.json"
_NO_NORMALIZERS = (None, {"type": "Sequence", "normalizers": []})
# Source: `does_token_look_special` in llama.cpp's conversion/base.py.
_LOOKS_SPECIAL = re.compile(
    r"<\|.*\|>|<\uff5c.*\uff5c>|<unused.*>|<pad>|<mask>|<2mass>|\[@BOS@\]", re.DOTALL
)
PRE_TOKENIZER = "gpt-4o"  # llama.cpp's name for how o200k cuts text before BPE
_OWN_IDS = {"bos": 199998, "eos": 200002}  # or llama.cpp takes GPT-2's
TOKENIZER_HINT = (
    "Name a file of gpt-oss's vocabulary with --tokenizer: a folder with tokenizer.json, "
    "an o200k_base.tiktoken, or the .gguf of any gpt-oss model."
)
MAX_TOKENIZER_BYTES = 200_000_000  # gpt-oss's tokenizer.json has 28 MB

ID_KEYS = {
    "bos": "tokenizer.ggml.bos_token_id",
    "eos": "tokenizer.ggml.eos_token_id",
    "pad": "tokenizer.ggml.padding_token_id",
}

_TokenId = Annotated[int, msgspec.Meta(ge=0)]


class _Bpe(msgspec.Struct, frozen=True):
    """`ignore_merges` and what is for unknown bytes change nothing in o200k, which has them all."""

    type: Literal["BPE"]
    vocab: dict[str, _TokenId]
    merges: list[str | tuple[str, str]]  # "left right" before transformers 4.45, then pairs
    dropout: float | None = None
    continuing_subword_prefix: str | None = None
    end_of_word_suffix: str | None = None


class _Added(msgspec.Struct, frozen=True):
    content: str
    special: bool = False
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False


class _AddedToken(_Added, frozen=True, kw_only=True):
    id: _TokenId

    @property
    def type(self) -> TokenType:
        is_control = self.special or _LOOKS_SPECIAL.fullmatch(self.content)
        return TokenType.CONTROL if is_control else TokenType.USER_DEFINED


class _TokenizerFile(msgspec.Struct, frozen=True):
    model: _Bpe
    added_tokens: list[_AddedToken] = []
    normalizer: dict[str, Any] | None = None
    pre_tokenizer: dict[str, Any] | None = None
    decoder: dict[str, Any] | None = None


class Tokenizer(msgspec.Struct, frozen=True):
    """The data that llama.cpp needs to tokenize; tokens and types are indexed by token id.

    Tokens have one printable character per byte; merges are "left right", first merged first;
    special ids are of "bos", "eos" and "pad", as far as they are known.
    """

    tokens: list[str]
    types: list[int]
    merges: list[str]
    special_ids: dict[str, int]
    chat_template: str | None


def read_tokenizer(place: Path, n_vocab: int) -> Tokenizer:
    """Read and judge what `--tokenizer` names; ids without a token are filled up to `n_vocab`."""
    if place.suffix == ".gguf":
        tokenizer = _read_model(place, n_vocab)
    elif place.suffix == ".tiktoken":
        tokenizer = _read_rank_file(place, n_vocab)
    else:
        file = place if place.suffix == ".json" else place / "tokenizer.json"
        tokenizer = _read_hugging_face(file, n_vocab)
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
    yield from vocabulary_faults(tokenizer.tokens, tokenizer.types, tokenizer.merges)
    least = FIRST_SPECIAL if is_harmony_sized(tokenizer.tokens) else 0
    for kind, token_id in tokenizer.special_ids.items():
        if not (0 if kind == "pad" else least) <= token_id < len(tokenizer.tokens):
            key = ID_KEYS[kind]
            yield key, f"{key} is {token_id}, which is not one of the special tokens."


def add_tokenizer(writer: GGUFWriter, tokenizer: Tokenizer) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_TOKENIZER)
    for kind, token_id in tokenizer.special_ids.items():
        writer.add_uint32(ID_KEYS[kind], token_id)
    writer.add_add_bos_token(False)  # a rendered harmony prompt is complete
    writer.add_add_eos_token(False)
    if tokenizer.chat_template is not None:
        writer.add_chat_template(tokenizer.chat_template)
    writer.add_token_list(tokenizer.tokens)
    writer.add_token_types(tokenizer.types)
    writer.add_token_merges(tokenizer.merges)


def _read_hugging_face(path: Path, n_vocab: int) -> Tokenizer:
    """Read `tokenizer.json` and the special tokens, as llama.cpp's `get_vocab_base` does."""
    try:
        file = msgspec.json.decode(_read_bytes(path), type=_TokenizerFile)
    except (ValueError, RecursionError) as error:
        what = f"{path} is not a BPE tokenizer: {in_words(error)}."
        raise ConvertError(what, hint=TOKENIZER_HINT) from error
    texts = {token_id: text for text, token_id in file.model.vocab.items()}
    for ids in ([*file.model.vocab.values()], [token.id for token in file.added_tokens]):
        if len(set(ids)) != len(ids):
            raise ConvertError(f"{path} gives two tokens the same id.")
    types = dict.fromkeys(texts, TokenType.NORMAL)
    texts |= {token.id: token.content for token in file.added_tokens}
    settings = _read_settings(path.parent / SETTINGS_NAME)
    added = [*file.added_tokens, *_added_elsewhere(path.parent, settings, texts)]
    texts |= {token.id: token.content for token in added}
    types |= {token.id: token.type for token in added}
    if n_vocab > FIRST_SPECIAL:
        _check_steps(file, added, path)
    return Tokenizer(
        **_fill(path, texts, types, n_vocab),
        merges=[_join(merge) for merge in file.model.merges],
        special_ids=_special_ids(path.parent, settings, texts, n_vocab),
        chat_template=_chat_template(path.parent, settings),
    )


def _added_elsewhere(
    folder: Path, settings: dict[str, Any], texts: Mapping[int, str]
) -> Iterator[_AddedToken]:
    """Yield tokens that only these files have; transformers and llama.cpp's converter take them."""
    old = _read_settings(folder / ADDED_NAME)
    names: set[str] = set()
    for key in ("additional_special_tokens", "extra_special_tokens"):
        each = settings.get(key) or ()
        names |= set(map(_text, each.values() if isinstance(each, dict) else each))
    stated = {
        SETTINGS_NAME: settings.get("added_tokens_decoder") or {},
        ADDED_NAME: {str(i): {"content": t, "special": t in names} for t, i in old.items()},
    }
    for name, tokens in stated.items():
        try:
            found = msgspec.convert(tokens, dict[_TokenId, _Added], str_keys=True)
        except msgspec.ValidationError as error:
            raise ConvertError(f"{folder / name} is not valid: {in_words(error)}.") from error
        for i, token in sorted(found.items()):
            if texts.get(i, token.content) != token.content != SPECIAL_TOKENS.get(i):
                raise ConvertError(
                    f"{folder / name} calls the token {i} {token.content!a:.80}; tokenizer.json "
                    f"calls it {texts[i]!a:.80}.",
                    hint="Save the tokenizer again with transformers, or correct the wrong one.",
                )
            if i not in texts:
                yield _AddedToken(**msgspec.structs.asdict(token), id=i)


def _check_steps(file: _TokenizerFile, added: Iterable[_AddedToken], path: Path) -> None:
    """Refuse what would give a text other tokens than o200k and the added tokens do."""
    bpe = file.model
    stated: dict[str, object] = {
        "dropout": bpe.dropout,
        "continuing_subword_prefix": bpe.continuing_subword_prefix,
        "end_of_word_suffix": bpe.end_of_word_suffix,
    }
    odd = {key: value for key, value in stated.items() if value}
    if file.normalizer not in _NO_NORMALIZERS:
        odd["normalizer"] = file.normalizer
    if not _cuts_as_o200k(file.pre_tokenizer or {}):
        odd["pre_tokenizer"] = file.pre_tokenizer
    if file.decoder and _kind(file.decoder) != "ByteLevel":
        odd["decoder"] = file.decoder
    for token in added:
        for flag in ("single_word", "lstrip", "rstrip"):
            if token.type == TokenType.USER_DEFINED and getattr(token, flag):
                odd[flag] = token.content
    for key, value in odd.items():
        raise ConvertError(
            f"{path} states a {key} that is not gpt-oss's: {value!a:.200}.",
            hint="A prompt would become other tokens here than in training. If the key is wrong or "
            "has no effect, copy it from the base model's tokenizer.json.",
        )


def _cuts_as_o200k(stated: dict[str, Any]) -> bool:
    steps = stated.get("pretokenizers")
    if not isinstance(steps, list) or [_kind(step) for step in steps] != ["Split", "ByteLevel"]:
        return False
    split, byte_level = steps
    return (
        stated.get("type") == "Sequence"
        and split.get("pattern") == {"Regex": SPLIT_REGEX}
        and (split.get("behavior"), split.get("invert", False)) == ("Isolated", False)
        and byte_level.get("add_prefix_space") is False
        and byte_level.get("use_regex") is False
    )


def _kind(step: object) -> object:
    return step.get("type") if isinstance(step, dict) else None


def _read_rank_file(path: Path, n_vocab: int) -> Tokenizer:
    """Read an o200k rank file, and add harmony's special tokens of the published tokenizer.json."""
    try:
        ranks = parse_ranks(_read_bytes(path))
    except ValueError as error:
        raise ConvertError(f"{path} is not a rank file: {error}.") from error
    specials = {i: text for i, text in SPECIAL_TOKENS.items() if i < END_OF_PROMPT}
    specials[END_OF_PROMPT] = "<|endofprompt|>"
    texts = dict(enumerate(ranks[:FIRST_SPECIAL])) | specials
    types = dict.fromkeys(texts, TokenType.NORMAL) | dict.fromkeys(specials, TokenType.CONTROL)
    merges = derive_merges({text: rank for rank, text in enumerate(ranks[:FIRST_SPECIAL])})
    return Tokenizer(
        **_fill(path, texts, types, n_vocab),
        merges=[_join(merge) for merge in merges],
        special_ids={"bos": 199998, "eos": 200002, "pad": 199999},
        chat_template=None,
    )


def _read_model(path: Path, n_vocab: int) -> Tokenizer:
    try:
        info = read_info(path)
        tokens = read_array(path, TOKENS_KEY)
        types = read_array(path, TYPES_KEY)
        merges = read_array(path, MERGES_KEY)
    except ModelLoadError as error:
        raise ConvertError(f"{path} gives no vocabulary: {error.message}.") from error
    is_text = {type(text) for text in (*tokens, *merges)} <= {str}
    is_typed = len(tokens) == len(types) and {int(kind) for kind in TokenType}.issuperset(types)
    if info.architecture != "gpt-oss" or not is_text or not is_typed:
        raise ConvertError(f"{path} is not a model of gpt-oss with a vocabulary.")
    ids = {kind: info.metadata.get(key) for kind, key in ID_KEYS.items()}
    template = info.metadata.get("tokenizer.chat_template")
    return Tokenizer(
        **_fill(path, dict(enumerate(tokens)), dict(enumerate(types)), n_vocab),
        merges=merges,
        special_ids=_check_ids({k: i for k, i in ids.items() if isinstance(i, int)}, path, n_vocab),
        chat_template=template if isinstance(template, str) else None,
    )


def _read_bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_TOKENIZER_BYTES:
            raise ConvertError(f"{path} is too long for a tokenizer.")
        return path.read_bytes().removeprefix(BOM_UTF8)
    except OSError as error:
        raise ConvertError(f"The tokenizer {path} cannot be read: {error.strerror}.") from error


def _fill(path: Path, texts: dict[int, str], types: dict[int, int], n_vocab: int) -> dict[str, Any]:
    """Lay texts and types out by id, with llama.cpp's padding where there is none."""
    last = max(texts, default=0)
    if last >= n_vocab:
        raise ConvertError(
            f"{path} holds the token id {last}; vocab_size is {n_vocab}.",
            hint="Save the model with a row for each token (with transformers, "
            "model.resize_token_embeddings(len(tokenizer))), or take the token out of the file.",
        )
    return {
        "tokens": [texts.get(i, f"[PAD{i}]") for i in range(n_vocab)],
        "types": [int(types.get(i, TokenType.UNUSED)) for i in range(n_vocab)],
    }


def _join(merge: str | tuple[str, str]) -> str:
    return merge if isinstance(merge, str) else f"{merge[0]} {merge[1]}"


def _read_settings(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _text(token: object) -> str:
    """Return the text of a token as these files name one, which may be with its settings."""
    return str(token.get("content", "") if isinstance(token, dict) else token or "")


def _special_ids(
    folder: Path, settings: dict[str, Any], texts: Mapping[int, str], n_vocab: int
) -> dict[str, int]:
    """Take each id from the first file that states it; tokenizer_config.json names the text."""
    id_of = {text: i for i, text in texts.items()}
    configs = [_read_settings(folder / f) for f in ("config.json", "generation_config.json")]
    found: dict[str, int] = {}
    for kind in ("bos", "eos", "pad"):
        text = _text(settings.get(f"{kind}_token"))
        if kind == "eos" and text and text not in id_of:
            raise ConvertError(
                f"{folder / SETTINGS_NAME} names the eos_token {text!a:.80}, which is not one of "
                "the tokens.",
                hint="Save the tokenizer again with transformers, which adds it.",
            )
        stated = [id_of.get(text), *(config.get(f"{kind}_token_id") for config in configs)]
        token_id = next((i for i in stated if type(i) is int), None)
        if token_id is not None:
            found[kind] = token_id
    return _check_ids(found, folder, n_vocab)


def _check_ids(special_ids: dict[str, int], where: Path, n_vocab: int) -> dict[str, int]:
    for kind, token_id in special_ids.items():
        if not 0 <= token_id < n_vocab:
            raise ConvertError(
                f"{kind}_token_id is {token_id} in {where}, beyond vocab_size, {n_vocab}."
            )
    return special_ids


def _chat_template(folder: Path, settings: dict[str, Any]) -> str | None:
    """Return the template; of several, the default, as llama.cpp's converter does."""
    path = folder / "chat_template.jinja"
    stated = settings.get("chat_template")
    if stated is None and not path.is_file():
        stated = _read_settings(folder / "chat_template.json").get("chat_template")
    if isinstance(stated, list):
        named = [each for each in stated if isinstance(each, dict) and "template" in each]
        stated = {each.get("name"): each["template"] for each in named}.get("default")
    if isinstance(stated, str):
        return stated
    if not path.is_file():
        return None
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise ConvertError(f"{path} is not text in UTF-8: {error}.") from error
