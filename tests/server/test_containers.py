"""The server as containers run it: it ends by SIGTERM, logs JSON, and may be process 1."""

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.conftest import PATIENCE_S, engines_of, free_port, run_server, wait_until
from tests.server.test_serving import client

HI: dict[str, Any] = {"model": "nano", "prompt": "hi", "options": {"num_predict": 2}}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to handle")
def test_a_server_that_is_stopped_while_it_starts_ends(empty_home: Path) -> None:
    """As process 1 it would otherwise never see the signal."""
    process = subprocess.Popen(
        [sys.executable, "-c", _WITH_SIGNAL], env=_environment(empty_home), stderr=subprocess.PIPE
    )
    _, said = process.communicate()
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


def test_every_line_of_the_log_is_an_object(
    empty_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    begin, text = datetime.now(UTC), ""
    (empty_home / "models").mkdir()
    (empty_home / "models" / "broken.gguf").write_bytes(b"GGUF, but not for long")

    def is_unloaded() -> bool:
        nonlocal text
        text += capfd.readouterr().out
        return "unloaded nano" in text

    variables = {"GPTOSS_LOG_FORMAT": "json"}
    with run_server(empty_home, "tests.server.faulty", variables) as server, client(server) as http:
        broken = http.post("/api/generate", json={"model": "broken"})
        faulty = httpx.get(f"{server.url}/api/version")  # the server closes its connection
        assert (broken.status_code, faulty.status_code) == (500, 500)
        # Timers have the context of the request that set them.
        http.post("/api/generate", json={"model": "nano", "keep_alive": "1s"})
        wait_until(is_unloaded)
    objects = [json.loads(line) for line in (text + capfd.readouterr().out).splitlines()]
    for line in objects:
        assert set(line) <= {"time", "level", "logger", "message", "request_id", "traceback"}
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
        assert (datetime.fromisoformat(line["time"]) - begin).total_seconds() > -1
    by_message = {line["message"].partition(" ")[0]: line for line in objects}
    assert by_message["listening"]["level"] == "INFO"
    assert by_message["listening"]["logger"].startswith("gptoss")
    assert "request_id" not in by_message["listening"]
    assert "request_id" not in by_message["unloaded"]
    failed, internal = [line for line in objects if line["level"] == "ERROR"]
    assert failed["request_id"] == broken.headers["x-request-id"]
    assert "broken" in failed["message"]
    assert internal["logger"] == "uvicorn.error"
    assert internal["request_id"] == faulty.headers["x-request-id"]
    assert internal["traceback"].endswith("ZeroDivisionError: two\nlines")


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
            wait_until(lambda: is_served(url))
            (server,) = psutil.Process(outside.pid).children()
            status = Path(f"/proc/{server.pid}/status").read_text()
            assert re.search(r"^NSpid:.*\t1$", status, re.MULTILINE)
            with httpx.Client(base_url=url, timeout=PATIENCE_S, trust_env=False) as http:
                http.post("/api/generate", json={"model": "nano"})
                (engine,) = engines_of(server)
                engine.kill()
                wait_until(lambda: not server.children())  # a zombie would still be one
                assert http.post("/api/generate", json=HI).is_success
                (engine,) = engines_of(server)
            server.terminate()
            assert outside.wait() == 0
            assert not engine.is_running()
        finally:
            outside.kill()  # and with it, at the latest, its namespace


def is_served(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", trust_env=False).is_success
    except httpx.TransportError:
        return False


def _environment(home: Path) -> dict[str, str]:
    return os.environ | {"GPTOSS_HOME": str(home), "GPTOSS_PORT": str(free_port())}
