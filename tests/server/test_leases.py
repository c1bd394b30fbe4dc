"""A right is a lease: what was begun with a key ends when that is taken back, and nothing else."""

import os
import random
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

SOAK_S = float(os.environ.get("SOAK_S", "180"))
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
        self.n_bytes, self.last_s, self.is_over, self.is_whole = 0, 0.0, False, False
        self.said, self._leaves = b"", False
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
                    self.said = piece
                    self.n_bytes += len(piece)
                    self.last_s = time.monotonic()
                    if self._leaves:
                        return
                self.is_whole = True
        except httpx.HTTPError as error:
            self.said += repr(error).encode()
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


def command(file: Path, server: RunningServer, name: str) -> None:
    done = run_cli(server.environment | {"GPTOSS_API_KEYS_FILE": str(file)}, "keys", "rm", name)
    assert done.returncode == 0, done.stderr


def editor(file: Path, server: RunningServer, name: str) -> None:
    """Writes into the file as it is; beginning with nothing."""
    head, *tables = file.read_text().split("[[keys]]")
    left = [table for table in tables if f'name = "{name}"' not in table]
    file.write_text("[[keys]]".join([head, *left]))


def program(file: Path, server: RunningServer, name: str) -> None:
    remove_key(file, name)


def another(file: Path, server: RunningServer, name: str) -> None:
    """The name gets another key."""
    remove_key(file, name)
    add_key(file, name)


def changed(before: str, after: str) -> Callable[[Path, RunningServer, str], None]:
    def change(file: Path, server: RunningServer, name: str) -> None:
        head, *tables = file.read_text().split("[[keys]]")
        tables = [t.replace(before, after) if f'name = "{name}"' in t else t for t in tables]
        file.write_text("[[keys]]".join([head, *tables]))
        assert after in file.read_text()

    return change


@pytest.mark.parametrize(
    ("path", "take", "leaves_others"),
    [
        ("/api/chat", command, False),
        ("/v1/chat/completions", editor, False),
        ("/v1/responses", program, False),
        ("/v1/responses", changed(', "code_interpreter"', ""), True),
        ("/api/chat", another, False),
        (HEARD, program, False),
        (HEARD, changed("chats = true", "chats = false"), True),
    ],
)
def test_a_right_that_is_taken_ends_its_streams_and_no_others(
    server: RunningServer,
    file: Path,
    path: str,
    take: Callable[[Path, RunningServer, str], None],
    leaves_others: bool,
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
        take(file, server, "ada")
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


@pytest.mark.nightly
@pytest.mark.timeout(SOAK_S + 120)
def test_keys_taken_at_random(server: RunningServer, file: Path) -> None:
    """For $SOAK_S seconds none reads a byte after a second, and nobody else loses a stream."""
    chance, end_s = random.Random(1), time.monotonic() + SOAK_S
    with ExitStack() as stack:
        callers = [server.owner, bearer(add_key(file, "stays"))]
        stays = [
            Stream(server, callers[0], HEARD),
            *(Stream(server, c, "/api/chat") for c in callers),
        ]
        stack.callback(lambda: [*map(Stream.close, stays)])
        n_taken, late, worst_s, quiet_s = 0, [], 0.0, 0.0
        while time.monotonic() < end_s:
            names = [f"user{n_taken}-{n}" for n in range(chance.randint(1, 3))]
            paths = [chance.choice(["/api/chat", "/v1/chat/completions", HEARD]) for _ in names]
            streams = [
                Stream(server, bearer(add_key(file, name, chats=path == HEARD or None)), path)
                for name, path in zip(names, paths, strict=True)
            ]
            wait_until(lambda s=streams: all(e.n_bytes or e.is_over for e in s), timeout_s=60)
            assert not [(s.said, s.n_bytes) for s in streams if s.is_over], n_taken
            time.sleep(chance.random())
            for name, stream in zip(names, streams, strict=True):
                chance.choice((command, editor, program))(file, server, name)
                taken_s = time.monotonic()
                wait_until(lambda e=stream: e.is_over)
                worst_s = max(worst_s, stream.last_s - taken_s)
                late += [name] if stream.last_s > taken_s + ENDS_S else []
                n_taken += 1
            for n, stream in enumerate(stays):
                assert stream.is_whole or not stream.is_over, (n, n_taken, stream.said)
                if stream.is_over:  # at the end of its context
                    stays[n] = Stream(server, callers[n - 1], "/api/chat")
                elif n and stream.n_bytes:
                    quiet_s = max(quiet_s, time.monotonic() - stream.last_s)
        print(
            f"{n_taken} keys taken; last byte after {worst_s:.2f} s; others quiet {quiet_s:.2f} s"
        )
        assert not late
