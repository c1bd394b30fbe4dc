"""Vocabularies as fine-tunes save them: refused before a byte is written, or right to the end."""

import copy
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from convert import convert_checkpoint
from convert.tokenizer import Tokenizer, read_tokenizer
from convert.verify import Report, verify_model
from gptoss_local.base.errors import ConvertError
from gptoss_local.base.formats.gguf_file import read_info, read_tokens
from gptoss_local.base.formats.o200k import SPLIT_REGEX, VOCAB_SIZE
from gptoss_local.models.nano.ranks import load_ranks
from tests.convert.tiny import tiny_config, write_json, write_tiny
from tests.nano.tiktoken_file import render_tiktoken

Edit = Callable[[dict[str, Any]], None]


def added(token_id: int, content: str, *, special: bool = True) -> Edit:
    """Add a token, or give a token that was added another name."""

    def add(tokenizer: dict[str, Any]) -> None:
        tokens = [t for t in tokenizer["added_tokens"] if t["id"] != token_id]
        tokens.append({"id": token_id, "content": content, "special": special})
        tokenizer["added_tokens"] = tokens

    return add


def dropped(token_id: int) -> Edit:
    def drop(tokenizer: dict[str, Any]) -> None:
        tokenizer["added_tokens"] = [t for t in tokenizer["added_tokens"] if t["id"] != token_id]

    return drop


def add_tokens(tokenizer: dict[str, Any]) -> None:
    for i in range(3):
        added(201088 + i, f"<|new_{i}|>")(tokenizer)


def cut_merges(tokenizer: dict[str, Any]) -> None:
    del tokenizer["model"]["merges"][-5:]


def drop_a_token(tokenizer: dict[str, Any]) -> None:
    tokenizer["model"]["vocab"].popitem()


def exchange_tokens(tokenizer: dict[str, Any]) -> None:
    vocab = tokenizer["model"]["vocab"]
    vocab["\u0120the"], vocab["\u0120of"] = vocab["\u0120of"], vocab["\u0120the"]


def twice(tokenizer: dict[str, Any]) -> None:
    for token_id in (200030, 200031):
        added(token_id, "<|twice|>")(tokenizer)


def changed(key: str, value: object, *, part: str = "") -> Edit:
    return lambda tokenizer: (tokenizer[part] if part else tokenizer).update({key: value})


rename_reserved = added(200020, "<|my_tool|>")
TAKEN: dict[str, tuple[Edit, ...]] = {
    "as it is": (
        dropped(200014),
        changed("ignore_merges", True, part="model"),  # the same tokens
        changed("normalizer", {"type": "Sequence", "normalizers": []}),
    ),
    "other names": (rename_reserved, added(200500, "[IMG]", special=False)),
    "more": (add_tokens,),
}
REFUSED: dict[str, tuple[Edit, str]] = {
    "another call": (added(200012, "<|my_call|>"), r"Token 200012 is '<\|my_call\|>'"),
    "no start": (dropped(200006), ""),
    "merges": (cut_merges, ""),
    "a token less": (drop_a_token, ""),
    "exchanged": (exchange_tokens, ""),
    "twice": (twice, ""),
    "added": (added(5, "&", special=False), ""),
}


MISTRAL = {"type": "Split", "pattern": {"Regex": SPLIT_REGEX.replace("{1,3}", "")}}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
MISTRALS = {"type": "Sequence", "pretokenizers": [MISTRAL | {"behavior": "Isolated"}, BYTE_LEVEL]}
STRIPPED = {"id": 200500, "content": "[IMG]", "special": False, "rstrip": True}
STEPS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"normalizer": {"type": "NFC"}}, {}, "a normalizer"),
    ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}]}}, {}, "Lowercase"),
    ({"pre_tokenizer": None}, {}, "a pre_tokenizer .*: None"),
    ({"pre_tokenizer": BYTE_LEVEL}, {}, "a pre_tokenizer"),
    ({"pre_tokenizer": MISTRALS}, {}, "a pre_tokenizer"),
    ({"decoder": {"type": "Metaspace"}}, {}, "a decoder"),
    ({}, {"dropout": 0.1}, "a dropout"),
    ({}, {"end_of_word_suffix": "</w>"}, "end_of_word_suffix"),
    ({"added_tokens": [STRIPPED]}, {}, r"a rstrip .*\[IMG\]"),
]


@pytest.fixture(scope="module")
def tokenizer(nano_checkpoint: Path) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode((nano_checkpoint / "tokenizer.json").read_bytes())
    return found


@pytest.fixture
def write(tmp_path: Path, tokenizer: dict[str, Any], nano_checkpoint: Path) -> Callable[..., Path]:
    def write(*edits: Edit, n_vocab: int, without: tuple[str, ...] = (), **options: Any) -> Path:
        config = tiny_config(hidden_size=32, vocab_size=n_vocab)
        folder = write_tiny(tmp_path / "source", config=config, **options)
        for name in ("tokenizer_config.json", "generation_config.json"):
            (folder / name).unlink()
            if name not in without:
                shutil.copyfile(nano_checkpoint / name, folder / name)
        model = {part: copy.copy(value) for part, value in tokenizer["model"].items()}
        changed = tokenizer | {"model": model}  # PERF: a deep copy takes three seconds
        for edit in edits:
            edit(changed)
        write_json(folder / "tokenizer.json", changed)
        return folder

    return write


def judge(source: Path, **options: Any) -> tuple[Report, Report] | ConvertError:
    """Convert and verify alone and against the source; the error if nothing was written."""
    target = source.with_name("m.gguf")
    try:
        first = convert_checkpoint(source, target, **options)[0]
    except ConvertError as error:
        assert sorted(source.parent.iterdir()) == [source], "not a byte is written"
        return error
    return verify_model(first), verify_model(first, against=source)


@pytest.mark.parametrize("name", TAKEN)
def test_other_names_and_more_tokens_are_right(write: Callable[..., Path], name: str) -> None:
    found = judge(write(*TAKEN[name], n_vocab=201091 if name == "more" else 201088))
    assert not isinstance(found, ConvertError), found
    alone, against = found
    assert (alone.findings, against.findings) == ([], [])
    is_known = name == "as it is"
    assert ["not checked" in note for note in alone.notes] == ([] if is_known else [True])
    assert against.notes == []


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_vocabulary_is_refused(write: Callable[..., Path], name: str) -> None:
    edit, match = REFUSED[name]
    found = judge(write(edit, n_vocab=201088, without=("tokenizer_config.json",)))
    assert isinstance(found, ConvertError)
    assert "does not hold o200k_harmony" in found.message
    assert re.search(match, found.message)
    assert "--tokenizer" in found.hint


@pytest.mark.parametrize(("top", "model", "match"), STEPS)
def test_other_steps_before_bpe_are_refused(
    tmp_path: Path, tokenizer: dict[str, Any], top: Any, model: Any, match: str
) -> None:
    """Mistral's regex is what transformers' fix_mistral_regex saves."""
    changed = tokenizer | top | {"model": tokenizer["model"] | model}
    write_json(tmp_path / "tokenizer.json", changed)
    with pytest.raises(ConvertError, match=match) as caught:
        read_tokenizer(tmp_path, VOCAB_SIZE)
    assert "the base model's tokenizer.json" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "content", "kept"),
    [
        ("tokenizer_config.json", [{"name": "x", "template": "X"}], None),
        (
            "tokenizer_config.json",
            [{"name": "x", "template": "X"}, {"name": "default", "template": "D"}],
            "D",
        ),
        ("chat_template.json", "J", "J"),
    ],
)
def test_templates_in_old_forms(tmp_path: Path, name: str, content: Any, kept: Any) -> None:
    source = write_tiny(tmp_path / "tiny")
    write_json(source / name, {"chat_template": content})
    assert read_tokenizer(source, 24).chat_template == kept


@pytest.mark.parametrize(
    "stated",
    [
        {"additional_special_tokens": ["<tool>"]},
        {"additional_special_tokens": [{"content": "<tool>", "__type": "AddedToken"}]},
        {"extra_special_tokens": {"tool_token": "<tool>"}},
    ],
)
def test_special_tokens_of_old_files(tmp_path: Path, stated: dict[str, Any]) -> None:
    """Of a token that only added_tokens.json has, another file says that it shows no text."""
    source = write_tiny(tmp_path / "tiny")
    write_json(source / "added_tokens.json", {"<tool>": 23})
    for settings, kind in ((stated, 3), ({}, 4)):
        write_json(source / "tokenizer_config.json", settings)
        assert read_tokenizer(source, 24).types[23] == kind


def test_the_checkpoints_names_are_compared(write: Callable[..., Path], tmp_path: Path) -> None:
    source = write(rename_reserved, added(200021, "[B]", special=False), n_vocab=201088)
    convert_checkpoint(source, tmp_path / "m.gguf")
    shutil.rmtree(source)
    source = write(added(200021, "[B]"), n_vocab=201088)
    name, kind = verify_model(tmp_path / "m.gguf", against=source).findings
    assert name.message == "Token 200020 is '<|my_tool|>', not the checkpoint's."
    assert "is [4] for token 200021, '[B]'; the checkpoint has 3" in kind.message


def test_special_ids_are_gpt_osss_where_no_file_states_them(write: Callable[..., Path]) -> None:
    """llama.cpp would take GPT-2's ids, which end a text with a comma."""
    files = ("tokenizer_config.json", "generation_config.json")
    source = write(n_vocab=201088, without=files)
    found = judge(source)
    assert not isinstance(found, ConvertError), found
    assert [report.findings for report in found] == [[], []]
    keys = read_info(source.with_name("m.gguf")).metadata
    assert keys["tokenizer.ggml.bos_token_id"] == 199998
    assert keys["tokenizer.ggml.eos_token_id"] == 200002


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(8))
def test_what_is_written_is_right(write: Callable[..., Path], seed: int) -> None:
    """Any mixture: refused, or right by itself and against its checkpoint."""
    rng, taken = random.Random(seed), [edit for edits in TAKEN.values() for edit in edits]
    refused = [edit for edit, _ in REFUSED.values()]
    edits = rng.sample(taken, rng.randint(0, 3)) + rng.sample(refused, rng.choice([0, 0, 0, 1]))
    n_vocab = rng.choice([200018, 200019, 200064, 201088, 201091, 201216])
    source = write(
        *edits,
        n_vocab=n_vocab,
        without=tuple(rng.sample(["tokenizer_config.json", "generation_config.json"], 1)),
        n_shards=rng.randint(1, 5),
        experts=rng.choice(["mxfp4", "bf16"]),
    )
    if rng.random() < 0.3:
        config = msgspec.json.decode((source / "config.json").read_bytes())
        write_json(source / "config.json", config | {"eos_token_id": rng.choice([5, 200007])})
    found = judge(
        source,
        dense=rng.choice(["q8_0", "q4_0", "bf16"]),
        max_shard_bytes=rng.choice([None, 40_000_000]),
    )
    if isinstance(found, ConvertError):
        has_room = n_vocab > 201090 or (add_tokens not in edits and n_vocab == 201088)
        assert set(edits) & set(refused) or not has_room or "eos_token_id" in found.message
    else:
        assert not set(edits) & set(refused)
        assert [report.findings for report in found] == [[], []]
        assert len(read_tokens(found[0].files[0])) == n_vocab


@pytest.fixture(scope="module")
def published(nano_checkpoint: Path) -> Tokenizer:
    return read_tokenizer(nano_checkpoint, VOCAB_SIZE)


def test_other_sources(
    nano_checkpoint: Path, q8_0_gguf: Path, published: Tokenizer, tmp_path: Path
) -> None:
    for source in (q8_0_gguf, nano_checkpoint, nano_checkpoint / "tokenizer.json"):
        assert read_tokenizer(source, VOCAB_SIZE) == published
    own, named = write_tiny(tmp_path / "own"), write_tiny(tmp_path / "named")
    text = (named / "tokenizer.json").read_text().replace('"plain"', '"other"')
    (named / "tokenizer.json").write_text(text)
    target = tmp_path / "m.gguf"
    for chosen, text in ((None, "plain"), (named, "other")):
        convert_checkpoint(own, target, tokenizer=chosen)
        assert read_tokens(target)[22] == text


def test_from_a_rank_file(published: Tokenizer, tmp_path: Path) -> None:
    rank_file = tmp_path / "o200k_base.tiktoken"
    rank_file.write_bytes(render_tiktoken(load_ranks()))
    tokenizer = read_tokenizer(rank_file, VOCAB_SIZE)
    assert tokenizer.tokens[:200018] == published.tokens[:200018]
    assert tokenizer.types[:200018] == published.types[:200018]
    assert tokenizer.tokens[200018:200020] == ["<|endofprompt|>", "[PAD200019]"]
    assert tokenizer.types[200018:] == [3] + [5] * (VOCAB_SIZE - 200019)
    assert tokenizer.merges == published.merges
    assert tokenizer.special_ids == published.special_ids
    assert tokenizer.chat_template is None


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("x.tiktoken", b"YQ== 0\nYg== 2\n", "line 2 does not state the rank 1"),
        ("x.tiktoken", b"YQ= 0\n", "line 1 is not base64"),
        ("x.tiktoken", b"YQ== 0\n", "does not hold o200k_harmony"),
        ("x.tiktoken", b"", "does not hold o200k_harmony"),
        ("x.gguf", b"", "gives no vocabulary"),
        ("x.gguf", b"GGUF\3\0\0\0" + b"\xff" * 16, "gives no vocabulary"),
        ("x.gguf", b"GGUF\3\0\0\0" + b"\0" * 16, "gives no vocabulary: x.gguf has no tokenizer"),
        ("x.json", b"{}", "is not a BPE tokenizer"),
        ("x.json", b"[" * 100_000, "is not a BPE tokenizer"),
    ],
)
def test_broken_sources(tmp_path: Path, name: str, content: bytes, match: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConvertError, match=match):
        read_tokenizer(tmp_path / name, VOCAB_SIZE)


@pytest.mark.parametrize("name", ["x", "x.json", "x.tiktoken", "x.gguf"])
def test_missing_sources(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConvertError, match=name):
        read_tokenizer(tmp_path / name, VOCAB_SIZE)
