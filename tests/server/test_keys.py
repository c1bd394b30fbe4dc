"""Keys of a file: who may ask, how often, and changes of the file."""

import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.harmony import Vocabulary
from gptoss_local.server.app import make_app
from gptoss_local.server.keys import Bucket, add_key, hash_key, read_keys, remove_key
from tests.cli.conftest import run_cli
from tests.conftest import RunningServer, run_server, wait_until
from tests.scripted_engine import Script, answer, run_scripted_server
from tests.server.conftest import metric
from tests.server.dialects import speak, user
from tests.server.test_limits import message_of
from tests.server.test_serving import client

ASK: dict[str, Any] = {
    "model": "nano",
    "messages": [user("What is the capital of France?")],
    "stream": False,
    "temperature": 0,
}
BODIES: dict[str, dict[str, Any]] = {
    "/api/chat": ASK,
    "/v1/chat/completions": ASK,
    "/v1/responses": {**ASK, "input": ASK["messages"]},
    "/v1/messages": ASK | {"max_tokens": 300},
}
# No answers, but they take time; the third one loads the model.
METERED: dict[str, dict[str, Any]] = BODIES | {
    "/v1/messages/count_tokens": ASK,
    "/v1/responses/input_tokens": {"model": "nano", "input": "hi"},
    "/api/generate": {"model": "nano"},
    "/chat/completions": ASK,
    "/apply-template": ASK,
}
NO_MODEL = {"model": "nope"}  # is admitted, and costs no time


def sent(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the file of `server`, which has the keys of several tests."""
    file = tmp_path_factory.mktemp("keys") / "keys.toml"
    add_key(file, "first")
    return file


@pytest.fixture(scope="module")
def server(nano_home: Path, vocabulary: Vocabulary, file: Path) -> Iterator[RunningServer]:
    script = Script(vocabulary)
    script.say("Count", answer("1, 2, 3, " * 200, tok_s=100))
    script.otherwise(answer("Paris."))
    with run_scripted_server(nano_home, script, api_keys_file=str(file)) as server:
        yield server


@pytest.fixture
def http(server: RunningServer) -> Iterator[httpx.Client]:
    with client(server) as http:
        yield http


def test_requests_are_limited_at_every_endpoint_that_takes_time(
    server: RunningServer, http: httpx.Client, file: Path
) -> None:
    keys = {}
    for n, (path, body) in enumerate(METERED.items()):
        keys[path] = add_key(file, f"user{n}", requests_per_minute=1)
        headers = sent(keys[path])
        assert http.post(path, json=body, headers=headers).status_code == 200, path
        refused = http.post(path, json=body, headers=headers)
        assert refused.status_code == 429, path
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        words = f"the API key 'user{n}' is over its limit of requests: 1 per minute"
        assert words in (message_of(refused, path) if path in BODIES else refused.text)
        assert http.get("/api/tags", headers=headers).status_code == 200  # is no answer
        for outcome in ("admitted", "refused"):
            name = f'gptoss_key_requests_total{{key="user{n}",outcome="{outcome}"}}'
            assert metric(http, name, headers) == 1
    limits: dict[str, Any] = {
        "chat": openai.RateLimitError,
        "messages": anthropic.RateLimitError,
    }
    for name, error in limits.items():
        path = "/v1/messages" if name == "messages" else "/v1/chat/completions"
        with speak(server.url, keys[path]) as dialects, pytest.raises(error) as told:
            dialects[name].ask([user("hi")])
        assert "rate_limit_" in str(told.value.body)
    environment = server.environment | {"GPTOSS_API_KEY": keys["/api/chat"]}
    done = run_cli(environment, "run", "nano", "hi")
    assert done.returncode == 7
    assert "over its limit of requests" in done.stderr


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
    # One token a second: the overdraft, and one more.
    wait_s = int(refused.headers["retry-after"])
    assert n_tokens - 60 - 30 <= wait_s <= n_tokens - 60 + 1
    for kind, n in (("prompt", "prompt_eval_count"), ("generated", "eval_count")):
        name = f'gptoss_key_tokens_total{{key="ada",kind="{kind}"}}'
        assert metric(http, name, server.owner) == done[n]
        assert name not in http.get("/metrics", headers=other).text  # each key sees its own use
    assert http.post("/api/chat", json=ASK, headers=other).status_code == 200


def test_an_answer_that_its_client_leaves_is_charged(http: httpx.Client, file: Path) -> None:
    key = sent(add_key(file, "eve", tokens_per_minute=10**6))
    count = ASK | {"messages": [user("Count")], "stream": True}
    with http.stream("POST", "/api/chat", json=count, headers=key) as reply:
        lines = reply.iter_lines()
        for _ in range(5):
            next(lines)
    for kind in ("prompt", "generated"):
        name = f'gptoss_key_tokens_total{{key="eve",kind="{kind}"}}'
        wait_until(lambda name=name: metric(http, name, key) > 0)


def test_a_key_decides_for_no_other(http: httpx.Client, file: Path) -> None:
    """It neither unloads a model nor keeps it, and sees the use of no other key."""
    kim, lee = (sent(add_key(file, name)) for name in ("kim", "lee"))

    def seconds_left() -> float:
        (model,) = http.get("/api/ps", headers=kim).json()["models"]
        end = datetime.fromisoformat(model["expires_at"])
        return (end - datetime.now(UTC)).total_seconds()

    for keep_alive in (-1, "-1m", "24h", 999_999, "0.001s", 1):
        for path, body in (("/api/generate", {"model": "nano"}), ("/api/chat", ASK)):
            asked = body | {"keep_alive": keep_alive}
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
    nano_home: Path, vocabulary: Vocabulary, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys.toml"
    ada = sent(add_key(file, "ada"))
    keys = {"api_keys_file": str(file)}
    script = Script(vocabulary)
    with run_scripted_server(nano_home, script, **keys) as server, client(server) as http:

        def statuses() -> tuple[int, int]:
            ask_both = (http.get("/api/tags", headers=headers) for headers in (ada, bob))
            first, second = (reply.status_code for reply in ask_both)
            return first, second

        bob = sent(add_key(file, "bob"))
        assert statuses() == (200, 200)
        remove_key(file, "ada")
        assert statuses() == (401, 200)
        whole = file.read_text()
        for broken in (whole.replace("[[keys]]", "[[keys"), whole.replace("sha256", "sha1")):
            file.write_text(broken)
            assert statuses() == (401, 200)
        file.unlink()
        assert statuses() == (401, 200)
        assert caplog.text.count("stay in force") == 3
        file.write_text(whole + "requests_per_minute = 1\n")  # into the last table
        assert http.post("/api/chat", json=NO_MODEL, headers=bob).status_code == 404
        assert http.post("/api/chat", json=NO_MODEL, headers=bob).status_code == 429


ROW = f'[[keys]]\nname = "a"\nsha256 = "{"0" * 64}"\n'
BROKEN = {
    "no file": (None, "there is no file"),
    "no list": ("keys = 1", "keys must be a list"),
    "no TOML": ("[[keys", "is not valid TOML"),
    "no hash": ('[[keys]]\nname = "a"\n', "'sha256' is missing"),
    "a key": ('[[keys]]\nname = "a"\nsha256 = "gptoss-in-the-clear"\n', "sha256 must be text"),
    "another field": ("nope = 1\n", "'nope' is not known"),
    "zero": (f"{ROW}tokens_per_minute = 0\n", "must be a whole number of at least 1"),
    "twice": (ROW * 2, "two keys have the name 'a'"),
}


@pytest.mark.quick
@pytest.mark.parametrize("case", BROKEN)
def test_no_server_starts_with_a_wrong_file(tmp_path: Path, case: str) -> None:
    text, words = BROKEN[case]
    file = tmp_path / "keys.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=re.escape(words)) as told:
        make_app(Settings(api_keys_file=file), shut_down=lambda: None)
    assert "in-the-clear" not in told.value.message


def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"

    def run(*words: str) -> tuple[int, str]:
        done = run_cli(os.environ | {"GPTOSS_API_KEYS_FILE": str(file)}, "keys", *words)
        return done.returncode, done.stderr if done.returncode else done.stdout

    tools = "web_search, mcp:notes:add,mcp:files:*"
    limits = ("--requests", "60", "--tokens", "9000", "--tools", tools)
    key = run("add", "ada", *limits)[1].strip()
    file.write_text(file.read_text() + "# a colleague\n")
    assert json.loads(run("add", "bob", "--json")[1])["key"].startswith("gptoss-")
    ada, bob = read_keys(file)
    assert (ada.name, ada.requests_per_minute, ada.tokens_per_minute) == ("ada", 60, 9000)
    assert ada.sha256 == hash_key(key.encode())
    assert ada.tools == ("web_search", "mcp:notes:add", "mcp:files:*")
    assert (bob.name, bob.requests_per_minute, bob.tools) == ("bob", None, ())
    assert key not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0 or os.name != "posix"
    assert re.search(r"^ada +60 +9000 ", run()[1], re.MULTILINE)
    for words, said in (
        ("add ada", "there is a key 'ada' already"),
        ("add a+b", "name must be text"),
        ("add eve --tools web_search,mcp", "tools[1] must be text that matches"),
        ("add eve --tools mcp:*:add", "tools[0] must be text"),
        ("rm eve", "there is no key 'eve'"),
        ("rm", "gptoss keys rm NAME"),
        ("ls ada", "ls takes no name"),
        ("rm ada --tokens 1", "belong to `gptoss keys add`"),
        ("rm ada --tools web_search", "belong to `gptoss keys add`"),
    ):
        code, told = run(*words.split())
        assert (code, said in told) == (2, True), (words, told)
    assert run("rm", "bob")[0] == 0
    assert [key.name for key in read_keys(file)] == ["ada"]
    assert "# a colleague" in file.read_text()


@pytest.mark.quick
def test_bucket() -> None:
    now_s = 0.0
    bucket = Bucket(60, lambda: now_s)
    bucket.take(60)
    assert bucket.wait_s() == pytest.approx(1)
    bucket.take(30)
    assert bucket.wait_s() == pytest.approx(31)
    now_s = 31.0
    assert bucket.wait_s() == 0
    now_s = 10_000.0
    bucket.take(59)
    assert bucket.wait_s() == 0
    bucket.take(1)
    assert bucket.wait_s() == pytest.approx(1)


def test_the_key_with_the_higher_priority_is_answered_first(
    nano_home: Path, tmp_path: Path
) -> None:
    """Also if it came later; OpenAI's flex comes after the key's others."""
    file = tmp_path / "keys.toml"
    high, low = sent(add_key(file, "high", priority=7)), sent(add_key(file, "low"))
    long = {"format": {"type": "string", "minLength": 20_000}, "stream": True}
    lasting = {"messages": [user("Count from 1 to 900.")], "max_tokens": 150}
    ended: list[str] = []

    with (
        run_server(nano_home, api_keys_file=str(file), num_parallel="1") as server,
        client(server) as http,
        ThreadPoolExecutor() as pool,
    ):

        def ask(name: str, headers: dict[str, str], more: dict[str, Any]) -> None:
            reply = http.post("/v1/chat/completions", json=ASK | more, headers=headers)
            assert reply.is_success, reply.text
            ended.append(name)

        def wait_for(state: str, n: int) -> None:
            line = f'gptoss_engine_sequences_{state}{{model="nano"}}'
            wait_until(lambda: metric(http, line, server.owner) == n)

        with http.stream("POST", "/api/chat", json=ASK | long, headers=low):
            wait_for("running", 1)
            asked = [pool.submit(ask, "flex", low, {"service_tier": "flex"})]
            wait_for("waiting", 1)
            asked.append(pool.submit(ask, "low", low, lasting))
            wait_for("waiting", 2)
            asked.append(pool.submit(ask, "high", high, {}))
            wait_for("waiting", 3)
        for each in asked:
            each.result()
    assert ended == ["high", "low", "flex"]
