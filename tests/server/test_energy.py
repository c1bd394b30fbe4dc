"""Energy as a person gets it, from a server on a machine with a card of 100 W."""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import run_cli
from tests.conftest import RunningServer, run_server
from tests.metered import GPU_W
from tests.server.conftest import metric
from tests.server.test_serving import client

JOULES = 'gptoss_answer_joules_total{device="gpu0",model="nano"}'
COUNT = {"role": "user", "content": "Count from 1 to 12."}


def ask(http: httpx.Client, n_tokens: int = 100) -> dict[str, Any]:
    """Return the last frame of an answer."""
    options = {"num_predict": n_tokens, "temperature": 0}
    body = {"model": "nano", "messages": [COUNT], "stream": False, "options": options}
    return dict(http.post("/api/chat", json=body).json())


def test_answers_together_take_what_the_devices_took(nano_home: Path) -> None:
    """Each joule is one answer's."""
    with run_server(nano_home, "tests.metered") as server, client(server) as http:
        ask(http)
        before_j, begin_s = metric(http, JOULES), time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            frames = list(pool.map(lambda _: ask(http), range(4)))
        most_j = GPU_W * (time.monotonic() - begin_s)
        assert all(frame["joules"].keys() == {"gpu0"} for frame in frames)
        spent_j = sum(frame["joules"]["gpu0"] for frame in frames)
        assert 0 < spent_j <= most_j
        assert metric(http, JOULES) - before_j == pytest.approx(spent_j, abs=0.01)
        header, line = run_cli(server.environment, "ps").stdout.splitlines()
        assert header.split()[-2:] == ["UNTIL", "ENERGY"]
        assert re.search(r"(Forever|from now) +[\d.,]+ J/token, 100 W$", line)
        (model,) = json.loads(run_cli(server.environment, "ps", "--json").stdout)["models"]
        assert model["energy"].keys() == {"joules_per_token", "watts"}
        assert model["energy"]["joules_per_token"] > 0


def test_without_counters_nothing_is_said(server: RunningServer) -> None:
    """There is no field and no column."""
    with client(server) as http:
        if "joules" in ask(http, 20):
            pytest.skip("this machine counts")
        assert all("energy" not in model for model in http.get("/api/ps").json()["models"])
        assert "joules" not in http.get("/metrics").text
    assert "ENERGY" not in run_cli(server.environment, "ps").stdout
