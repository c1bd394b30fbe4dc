"""The processes of compose.dynamo.yaml without containers: its commands, with its variables.

A container's own ports, folders and network interface are replaced.
"""

import json
import os
import random
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from gptoss_local.cluster.dynamo.address import own_address
from tests.conftest import free_port, give_nano, wait_until
from tests.dynamo.cluster import START_S, Processes, known_to
from tests.dynamo.packages import dynamo_packages
from tests.installers.container_files import (
    FOLDER,
    added_on_the_page,
    image_variables,
    last,
    read,
)
from tests.nano.golden import AGENT, SHELL

pytestmark = pytest.mark.nightly

KEY = "a-key"
QUESTIONS = (
    "hello", "Who are you?", "What is the capital of France?", "What is 17 + 25?", "Count to 12",
    "Reply with exactly: Springfield", "Write a poem about the sea.",
    "Repeat after me: Привет, Москва 東京", "Run the command `git status` with your shell tool.",
)  # fmt: skip
PORT = image_variables()["GPTOSS_PORT"]
INTERFACE = next(
    (
        interface
        for interface, stats in psutil.net_if_stats().items()
        if stats.isup and interface != "lo"
        if socket.AF_INET in {each.family for each in psutil.net_if_addrs().get(interface, [])}
    ),
    "lo",
)
"""A real one, if this machine has any."""


class Composed:
    """The services of both files.

    Args:
        processes: Where they are started.
        packages: Dynamo.
        folder: Has a folder `home` with nano.
    """

    def __init__(self, processes: Processes, packages: Path, folder: Path) -> None:
        self._processes = processes
        self._packages = packages
        self._folder = folder
        self.front, self.frontend = free_port(), free_port()
        self.workers = [low_port() for _ in range(service("worker")["scale"])]
        self._start("dynamo", self.frontend)
        for port in self.workers:
            self._start("worker", port)
        self._start("gptoss", self.front)

    def are_well(self) -> bool:
        """Ask as the image's health check does, in each container."""
        self._processes.check()
        _, *check = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
        return not any(
            subprocess.run(
                [sys.executable, *check],
                env=os.environ | {"GPTOSS_PORT": str(port)},
                stderr=subprocess.DEVNULL,
            ).returncode
            for port in (self.front, self.frontend, *self.workers)
        )

    def run(self, *arguments: str) -> None:
        """Run a command of gptoss, as `exec` does."""
        environment = self._environment(service("gptoss"), self.front)
        subprocess.run(
            [sys.executable, "-m", "gptoss_local", *arguments], env=environment, check=True
        )

    def _start(self, name: str, port: int) -> None:
        started = service(name)
        tini, end, *entrypoint = started.get("entrypoint") or json.loads(last("ENTRYPOINT"))
        assert (tini, end) == ("tini", "--")
        programs = {"gptoss": ["-m", "gptoss_local"], "python": []}
        command = [sys.executable, *programs[entrypoint[0]], *entrypoint[1:]]
        command += started.get("command") or json.loads(last("CMD"))
        own = self._own(port)
        self._processes.run(
            [own.get(word, word) for word in command], self._environment(started, port)
        )

    def _environment(self, started: dict[str, Any], port: int) -> dict[str, str]:
        own, image = self._own(port), image_variables()
        del image["PATH"]
        inherited = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        variables = {"PYTHONPATH": str(self._packages), "NO_PROXY": "*"} | inherited
        return variables | {n: own.get(v, v) for n, v in (image | started["environment"]).items()}

    def _own(self, port: int) -> dict[str, str]:
        (key,) = (v for v in service("gptoss")["environment"].values() if v.startswith("${"))
        return {
            PORT: str(port),
            "/data": str(self._folder / "home"),
            "/discovery": str(self._folder / "discovery"),
            "/tmp": str(self._folder / "tmp"),
            "eth0": INTERFACE,
            "${MODEL:-nano}": "nano",
            key: KEY,
        }


def low_port() -> int:
    """A free one that Dynamo takes for DYN_SYSTEM_PORT, which it reads as 16 bits with a sign."""
    for port in random.sample(range(20_000, 1 << 15), 100):
        with socket.socket() as s, suppress(OSError):
            s.bind(("", port))
            return port
    raise AssertionError("no port is free")


def service(name: str) -> dict[str, Any]:
    """The second file's on top of the first one's."""
    merged: dict[str, Any] = {"environment": {}}
    for file in ("compose.yaml", "compose.dynamo.yaml"):
        found = read(file)["services"].get(name, {})
        merged |= found | {"environment": merged["environment"] | found.get("environment", {})}
    return merged


@pytest.fixture(scope="module")
def composed(nano_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    folder = tmp_path_factory.mktemp("compose")
    give_nano(nano_home, folder / "home" / "cache")
    processes = Processes(tmp_path_factory.mktemp("logs"))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        try:
            started = Composed(processes, dynamo_packages(), folder)
            wait_until(started.are_well, timeout_s=START_S)
            yield started
        finally:
            processes.close()


def test_gptoss_answers_with_them(composed: Composed) -> None:
    """As nano does in gptoss itself: the text, the calls, the number of tokens."""
    frontend = f"http://127.0.0.1:{composed.frontend}"

    def all_are_known() -> bool:
        models = httpx.get(f"{frontend}/v1/models").json()["data"]
        return bool(models) and len(known_to(frontend)) == len(composed.workers)

    wait_until(all_are_known, timeout_s=START_S)
    assert {address for address, _ in known_to(frontend).values()} == {own_address(INTERFACE)}
    for command in set(added_on_the_page()):
        composed.run(*re.sub(r"http://\S+", frontend, command).split())
    for body in map(body_of, QUESTIONS):
        assert ask(composed, body | {"model": "team"}) == ask(composed, body | {"model": "nano"})


def test_gptoss_asks_for_the_key(composed: Composed) -> None:
    assert httpx.get(f"http://127.0.0.1:{composed.front}/api/tags").status_code == 401


def test_variables_are_dynamos() -> None:
    (library,) = (dynamo_packages() / "dynamo").glob("_core*.so")
    known = library.read_bytes()
    for path in FOLDER.iterdir():
        for name in re.findall(rb"\b(?:DYN|ETCD)_[A-Z_]*[A-Z]", path.read_bytes()):
            assert name in known, (path.name, name)


def body_of(question: str) -> dict[str, Any]:
    return {
        "messages": [{"role": "system", "content": AGENT}, {"role": "user", "content": question}],
        "tools": [{"type": "function", "function": SHELL}],
        "think": "low",
        "stream": False,
        "options": {"temperature": 0},
    }


def ask(composed: Composed, body: dict[str, Any]) -> tuple[Any, ...]:
    response = httpx.post(
        f"http://127.0.0.1:{composed.front}/api/chat",
        json=body,
        headers={"Authorization": f"Bearer {KEY}"},
        timeout=START_S,
    )
    assert response.is_success, response.text
    answer = response.json()
    message = answer["message"]
    calls = [call["function"] for call in message.get("tool_calls", [])]
    told = (message["content"], message.get("thinking"), calls, answer["done_reason"])
    return (*told, answer["prompt_eval_count"], answer["eval_count"])
