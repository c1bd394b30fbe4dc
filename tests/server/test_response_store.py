"""Remembered answers of `/v1/responses`, through the real `openai` SDK."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from gptoss_local.base.errors import ResponseNotFoundError
from gptoss_local.harmony import Vocabulary
from gptoss_local.server.dialects.openai.responses_memory import ResponseStore
from tests.scripted_engine import Reply, Script, answer, calls
from tests.server.asked import Asked, run_asked
from tests.server.dialects import user

LOOK: Any = {"type": "function", "name": "look", "strict": None, "parameters": {"type": "object"}}
WEATHER: dict[str, Any] = {"input": [user("Weather?")], "tools": [LOOK]}
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


def result(called: Any) -> dict[str, str]:
    call_id = called.output[-1].call_id
    return {"type": "function_call_output", "call_id": call_id, "output": "0 C"}


def sent_back(made: Any) -> list[Any]:
    return [item.model_dump(exclude_none=True) for item in made.output]


@STREAMED
def test_got_back_and_deleted(client: openai.OpenAI, streamed: bool) -> None:
    made = ask(client, streamed=streamed)
    assert made.store is True
    got = client.responses.retrieve(made.id)
    assert (got.output_text, got.usage) == (made.output_text, made.usage)
    assert [item.id for item in got.output] == [item.id for item in made.output]
    client.responses.delete(made.id)
    for call in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(openai.NotFoundError, match=f"'{made.id}' not found"):
            call(made.id)
    hidden = ask(client, streamed=streamed, store=False)
    assert hidden.store is False
    with pytest.raises(openai.NotFoundError) as caught:
        ask(client, streamed=streamed, previous_response_id=hidden.id)
    assert (caught.value.code, caught.value.type) == ("not_found", "not_found_error")


@STREAMED
def test_a_chain(asked: Asked, client: openai.OpenAI, streamed: bool) -> None:
    """Each turn continues from the one before, as if the client had sent all of it."""
    first = ask(client, streamed=streamed, instructions="Be brief.")
    second = ask(client, streamed=streamed, input="And?", previous_response_id=first.id)
    assert "Be brief." not in asked.prompt()  # they are not carried over
    assert second.instructions is None
    client.responses.delete(first.id)  # a chain outlives its beginning
    third = ask(client, streamed=streamed, input="So?", previous_response_id=second.id)
    assert (third.previous_response_id, first.previous_response_id) == (second.id, None)
    assert asked.texts() == ["Hi", "Well.", "And?", "Well.", "So?"]
    prompt = asked.prompt()
    sent: list[Any] = [user("Hi"), *sent_back(first), user("And?"), *sent_back(second)]
    ask(client, input=[*sent, user("So?")])
    assert asked.prompt() == prompt


@STREAMED
def test_a_tool_loop_by_id_or_reference(
    asked: Asked, client: openai.OpenAI, streamed: bool
) -> None:
    """Vercel's AI SDK sends ids of items where it knows that answers are stored."""
    called = ask(client, streamed=streamed, **WEATHER)
    more: Any = WEATHER | {"input": [result(called)], "previous_response_id": called.id}
    answered = ask(client, streamed=streamed, **more)
    assert answered.output_text == "Snow."
    prompt = asked.prompt()
    references: list[Any] = [{"type": "item_reference", "id": item.id} for item in called.output]
    del references[0]["type"]  # which is optional
    loop = WEATHER | {"input": [*WEATHER["input"], *references, result(called)]}
    assert ask(client, **loop).output_text == "Snow."
    assert asked.prompt() == prompt
    assert ask(client, previous_response_id=answered.id).output_text == "Well."


def test_input_items(asked: Asked, client: openai.OpenAI) -> None:
    called = ask(client, **WEATHER)
    more: Any = WEATHER | {"input": [result(called)], "previous_response_id": called.id}
    answered = ask(client, **more)
    items: list[Any] = list(client.responses.input_items.list(answered.id, order="asc"))
    assert [item.type for item in items] == [
        *("message", "reasoning", "function_call", "function_call_output")
    ]
    assert items[0].content[0].text == "Weather?"
    assert (items[2].id, json.loads(items[2].arguments)) == (
        *(called.output[-1].id, {"city": "Oslo"}),
    )
    assert items[3].output == "0 C"
    paged = client.responses.input_items.list(answered.id, limit=1)
    assert paged.has_more
    assert [item.id for item in paged] == [item.id for item in reversed(items)]
    url = f"{asked.url}/v1/responses/{answered.id}/input_items"
    for query in ("limit=0", "limit=101", "limit=x", "order=up", "after=nope"):
        reply = httpx.get(f"{url}?{query}", headers={"authorization": "Bearer k"})
        assert reply.status_code == 400
        assert query.partition("=")[0] in reply.json()["error"]["message"]


def test_a_stored_answer_is_its_makers(asked: Asked, client: openai.OpenAI) -> None:
    """To another key, every id is unknown."""
    made = ask(client, input="Hello")
    theirs = client.with_options(api_key="another")
    count = theirs.responses.input_tokens.count
    ways: dict[str, list[Callable[[str], Any]]] = {
        made.id: [
            theirs.responses.retrieve,
            theirs.responses.delete,
            lambda name: theirs.responses.input_items.list(name),
            lambda name: ask(theirs, previous_response_id=name),
            lambda name: count(model="nano", input="Next", previous_response_id=name),
        ],
        made.output[-1].id: [
            lambda name: ask(theirs, input=[{"type": "item_reference", "id": name}]),
            lambda name: ask(theirs, input=[{"id": name}]),
        ],
    }
    for name, tries in ways.items():
        for call in tries:
            told = []
            for each in (name, f"{name[:-4]}0000"):
                with pytest.raises(openai.NotFoundError) as refused:
                    call(each)
                assert each in refused.value.message
                told.append(refused.value.message.replace(each, "NAME"))
            assert told[0] == told[1]
    assert client.responses.retrieve(made.id).output_text == "Well."


def test_cut_answers_are_remembered_and_left_ones_not(client: openai.OpenAI) -> None:
    cut = ask(client, input="Cut")
    assert client.responses.retrieve(cut.id).status == "incomplete"
    with client.responses.create(model="nano", input="Slow", stream=True) as events:
        created: Any = next(iter(events))
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(created.response.id)
    with pytest.raises(openai.BadRequestError, match="not streamed"):
        client.responses.retrieve(cut.id, stream=True)


def test_references_go_with_their_answer() -> None:
    """The order in which answers go is in `tests/test_fair_store.py`."""
    store = ResponseStore(max_bytes=10_000)
    for number in range(9):
        output = [{"id": f"msg_{number}", "text": "x" * 500}]
        store.add("ada", [{"text": "y" * 500}], {"id": f"resp_{number}", "output": output})
        store.items("ada", "resp_0")
    for number in (0, 8):
        assert store.output_item("ada", f"msg_{number}")["id"] == f"msg_{number}"
    with pytest.raises(ResponseNotFoundError, match="Response with id 'resp_1'"):
        store.response("ada", "resp_1")
    with pytest.raises(ResponseNotFoundError, match="Item with id 'msg_1'"):
        store.output_item("ada", "msg_1")
