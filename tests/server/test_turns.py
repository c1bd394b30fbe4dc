"""Conversations over HTTP: what a turn finds in the cache."""

import itertools
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import run_cli
from tests.conftest import RunningServer, run_server, wait_until
from tests.server import well_formed


def chat(server: RunningServer, messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    body = {"model": "nano", "messages": messages, "stream": False, "options": {"temperature": 0}}
    reply = httpx.post(f"{server.url}/api/chat", json=body | more, timeout=300, trust_env=False)
    return dict(reply.raise_for_status().json())


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def n_prefetched(server: RunningServer) -> int:
    metrics = httpx.get(f"{server.url}/metrics", trust_env=False).text
    found = re.search(r'engine_prefetched_tokens_total\{model="nano"\} (\d+)', metrics)
    return int(found[1]) if found else 0


def is_prefetching(server: RunningServer) -> bool:
    before = n_prefetched(server)
    time.sleep(1)  # as it takes to read the answer
    return n_prefetched(server) > before


def test_later_turns_prefill_only_what_is_new(server: RunningServer) -> None:
    """The history form of the answer is prefilled while nobody asks."""
    messages = [user("Tell me of the old river near the quiet house. " * 5)]
    for question in ("What is 3 plus 4?", "And the capital of France?"):
        answer = chat(server, messages)
        assert answer["message"]["thinking"]
        wait_until(lambda: not is_prefetching(server), timeout_s=300)
        messages += [answer["message"], user(question)]
        following = chat(server, messages)
        n_new = following["prompt_eval_count"] - following["prompt_cached_count"]
        assert n_new <= 20


def test_tool_loop_goes_on_from_all_of_it(server: RunningServer) -> None:
    """Its reasoning stays; the header of the call may be spelled otherwise than the model did."""
    city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    function = {"name": "get_weather", "description": "Gets the weather.", "parameters": city}
    tools = [{"type": "function", "function": function}]
    messages = [user("What is the weather in Oslo?")]
    call = chat(server, messages, tools=tools)
    assert call["message"]["tool_calls"]
    messages += [call["message"], {"role": "tool", "tool_name": "get_weather", "content": "rain"}]
    answer = chat(server, messages, tools=tools)
    assert answer["prompt_cached_count"] > call["prompt_eval_count"]


def test_generate_goes_on_from_its_context(server: RunningServer) -> None:
    body = {"model": "nano", "prompt": "Count from 1 to 20.", "stream": False}
    url = f"{server.url}/api/generate"
    first = httpx.post(url, json=body, timeout=300, trust_env=False).json()
    time.sleep(0.3)
    more = body | {"prompt": "And back.", "context": first["context"]}
    second = httpx.post(url, json=more, timeout=300, trust_env=False).json()
    assert second["prompt_cached_count"] == len(first["context"]) - 1  # the stop token is new


def test_oldest_turns_are_left_out_on_request(nano_home: Path) -> None:
    """And only then; the answer says so."""
    filler = [user("word " * 300), {"role": "assistant", "content": "Yes."}] * 4
    messages = [*filler, user("What is the capital of France?")]
    chat_body = {"messages": messages, "options": {"temperature": 0}}
    bodies: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "/api/chat": (chat_body, {"truncate": True}),
        "/v1/responses": ({"input": messages, "temperature": 0}, {"truncation": "auto"}),
    }
    with (
        run_server(nano_home, context_length="1024") as server,
        httpx.Client(base_url=server.url, timeout=300, trust_env=False) as http,
    ):
        http.post("/api/generate", json={"model": "nano"})  # a load would end the time for a 400
        for (path, (body, asked)), stream in itertools.product(bodies.items(), (False, True)):
            body |= {"model": "nano", "stream": stream}
            refused = http.post(path, json=body)
            assert refused.status_code == 400, refused.text
            assert "X-Messages-Left-Out" not in refused.headers
            reply = http.post(path, json=body | asked)
            assert reply.status_code == 200, reply.text
            assert reply.headers["X-Messages-Left-Out"] == "4"
            if stream:
                well_formed.check_stream(path, reply.text)
            else:
                well_formed.check_whole(path, reply.json())


@pytest.mark.parametrize(
    "path", ["/api/chat", "/v1/chat/completions", "/v1/responses", "/v1/messages"]
)
def test_a_begun_answer_goes_on(server: RunningServer, path: str) -> None:
    """The reply is what comes after it, without reasoning, as its place is over."""
    messages = [user("Count from 1 to 12."), {"role": "assistant", "content": "1, 2, 3, 4, 5"}]
    body = {"model": "nano", "messages": messages, "input": messages, "stream": False}
    body |= {"temperature": 0, "options": {"temperature": 0}}
    limit = {} if path == "/v1/responses" else {"max_tokens": 200}
    reply = httpx.post(server.url + path, json=body | limit, timeout=300, trust_env=False)
    assert ", 6, 7, 8, 9, 10, 11, 12" in reply.text
    for absent in ("1, 2, 3", "thinking", "reasoning_content", '"summary_text"'):
        assert absent not in reply.text


def test_begun_reasoning_goes_on(server: RunningServer) -> None:
    """In pieces of eight tokens it is what it is in one piece."""
    question = user("Count from 1 to 12.")

    def ask(*messages: dict[str, Any], **options: Any) -> dict[str, Any]:
        body = {"model": "nano", "messages": [question, *messages], "stream": False}
        body |= {"options": {"temperature": 0, **options}}
        reply = httpx.post(f"{server.url}/api/chat", json=body, timeout=300, trust_env=False)
        return dict(reply.json())

    whole = ask()["message"]
    assert len(whole["thinking"].split()) >= 8  # so the first piece ends in it
    thinking = content = ""
    for _ in range(40):
        begun = {"role": "assistant", "content": content, "thinking": thinking}
        reply = ask(*[begun] * bool(thinking), num_predict=8)
        if content:
            assert not reply["message"].get("thinking")
        thinking += reply["message"].get("thinking", "")
        content += reply["message"]["content"]
        if reply["done_reason"] == "stop":
            break
    assert (thinking, content) == (whole["thinking"], whole["content"])


@pytest.mark.parametrize("is_killed", [True, False])
def test_restarted_server_prefills_only_what_is_new(empty_home: Path, is_killed: bool) -> None:
    """Killed when it had been idle; or stopped, which saves what is not saved yet."""
    saves = {"prefix_disk_bytes": str(2**30), "prefix_save_s": "0.5" if is_killed else "1000"}
    folder = empty_home / "cache" / "prefixes"
    text = "The river is quiet near the old house. " * 60
    messages = [user(f"The passcode is 4711. {text}What is the passcode?")]
    with run_server(empty_home, **saves) as server:
        messages += [chat(server, messages)["message"], user("What is 3 plus 4?")]
        time.sleep(1)  # as it takes to read the answer
        if is_killed:
            wait_until(lambda: list(folder.glob("*/*.prefix")))
            server.process.kill()
        else:
            wanted = chat(server, messages)["message"]
    with run_server(empty_home, **saves) as server:
        following = chat(server, messages)
        n_new = following["prompt_eval_count"] - following["prompt_cached_count"]
        assert n_new <= 20
        if not is_killed:
            assert following["message"] == wanted
    with run_server(empty_home, prefix_disk_bytes="0") as server:
        assert "prompt_cached_count" not in chat(server, messages)


@pytest.mark.nightly
def test_a_restart_with_another_kv_type_reads_the_prompt_again(empty_home: Path) -> None:
    saves = {"prefix_disk_bytes": str(2**30), "prefix_save_s": "1000"}
    text = "The river is quiet near the old house. " * 60
    messages = [user(f"The passcode is 4711. {text}What is the passcode?")]
    with run_server(empty_home, **saves, kv_type="q8_0") as server:
        answer = chat(server, messages)["message"]
        assert "4711" in answer["content"]
        shown = run_cli(server.environment, "ps").stdout
        assert re.search(r"nano .* \d+ q8_0 ", shown)
    messages += [answer, user("What is 3 plus 4?")]
    with run_server(empty_home, **saves) as server:
        assert "prompt_cached_count" not in chat(server, messages)
        assert "f16" not in run_cli(server.environment, "ps").stdout


@pytest.mark.nightly
def test_a_long_conversation_makes_way_and_comes_back(empty_home: Path) -> None:
    """Also where somebody looks at the metrics all the while, which is no work."""
    saves = {"prefix_disk_bytes": str(2**30), "prefix_save_s": "0.5", "prefix_keep_s": "0"}
    long = [user("The passcode is 4711. " + "The river is quiet near the old house. " * 600)]
    with run_server(empty_home, **saves) as server:
        long.append(chat(server, long)["message"])
        chat(server, [user("What is 3 plus 4?")])
        wait_until(lambda: max(cells_kept(server), default=0) > 5000)
        wait_until(lambda: max(cells_kept(server), default=5000) < 1000)
        following = chat(server, [*long, user("What is 3 plus 4?")])
        assert following["prompt_eval_count"] - following["prompt_cached_count"] <= 20


def cells_kept(server: RunningServer) -> list[int]:
    """Of its model; of none while the engine is too busy to tell."""
    text = httpx.get(f"{server.url}/metrics", timeout=10, trust_env=False).text
    return [
        int(n) for n in re.findall(r"^gptoss_engine_cache_cells_kept\{.*\} (\d+)\.0$", text, re.M)
    ]
