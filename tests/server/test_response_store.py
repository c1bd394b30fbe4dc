"""What the server remembers of `/v1/responses`, through the real `openai` SDK."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from gptoss_local.base.errors import ResponseNotFoundError
from gptoss_local.harmony import Vocabulary
from gptoss_local.server.dialects.openai.response_store import ResponseStore
from tests.scripted_engine import Reply, Script, answer, calls
from tests.server import sse
from tests.server.asked import Asked, run_asked

LOOK: Any = {"type": "function", "name": "look", "strict": None, "parameters": {"type": "object"}}
WEATHER: dict[str, Any] = {"input": [{"role": "user", "content": "Weather?"}], "tools": [LOOK]}
STREAMED = pytest.mark.parametrize("streamed", [False, True])


@pytest.fixture(scope="module")
def asked(nano_home: Path, vocabulary: Vocabulary) -> Iterator[Asked]:
    script = Script(vocabulary)
    script.say("Weather?", calls("look", {"city": "Oslo"}, "I look."), answer("Snow."))
    script.say("Cut", Reply(text="<|channel|>final<|message|>This is c"))
    script.say("Slow", answer("word " * 400, tok_s=20))
    script.otherwise(answer("Well.", "Hm."))
    with run_asked(nano_home, vocabulary, script) as running:
        yield running


@pytest.fixture
def client(asked: Asked) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{asked.url}/v1", api_key="k", max_retries=0) as client:
        yield client


def ask(client: openai.OpenAI, *, streamed: bool = False, **fields: Any) -> Any:
    whole = {"model": "nano", "input": "Hi"} | fields
    if not streamed:
        return client.responses.create(**whole)
    with client.responses.stream(**whole) as events:
        return events.get_final_response()


def result(call: Any) -> dict[str, str]:
    return {"type": "function_call_output", "call_id": call.call_id, "output": "0 C"}


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
def test_a_chain(asked: Asked, client: openai.OpenAI, streamed: bool) -> None:
    """Each turn goes on from the one before, as if the client had sent all of it."""
    first = ask(client, streamed=streamed, instructions="Be brief.")
    second = ask(client, streamed=streamed, input="And?", previous_response_id=first.id)
    assert "Be brief." not in asked.prompt()  # they are not carried over
    assert second.instructions is None
    third = ask(client, streamed=streamed, input="So?", previous_response_id=second.id)
    assert (third.previous_response_id, first.previous_response_id) == (second.id, None)
    assert asked.texts() == ["Hi", "Well.", "And?", "Well.", "So?"]
    prompt = asked.prompt()
    sent: list[Any] = [{"role": "user", "content": "Hi"}]
    sent += [item.model_dump(exclude_none=True) for item in first.output]
    sent += [{"role": "user", "content": "And?"}]
    sent += [item.model_dump(exclude_none=True) for item in second.output]
    ask(client, input=[*sent, {"role": "user", "content": "So?"}])
    assert asked.prompt() == prompt


def test_a_chain_outlives_what_it_began_with(asked: Asked, client: openai.OpenAI) -> None:
    """And an answer can be gone on from twice."""
    first = ask(client)
    second = ask(client, input="And?", previous_response_id=first.id)
    client.responses.delete(first.id)
    for _ in range(2):
        ask(client, input="So?", previous_response_id=second.id)
        assert asked.texts() == ["Hi", "Well.", "And?", "Well.", "So?"]


@STREAMED
def test_a_tool_loop_by_id_or_reference(
    asked: Asked, client: openai.OpenAI, streamed: bool
) -> None:
    """Vercel's AI SDK sends ids of items where it knows that answers are stored."""
    called = ask(client, streamed=streamed, **WEATHER)
    call = called.output[-1]
    more: Any = WEATHER | {"input": [result(call)], "previous_response_id": called.id}
    answered = ask(client, streamed=streamed, **more)
    assert answered.output_text == "Snow."
    prompt = asked.prompt()
    references: list[Any] = [{"type": "item_reference", "id": item.id} for item in called.output]
    del references[0]["type"]  # which is optional
    loop = WEATHER | {"input": [*WEATHER["input"], *references, result(call)]}
    assert ask(client, **loop).output_text == "Snow."
    assert asked.prompt() == prompt
    assert ask(client, previous_response_id=answered.id).output_text == "Well."
    with pytest.raises(openai.NotFoundError, match="Item with id 'rs_1' not found"):
        ask(client, input=[{"type": "item_reference", "id": "rs_1"}])


def test_input_items(client: openai.OpenAI) -> None:
    called = ask(client, **WEATHER)
    call = called.output[-1]
    more: Any = WEATHER | {"input": [result(call)], "previous_response_id": called.id}
    answered = ask(client, **more)
    items: list[Any] = list(client.responses.input_items.list(answered.id, order="asc"))
    assert [item.type for item in items] == [
        *("message", "reasoning", "function_call", "function_call_output")
    ]
    assert items[0].content[0].text == "Weather?"
    assert (items[2].id, json.loads(items[2].arguments)) == (call.id, {"city": "Oslo"})
    assert items[3].output == "0 C"
    paged = client.responses.input_items.list(answered.id, limit=1)
    assert paged.has_more
    assert [item.id for item in paged] == [item.id for item in reversed(items)]


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "order=up", "after=nope"])
def test_bad_pages(asked: Asked, client: openai.OpenAI, query: str) -> None:
    url = f"{asked.url}/v1/responses/{ask(client).id}/input_items?{query}"
    reply = httpx.get(url, headers={"authorization": "Bearer k"})  # callers are told apart by it
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


def test_cut_answers_are_remembered_and_left_ones_not(asked: Asked) -> None:
    with httpx.Client(base_url=asked.url, timeout=300, trust_env=False) as http:
        ask = {"model": "nano"}
        cut = http.post("/v1/responses", json=ask | {"input": "Cut"}).json()
        assert http.get(f"/v1/responses/{cut['id']}").json()["status"] == "incomplete"
        body = ask | {"input": "Slow", "stream": True}
        with http.stream("POST", "/v1/responses", json=body) as reply:
            lines = reply.iter_lines()
            text = f"{next(lines)}\n{next(lines)}\n\n"
        ((_, created),) = sse.events(text)
        assert http.get(f"/v1/responses/{created['response']['id']}").status_code == 404
        made = http.post("/v1/responses", json=ask | {"input": "Hi"}).json()
        again = http.get(f"/v1/responses/{made['id']}?stream=true")
        assert (again.status_code, "not streamed" in again.text) == (400, True)


def kept(number: int, n_chars: int = 0) -> dict[str, Any]:
    return {"id": f"resp_{number}", "output": [{"id": f"msg_{number}", "text": "x" * n_chars}]}


def test_bounds() -> None:
    """References go with their answer, and an owner's answers with the owner's own."""
    store = ResponseStore(max_bytes=10_000)
    store.add("bob", [], kept(0))
    for number in range(1, 7):
        store.add("ada", [{"text": "y" * 500}], kept(number, 500))
        store.items("ada", "resp_1")
    for owner, number in (("bob", 0), ("ada", 1), ("ada", 6)):
        assert store.output_item(owner, f"msg_{number}")["id"] == f"msg_{number}"
    for owner, number in (("ada", 2), ("ada", 0), ("bob", 6)):
        with pytest.raises(ResponseNotFoundError, match=f"Response with id 'resp_{number}'"):
            store.response(owner, f"resp_{number}")
        with pytest.raises(ResponseNotFoundError, match=f"Item with id 'msg_{number}'"):
            store.output_item(owner, f"msg_{number}")
    store.add("ada", [], kept(7, 20_000))
    with pytest.raises(ResponseNotFoundError):
        store.response("ada", "resp_7")
    assert store.response("bob", "resp_0")["id"] == "resp_0"
