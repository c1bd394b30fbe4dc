"""Clients of the shared server: the real `ollama` SDK, and plain HTTP for requests that it cannot
send.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import ollama
import openai
import pytest

from tests.conftest import RunningServer

GREEDY = {"temperature": 0}


def metric(http: httpx.Client, line: str, headers: dict[str, str] | None = None) -> float:
    """Return the value of one line of /metrics, or 0 if it is not there."""
    text = http.get("/metrics", headers=headers).text
    found = re.search(rf"^{re.escape(line)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0


@pytest.fixture
def home(tmp_path: Path, nano_home: Path) -> Path:
    """A GPTOSS_HOME of its own, which shares nano's files."""
    (tmp_path / "cache").symlink_to(nano_home / "cache")
    return tmp_path


@pytest.fixture
def sdk(server: RunningServer) -> Iterator[ollama.Client]:
    with ollama.Client(server.url, trust_env=False) as client:
        yield client


@pytest.fixture
def http(server: RunningServer) -> Iterator[httpx.Client]:
    """A program of the owner's."""
    with httpx.Client(
        base_url=server.url, headers=server.owner, timeout=300, trust_env=False
    ) as client:
        yield client


@pytest.fixture
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="ollama", max_retries=0) as client:
        yield client
