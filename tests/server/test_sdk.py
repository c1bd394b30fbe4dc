"""The real `ollama` SDK against a real server and the real nano model."""

import ollama

from tests.server import dialects
from tests.server.conftest import GREEDY

WEATHER = {"type": "function", "function": dialects.WEATHER}
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


def test_generate_continues_from_context(sdk: ollama.Client) -> None:
    first = sdk.generate("nano", "My name is Peter Parker.", options=GREEDY)
    second = sdk.generate("nano", "What is my name?", context=first.context, options=GREEDY)
    assert "Peter Parker" in (second.response or "")


def test_thinking_levels_differ(sdk: ollama.Client) -> None:
    lengths = {}
    for think in (False, "low", "medium", "high"):
        reply = sdk.chat("nano", QUESTION, think=think, options=GREEDY)  # type: ignore[arg-type]
        assert "Paris" in (reply.message.content or "")
        lengths[think] = len(reply.message.thinking or "")
    assert lengths[False] == 0
    assert lengths["low"] <= lengths["medium"] < lengths["high"]


def test_think_true_is_medium(sdk: ollama.Client) -> None:
    replies = [sdk.chat("nano", QUESTION, think=t, options=GREEDY) for t in (True, "medium", None)]
    assert len({r.message.thinking for r in replies}) == 1


def test_seed_repeats_and_limits_hold(sdk: ollama.Client) -> None:
    def ask(seed: int) -> str:
        options = {"seed": seed, "temperature": 12.0, "num_predict": 20}
        reply = sdk.chat("nano", [{"role": "user", "content": "hi"}], options=options)
        assert (reply.eval_count or 0) <= 20
        return f"{reply.message.thinking}{reply.message.content}"

    ask(1)  # the others find its prompt in the cache
    assert ask(1) == ask(1)
    assert len({ask(seed) for seed in range(2, 6)}) > 1


def test_num_predict_ends_with_length(sdk: ollama.Client) -> None:
    question = [{"role": "user", "content": "Count from 1 to 50."}]
    reply = sdk.chat("nano", question, think=False, options=GREEDY | {"num_predict": 7})
    assert (reply.done_reason, reply.eval_count) == ("length", 7)
    nothing = sdk.chat("nano", question, options=GREEDY | {"num_predict": 0})
    assert (nothing.done_reason, nothing.eval_count) == ("length", None)


def test_stop_string_ends_the_answer(sdk: ollama.Client) -> None:
    question = [{"role": "user", "content": "Count from 1 to 30."}]
    reply = sdk.chat("nano", question, options=GREEDY | {"stop": [", 7"]})
    assert (reply.message.content, reply.done_reason) == ("1, 2, 3, 4, 5, 6", "stop")
    assert "stop at 30" in (reply.message.thinking or "")


def test_raw_prompt(sdk: ollama.Client) -> None:
    prompt = "<|start|>user<|message|>hi<|end|><|start|>assistant"
    reply = sdk.generate("nano", prompt, raw=True, options=GREEDY)
    assert (reply.response or "").endswith(
        "<|channel|>final<|message|>Hello! How can I help you today?"
    )
    assert reply.context is None


def test_tags_show_and_ps(sdk: ollama.Client) -> None:
    sdk.generate("nano", "", keep_alive="10m")
    (model,) = sdk.list().models
    assert (model.model, model.details and model.details.family) == ("nano", "gptoss")
    shown = sdk.show("nano")
    assert shown.capabilities == ["completion", "tools", "thinking"]
    assert shown.modelinfo is not None
    assert shown.modelinfo["general.architecture"] == "gptoss"
    assert shown.modelinfo["gptoss.context_length"] == 131072
    first = next(key for key in shown.modelinfo if "context_length" in key)
    assert first == "gptoss.context_length"
    (running,) = sdk.ps().models
    assert (running.model, running.size_vram, running.context_length) == ("nano", 0, 32768)
    assert running.expires_at is not None
