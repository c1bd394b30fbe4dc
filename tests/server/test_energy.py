"""Energy as a person gets it, from a server on a machine with a card of 100 W."""

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import run_cli
from tests.conftest import RunningServer, run_server
from tests.metered import GPU_W
from tests.server.test_serving import client

COUNT = {"role": "user", "content": "Count from 1 to 12."}


@pytest.fixture(scope="module")
def metered(nano_home: Path) -> Iterator[RunningServer]:
    with run_server(nano_home, "tests.metered") as server:
        yield server


@pytest.fixture
def http(metered: RunningServer) -> Iterator[httpx.Client]:
    with client(metered) as http:
        yield http


def ask(http: httpx.Client, n_tokens: int = 100) -> dict[str, Any]:
    """Return the last frame of an answer."""
    options = {"num_predict": n_tokens, "temperature": 0}
    body = {"model": "nano", "messages": [COUNT], "stream": False, "options": options}
    return dict(http.post("/api/chat", json=body).json())


def answers_j(http: httpx.Client) -> float:
    """Return the card's joules of all answers, as Prometheus reads them."""
    line = r'^gptoss_answer_joules_total\{device="gpu0",model="nano"\} (\S+)$'
    found = re.search(line, http.get("/metrics").text, re.MULTILINE)
    assert found
    return float(found[1])


def test_answers_together_take_what_the_devices_took(http: httpx.Client) -> None:
    """Each joule is one answer's."""
    ask(http)
    before_j, begin_s = answers_j(http), time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        frames = list(pool.map(lambda _: ask(http), range(4)))
    most_j = GPU_W * (time.monotonic() - begin_s)
    assert all(frame["joules"].keys() == {"gpu0"} for frame in frames)
    spent_j = sum(frame["joules"]["gpu0"] for frame in frames)
    assert 0 < spent_j <= most_j
    assert answers_j(http) - before_j == pytest.approx(spent_j, abs=0.01)


def test_ps(http: httpx.Client, metered: RunningServer) -> None:
    ask(http)
    shown = run_cli(metered.environment, "ps").stdout
    header, line = shown.splitlines()
    assert header.split()[-2:] == ["UNTIL", "ENERGY"]
    assert re.search(r"(Forever|from now) +[\d.,]+ J/token, 100 W$", line)
    (model,) = json.loads(run_cli(metered.environment, "ps", "--json").stdout)["models"]
    assert model["energy"].keys() == {"joules_per_token", "watts"}
    assert model["energy"]["joules_per_token"] > 0


def test_without_counters_nothing_is_said(server: RunningServer) -> None:
    """No field and no column."""
    with client(server) as http:
        if "joules" in ask(http, 20):
            pytest.skip("this machine counts")
        assert all("energy" not in model for model in http.get("/api/ps").json()["models"])
        assert "joules" not in http.get("/metrics").text
    assert "ENERGY" not in run_cli(server.environment, "ps").stdout
