"""A right is a lease: requests end when their key is taken back, and nothing else."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from gptoss_local.harmony import Vocabulary
from gptoss_local.server.keys import add_key, read_keys, remove_key
from tests.cli.conftest import run_cli
from tests.conftest import RunningServer, wait_until
from tests.scripted_engine import Script, answer, calls_built_in
from tests.server.served_tools import run_tool_server

ENDS_S = 1.0
ASK: dict[str, Any] = {"model": "nano", "messages": [{"role": "user", "content": "Talk"}]}
RUN: dict[str, Any] = {
    "model": "nano",
    "input": "Run",
    "stream": True,
    "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}],
}
TOOLS = ("web_search", "code_interpreter")
PATHS = {"/api/chat": ASK, "/v1/chat/completions": ASK | {"stream": True}, "/v1/responses": RUN}
HEARD = "/api/gptoss/chats/changes"


class Stream:
    """A stream that a thread reads."""

    def __init__(self, server: RunningServer, headers: dict[str, str], path: str) -> None:
        self.n_bytes, self.last_s, self.is_over, self._leaves = 0, 0.0, False, False
        self._url, self._headers, self._path = server.url, headers, path
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        method = "GET" if self._path == HEARD else "POST"
        try:
            with (
                httpx.Client(base_url=self._url, timeout=None, trust_env=False) as http,
                http.stream(
                    method, self._path, headers=self._headers, json=PATHS.get(self._path)
                ) as reply,
            ):
                for piece in reply.iter_raw():
                    self.n_bytes += len(piece)
                    self.last_s = time.monotonic()
                    if self._leaves:
                        return
        except httpx.HTTPError:
            pass
        finally:
            self.is_over = True

    def close(self) -> None:
        self._leaves = True
        self._thread.join(30)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("leases") / "keys.toml"
    add_key(path, "first")
    path.with_name("log").touch()
    return path


@pytest.fixture(scope="module")
def server(nano_home: Path, vocabulary: Vocabulary, file: Path) -> Iterator[RunningServer]:
    """Its model talks on, and its `python` waits."""
    script = Script(vocabulary)
    script.say("Run", calls_built_in("python", "wait"))
    script.otherwise(answer("word " * 60_000, tok_s=40))
    settings = {"api_keys_file": str(file), "num_parallel": "8", "chat_titles": "0"}
    with run_tool_server(nano_home, script, log=file.with_name("log"), **settings) as server:
        yield server


Take = Callable[[Path, RunningServer], None]


def by_command(file: Path, server: RunningServer) -> None:
    done = run_cli(server.environment | {"GPTOSS_API_KEYS_FILE": str(file)}, "keys", "rm", "ada")
    assert done.returncode == 0, done.stderr


def by_another_key(file: Path, _: RunningServer) -> None:
    remove_key(file, "ada")
    add_key(file, "ada")


def edited(before: str, after: str) -> Take:
    """Write into the file as it is, beginning with nothing: Ada's table is changed, or removed."""

    def edit(file: Path, _: RunningServer) -> None:
        head, *tables = file.read_text().split("[[keys]]")
        mine = next(table for table in tables if 'name = "ada"' in table)
        changed = [mine.replace(before, after)] if before else []
        others = [table for table in tables if table != mine]
        file.write_text("[[keys]]".join([head, *others, *changed]))
        assert mine not in file.read_text()

    return edit


@pytest.mark.parametrize(
    ("path", "take", "leaves_others"),
    [
        ("/api/chat", by_another_key, False),
        ("/v1/chat/completions", edited("", ""), False),
        ("/v1/responses", by_command, False),
        ("/v1/responses", edited(', "code_interpreter"', ""), True),
        (HEARD, edited("chats = true", "chats = false"), True),
    ],
)
def test_a_right_that_is_taken_ends_its_streams_and_no_others(
    server: RunningServer, file: Path, path: str, take: Take, leaves_others: bool
) -> None:
    """And a tool that one of them runs. Other streams of the key do not need a right of less."""
    ada, bob = (
        bearer(add_key(file, name, tools=TOOLS, chats=path == HEARD or None))
        for name in ("ada", "bob")
    )
    log, is_run = file.with_name("log"), path == "/v1/responses"
    log.write_text("")
    with ExitStack() as stack:
        remove = partial(remove_key, file)
        stack.callback(lambda: [*map(remove, [key.name for key in read_keys(file)[1:]])])

        def begin(headers: dict[str, str], path: str) -> Stream:
            stream = Stream(server, headers, path)
            stack.callback(stream.close)
            wait_until(lambda: stream.n_bytes or stream.is_over, timeout_s=60)
            return stream

        taken, plain = [begin(ada, path)], begin(ada, "/api/chat")
        flowing = [begin(bob, "/api/chat"), begin(server.owner, "/api/chat")]
        others = [begin(bob, path), *flowing]
        if is_run:
            wait_until(lambda: log.read_text().count("waits") == 2, timeout_s=30)
        (flowing if leaves_others else taken).append(plain)
        take(file, server)
        taken_s = time.monotonic()
        for stream in taken:
            wait_until(lambda s=stream: s.is_over)
            assert stream.last_s < taken_s + ENDS_S
        wait_until(lambda: log.read_text().count("ended") == is_run)
        before = [stream.n_bytes for stream in flowing]
        time.sleep(ENDS_S)
        assert not any(stream.is_over for stream in (*others, *flowing))
        assert all(s.n_bytes > n for s, n in zip(flowing, before, strict=True))
        assert log.read_text().count("ended") == is_run
