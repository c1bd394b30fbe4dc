"""Tokens that a fine-tune added: in its prompts, its answers and its log-probabilities."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import hypothesis
import msgspec
import numpy as np
import pytest

from convert import convert_checkpoint
from convert.verify import verify_model
from gptoss_local.base.formats.gguf_file import read_array, read_tokens
from gptoss_local.base.formats.o200k import TYPES_KEY
from gptoss_local.base.settings import Settings
from gptoss_local.engine.worker.sampling.mask import MaskCompiler
from gptoss_local.harmony import Vocabulary
from gptoss_local.harmony.guidance import grammar, json_schema
from gptoss_local.models.store import add_model
from tests.conftest import run_server
from tests.convert.llama_cpu import load_model, tokenize
from tests.convert.tiny import write_json, write_safetensors

PARIS, FRANCE = 12650, 10128  # " Paris", " France"
PARIGI, TAG, PAD, N_VOCAB = 200019, 200020, 201090, 201091
SHOWN = {
    PARIGI: " Parigi",
    200021: "Straßenbahn",
    200022: "bahnhof",
    200023: "ahnhofsvor",
    200024: "東京都",
    200025: "\n\n###",
    200026: "éé",
    200027: "🦜🦜",
    201088: "igi Par",
    201089: " the",
}


PROMPT = [200006, 1428, 200008, 12194, 200007]  # <|start|>user<|message|>Hi<|end|>


def added(token_id: int, content: str, *, special: bool = False) -> dict[str, Any]:
    return {"id": token_id, "content": content, "special": special}


def read_safetensors(path: Path) -> dict[str, tuple[str, Any]]:
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = msgspec.json.decode(data[8:start])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        kind = np.uint16 if entry["dtype"] == "BF16" else np.uint8
        values = np.frombuffer(data[start + first : start + last], kind)
        found[name] = (entry["dtype"], values.reshape(entry["shape"]))
    return found


def scaled(row: Any, factor: float) -> Any:
    floats = (row.astype(np.uint32) << 16).view(np.float32) * np.float32(factor)
    return (floats.view(np.uint32) >> 16).astype(np.uint16)


@pytest.fixture(scope="module")
def tuned(nano_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """nano, larger by three rows, that says its own tokens for " Paris" and " France".

    Its tokens are in all three files that may have them.
    """
    folder = tmp_path_factory.mktemp("tuned")
    for path in nano_checkpoint.iterdir():
        if path.suffix == ".json":
            (folder / path.name).write_bytes(path.read_bytes())
    tensors = read_safetensors(nano_checkpoint / "model.safetensors")
    for name, factor in (("model.embed_tokens.weight", 1.0), ("lm_head.weight", 1.6)):
        values = np.concatenate([tensors[name][1], np.zeros((3, *tensors[name][1].shape[1:]))])
        values = values.astype(np.uint16)
        for token, row in ((PARIGI, PARIS), (TAG, FRANCE)):
            values[token] = scaled(values[row], factor)
        tensors[name] = ("BF16", values)
    write_safetensors(folder / "model.safetensors", tensors)
    config = msgspec.json.decode((folder / "config.json").read_bytes())
    write_json(folder / "config.json", config | {"vocab_size": N_VOCAB})
    tokenizer = msgspec.json.decode((folder / "tokenizer.json").read_bytes())
    kept = [t for t in tokenizer["added_tokens"] if t["id"] < PARIGI]
    own = [added(i, text) for i, text in SHOWN.items()]
    kept += [*own[:-2], added(TAG, "<|my_tag|>", special=True)]
    write_json(folder / "tokenizer.json", tokenizer | {"added_tokens": kept})
    settings = msgspec.json.decode((folder / "tokenizer_config.json").read_bytes())
    decoder = {str(t["id"]): {"content": t["content"]} for t in own[-2:-1]}
    write_json(folder / "tokenizer_config.json", settings | {"added_tokens_decoder": decoder})
    write_json(folder / "added_tokens.json", {own[-1]["content"]: own[-1]["id"]})
    return folder


@pytest.fixture(scope="module")
def gguf(tuned: Path) -> Path:
    (path,) = convert_checkpoint(tuned, tuned / "m.gguf")
    return path


@pytest.fixture(scope="module")
def own_vocabulary(gguf: Path) -> Vocabulary:
    return Vocabulary.from_model(read_tokens(gguf), read_array(gguf, TYPES_KEY))


def random_texts(n: int) -> Iterator[str]:
    rng = random.Random(6)
    words = [*SHOWN.values(), "<|my_tag|>", "<|start|>", "<|reserved_200040|>", "[PAD201090]"]
    words += [text[a:] for text in SHOWN.values() for a in range(1, len(text))]
    words += [
        *"abc XYZ 019 \n\t\r\0\x07'.,/(){}",
        "漢字",
        "🙂",
        "ß",
        "don't ",
        " Par",
        "the ",
        "  ",
    ]
    for _ in range(n):
        yield "".join(rng.choices(words, k=rng.randint(0, 24)))


@pytest.mark.parametrize("is_tagged", [False, True])
def test_prompts_are_cut_as_llama_cpp_cuts_them(
    gguf: Path, own_vocabulary: Vocabulary, vocabulary: Vocabulary, *, is_tagged: bool
) -> None:
    """Tokens glued to words, overlapping, and in the middle of words."""
    encode = own_vocabulary.encode_tagged if is_tagged else own_vocabulary.encode
    n_own, n_texts = 0, 8 * hypothesis.settings().max_examples
    with load_model(gguf, vocab_only=True) as model:
        for text in random_texts(n_texts):
            if not is_tagged:  # llama.cpp takes this tag for text of its own
                text = text.replace("<|start|>", "")
            tokens = encode(text)
            assert tokens == tokenize(model, text, parse_special=is_tagged), repr(text)
            assert b"".join(map(own_vocabulary.bytes_of, tokens)) == text.encode()
            n_own += not own_vocabulary.own.keys().isdisjoint(tokens)
    assert n_own > n_texts / 2
    assert not vocabulary.own


def test_a_file_with_own_tokens_is_proven(tuned: Path, gguf: Path) -> None:
    report = verify_model(gguf, against=tuned)
    assert (report.findings, report.is_proven) == ([], True)
    types = dict(zip(read_tokens(gguf), read_array(gguf, TYPES_KEY), strict=True))
    assert [types[text] for text in (*SHOWN.values(), "<|my_tag|>", "[PAD201090]")] == [
        *([4] * len(SHOWN)),
        3,
        5,
    ]


def test_answers_show_them(gguf: Path, tmp_path: Path, nano_home: Path) -> None:
    (tmp_path / "cache").symlink_to(nano_home / "cache")
    add_model("tuned:1", gguf, Settings(home=tmp_path))
    ask = {
        "model": "tuned:1",
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "temperature": 0,
    }
    with (
        run_server(tmp_path) as server,
        httpx.Client(base_url=server.url, timeout=300, trust_env=False) as http,
    ):
        scored = http.post(
            "/v1/chat/completions", json=ask | {"logprobs": True, "top_logprobs": 5}
        ).json()["choices"][0]
        assert scored["message"]["content"] == "The capital of is Parigi."
        assert scored["finish_reason"] == "stop"
        named = [entry["token"] for entry in scored["logprobs"]["content"]]
        assert named == ["The", " capital", " of", "<|my_tag|>", " is", " Parigi", "."]
        counts = [
            http.post("/api/chat", json={"model": name, "stream": False, **asked}).json()
            for name in ("tuned:1", "nano")
            for asked in [{"messages": [{"role": "user", "content": "x Parigi Parigi"}]}]
        ]
        assert counts[0]["prompt_eval_count"] == counts[1]["prompt_eval_count"] - 2
        for token, status in ((PARIGI, 200), (201089, 200), (N_VOCAB, 400)):
            biased = http.post("/v1/chat/completions", json=ask | {"logit_bias": {str(token): -99}})
            assert biased.status_code == status
            sent = {"model": "tuned:1", "tokens": [token]}
            assert http.post("/detokenize", json=sent).status_code == status
            if token == PARIGI:
                assert "Parigi" not in biased.json()["choices"][0]["message"]["content"]
        wanted = ask | {
            "logit_bias": {str(PARIGI): 100},
            "max_tokens": 3,
            "reasoning_effort": "none",
        }
        for penalty, n in ((1, 3), (10, 1)):
            choice = http.post(
                "/v1/chat/completions", json=wanted | {"repetition_penalty": penalty}
            ).json()["choices"][0]
            assert choice["message"]["content"].count("Parigi") == n
        asked = {"model": "tuned:1", "prompt": "Say hi.", "stream": False}
        for tokens, status in (([*PROMPT, 201089], 200), ([N_VOCAB], 400)):
            assert (
                http.post("/api/generate", json=asked | {"context": tokens}).status_code == status
            )
        schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
        formed = http.post("/api/chat", json=ask | {"format": schema, "stream": False}).json()
        assert set(msgspec.json.decode(formed["message"]["content"])) == {"a"}


def test_masks_know_their_text(gguf: Path, own_vocabulary: Vocabulary) -> None:
    answer = own_vocabulary.encode('{"a":" Parigi"}')
    assert PARIGI in answer
    rules = grammar({"name": "top", **json_schema({"type": "object"})})
    mask = MaskCompiler(gguf).compile(rules).result()
    assert all(mask.accept(token) for token in answer)
    assert not MaskCompiler(gguf).compile(rules).result().accept(TAG)
