"""Requests of real programs with pieces replaced: a 200 or a clear refusal, never a 5xx."""

import json
import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.test_clients import FIXTURES
from tests.server.test_limits import message_of

N_MUTATIONS = 20
ODD: list[Any] = [
    *(None, True, 0, -1, 2**70, 1.5, -1e300, "", "x", "\x00", "<|end|>", "😀", [], {}, [[]]),
    *([None], [{}], {"a": None}, {"type": "text"}, [{"type": "text", "text": 5}], {"type": 5}),
    ["a", 1],
]
ONE_TOKEN: dict[str, dict[str, Any]] = {
    "/api/chat": {"options": {"num_predict": 1}},
    "/v1/responses": {"max_output_tokens": 1},
}


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of a JSON value with every key or index in it."""
    keys: list[Any] = []
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    return [(value, key) for key in keys] + [p for key in keys for p in places(value[key])]


def mutate(body: dict[str, Any], r: random.Random) -> None:
    for _ in range(r.choice((1, 1, 1, 2, 3))):
        container, key = r.choice(places(body))
        match r.choice(("odd", "odd", "drop", "swap", "wrap")):
            case "odd":
                container[key] = json.loads(json.dumps(r.choice(ODD)))
            case "drop":
                del container[key]
            case "swap":
                other, other_key = r.choice(places(body) or [(container, key)])
                container[key] = json.loads(json.dumps(other[other_key]))
            case _:
                container[key] = r.choice(([container[key]], {"text": container[key]}))
        if not body:
            return


@pytest.mark.parametrize("file", FIXTURES, ids=lambda file: file.stem)
def test_never_a_server_error(http: httpx.Client, file: Path) -> None:
    recorded = json.loads(file.read_text(encoding="utf-8"))
    path = recorded["path"].partition("?")[0]
    r = random.Random(file.stem)
    for _ in range(N_MUTATIONS):
        body = json.loads(json.dumps(recorded["body"]))
        mutate(body, r)
        if isinstance(body.get("options", {}), dict):
            body |= ONE_TOKEN.get(path, {"max_completion_tokens": 1, "max_tokens": 1})
        reply = http.post(recorded["path"], json=body)
        assert reply.status_code in (200, 400, 404), (body, reply.text)
        if reply.status_code != 200:
            assert message_of(reply, path)
