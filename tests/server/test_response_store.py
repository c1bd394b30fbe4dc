"""What the server remembers of `/v1/responses`, through the real `openai` SDK."""

import json
from typing import Any

import httpx
import openai
import pytest

from gptoss_local.errors import ResponseNotFoundError
from gptoss_local.server.dialects.openai.response_store import ResponseStore
from tests.server import sse
from tests.server.test_openai_chat import client as client
from tests.server.test_openai_responses import ASK, TOKYO

SECRET = "Remember this: the passcode is quiet-river-42."
STREAMED = pytest.mark.parametrize("streamed", [False, True])


def ask(client: openai.OpenAI, *, streamed: bool = False, **fields: Any) -> Any:
    if not streamed:
        return client.responses.create(**ASK | fields)
    with client.responses.stream(**ASK | fields) as events:
        return events.get_final_response()


def result(call: Any) -> dict[str, str]:
    output = '{"temperature": 21, "description": "sunny"}'
    return {"type": "function_call_output", "call_id": call.call_id, "output": output}


@STREAMED
def test_got_back_and_deleted(client: openai.OpenAI, streamed: bool) -> None:
    made = ask(client, streamed=streamed)
    assert made.store is True
    got = client.responses.retrieve(made.id)
    assert got.output_text == made.output_text
    assert got.usage == made.usage
    assert [item.id for item in got.output] == [item.id for item in made.output]
    client.responses.delete(made.id)
    for call in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(openai.NotFoundError, match=f"'{made.id}' not found"):
            call(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.input_items.list(made.id)


@STREAMED
def test_a_chain(client: openai.OpenAI, streamed: bool) -> None:
    """Each turn goes on from the one before, as if the client had sent all of it."""
    first = ask(client, streamed=streamed, input=SECRET)
    second = ask(client, streamed=streamed, previous_response_id=first.id)
    third = ask(
        client,
        streamed=streamed,
        input="What is the passcode?",
        previous_response_id=second.id,
    )
    assert (third.previous_response_id, first.previous_response_id) == (second.id, None)
    sent: list[Any] = [{"role": "user", "content": SECRET}]
    sent += [item.model_dump(exclude_none=True) for item in first.output]
    sent += [{"role": "user", "content": ASK["input"]}]
    sent += [item.model_dump(exclude_none=True) for item in second.output]
    sent += [{"role": "user", "content": "What is the passcode?"}]
    whole = ask(client, input=sent)
    assert third.output_text == whole.output_text
    assert third.usage.input_tokens == whole.usage.input_tokens
    assert "quiet-river-42" in third.output_text


def test_a_chain_outlives_what_it_began_with(client: openai.OpenAI) -> None:
    """And an answer can be gone on from twice."""
    first = ask(client, input=SECRET)
    second = ask(client, previous_response_id=first.id)
    client.responses.delete(first.id)
    question = {"input": "What is the passcode?", "previous_response_id": second.id}
    answers = [ask(client, **question) for _ in range(2)]
    assert answers[0].output_text == answers[1].output_text
    assert "quiet-river-42" in answers[0].output_text


@STREAMED
def test_a_tool_loop(client: openai.OpenAI, streamed: bool) -> None:
    called = ask(client, streamed=streamed, **TOKYO)
    call = called.output[-1]
    answered = ask(
        client,
        streamed=streamed,
        **TOKYO | {"input": [result(call)]},
        previous_response_id=called.id,
    )
    assert answered.output_text == "It is 21 degrees and sunny in Tokyo."
    again = ask(client, previous_response_id=answered.id)
    assert "Paris" in again.output_text


def test_items_by_reference(client: openai.OpenAI) -> None:
    """Vercel's AI SDK sends ids where it knows that answers are stored."""
    called = ask(client, **TOKYO)
    call = called.output[-1]
    references: list[Any] = [{"type": "item_reference", "id": item.id} for item in called.output]
    del references[0]["type"]  # which is optional
    loop = ask(client, **TOKYO | {"input": [*TOKYO["input"], *references, result(call)]})
    assert loop.output_text == "It is 21 degrees and sunny in Tokyo."
    with pytest.raises(openai.NotFoundError, match="Item with id 'rs_1' not found"):
        ask(client, input=[{"type": "item_reference", "id": "rs_1"}])


def test_instructions_are_not_carried_over(client: openai.OpenAI) -> None:
    first = ask(client, instructions="Be brief." * 50)
    second = ask(client, previous_response_id=first.id)
    assert second.instructions is None
    assert second.usage.input_tokens < first.usage.input_tokens


def test_input_items(client: openai.OpenAI) -> None:
    called = ask(client, **TOKYO)
    call = called.output[-1]
    answered = ask(client, **TOKYO | {"input": [result(call)]}, previous_response_id=called.id)
    listed = client.responses.input_items.list(answered.id, order="asc")
    assert [item.type for item in listed] == [
        *("message", "reasoning", "function_call", "function_call_output")
    ]
    items: list[Any] = list(listed)
    assert items[0].content[0].text == TOKYO["input"][0]["content"]
    assert items[2].id == call.id
    assert json.loads(items[2].arguments) == {"location": "Tokyo"}
    assert items[3].output == result(call)["output"]
    paged = client.responses.input_items.list(answered.id, limit=1)
    assert paged.has_more
    assert [item.id for item in paged] == [item.id for item in reversed(items)]


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "order=up", "after=nope"])
def test_bad_pages(client: openai.OpenAI, http: httpx.Client, query: str) -> None:
    made = ask(client)
    sent = {"authorization": f"Bearer {client.api_key}"}  # callers are told apart by it
    reply = http.get(f"/v1/responses/{made.id}/input_items?{query}", headers=sent)
    assert reply.status_code == 400
    assert query.partition("=")[0] in reply.json()["error"]["message"]


@STREAMED
def test_what_is_not_to_be_stored_is_not(client: openai.OpenAI, streamed: bool) -> None:
    made = ask(client, streamed=streamed, store=False)
    assert made.store is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.NotFoundError) as caught:
        ask(client, streamed=streamed, previous_response_id=made.id)
    assert caught.value.code == "not_found"
    assert caught.value.type == "not_found_error"


def test_cut_answers_are_remembered_and_left_ones_not(http: httpx.Client) -> None:
    cut = http.post("/v1/responses", json=ASK | {"max_output_tokens": 5}).json()
    assert http.get(f"/v1/responses/{cut['id']}").json()["status"] == "incomplete"
    body = ASK | {"input": "Count from 1 to 900.", "stream": True}
    with http.stream("POST", "/v1/responses", json=body) as reply:
        lines = reply.iter_lines()
        text = f"{next(lines)}\n{next(lines)}\n\n"
    ((_, created),) = sse.events(text)
    assert http.get(f"/v1/responses/{created['response']['id']}").status_code == 404
    made = http.post("/v1/responses", json=ASK).json()
    again = http.get(f"/v1/responses/{made['id']}?stream=true")
    assert (again.status_code, "not streamed" in again.text) == (400, True)


def answer(number: int, n_chars: int = 0) -> dict[str, Any]:
    return {"id": f"resp_{number}", "output": [{"id": f"msg_{number}", "text": "x" * n_chars}]}


def test_bounds() -> None:
    """References go with their answer, and an owner's answers with the owner's own."""
    store = ResponseStore(max_bytes=10_000)
    store.add("bob", [], answer(0))
    for number in range(1, 7):
        store.add("ada", [{"text": "y" * 500}], answer(number, 500))
        store.items("ada", "resp_1")
    for owner, number in (("bob", 0), ("ada", 1), ("ada", 6)):
        assert store.output_item(owner, f"msg_{number}")["id"] == f"msg_{number}"
    for owner, number in (("ada", 2), ("ada", 0), ("bob", 6)):
        with pytest.raises(ResponseNotFoundError, match=f"Response with id 'resp_{number}'"):
            store.response(owner, f"resp_{number}")
        with pytest.raises(ResponseNotFoundError, match=f"Item with id 'msg_{number}'"):
            store.output_item(owner, f"msg_{number}")
    store.add("ada", [], answer(7, 20_000))
    with pytest.raises(ResponseNotFoundError):
        store.response("ada", "resp_7")
    assert store.response("bob", "resp_0")["id"] == "resp_0"
