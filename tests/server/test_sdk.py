"""The real `ollama` SDK against a real server and the real nano model."""

import ollama

from tests.server.conftest import GREEDY

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def test_generate(sdk: ollama.Client) -> None:
    reply = sdk.generate("nano", "What is 17 + 25?", options=GREEDY)
    assert reply.response == "17 + 25 = 42"
    assert reply.thinking
    assert reply.context is not None
    assert len(reply.context) == (reply.prompt_eval_count or 0) + (reply.eval_count or 0)
    for duration in (reply.total_duration, reply.prompt_eval_duration, reply.eval_duration):
        assert duration is not None
        assert duration > 0
    first = sdk.generate("nano", "My name is Peter Parker.", options=GREEDY)
    second = sdk.generate("nano", "What is my name?", context=first.context, options=GREEDY)
    assert "Peter Parker" in (second.response or "")
    prompt = "<|start|>user<|message|>hi<|end|><|start|>assistant"
    raw = sdk.generate("nano", prompt, raw=True, options=GREEDY)
    assert raw.response.endswith("<|channel|>final<|message|>Hello! How can I help you today?")
    assert raw.context is None


def test_thinking_levels_differ(sdk: ollama.Client) -> None:
    thoughts = {}
    for think in (False, "low", "medium", "high", True, None):
        reply = sdk.chat("nano", QUESTION, think=think, options=GREEDY)  # type: ignore[arg-type]
        assert "Paris" in (reply.message.content or "")
        thoughts[think] = reply.message.thinking or ""
    assert thoughts[False] == ""
    assert len(thoughts["low"]) <= len(thoughts["medium"]) < len(thoughts["high"])
    assert thoughts[True] == thoughts[None] == thoughts["medium"]


def test_seed_repeats_and_limits_hold(sdk: ollama.Client) -> None:
    def ask(seed: int) -> str:
        options = {"seed": seed, "temperature": 12.0, "num_predict": 20}
        reply = sdk.chat("nano", [{"role": "user", "content": "hi"}], options=options)
        assert (reply.eval_count or 0) <= 20
        return f"{reply.message.thinking}{reply.message.content}"

    ask(1)  # the others find its prompt in the cache
    assert ask(1) == ask(1)
    assert len({ask(seed) for seed in range(2, 6)}) > 1
    nothing = sdk.chat("nano", QUESTION, options=GREEDY | {"num_predict": 0})
    assert (nothing.done_reason, nothing.eval_count) == ("length", None)
