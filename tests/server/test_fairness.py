"""One who asks for little is answered next to those who ask for much, over a real socket."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from gptoss_local.server.keys import add_key
from tests.conftest import RunningServer, run_server, wait_until
from tests.server.conftest import metric
from tests.server.test_serving import client

N_GREEDY = 12
N_POLITE = 4


@pytest.fixture(params=["keys", "connections", pytest.param("one key", marks=pytest.mark.nightly)])
def keys(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The headers of both users, who may be no more than connections."""
    if request.param == "connections":
        return {}
    file = tmp_path / "keys.toml"
    keys = {user: f"Bearer {add_key(file, user)}" for user in ("greedy", "polite")}
    return keys if request.param == "keys" else dict.fromkeys(keys, keys["greedy"])


@pytest.fixture
def server(nano_home: Path, keys: dict[str, str], tmp_path: Path) -> Iterator[RunningServer]:
    file = str(tmp_path / "keys.toml") if keys else ""
    with run_server(nano_home, num_parallel="1", api_keys_file=file) as server:
        yield server


async def test_a_polite_client_beside_greedy_ones(
    server: RunningServer, keys: dict[str, str]
) -> None:
    n_greedy = 0

    def client_of(user: str) -> httpx.AsyncClient:
        headers = {"authorization": keys[user]} if keys else {}
        return httpx.AsyncClient(
            base_url=server.url, headers=headers, timeout=None, trust_env=False
        )

    async def ask(http: httpx.AsyncClient, question: str, n_tokens: int) -> None:
        body: dict[str, Any] = {"model": "nano", "stream": False, "think": "low"}
        body |= {"messages": [{"role": "user", "content": question}]}
        body |= {"options": {"num_predict": n_tokens, "temperature": 0}}
        (await http.post("/api/chat", json=body)).raise_for_status()

    async def be_greedy(n: int) -> None:
        nonlocal n_greedy
        async with client_of("greedy") as http:
            while True:
                await ask(http, f"Count from {n} to 900.", 20)
                n_greedy += 1

    async def until(condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.02)

    async with client_of("polite") as http:
        await ask(http, "What is the capital of France?", 2)
        crowd = [asyncio.create_task(be_greedy(n)) for n in range(N_GREEDY)]
        await until(lambda: n_greedy > N_GREEDY)  # the price of each request is known by now
        n_before = n_greedy
        for _ in range(N_POLITE):
            await ask(http, "What is the capital of France?", 2)
        n_waited_for = n_greedy - n_before
    for each in crowd:
        each.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)
    # A round as a newcomer, the rest of one, and then one or two answers each.
    assert n_waited_for < 2 / 3 * N_POLITE * N_GREEDY, "first come, first served: all of them"


def test_one_key_does_not_fill_the_waiting_room(nano_home: Path, tmp_path: Path) -> None:
    """Those for whom there is no room are told so in every dialect."""
    file = tmp_path / "keys.toml"
    keys = {name: f"Bearer {add_key(file, name)}" for name in ("many", "few", "third")}
    body = {"model": "nano", "messages": [{"role": "user", "content": "hi"}], "stream": False}
    body |= {"max_tokens": 2, "options": {"num_predict": 2}}
    settings = {"num_parallel": "1", "max_queue": "7", "api_keys_file": str(file)}
    with (
        run_server(nano_home, **settings) as server,
        client(server) as http,
        ThreadPoolExecutor(16) as pool,
    ):

        def ask(name: str, path: str = "/api/chat") -> httpx.Response:
            return http.post(path, json=body, headers={"authorization": keys[name]})

        def n_active() -> float:
            return metric(http, "gptoss_answers_active", server.owner)

        assert ask("many").status_code == 200
        with server.engine_suspended():
            waiting = []
            for name, n in (("many", 8), ("few", 4), ("third", 2)):  # half of the free places each
                waiting += [pool.submit(ask, name) for _ in range(n)]
                wait_until(lambda: n_active() == len(waiting))  # noqa: B023
                assert ask(name).status_code == 503
            for path in ("/api/chat", "/v1/chat/completions", "/v1/messages"):
                refused = ask("many", path)
                assert refused.status_code == 503
                assert "server busy, please try again.  maximum pending requests" in refused.text
        assert [each.result().status_code for each in waiting] == [200] * 14
        assert ask("many").status_code == 200
