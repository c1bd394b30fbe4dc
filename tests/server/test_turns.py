"""Conversations over HTTP: how much a turn finds in the cache."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gptoss_local.harmony import Vocabulary
from tests.conftest import RunningServer, run_server, wait_until
from tests.scripted_engine import Script, answer, run_scripted_server
from tests.server import well_formed
from tests.server.asked import Asked
from tests.server.dialects import WEATHER, user


def chat(server: RunningServer, messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    body = {"model": "nano", "messages": messages, "stream": False, "options": {"temperature": 0}}
    reply = httpx.post(f"{server.url}/api/chat", json=body | more, timeout=300, trust_env=False)
    return dict(reply.raise_for_status().json())


@pytest.fixture(scope="module")
def asked(nano_home: Path, vocabulary: Vocabulary) -> Iterator[Asked]:
    """A server with a small context."""
    script = Script(vocabulary)
    script.otherwise(answer("Paris."))
    with run_scripted_server(nano_home, script, context_length="1024") as server:
        yield Asked(server.url, script, vocabulary)


def n_new(reply: dict[str, Any]) -> int:
    """Return how many tokens of a prompt were not in the cache."""
    return int(reply["prompt_eval_count"] - reply.get("prompt_cached_count", 0))


def n_prefetched(server: RunningServer) -> int:
    text = httpx.get(f"{server.url}/metrics", trust_env=False).text
    found = re.search(r'engine_prefetched_tokens_total\{model="nano"\} (\d+)', text)
    return int(found[1]) if found else 0


def test_later_turns_prefill_only_what_is_new(
    server: RunningServer, vocabulary: Vocabulary
) -> None:
    """The history form of the answer is prefilled while nobody asks."""
    messages = [user("Tell me of the old river near the quiet house. " * 5)]
    before = n_prefetched(server)
    answer = chat(server, messages)
    for question in ("What is 3 plus 4?", "And the capital of France?"):
        assert answer["message"]["thinking"]
        before += len(vocabulary.encode(answer["message"]["content"]))
        wait_until(lambda n=before: n_prefetched(server) >= n)
        messages += [answer["message"], user(question)]
        before = n_prefetched(server)
        answer = chat(server, messages)
        assert n_new(answer) <= 20


def test_tool_loop_goes_on_from_all_of_it(server: RunningServer) -> None:
    """Its reasoning stays; the header of the call may be spelled otherwise than the model did."""
    tools = [{"type": "function", "function": WEATHER}]
    messages = [user("What is the weather in Oslo?")]
    call = chat(server, messages, tools=tools)
    assert call["message"]["tool_calls"]
    messages += [call["message"], {"role": "tool", "tool_name": WEATHER["name"], "content": "rain"}]
    answer = chat(server, messages, tools=tools)
    assert answer["prompt_cached_count"] > call["prompt_eval_count"]


def test_generate_goes_on_from_its_context(server: RunningServer) -> None:
    body = {"model": "nano", "prompt": "Count from 1 to 20.", "stream": False}
    url = f"{server.url}/api/generate"
    first = httpx.post(url, json=body, timeout=300, trust_env=False).json()
    more = body | {"prompt": "And back.", "context": first["context"]}
    second = httpx.post(url, json=more, timeout=300, trust_env=False).json()
    assert second["prompt_cached_count"] == len(first["context"]) - 1  # the stop token is new


def test_oldest_turns_are_left_out_on_request(asked: Asked) -> None:
    """And only then; the answer says so."""
    filler = [user("word " * 300), {"role": "assistant", "content": "Yes."}] * 4
    messages = [*filler, user("What is the capital of France?")]
    for path, stream in itertools.product(("/api/chat", "/v1/responses"), (False, True)):
        body = {"messages": messages, "input": messages, "stream": stream}
        refused = asked.post(path, **body)
        assert refused.status_code == 400, refused.text
        assert "X-Messages-Left-Out" not in refused.headers
        reply = asked.post(path, **body, truncate=True, truncation="auto")
        assert reply.status_code == 200, reply.text
        assert reply.headers["X-Messages-Left-Out"] == "4"
        check = well_formed.check_stream if stream else well_formed.check_whole
        check(path, reply.text if stream else reply.json())


@pytest.mark.parametrize(
    "path", ["/api/chat", "/v1/chat/completions", "/v1/responses", "/v1/messages"]
)
def test_a_begun_answer_goes_on(server: RunningServer, path: str) -> None:
    """The reply comes after it, without reasoning, as its place is over."""
    messages = [user("Count from 1 to 12."), {"role": "assistant", "content": "1, 2, 3, 4, 5"}]
    body = {"model": "nano", "messages": messages, "input": messages, "stream": False}
    body |= {"temperature": 0, "options": {"temperature": 0}}
    limit = {} if path == "/v1/responses" else {"max_tokens": 200}
    reply = httpx.post(server.url + path, json=body | limit, timeout=300, trust_env=False)
    assert ", 6, 7, 8, 9, 10, 11, 12" in reply.text
    for absent in ("1, 2, 3", '"thinking"', "reasoning_content", '"summary_text"'):
        assert absent not in reply.text


def test_begun_reasoning_goes_on(server: RunningServer) -> None:
    """Pieces of eight tokens make the same text as one piece."""
    question = user("Count from 1 to 12.")
    whole = chat(server, [question])["message"]
    assert len(whole["thinking"].split()) >= 8  # so the first piece ends in it
    thinking = content = ""
    for _ in range(40):
        begun = {"role": "assistant", "content": content, "thinking": thinking}
        options = {"temperature": 0, "num_predict": 8}
        reply = chat(server, [question, *[begun] * bool(thinking)], options=options)
        assert not (content and reply["message"].get("thinking"))
        thinking += reply["message"].get("thinking", "")
        content += reply["message"]["content"]
        if reply["done_reason"] == "stop":
            break
    assert (thinking, content) == (whole["thinking"], whole["content"])


def test_a_server_goes_on_from_what_another_has_saved(empty_home: Path) -> None:
    """A killed server has saved it while it was idle; a stopped one saves the rest."""
    text = "The river is quiet near the old house. " * 30
    messages = [user(f"{text}What is 2 plus 4?")]
    for save_s in ("0.5", "1000", "1000"):
        saves = {"prefix_disk_bytes": str(2**30), "prefix_save_s": save_s}
        with run_server(empty_home, **saves) as server:
            answer = chat(server, messages)
            assert len(messages) == 1 or n_new(answer) <= 20
            messages += [answer["message"], user("What is 3 plus 4?")]
            if save_s == "0.5":
                wait_until(lambda: list((empty_home / "cache" / "prefixes").glob("*/*.prefix")))
                server.process.kill()
    with run_server(empty_home, prefix_disk_bytes="0") as server:
        assert "prompt_cached_count" not in chat(server, messages)
