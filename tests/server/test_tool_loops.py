"""A tool loop goes on from what the model wrote, token by token, whatever its client sends back."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from gptoss_local.harmony import Vocabulary
from tests.scripted_engine import Reply, Script, answer
from tests.server.asked import Asked, run_asked

NEXT = "<|end|><|start|>assistant"
STEP = (
    f"<|channel|>analysis<|message|>Find out what is there.{NEXT}"
    f"<|channel|>analysis<|message|>A table would help:\n\n| a | b |\n|---|---|\n| 1 | 日本 |{NEXT}"
    f"<|channel|>commentary<|message|>I will list the folder.\n\n1. `ls`{NEXT}"
    f"<|channel|>analysis<|message|>Use ls.{NEXT}"
)
SPELT = '<|channel|>commentary to=functions.list_files <|constrain|>json<|message|>{"path": "a/ü"}'
CANONICAL = (
    ' to=functions.list_files<|channel|>commentary <|constrain|>json<|message|>{"path":"a/ü"}'
)
SLIP = "<|channel|>commentary to=functions.list-files <|constrain|>json<|message|>{'path': 'a/ü',}"
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
FUNCTION = {"name": "list_files", "description": "Lists files.", "parameters": PARAMETERS}
ONE = {"type": "function", "function": FUNCTION}
FLAT = {"type": "function", **FUNCTION}
USE = {"name": "list_files", "description": "Lists files.", "input_schema": PARAMETERS}
RESULT = "x.py\n\ny.py"


def goes_on_exactly(asked: Asked, step: str) -> bool:
    """Whether the second prompt is the first one, what the model wrote, and the result."""
    first, second = asked.prompts[-2:]
    written = [*first, *asked.vocabulary.encode_tagged(step + "<|call|>")]
    rest = asked.vocabulary.encoding.decode(second[len(written) :])
    return second[: len(written)] == written and rest == (
        "<|start|>functions.list_files to=assistant<|channel|>commentary"
        f"<|message|>{RESULT}<|end|><|start|>assistant"
    )


@pytest.fixture(scope="module")
def loop(nano_home: Path, vocabulary: Vocabulary) -> Iterator[Asked]:
    script = Script(vocabulary)
    for question, call in (("Spelt", SPELT), ("Canonical", CANONICAL), ("Slip", SLIP)):
        script.say(question, Reply(text=f"{STEP}{call}<|call|>"), answer("Two files.", "Easy."))
    two = '{"path": "a"}<|end|><|start|>assistant'
    script.say(
        "Twice",
        Reply(text=f"{SPELT.partition('{')[0]}{two}{SPELT}<|call|>"),
        Reply(text=f"{SPELT}<|call|>"),
        answer("Two."),
    )
    with run_asked(nano_home, vocabulary, script) as asked:
        yield asked


Drive = Callable[..., None]


def by_responses(
    loop: Asked,
    question: str,
    *,
    thinks: bool = True,
    keys: tuple[str, str] = ("k", "k"),
    by_id: bool = False,
) -> None:
    with openai.OpenAI(base_url=f"{loop.url}/v1", api_key=keys[0]) as client:
        asked: list[Any] = [{"role": "user", "content": question}]
        ask: Any = {"model": "nano", "tools": [FLAT]}
        reply = client.responses.create(**ask, input=asked)
        call: Any = reply.output[-1]
        result = {"type": "function_call_output", "call_id": call.call_id, "output": RESULT}
        items = [i.model_dump(exclude_none=True) for i in reply.output]
        sent = [i for i in items if thinks or i["type"] != "reasoning"]
        again = {"input": [*asked, *sent, result]}
        if by_id:
            again = {"previous_response_id": reply.id, "input": [result]}
        last = client.with_options(api_key=keys[1]).responses.create(**ask | again)
        assert last.output_text == "Two files."


def by_chat(
    loop: Asked, question: str, *, thinks: bool = True, keys: tuple[str, str] = ("k", "k")
) -> None:
    asked: list[Any] = [{"role": "user", "content": question}]
    with openai.OpenAI(base_url=f"{loop.url}/v1", api_key=keys[0]) as client:
        tools: Any = [ONE]
        reply = client.chat.completions.create(model="nano", messages=asked, tools=tools)
        message = reply.choices[0].message.model_dump(exclude_none=True)
        if not thinks:
            message = {k: v for k, v in message.items() if not k.startswith("reasoning")}
        call = message["tool_calls"][0]
        result = {"role": "tool", "tool_call_id": call["id"], "content": RESULT}
        last = client.with_options(api_key=keys[1]).chat.completions.create(
            model="nano", messages=[*asked, message, result], tools=tools
        )
        assert last.choices[0].message.content == "Two files."


def by_messages(
    loop: Asked, question: str, *, thinks: bool = True, keys: tuple[str, str] = ("k", "k")
) -> None:
    asked: list[Any] = [{"role": "user", "content": question}]
    ask: Any = {"model": "nano", "max_tokens": 1000, "tools": [USE]}
    with anthropic.Anthropic(base_url=loop.url, api_key=keys[0]) as client:
        reply = client.messages.create(**ask, messages=asked)
        blocks: list[Any] = [block.model_dump() for block in reply.content]
        sent = [b for b in blocks if thinks or b["type"] != "thinking"]
        result = {"type": "tool_result", "tool_use_id": blocks[-1]["id"], "content": RESULT}
        turns: list[Any] = [
            {"role": "assistant", "content": sent},
            {"role": "user", "content": [result]},
        ]
        last: Any = client.with_options(api_key=keys[1]).messages.create(
            **ask, messages=asked + turns
        )
        assert last.content[-1].text == "Two files."


def by_ollama(loop: Asked, question: str, *, thinks: bool = True) -> None:
    messages: list[Any] = [{"role": "user", "content": question}]
    body = {"model": "nano", "tools": [ONE], "stream": False}
    with httpx.Client(base_url=loop.url, trust_env=False) as http:
        message = http.post("/api/chat", json=body | {"messages": messages}).json()["message"]
        if not thinks:
            del message["thinking"]
        messages += [message, {"role": "tool", "tool_name": "list_files", "content": RESULT}]
        last = http.post("/api/chat", json=body | {"messages": messages}).json()["message"]
        assert last["content"] == "Two files."


@pytest.mark.parametrize("thinks", [True, False])
@pytest.mark.parametrize("drive", [by_responses, by_chat, by_messages, by_ollama])
@pytest.mark.parametrize("question", ["Spelt", "Canonical"])
def test_the_next_prompt_has_what_the_model_wrote(
    loop: Asked, drive: Drive, question: str, thinks: bool
) -> None:
    """Both analyses, the preamble in its channel, the call as it was spelt; no newline is added."""
    drive(loop, question, thinks=thinks)
    assert goes_on_exactly(loop, STEP + {"Spelt": SPELT, "Canonical": CANONICAL}[question])


def test_an_answer_that_the_server_remembers_goes_on_exactly(loop: Asked) -> None:
    by_responses(loop, "Spelt", by_id=True)
    assert goes_on_exactly(loop, STEP + SPELT)


THOUGHTS = [
    ("analysis", "", "Find out what is there."),
    ("analysis", "", "A table would help:\n\n| a | b |\n|---|---|\n| 1 | 日本 |"),
]
SAID = [("commentary", "", "I will list the folder.\n\n1. `ls`")]
LAST_THOUGHT = [("analysis", "", "Use ls.")]
CALL = [("commentary", "functions.list_files", '{"path":"a/ü"}')]
STRANGER = ("k", "another")  # to whom nothing is put back, as after a restart


@pytest.mark.parametrize("drive", [by_responses, by_messages])
def test_order_and_channels_need_no_memory(loop: Asked, drive: Drive) -> None:
    """Where a dialect carries all of it, a server that has been restarted goes on the same way."""
    drive(loop, "Canonical", keys=STRANGER)
    assert loop.done() == [*THOUGHTS, *SAID, *LAST_THOUGHT, *CALL]
    assert goes_on_exactly(loop, STEP + CANONICAL)


@pytest.mark.parametrize("drive", [by_responses, by_chat, by_messages])
def test_reasoning_is_put_back_for_its_owner_alone(loop: Asked, drive: Drive) -> None:
    drive(loop, "Spelt", thinks=False, keys=STRANGER)
    assert loop.done() == [*SAID, *CALL]


@pytest.mark.parametrize("drive", [by_responses, by_chat, by_messages, by_ollama])
def test_a_slip_is_not_repeated(loop: Asked, drive: Drive) -> None:
    """The call is as it was repaired, which is what has been run; the reasoning comes back."""
    drive(loop, "Slip", thinks=False)
    thought = "\n\n".join(text for _, _, text in [*THOUGHTS, *LAST_THOUGHT])
    assert loop.done() == [("analysis", "", thought), *SAID, *CALL]


def test_what_a_client_changed_stays_changed(loop: Asked) -> None:
    asked: list[Any] = [{"role": "user", "content": "Spelt"}]
    with openai.OpenAI(base_url=f"{loop.url}/v1", api_key="k") as client:
        ask: Any = {"model": "nano", "tools": [ONE]}
        reply = client.chat.completions.create(**ask, messages=asked).choices[0].message
        message: Any = reply.model_dump(exclude_none=True)
        (call,) = message["tool_calls"]
        result = {"role": "tool", "tool_call_id": call["id"], "content": RESULT}
        said = message | {"content": "I look.", "reasoning": "Short.", "reasoning_content": ""}
        client.chat.completions.create(**ask, messages=[*asked, said, result])
        assert loop.done() == [("analysis", "", "Short."), ("commentary", "", "I look."), *CALL]
        call["function"]["arguments"] = '{"path": "b"}'
        client.chat.completions.create(**ask, messages=[*asked, message, result])
        assert loop.done()[-1] == ("commentary", "functions.list_files", '{"path":"b"}')


def test_a_finished_turn_has_no_reasoning(loop: Asked) -> None:
    """And the next question of the user finds the calls and the preamble in their channels."""
    asked: list[Any] = [{"role": "user", "content": "Spelt"}]
    with openai.OpenAI(base_url=f"{loop.url}/v1", api_key="k") as client:
        ask: Any = {"model": "nano", "tools": [FLAT]}
        reply = client.responses.create(**ask, input=asked)
        output = {"type": "function_call_output", "output": RESULT}
        output["call_id"] = reply.output[-1].call_id  # type: ignore[union-attr]
        last = client.responses.create(**ask, previous_response_id=reply.id, input=[output])  # type: ignore[list-item]
        client.responses.create(**ask, previous_response_id=last.id, input="Spelt")
    assert loop.done() == [*SAID, *CALL, ("final", "", "Two files.")]


def test_a_message_between_a_call_and_its_result_comes_before_the_call(loop: Asked) -> None:
    """Codex sends such items. Source: Ollama's TestFromResponsesRequestMergesMessage…"""
    call = {"type": "function_call", "call_id": "c", "name": "list_files", "arguments": "{}"}
    said = {"type": "output_text", "text": "I will inspect."}
    thought = {"type": "summary_text", "text": "Look."}
    items: list[Any] = [
        {"role": "user", "content": "Spelt"},
        {"type": "reasoning", "id": "rs_1", "summary": [thought]},
        call,
        {"type": "message", "role": "assistant", "content": [said]},
        {"type": "function_call_output", "call_id": "c", "output": "/tmp"},
    ]
    with openai.OpenAI(base_url=f"{loop.url}/v1", api_key="k") as client:
        client.responses.create(model="nano", input=items)
    assert loop.done() == [
        ("analysis", "", "Look."),
        ("commentary", "", "I will inspect."),
        ("commentary", "functions.list_files", "{}"),
    ]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("parallel", [False, True])
def test_at_most_one_call_where_the_client_wants_it(
    loop: Asked, stream: bool, parallel: bool
) -> None:
    """In every dialect; what comes after the first call is neither run nor read again."""
    n_calls = 2 if parallel else 1
    asked: list[Any] = [{"role": "user", "content": "Twice"}]
    choice: Any = {"type": "auto", "disable_parallel_tool_use": not parallel}
    with openai.OpenAI(base_url=f"{loop.url}/v1", api_key="k") as client:
        chat: Any = {"model": "nano", "messages": asked, "tools": [ONE]}
        with client.chat.completions.stream(**chat, parallel_tool_calls=parallel) as events:
            message = events.get_final_completion().choices[0].message
        if not stream:
            whole = client.chat.completions.create(**chat, parallel_tool_calls=parallel)
            message = whole.choices[0].message  # type: ignore[assignment]
        assert len(message.tool_calls or ()) == n_calls
        fields: Any = {"model": "nano", "input": asked, "tools": [FLAT]}
        with client.responses.stream(**fields, parallel_tool_calls=parallel) as responses:
            reply: Any = responses.get_final_response()
        if not stream:
            reply = client.responses.create(**fields, parallel_tool_calls=parallel)
        assert [item.type for item in reply.output] == ["function_call"] * n_calls
        assert (reply.status, reply.parallel_tool_calls) == ("completed", parallel)
    with anthropic.Anthropic(base_url=loop.url, api_key="k") as client_:
        body: Any = {"model": "nano", "max_tokens": 99, "messages": asked, "tools": [USE]}
        with client_.messages.stream(**body, tool_choice=choice) as stream_:
            said = stream_.get_final_message()
        if not stream:
            said = client_.messages.create(**body, tool_choice=choice)  # type: ignore[assignment]
        assert [block.type for block in said.content] == ["tool_use"] * n_calls
        assert said.stop_reason == "tool_use"


def test_the_next_turn_knows_of_the_one_call_alone(loop: Asked) -> None:
    items: list[Any] = [{"role": "user", "content": "Twice"}]
    with openai.OpenAI(base_url=f"{loop.url}/v1", api_key="k") as client:
        ask: Any = {"model": "nano", "tools": [FLAT], "parallel_tool_calls": False}
        for path in ("a", "a/ü"):
            reply = client.responses.create(**ask, input=items)
            (call,) = reply.output
            assert call.type == "function_call"
            items += [
                call.model_dump(exclude_none=True),
                {"type": "function_call_output", "call_id": call.call_id, "output": "x"},
            ]
            assert path in call.arguments
        assert client.responses.create(**ask, input=items).output_text == "Two."
    assert [text for _, _, text in loop.done()] == ['{"path": "a"}', '{"path": "a/ü"}']
