"""A cached prefix is found, and counted, only for the caller that has made it."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from gptoss_local.server.keys import add_key, add_phone
from tests.conftest import RunningServer, run_server
from tests.server.page_client import Page

FIELDS: dict[str, tuple[str, ...]] = {
    "/api/chat": ("prompt_cached_count",),
    "/v1/chat/completions": ("usage", "prompt_tokens_details", "cached_tokens"),
    "/v1/messages": ("usage", "cache_read_input_tokens"),
}


def secret(mark: str) -> str:
    """Some 350 tokens; another mark makes all of them others, as it comes first."""
    return f"{mark} SECRET {'word ' * 350}what is the capital of Spain?"


def n_cached(server: RunningServer, headers: dict[str, str], text: str, path: str) -> int:
    body: dict[str, Any] = {"model": "nano", "messages": [{"role": "user", "content": text}]}
    body |= {"stream": False, "max_tokens": 1, "options": {"num_predict": 1}}
    reply = httpx.post(server.url + path, json=body, headers=headers, timeout=60, trust_env=False)
    found = reply.raise_for_status().json()
    for name in FIELDS[path]:
        found = found.get(name, 0)  # Ollama leaves zeros out
    return int(found)


def gain(server: RunningServer, headers: dict[str, str], mark: str, path: str = "/api/chat") -> int:
    """How many more tokens are cached of a right guess than of a wrong one."""
    n_cached(server, headers, "hi", path)  # now the caller has the system's message itself
    wrong = n_cached(server, headers, secret(f"not {mark}"), path)
    return n_cached(server, headers, secret(mark), path) - wrong


def test_the_owners_chats_are_found_by_the_owner_alone(home_server: RunningServer) -> None:
    phone = {"x-api-key": add_phone(home_server.home / "keys.toml")}
    with Page(home_server) as page:
        for mark, path in zip("123", FIELDS, strict=True):
            # at its usual temperature, nano writes thousands of tokens now and then
            chat_id = page.new(effort="medium", options={"temperature": 0})
            asked = page.ask(chat_id, secret(mark))
            assert page.answered(asked)["state"] == "done"
            assert gain(home_server, {}, mark, path) == 0
            for headers in (phone, home_server.owner):
                assert n_cached(home_server, headers, secret(mark), path) > 300


@pytest.mark.parametrize("is_shared", [False, True])
def test_no_key_finds_anothers(empty_home: Path, tmp_path: Path, is_shared: bool) -> None:
    """In memory, and after a restart on disk."""
    file = tmp_path / "keys.toml"
    one, two = ({"x-api-key": add_key(file, name)} for name in ("one", "two"))
    options = {"api_keys_file": str(file), "prefix_disk_bytes": "", "num_parallel": "8"}
    options |= {"shared_prefixes": "true"} if is_shared else {}
    with run_server(empty_home, **options) as server:
        for mark in "12":
            n_cached(server, one, secret(mark), "/api/chat")
        gained = gain(server, two, "1")
        assert gained > 300 if is_shared else gained == 0
    with run_server(empty_home, **options) as server:
        gained = gain(server, two, "2")
        assert gained > 300 if is_shared else gained == 0
        assert n_cached(server, one, secret("2"), "/api/chat") > 300
