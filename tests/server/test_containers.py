"""The server as containers run it: SIGTERM drains it, logs are JSON, and it may be process 1."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.conftest import engines_of, free_port, run_server, wait_until

ENGINE_STOPS_S = 6.5  # longer than the default of GPTOSS_GRACE_S
QUESTION: dict[str, Any] = {
    "model": "nano",
    "messages": [{"role": "user", "content": "Count from 1 to 900."}],
    "options": {"temperature": 0, "num_predict": 60},
}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to handle")
def test_an_answer_may_take_as_long_as_the_grace(nano_home: Path) -> None:
    with run_server(nano_home, grace_s="60") as server, http_of(server.url) as http:
        http.post("/api/generate", json={"model": "nano"})
        with http.stream("POST", "/api/chat", json=QUESTION) as response:
            frames = response.iter_lines()
            next(frames)
            with server.engine_suspended():
                server.process.send_signal(signal.SIGTERM)
                start_s = time.monotonic()
                time.sleep(ENGINE_STOPS_S)
            *_, last = frames
        assert json.loads(last)["done_reason"] == "length"
        assert time.monotonic() - start_s > ENGINE_STOPS_S
        assert server.process.wait(20) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to handle")
def test_a_server_that_is_stopped_while_it_starts_ends(empty_home: Path) -> None:
    """As process 1 it would otherwise never see the signal."""
    process = subprocess.Popen(
        [sys.executable, "-c", _WITH_SIGNAL], env=_environment(empty_home), stderr=subprocess.PIPE
    )
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (0, b"")


_WITH_SIGNAL = """\
import signal, sys
from gptoss_local.__main__ import main

class Import:
    def find_spec(self, name, path, target=None):
        if name == "gptoss_local.server.app":
            signal.raise_signal(signal.SIGTERM)

sys.meta_path.insert(0, Import())
sys.argv = ["gptoss", "serve"]
main()
"""


def test_every_line_of_the_log_is_an_object(empty_home: Path) -> None:
    begin = datetime.now(UTC)
    with logging_server(empty_home) as (http, lines):
        http.post("/api/generate", json={"model": "nano"})
        (empty_home / "models").mkdir()
        (empty_home / "models" / "broken.gguf").write_bytes(b"GGUF, but not for long")
        broken = http.post("/api/generate", json={"model": "broken"})
        assert broken.status_code == 500
        http.post("/api/generate", json={"model": "nano", "keep_alive": 0})
        wait_until(lambda: "unloaded nano" in said(lines))
    objects = [json.loads(line) for line in lines]
    for line in objects:
        assert set(line) <= {"time", "level", "logger", "message", "request_id", "traceback"}
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
        assert (datetime.fromisoformat(line["time"]) - begin).total_seconds() > -1
        assert line["logger"].startswith("gptoss")
    by_message = {line["message"].partition(" ")[0]: line for line in objects}
    assert by_message["listening"]["level"] == "INFO"
    assert "request_id" not in by_message["listening"]
    (failed,) = [line for line in objects if line["level"] == "ERROR"]
    assert failed["request_id"] == broken.headers["x-request-id"]
    assert "broken" in failed["message"]


def test_an_internal_error_is_one_line_with_its_traceback(empty_home: Path) -> None:
    with logging_server(empty_home, "tests.server.faulty") as (http, lines):
        reply = http.get("/api/version")
        assert reply.status_code == 500
        wait_until(lambda: "traceback" in said(lines))
    (failed,) = [line for line in map(json.loads, lines) if line["level"] == "ERROR"]
    assert failed["logger"] == "uvicorn.error"
    assert failed["request_id"] == reply.headers["x-request-id"]
    assert failed["traceback"].endswith("ZeroDivisionError: two\nlines")


def test_what_outlives_a_request_is_not_logged_as_part_of_it(empty_home: Path) -> None:
    """Timers have the context of whoever set them: this one that of the last request."""
    with logging_server(empty_home) as (http, lines):
        http.post("/api/generate", json={"model": "nano", "keep_alive": "1s"})
        wait_until(lambda: "unloaded nano" in said(lines), timeout_s=20)
    (unloaded,) = [line for line in map(json.loads, lines) if "unloaded" in line["message"]]
    assert "request_id" not in unloaded


def can_be_process_1() -> bool:
    return shutil.which("unshare") is not None and not subprocess.call(
        [*NAMESPACE, "true"], stderr=subprocess.DEVNULL
    )


NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")


@pytest.mark.skipif(not can_be_process_1(), reason="there are no namespaces for this user")
def test_as_process_1_it_ends_by_sigterm_and_leaves_no_zombies(empty_home: Path) -> None:
    with subprocess.Popen(
        [*NAMESPACE, sys.executable, "-m", "gptoss_local", "serve"],
        env=(environment := _environment(empty_home)),
    ) as outside:
        try:
            url = f"http://127.0.0.1:{environment['GPTOSS_PORT']}"
            wait_until(lambda: is_served(url), timeout_s=30)
            (server,) = psutil.Process(outside.pid).children()
            status = Path(f"/proc/{server.pid}/status").read_text()
            assert re.search(r"^NSpid:.*\t1$", status, re.MULTILINE)
            with http_of(url) as http:
                http.post("/api/generate", json={"model": "nano"})
                (engine,) = engines_of(server)
                engine.kill()
                wait_until(lambda: not server.children())  # a zombie would still be one
                assert http.post("/api/chat", json=QUESTION | {"stream": False}).is_success
                (engine,) = engines_of(server)
            server.terminate()
            assert outside.wait(20) == 0
            assert not engine.is_running()
        finally:
            outside.kill()  # and with it, at the latest, its namespace


@contextmanager
def logging_server(
    home: Path, module: str = "gptoss_local"
) -> Iterator[tuple[httpx.Client, list[str]]]:
    """Start a server that logs JSON; yield a client of it and the lines of its stdout so far."""
    environment = _environment(home) | {"GPTOSS_LOG_FORMAT": "json"}
    with subprocess.Popen(
        [sys.executable, "-m", module, "serve"], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        lines: list[str] = []
        reading = threading.Thread(target=lambda: lines.extend(process.stdout or ()))
        reading.start()
        url = f"http://127.0.0.1:{environment['GPTOSS_PORT']}"
        try:
            wait_until(lambda: is_served(url), timeout_s=30)
            with http_of(url) as http:
                yield http, lines
        finally:
            process.terminate()
            reading.join(20)


def said(lines: list[str]) -> str:
    return "".join(lines)


def http_of(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=60, trust_env=False)


def is_served(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", trust_env=False).is_success
    except httpx.TransportError:
        return False


def _environment(home: Path) -> dict[str, str]:
    return os.environ | {"GPTOSS_HOME": str(home), "GPTOSS_PORT": str(free_port())}
