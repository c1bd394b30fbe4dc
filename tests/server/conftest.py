"""Clients of the shared server: the real `ollama` SDK, and plain HTTP for what it cannot send."""

from collections.abc import Iterator

import httpx
import ollama
import openai
import pytest

from tests.conftest import RunningServer

GREEDY = {"temperature": 0}


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
