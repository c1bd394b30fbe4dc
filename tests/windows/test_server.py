"""A server on Windows' own Python, asked by clients on Linux."""

from collections.abc import Iterator

import httpx
import openai
import pytest

from tests.windows.conftest import ON_WINDOWS, Pc

pytestmark = ON_WINDOWS

FRANCE = "What is the capital of France?"


@pytest.fixture(scope="module", autouse=True)
def served(pc: Pc) -> Iterator[None]:
    with pc.serving():
        yield


def test_sdk_of_openai(pc: Pc) -> None:
    with openai.OpenAI(base_url=f"{pc.url}/v1", api_key="none") as client:
        chunks = client.chat.completions.create(
            model="nano", messages=[{"role": "user", "content": FRANCE}], stream=True
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert "Paris" in text


def test_the_page(pc: Pc) -> None:
    page = httpx.get(pc.url, headers={"Accept": "text/html"}, trust_env=False)
    assert "<!doctype html>" in page.text.lower()
    script = httpx.get(f"{pc.url}/web/app.js", trust_env=False)
    assert script.headers["content-type"].startswith("text/javascript")


def test_a_second_server_on_the_port_is_refused(pc: Pc) -> None:
    assert "in use" in pc.gptoss("serve", code=7)
