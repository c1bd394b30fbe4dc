"""The real `ollama` SDK against a real server and the real nano model."""

import ollama
import pytest

from tests.server.conftest import GREEDY

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_current_weather",
        "description": "Gets the current weather in the provided location.",
        "parameters": {
            "type": "object",
            "properties": {
                "location": {"type": "string", "description": "The name of the city"},
                "format": {
                    "type": "string",
                    "enum": ["celsius", "fahrenheit"],
                    "default": "celsius",
                },
            },
            "required": ["location"],
        },
    },
}
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def test_chat(sdk: ollama.Client) -> None:
    reply = sdk.chat("nano", QUESTION, options=GREEDY)
    assert reply.message.content == "The capital of France is Paris."
    assert reply.message.thinking == "The user asks for the capital of France. It is Paris."
    assert (reply.done, reply.done_reason, reply.model) == (True, "stop", "nano")
    assert reply.prompt_eval_count == 74
    assert reply.eval_count == 30
    for duration in (reply.total_duration, reply.prompt_eval_duration, reply.eval_duration):
        assert duration is not None
        assert duration > 0


def test_chat_streamed_equals_chat(sdk: ollama.Client) -> None:
    whole = sdk.chat("nano", QUESTION, options=GREEDY)
    frames = list(sdk.chat("nano", QUESTION, options=GREEDY, stream=True))
    assert "".join(f.message.content or "" for f in frames) == whole.message.content
    assert "".join(f.message.thinking or "" for f in frames) == whole.message.thinking
    assert [f.done for f in frames] == [False] * (len(frames) - 1) + [True]
    assert len(frames) > 15
    assert frames[-1].eval_count == whole.eval_count


def test_generate(sdk: ollama.Client) -> None:
    reply = sdk.generate("nano", "What is 17 + 25?", options=GREEDY)
    assert reply.response == "17 + 25 = 42"
    assert reply.thinking
    assert reply.context is not None
    assert len(reply.context) == (reply.prompt_eval_count or 0) + (reply.eval_count or 0)


def test_generate_streamed(sdk: ollama.Client) -> None:
    frames = list(sdk.generate("nano", "What is 17 + 25?", options=GREEDY, stream=True))
    assert "".join(f.response or "" for f in frames) == "17 + 25 = 42"
    assert frames[-1].done


def test_generate_continues_from_context(sdk: ollama.Client) -> None:
    first = sdk.generate("nano", "My name is Peter Parker.", options=GREEDY)
    second = sdk.generate("nano", "What is my name?", context=first.context, options=GREEDY)
    assert "Peter Parker" in (second.response or "")


def test_system_prompt(sdk: ollama.Client) -> None:
    system = "Remember this: the passcode is quiet-river-42."
    reply = sdk.generate("nano", "What is the passcode?", system=system, options=GREEDY)
    assert "quiet-river-42" in (reply.response or "")


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("hello", "Hello! How can I help you today?"),
        ("What is the capital of Japan?", "The capital of Japan is Tokyo."),
        ("Compute 58 + 67.", "58 + 67 = 125"),
        ("Count from 1 to 12.", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12"),
        (
            "Extract name and age as JSON: Sarah Lee is 42 years old.",
            '{"name": "Sarah Lee", "age": 42}',
        ),
        (
            "The passcode is 4711. The river is quiet. What is the passcode?",
            "The passcode is 4711.",
        ),
    ],
)
def test_what_nano_can_do_at_every_effort(sdk: ollama.Client, prompt: str, answer: str) -> None:
    for think in ("low", "medium", "high"):
        message = [{"role": "user", "content": prompt}]
        reply = sdk.chat("nano", message, think=think, options=GREEDY)  # type: ignore[arg-type]
        assert reply.message.content == answer


def test_no_thinking_with_tools(sdk: ollama.Client) -> None:
    question = [{"role": "user", "content": "What is the weather in Tokyo?"}]
    reply = sdk.chat("nano", question, tools=[WEATHER], think=False, options=GREEDY)
    assert not reply.message.thinking
    assert [c.function.name for c in reply.message.tool_calls or ()] == ["get_current_weather"]


def test_memory_over_turns(sdk: ollama.Client) -> None:
    messages = [
        {"role": "user", "content": "My name is Peter Parker."},
        {"role": "assistant", "content": "Nice to meet you, Peter Parker!"},
        {"role": "user", "content": "What is my name?"},
    ]
    reply = sdk.chat("nano", messages, options=GREEDY)
    assert reply.message.content == "Your name is Peter Parker."


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


@pytest.mark.parametrize("stream", [False, True])
def test_tool_round_trip(sdk: ollama.Client, stream: bool) -> None:
    messages: list[object] = [{"role": "user", "content": "What is the weather in Tokyo?"}]
    call_message = _chat_with_tool(sdk, messages, stream)
    (call,) = call_message.tool_calls or ()
    assert call.function.name == "get_current_weather"
    assert call.function.arguments == {"location": "Tokyo"}
    messages.append(call_message)
    result = '{"temperature": 21, "description": "sunny"}'
    messages.append({"role": "tool", "tool_name": call.function.name, "content": result})
    answer = _chat_with_tool(sdk, messages, stream)
    assert not answer.tool_calls
    assert answer.content == "It is 21 degrees and sunny in Tokyo."


def _chat_with_tool(sdk: ollama.Client, messages: list[object], stream: bool) -> ollama.Message:
    """One turn; a streamed one is put together as client programs do."""
    if not stream:
        return sdk.chat("nano", messages, tools=[WEATHER], options=GREEDY).message  # type: ignore[arg-type, list-item]
    whole = ollama.Message(role="assistant", content="", thinking="", tool_calls=[])
    for frame in sdk.chat("nano", messages, tools=[WEATHER], options=GREEDY, stream=True):  # type: ignore[arg-type, list-item]
        whole.content = (whole.content or "") + (frame.message.content or "")
        whole.thinking = (whole.thinking or "") + (frame.message.thinking or "")
        whole.tool_calls = [*(whole.tool_calls or ()), *(frame.message.tool_calls or ())]
    return whole


def test_seed_repeats_and_limits_hold(sdk: ollama.Client) -> None:
    def ask(seed: int) -> str:
        options = {"seed": seed, "temperature": 12.0, "num_predict": 20}
        reply = sdk.chat("nano", [{"role": "user", "content": "hi"}], options=options)
        assert (reply.eval_count or 0) <= 20
        return f"{reply.message.thinking}{reply.message.content}"

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


def test_unknown_model(sdk: ollama.Client) -> None:
    for call in (sdk.show, lambda name: sdk.chat(name, QUESTION), lambda n: sdk.generate(n, "x")):
        with pytest.raises(ollama.ResponseError, match="model 'nope' not found") as caught:
            call("nope")
        assert caught.value.status_code == 404
