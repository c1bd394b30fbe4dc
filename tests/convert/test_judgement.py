"""Checkpoints as fine-tunes save them: refused before a byte is written, or right to the end."""

import copy
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from convert import convert_checkpoint
from convert.verify import Report, verify_model
from gptoss_local.base.errors import ConvertError
from gptoss_local.base.formats.gguf_file import read_info, read_tokens
from tests.convert.tiny import tiny_config, write_json, write_tiny

Edit = Callable[[dict[str, Any]], None]


def added(tokenizer: dict[str, Any], token_id: int) -> dict[str, Any]:
    found: dict[str, Any] = next(t for t in tokenizer["added_tokens"] if t["id"] == token_id)
    return found


def rename_reserved(tokenizer: dict[str, Any]) -> None:
    tokenizer["added_tokens"].append({"id": 200020, "content": "<|my_tool|>", "special": True})


def rename_reserved_text(tokenizer: dict[str, Any]) -> None:
    tokenizer["added_tokens"].append({"id": 200500, "content": "[IMG]", "special": False})


def add_tokens(tokenizer: dict[str, Any]) -> None:
    tokenizer["added_tokens"] += [
        {"id": 201088 + i, "content": f"<|new_{i}|>", "special": True} for i in range(3)
    ]


def drop_reserved(tokenizer: dict[str, Any]) -> None:
    tokenizer["added_tokens"].remove(added(tokenizer, 200014))


def rename_tag(tokenizer: dict[str, Any]) -> None:
    added(tokenizer, 200012)["content"] = "<|my_call|>"


def drop_tag(tokenizer: dict[str, Any]) -> None:
    tokenizer["added_tokens"].remove(added(tokenizer, 200006))


def cut_merges(tokenizer: dict[str, Any]) -> None:
    del tokenizer["model"]["merges"][-5:]


def drop_a_token(tokenizer: dict[str, Any]) -> None:
    tokenizer["model"]["vocab"].popitem()


def twice(tokenizer: dict[str, Any]) -> None:
    tokenizer["added_tokens"] += [
        {"id": i, "content": "<|twice|>", "special": True} for i in (200030, 200031)
    ]


def as_added(tokenizer: dict[str, Any]) -> None:
    tokenizer["added_tokens"].append({"id": 5, "content": "&", "special": False})


TAKEN: dict[str, tuple[Edit, ...]] = {
    "as it is": (drop_reserved,),
    "other names": (rename_reserved, rename_reserved_text),
    "more": (add_tokens,),
}
REFUSED: list[Edit] = [rename_tag, drop_tag, cut_merges, drop_a_token, twice, as_added]


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
        changed = copy.deepcopy(tokenizer)
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


@pytest.mark.parametrize("edit", REFUSED)
def test_a_wrong_vocabulary_is_refused(write: Callable[..., Path], edit: Edit) -> None:
    found = judge(write(edit, n_vocab=201088))
    assert isinstance(found, ConvertError)
    assert "does not hold o200k_harmony" in found.message


def test_the_checkpoints_names_are_compared(write: Callable[..., Path], tmp_path: Path) -> None:
    source = write(rename_reserved, n_vocab=201088)
    convert_checkpoint(source, tmp_path / "m.gguf")
    shutil.rmtree(source)
    (finding,) = verify_model(tmp_path / "m.gguf", against=write(n_vocab=201088)).findings
    assert finding.message == "Token 200020 is '<|my_tool|>', not the checkpoint's."


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
    edits = rng.sample(taken, rng.randint(0, 3)) + rng.sample(REFUSED, rng.choice([0, 0, 0, 1]))
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
        assert set(edits) & set(REFUSED) or not has_room or "eos_token_id" in found.message
    else:
        assert not set(edits) & set(REFUSED)
        assert [report.findings for report in found] == [[], []]
        assert len(read_tokens(found[0].files[0])) == n_vocab
