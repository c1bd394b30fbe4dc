"""Keys of a file: who may ask, how often, and what happens when the file changes."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.server.keys import add_key, hash_key, read_keys, remove_key
from gptoss_local.server.limits import Bucket
from tests.conftest import RunningServer, free_port, run_server, wait_until
from tests.server.test_limits import message_of
from tests.server.test_serving import client

ASK: dict[str, Any] = {
    "model": "nano",
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "stream": False,
    "temperature": 0,
}
BODIES: dict[str, dict[str, Any]] = {
    "/api/chat": ASK,
    "/v1/chat/completions": ASK,
    "/v1/responses": {**ASK, "input": ASK["messages"]},
    "/v1/messages": ASK | {"max_tokens": 300},
}

NO_MODEL = {"model": "nope"}  # is admitted, and costs no time


def sent(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def metric(http: httpx.Client, line: str, headers: dict[str, str]) -> float:
    """The value of one line of /metrics."""
    text = http.get("/metrics", headers=headers).text
    found = re.search(rf"^{re.escape(line)} (\S+)$", text, re.MULTILINE)
    assert found, f"{line} is not in\n{text}"
    return float(found[1])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of `server`, which has the keys of several tests."""
    file = tmp_path_factory.mktemp("keys") / "keys.toml"
    add_key(file, "first")
    return file


@pytest.fixture(scope="module")
def server(nano_home: Path, file: Path) -> Iterator[RunningServer]:
    with run_server(nano_home, api_keys_file=str(file)) as server:
        yield server


@pytest.fixture
def http(server: RunningServer) -> Iterator[httpx.Client]:
    with client(server) as http:
        yield http


def test_limits_in_every_dialect(server: RunningServer, http: httpx.Client, file: Path) -> None:
    keys = {}
    for n, path in enumerate(BODIES):
        keys[path] = add_key(file, f"user{n}", requests_per_minute=1)
    assert http.get("/health").status_code == 200
    for path, body in BODIES.items():
        for headers in ({}, sent("gptoss-wrong"), {"x-api-key": "x"}):
            assert http.post(path, json=body, headers=headers).status_code == 401
    for n, (path, body) in enumerate(BODIES.items()):
        headers = sent(keys[path])
        assert http.post(path, json=body, headers=headers).status_code == 200, path
        refused = http.post(path, json=body, headers=headers)
        assert refused.status_code == 429, path
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        words = f"the API key 'user{n}' is over its limit of requests: 1 per minute"
        assert words in message_of(refused, path)
        assert http.get("/api/tags", headers=headers).status_code == 200  # is no answer
        name = f'gptoss_key_requests_total{{key="user{n}",outcome="refused"}}'
        assert metric(http, name, headers) == 1
    _sdks_know_it(server, keys)
    done = subprocess.run(
        [sys.executable, "-m", "gptoss_local", "run", "nano", "hi"],
        env=server.environment | {"GPTOSS_API_KEY": keys["/api/chat"]},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 7
    assert "over its limit of requests" in done.stderr


def _sdks_know_it(server: RunningServer, keys: dict[str, str]) -> None:
    """The errors are those that the vendors' own clients raise for a limit."""
    key = keys["/v1/chat/completions"]
    with (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0) as gpt,
        pytest.raises(openai.RateLimitError) as told,
    ):
        gpt.chat.completions.create(model="nano", messages=[{"role": "user", "content": "hi"}])
    assert told.value.code == "rate_limit_exceeded"
    key = keys["/v1/messages"]
    with (
        anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0) as claude,
        pytest.raises(anthropic.RateLimitError, match="rate_limit_error"),
    ):
        claude.messages.create(
            model="nano", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
        )


def test_tokens_are_charged_after_the_answer(
    server: RunningServer, http: httpx.Client, file: Path
) -> None:
    key = sent(add_key(file, "ada", tokens_per_minute=60))
    other = sent(add_key(file, "bob"))
    done = http.post("/api/chat", json=ASK, headers=key).json()
    n_tokens = done["prompt_eval_count"] + done["eval_count"]
    assert n_tokens > 61
    refused = http.post("/api/chat", json=ASK, headers=key)
    assert refused.status_code == 429
    assert "limit of tokens: 60 per minute" in refused.json()["error"]
    # One token a second: what was overdrawn, and one more.
    wait_s = int(refused.headers["retry-after"])
    assert n_tokens - 60 - 30 <= wait_s <= n_tokens - 60 + 1
    for kind, n in (("prompt", "prompt_eval_count"), ("generated", "eval_count")):
        name = f'gptoss_key_tokens_total{{key="ada",kind="{kind}"}}'
        assert metric(http, name, server.owner) == done[n]
        assert name not in http.get("/metrics", headers=other).text  # each key sees its own use
    assert http.post("/api/chat", json=ASK, headers=other).status_code == 200


def test_an_answer_that_its_client_leaves_is_charged(
    server: RunningServer, http: httpx.Client, file: Path
) -> None:
    key = sent(add_key(file, "eve", tokens_per_minute=10**6))
    count = ASK | {"messages": [{"role": "user", "content": "Count from 1 to 900."}]}
    with http.stream("POST", "/api/chat", json=count | {"stream": True}, headers=key) as reply:
        lines = reply.iter_lines()
        for _ in range(5):
            next(lines)
    for kind in ("prompt", "generated"):
        name = f'gptoss_key_tokens_total{{key="eve",kind="{kind}"}}'
        wait_until(lambda name=name: metric(http, name, key) > 0)


def test_concurrent_requests_are_counted_once_each(
    server: RunningServer, http: httpx.Client, file: Path
) -> None:
    keys = [add_key(file, name, requests_per_minute=3) for name in ("carol", "dave")]

    def ask(n: int) -> tuple[int, int]:
        key = keys[n % 2]
        one = ASK | {"options": {"num_predict": 1}}
        return n % 2, http.post("/api/chat", json=one, headers=sent(key)).status_code

    begun_s = time.monotonic()
    with ThreadPoolExecutor(12) as pool:
        statuses = list(pool.map(ask, range(24)))
    n_more = int((time.monotonic() - begun_s) // 20) + 1  # flow in meanwhile
    for which, name in enumerate(("carol", "dave")):
        n_admitted = statuses.count((which, 200))
        assert 3 <= n_admitted <= 3 + n_more
        assert statuses.count((which, 429)) == 12 - n_admitted
        line = f'gptoss_key_requests_total{{key="{name}",outcome="admitted"}}'
        assert metric(http, line, sent(keys[which])) == n_admitted


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages/count_tokens", ASK),
        ("/v1/responses/input_tokens", {"model": "nano", "input": "hi"}),
        ("/api/generate", {"model": "nano"}),  # loads it
        ("/api/chat", {"model": "nano", "messages": []}),
    ],
)
def test_what_is_no_answer_but_takes_time_is_metered(
    http: httpx.Client, file: Path, path: str, body: dict[str, Any]
) -> None:
    name = path.rpartition("/")[2]
    key = sent(add_key(file, name, requests_per_minute=1))
    assert http.post(path, json=body, headers=key).status_code == 200
    assert http.post(path, json=body, headers=key).status_code == 429
    line = f'gptoss_key_requests_total{{key="{name}",outcome="admitted"}}'
    assert metric(http, line, key) == 1


def test_a_key_decides_for_no_other(http: httpx.Client, file: Path) -> None:
    """It neither unloads a model nor keeps it, and sees the use of no other key."""
    kim, lee = (sent(add_key(file, name)) for name in ("kim", "lee"))

    def seconds_left() -> float:
        (model,) = http.get("/api/ps", headers=kim).json()["models"]
        end = datetime.fromisoformat(model["expires_at"])
        return (end - datetime.now(UTC)).total_seconds()

    for keep_alive in (-1, "-1m", "24h", 999_999, "0.001s", 1):
        for path, body in (("/api/generate", {"model": "nano"}), ("/api/chat", ASK)):
            asked = body | {"keep_alive": keep_alive, "options": {"num_predict": 1}}
            assert http.post(path, json=asked, headers=kim).status_code == 200
            assert 200 < seconds_left() <= 300
    for keep_alive in (0, "0", "0s"):
        for path, body in (("/api/generate", {}), ("/api/chat", {"messages": []})):
            asked = body | {"model": "nano", "keep_alive": keep_alive}
            refused = http.post(path, json=asked, headers=kim)
            assert refused.status_code == 401, (path, keep_alive, refused.text)
    assert 200 < seconds_left() <= 300
    http.post("/api/chat", json=ASK, headers=lee)
    for key, own in ((kim, "kim"), (lee, "lee")):
        shown = re.findall(r'\{key="([^"]*)"', http.get("/metrics", headers=key).text)
        assert set(shown) == {own}


def test_the_file_is_followed(
    nano_home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "keys.toml"
    ada = sent(add_key(file, "ada"))
    with run_server(nano_home, api_keys_file=str(file)) as server, client(server) as http:

        def status(headers: dict[str, str]) -> int:
            return http.get("/api/tags", headers=headers).status_code

        bob = sent(add_key(file, "bob"))
        assert (status(ada), status(bob)) == (200, 200)
        remove_key(file, "ada")
        assert (status(ada), status(bob)) == (401, 200)
        whole = file.read_text()
        for broken in (whole.replace("[[keys]]", "[[keys"), whole.replace("sha256", "sha1")):
            file.write_text(broken)
            assert (status(ada), status(bob)) == (401, 200)
        file.unlink()
        assert (status(ada), status(bob)) == (401, 200)
        assert capfd.readouterr().err.count("stay in force") == 3
        file.write_text(whole + "requests_per_minute = 1\n")  # into the last table
        assert http.post("/api/chat", json=NO_MODEL, headers=bob).status_code == 404
        assert http.post("/api/chat", json=NO_MODEL, headers=bob).status_code == 429


def test_keys_let_other_machines_in(nano_home: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    key = sent(add_key(file, "ada"))
    variables = {"GPTOSS_API_KEYS_FILE": str(file)}
    with run_server(nano_home, host="0.0.0.0", variables=variables) as server:
        foreign = {"host": "gpu.example"}
        with client(server) as http:
            assert http.get("/api/tags", headers=foreign).status_code == 401
            assert http.get("/api/tags", headers=foreign | key).status_code == 200


def test_the_owner_has_no_limits(nano_home: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    add_key(file, "ada", requests_per_minute=1)
    with run_server(nano_home, api_keys_file=str(file)) as server, client(server) as http:
        for _ in range(3):
            assert http.post("/api/chat", json=NO_MODEL, headers=server.owner).status_code == 404


BROKEN = {
    "no file": (None, "there is no file"),
    "no TOML": ("[[keys", "is not valid TOML"),
    "no hash": ('[[keys]]\nname = "a"\n', "'sha256' is missing"),
    "a key": ('[[keys]]\nname = "a"\nsha256 = "gptoss-in-the-clear"\n', "sha256 must be text"),
    "another field": ("nope = 1\n", "'nope' is not known"),
    "zero": (
        f'[[keys]]\nname = "a"\nsha256 = "{"0" * 64}"\ntokens_per_minute = 0\n',
        "tokens_per_minute must be a whole number of at least 1",
    ),
    "twice": (f'[[keys]]\nname = "a"\nsha256 = "{"0" * 64}"\n' * 2, "two keys have the name 'a'"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_wrong_file_is_refused(tmp_path: Path, case: str) -> None:
    text, words = BROKEN[case]
    file = tmp_path / "keys.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=re.escape(words)) as told:
        read_keys(file)
    assert "in-the-clear" not in told.value.message


def test_a_wrong_file_ends_the_server(nano_home: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text("keys = 1")
    environment = os.environ | {"GPTOSS_HOME": str(nano_home), "GPTOSS_PORT": str(free_port())}
    command = [sys.executable, "-m", "gptoss_local", "serve"]
    environment["GPTOSS_API_KEYS_FILE"] = str(file)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert f"{file}: keys must be a list" in done.stderr


def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "gptoss_local", "keys", *words],
            env=os.environ | {"GPTOSS_API_KEYS_FILE": str(file)},
            capture_output=True,
            text=True,
            timeout=60,
        )

    tools = "web_search, mcp:notes:add,mcp:files:*"
    limits = ("--requests", "60", "--tokens", "9000", "--tools", tools)
    key = run("add", "ada", *limits).stdout.strip()
    file.write_text(file.read_text() + "# a colleague\n")
    assert json.loads(run("add", "bob", "--json").stdout)["key"].startswith("gptoss-")
    ada, bob = read_keys(file)
    assert (ada.name, ada.requests_per_minute, ada.tokens_per_minute) == ("ada", 60, 9000)
    assert ada.sha256 == hash_key(key.encode())
    assert ada.tools == ("web_search", "mcp:notes:add", "mcp:files:*")
    assert (bob.name, bob.requests_per_minute, bob.tools) == ("bob", None, ())
    assert key not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0 or os.name != "posix"
    assert re.search(r"^ada +60 +9000 ", run().stdout, re.MULTILINE)
    for words, said in (
        (("add", "ada"), "there is a key 'ada' already"),
        (("add", "a b"), "name must be text"),
        (("add", "eve", "--tools", "web_search,mcp"), "tools[1] must be text that matches"),
        (("add", "eve", "--tools", "mcp:*:add"), "tools[0] must be text"),
        (("rm", "eve"), "there is no key 'eve'"),
        (("rm",), "gptoss keys rm NAME"),
        (("ls", "ada"), "ls takes no name"),
        (("rm", "ada", "--tokens", "1"), "belong to `gptoss keys add`"),
        (("rm", "ada", "--tools", "web_search"), "belong to `gptoss keys add`"),
    ):
        done = run(*words)
        assert done.returncode == 2, words
        assert said in done.stderr
    assert run("rm", "bob").returncode == 0
    assert [key.name for key in read_keys(file)] == ["ada"]
    assert "# a colleague" in file.read_text()


def test_bucket() -> None:
    now_s = 0.0
    bucket = Bucket(60, lambda: now_s)
    bucket.take(60)
    assert bucket.wait_s(1) == pytest.approx(1)
    bucket.take(30)
    assert bucket.wait_s(1) == pytest.approx(31)
    now_s = 31.0
    assert bucket.wait_s(1) == 0
    bucket.resize(120)  # 60 more, all of which may be taken at once
    assert bucket.wait_s(61) == 0
    assert bucket.wait_s(62) == pytest.approx(0.5)
    now_s = 10_000.0
    assert bucket.wait_s(120) == 0
    assert bucket.wait_s(121) > 0
    bucket.resize(30)
    assert bucket.wait_s(31) == pytest.approx(2)


def test_the_key_with_the_higher_priority_is_answered_first(
    nano_home: Path, tmp_path: Path
) -> None:
    """Also if it came later; OpenAI's flex comes after the key's others."""
    file = tmp_path / "keys.toml"
    high_key = add_key(file, "high", priority=7)
    low, high = sent(add_key(file, "low")), sent(high_key)
    items = {"type": "string", "minLength": 20_000}
    long = {"format": {"type": "array", "items": items, "minItems": 9}, "stream": True}
    schema = {"name": "text", "schema": {"type": "string", "minLength": 2000}}
    lasting = {
        "response_format": {"type": "json_schema", "json_schema": schema},
        "max_tokens": 150,
    }
    ended: list[str] = []

    with (
        run_server(nano_home, api_keys_file=str(file), num_parallel="1") as server,
        client(server) as http,
        ThreadPoolExecutor() as pool,
    ):

        def ask(name: str, headers: dict[str, str], **more: Any) -> None:
            reply = http.post("/v1/chat/completions", json=ASK | more, headers=headers)
            assert reply.is_success, reply.text
            ended.append(name)

        requests: list[Callable[[], None]] = [
            lambda: ask("flex", low, service_tier="flex"),
            lambda: ask("low", low, **lasting),
            lambda: ask("high", high),
        ]

        def wait_for(state: str, n: int) -> None:
            line = f'\ngptoss_engine_sequences_{state}{{model="nano"}} {n}.0\n'
            wait_until(lambda: line in http.get("/metrics", headers=server.owner).text)

        with http.stream("POST", "/api/chat", json=ASK | long, headers=low):
            wait_for("running", 1)
            asked = []
            for n, request in enumerate(requests, 1):
                asked.append(pool.submit(request))
                wait_for("waiting", n)
        for each in asked:
            each.result()
    assert ended == ["high", "low", "flex"]
