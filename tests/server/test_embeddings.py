"""Embeddings come from the server that the settings name, which is a real one here."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx
import openai
import pytest

from gptoss_local.harmony import Vocabulary
from tests.conftest import RunningServer
from tests.scripted_engine import Script, run_scripted_server

VECTORS = {"a": [0.5, 1.0], "b": [0.25, -1.0]}


class Embedder(BaseHTTPRequestHandler):
    """A server with one embedding model, which gives the texts back in another order."""

    seen: ClassVar[list[tuple[str, str, dict[str, Any]]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.seen.append((self.path, self.headers.get("authorization", ""), body))
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        status = 200 if body["model"] == "nomic" else 404
        data = [
            {"object": "embedding", "index": n, "embedding": VECTORS[text]}
            for n, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": 3, "total_tokens": 3}
        found = {"object": "list", "model": "nomic", "data": data[::-1], "usage": usage}
        reply = json.dumps(found if status == 200 else {"error": "no such model, k3y"}).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Embedder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def embedding(nano_home: Path, elsewhere: str, vocabulary: Vocabulary) -> Iterator[RunningServer]:
    settings = {"embeddings_url": elsewhere, "embeddings_key": "k3y"}
    with run_scripted_server(nano_home, Script(vocabulary), **settings) as server:
        yield server


def post(server: RunningServer, path: str, **body: Any) -> httpx.Response:
    return httpx.post(server.url + path, json=body, timeout=300, trust_env=False)


def test_every_api(embedding: RunningServer) -> None:
    made = post(embedding, "/api/embed", model="nomic", input=["a", "b"]).json()
    assert made["embeddings"] == [VECTORS["a"], VECTORS["b"]]
    assert (made["model"], made["prompt_eval_count"]) == ("nomic", 3)
    made = post(embedding, "/api/embed", model="nomic", input="b", dimensions=2).json()
    assert made["embeddings"] == [VECTORS["b"]]
    path, key, body = Embedder.seen[-1]
    assert (path, key, body["dimensions"]) == ("/v1/embeddings", "Bearer k3y", 2)
    older = post(embedding, "/api/embeddings", model="nomic", prompt="b").json()
    assert older == {"embedding": VECTORS["b"]}
    with openai.OpenAI(base_url=f"{embedding.url}/v1", api_key="k") as client:
        typed = client.embeddings.create(model="nomic", input=["a", "b"], user="me")
    assert [item.embedding for item in typed.data] == [VECTORS["a"], VECTORS["b"]]
    assert typed.usage.prompt_tokens == 3
    assert Embedder.seen[-1][2]["user"] == "me"  # all fields are passed
    refused = post(embedding, "/api/embed", model="other", input="a")
    assert (refused.status_code, "no such model" in refused.text) == (400, True)
    assert "k3y" not in refused.text


@pytest.mark.quick
@pytest.mark.parametrize(("url", "status"), [("", 400), ("http://127.0.0.1:9", 502)])
def test_a_server_that_is_not_there_is_named(
    nano_home: Path, vocabulary: Vocabulary, url: str, status: int
) -> None:
    with run_scripted_server(nano_home, Script(vocabulary), embeddings_url=url) as server:
        for path in ("/api/embed", "/api/embeddings", "/v1/embeddings"):
            made = post(server, path, model="nano", input="a", prompt="a")
            assert (made.status_code, "embeddings_url" in made.text) == (status, True)
