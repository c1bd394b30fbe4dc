"""One who asks for little is answered beside those who ask for much, over a real socket."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gptoss_local.api_keys import add_key
from tests.conftest import RunningServer, run_server

N_GREEDY = 12
N_POLITE = 4


@pytest.fixture(params=["keys", "connections"])
def keys(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The headers of both users, who may be no more than connections."""
    if request.param == "connections":
        return {}
    file = tmp_path / "keys.toml"
    return {user: f"Bearer {add_key(file, user)}" for user in ("greedy", "polite")}


@pytest.fixture
def server(nano_home: Path, keys: dict[str, str], tmp_path: Path) -> Iterator[RunningServer]:
    file = str(tmp_path / "keys.toml") if keys else ""
    with run_server(nano_home, num_parallel="1", api_keys_file=file) as server:
        yield server


async def test_a_polite_client_beside_greedy_ones(
    server: RunningServer, keys: dict[str, str]
) -> None:
    n_greedy = 0

    def client(user: str) -> httpx.AsyncClient:
        headers = {"authorization": keys[user]} if keys else {}
        return httpx.AsyncClient(base_url=server.url, headers=headers, timeout=300, trust_env=False)

    async def ask(http: httpx.AsyncClient, question: str, n_tokens: int) -> None:
        body: dict[str, Any] = {"model": "nano", "stream": False, "think": "low"}
        body |= {"messages": [{"role": "user", "content": question}]}
        body |= {"options": {"num_predict": n_tokens, "temperature": 0}}
        (await http.post("/api/chat", json=body)).raise_for_status()

    async def be_greedy(n: int) -> None:
        nonlocal n_greedy
        async with client("greedy") as http:
            while True:
                await ask(http, f"Count from {n} to 900.", 60)
                n_greedy += 1

    async def until(condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.02)

    async with client("polite") as http:
        await ask(http, "What is the capital of France?", 2)
        crowd = [asyncio.create_task(be_greedy(n)) for n in range(N_GREEDY)]
        await until(lambda: n_greedy > N_GREEDY)  # what each one asks for is known by now
        n_before = n_greedy
        for _ in range(N_POLITE):
            await ask(http, "What is the capital of France?", 2)
        n_waited_for = n_greedy - n_before
    for each in crowd:
        each.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)
    print("WAITED", n_waited_for)
    assert n_waited_for < N_POLITE * N_GREEDY / 2, "first come, first served: all of them"
