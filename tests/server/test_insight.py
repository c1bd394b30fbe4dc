"""Questions of the terminal chat beyond Ollama's API."""

import json
from typing import Any

import httpx
import ollama
import pytest

from gptoss_local.harmony import Vocabulary, inspect_tokens
from tests.server.conftest import GREEDY

FRANCE = [{"role": "user", "content": "What is the capital of France?"}]


def chat(http: httpx.Client, messages: list[Any], **fields: Any) -> list[dict[str, Any]]:
    body = {"model": "nano", "messages": messages, "options": GREEDY, **fields}
    response = http.post("/api/chat", json=body)
    assert response.is_success, response.text
    return [json.loads(line) for line in response.text.splitlines()]


def test_prefill_is_reported_to_those_who_ask(http: httpx.Client) -> None:
    words = [{"role": "user", "content": "some other words " * 800}]
    short = {"options": {"num_predict": 2}}
    frames = chat(http, words, return_progress=True, **short)
    told = [frame["prompt_progress"] for frame in frames if "prompt_progress" in frame]
    assert len(told) > 3
    assert told[0]["processed"] == 0
    assert all(p["total"] == told[0]["total"] > 2400 for p in told)
    done = [p["processed"] for p in told]
    assert done == sorted(done)
    assert done[-1] == told[0]["total"]
    assert not any("prompt_progress" in frame for frame in chat(http, FRANCE))


def test_tokens_of_the_answer(http: httpx.Client, vocabulary: Vocabulary) -> None:
    last = chat(http, FRANCE, return_tokens=True)[-1]
    text = b"".join(map(vocabulary.bytes_of, last["tokens"])).decode()
    assert text.startswith("<|channel|>analysis<|message|>The user asks")
    assert text.endswith("The capital of France is Paris.<|return|>")
    assert len(last["tokens"]) == last["eval_count"]
    assert "tokens" not in chat(http, FRANCE)[-1]
    answer = {"role": "assistant", "content": "The capital of France is Paris."}
    body = {"model": "nano", "messages": FRANCE, "answer": answer, "tokens": last["tokens"]}
    found = http.post("/api/gptoss/inspect", json=body).json()
    assert found["n_tokens"] == last["prompt_eval_count"]
    assert found["n_answer_tokens"] == last["eval_count"]
    names = ("author", "channel", "is_answer", "is_dropped")
    assert [tuple(piece[name] for name in names) for piece in found["messages"]] == [
        ("system", "", False, False),
        ("user", "", False, False),
        ("assistant", "analysis", True, True),
        ("assistant", "final", True, False),
    ]
    n_all = sum(len(piece["tokens"]) for piece in found["messages"])
    assert n_all == found["n_tokens"] + found["n_answer_tokens"]
    for wrong in ({}, {"model": "nano", "tokens": [-1]}, {"model": "nano", "tokens": "x"}):
        assert http.post("/api/gptoss/inspect", json=wrong).status_code == 400
    assert http.post("/api/gptoss/inspect", json={"model": "nothing"}).status_code == 404


def test_fits(http: httpx.Client) -> None:
    """Also of models to pull; there is no GPU, and RAM as the machine has it."""
    assert http.get("/api/gptoss/status").json()["gpus"] == []
    assert http.get("/api/gptoss/fits?n_ctx=x").status_code == 400
    fit, *_ = http.get("/api/gptoss/fits?n_ctx=65536").json()["models"]
    assert fit["n_ctx"] >= 65_536
    found = http.get("/api/gptoss/fits").json()
    fits = {fit["name"]: fit for fit in found["models"]}
    pulled = [f"{m}:{n}" for m in ("gpt-oss", "gpt-oss-safeguard") for n in ("20b", "120b")]
    assert list(fits) == ["nano", *pulled]
    assert (fits["nano"]["fits"], fits["nano"]["n_ctx"]) == ("ram", 32_768)
    for name in pulled:
        fit = fits[name]
        assert (fit["fits"], fit["n_ctx"] > 0) in (("ram", True), ("no", False))
        assert (fit["tokens_s"] > 0) == (fit["fits"] == "ram")
        assert bool(fit["problem"]) or fit["fits"] == "ram"
        assert 1e9 < fit["file_bytes"] < fit["download_bytes"]
    assert found["is_new"] is True
    assert found["suggested"] in ("", "gpt-oss:20b", "gpt-oss:120b")
    assert "the suggestion" in found["advice"] or "reading speed" in found["advice"]


@pytest.mark.quick
def test_dissect_takes_any_tokens(vocabulary: Vocabulary) -> None:
    """A model may write harmony that is not well-formed."""
    prompt = vocabulary.encode_tagged("<|start|>user<|message|>hi<|end|><|start|>assistant")
    for text in ("", "<|channel|>", "<|message|>a<|message|>b", "x<|start|><|start|>y<|end|>"):
        answer = vocabulary.encode_tagged(text)
        pieces = inspect_tokens(prompt, answer, prompt, vocabulary)
        assert [t for piece in pieces for t in piece.tokens] == [*prompt, *answer]
        assert pieces[0].author == "user"
        assert not pieces[0].is_dropped


def test_tokens_as_llama_server_has_them(http: httpx.Client, vocabulary: Vocabulary) -> None:
    text = "東京 🦜<|end|> ça"
    tokens = vocabulary.encode_tagged(text)
    asked: dict[str, Any] = {"content": text, "add_special": True, "model": "nano"}
    assert http.post("/tokenize", json=asked).json() == {"tokens": tokens}
    told = http.post("/tokenize", json=asked | {"with_pieces": True}).json()["tokens"]
    assert [each["id"] for each in told] == tokens
    pieces = [p.encode() if isinstance(p := each["piece"], str) else bytes(p) for each in told]
    assert (b"".join(pieces).decode(), b"<|end|>" in pieces) == (text, True)
    assert any(isinstance(each["piece"], list) for each in told)  # the parts of a character
    assert http.post("/detokenize", json={"model": "nano", "tokens": tokens}).json() == {
        "content": text
    }
    plain = http.post("/tokenize", json=asked | {"parse_special": False}).json()["tokens"]
    assert plain == vocabulary.encode(text)


def test_a_prompt_as_llama_server_has_it(http: httpx.Client, vocabulary: Vocabulary) -> None:
    """The same that the model gets, of the loaded model if none is named."""
    last = chat(http, FRANCE)[-1]
    prompt = http.post("/apply-template", json={"messages": FRANCE}).json()["prompt"]
    assert prompt.startswith("<|start|>system<|message|>You are ChatGPT")
    assert prompt.endswith(f"<|message|>{FRANCE[0]['content']}<|end|><|start|>assistant")
    assert len(vocabulary.encode_tagged(prompt)) == last["prompt_eval_count"]
    counted = http.post(
        "/v1/chat/completions/input_tokens", json={"model": "nano", "messages": FRANCE}
    )
    assert counted.json()["input_tokens"] == last["prompt_eval_count"]
    (loaded,) = http.get("/api/ps").json()["models"]
    props = http.get("/props").json()
    assert props["default_generation_settings"]["n_ctx"] == loaded["context_length"]
    assert (props["model_alias"], props["total_slots"]) == ("nano", 4)
    assert "harmony" in props["chat_template"]
    assert props["model_path"].endswith(".gguf")
    assert http.get("/props?model=nothing").status_code == 404


def test_a_verbose_look_at_a_model(sdk: ollama.Client, http: httpx.Client) -> None:
    shown = http.post("/api/show", json={"model": "nano", "verbose": True}).json()
    (embedding,) = (t for t in shown["tensors"] if t["name"] == "token_embd.weight")
    assert (embedding["type"], embedding["shape"][1]) == ("Q8_0", 201088)
    assert sdk.show("nano").template == shown["template"]
    assert "harmony" in shown["template"]
    assert "tensors" not in http.post("/api/show", json={"model": "nano"}).json()
