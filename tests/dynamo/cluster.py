"""A frontend of Dynamo and workers of ours, each a process of its own, found through a folder."""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.conftest import free_port, wait_until

START_S = 120.0  # alone 10 s; a machine that runs other tests takes several times as long
N_PARALLEL = 6


class Processes:
    """Processes that write their output into a folder.

    Args:
        folder: An empty one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def run(self, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        started = self._folder / f"{len(self._started)}.log"
        with started.open("wb") as log:
            process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT
            )
        started.rename(self._folder / f"{process.pid}.log")
        self._started.append(process)
        return process

    def check(self) -> None:
        for process in self._started:
            assert process.poll() is None, self.log(process)

    def log(self, process: subprocess.Popen[bytes]) -> str:
        return (self._folder / f"{process.pid}.log").read_text(errors="replace")[-3000:]

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()


class Cluster:
    """A frontend with a router, and the workers that it knows by number.

    Args:
        packages: Dynamo.
        home: A GPTOSS_HOME with nano.
        folder: An empty one, for discovery and logs.
        router_mode: Of the frontend.
        n_parallel: Answers, and cached prefixes, of a worker.
    """

    def __init__(
        self,
        packages: Path,
        home: Path,
        folder: Path,
        router_mode: str = "kv",
        n_parallel: int = N_PARALLEL,
    ) -> None:
        self._processes = Processes(folder)
        self.url = f"http://127.0.0.1:{free_port()}"
        self._environment = os.environ | {
            "PYTHONPATH": str(packages),
            "HOME": str(folder),  # where the frontend copies a model's files
            "HF_HUB_OFFLINE": "1",
            "NO_PROXY": "127.0.0.1",
            "DYN_DISCOVERY_BACKEND": "file",
            "DYN_FILE_KV": str(folder / "discovery"),
            "DYN_REQUEST_PLANE": "tcp",
            "DYN_EVENT_PLANE": "zmq",
            "DYN_HTTP_HOST": "127.0.0.1",
            "DYN_TCP_RPC_HOST": "127.0.0.1",
            "DYN_TCP_RESPONSE_STREAM_HOST": "127.0.0.1",
            "DYN_EVENT_PLANE_HOST": "127.0.0.1",
            "GPTOSS_HOME": str(home),
            "GPTOSS_NUM_PARALLEL": str(n_parallel),
            "GPTOSS_PREFIX_DISK_BYTES": "0",
            "GPTOSS_GRACE_S": "60",
        }
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        port = self.url.rpartition(":")[2]
        self._run("dynamo.frontend", "--http-port", port, "--router-mode", router_mode)

    def add_workers(self, n: int) -> list[int]:
        """Start workers, and return their numbers once the frontend sends them requests."""
        started = [self._run("gptoss_local", "worker", "dynamo", "nano") for _ in range(n)]
        new: list[int] = []

        def are_ready() -> bool:
            for process in started:
                assert process.poll() is None, self._processes.log(process)
            ports = {port: process for process in started for port in _ports(process)}
            found = {number: ports[p] for number, p in self.known().items() if p in ports}
            new[:] = [number for number in found if self._answers(number)]
            self.workers |= {number: found[number] for number in new}
            return len(new) == n

        wait_until(are_ready, timeout_s=START_S)
        return new

    def stream(self, prompt: list[int], n: int, **options: Any) -> "Answer":
        """Ask for at most `n` tokens; `worker` says of whom."""
        return Answer(self.url, prompt, n, **options)

    def selects(self, prompt: list[int]) -> int | None:
        """The worker that the router would choose, without computing anything."""
        answer = self.stream(prompt, 1, nvext={"annotations": ["query_instance_id:"]})
        list(answer)
        return answer.worker

    def close(self) -> None:
        self._processes.close()

    def _run(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", module, *arguments]
        return self._processes.run(command, self._environment)

    def known(self) -> dict[int, int]:
        """The workers that the frontend knows, and the port of each."""
        return {number: int(port) for number, (_, port) in known_to(self.url).items()}

    def _answers(self, worker: int) -> bool:
        answer = self.stream([1], 1, worker=worker)
        list(answer)
        return not answer.error


class Answer:
    """A streamed completion; iterate over it for its tokens as they come.

    Attributes:
        worker: Who answers.
        end: Why it is over; None: it is not, or has failed.
        error: The frontend's message about a failure.
    """

    def __init__(
        self,
        url: str,
        prompt: list[int],
        n: int,
        *,
        worker: int | None = None,
        timeout_s: float = START_S,
        **body: Any,
    ) -> None:
        self._url = f"{url}/v1/completions"
        nvext = {"extra_fields": ["completion_token_ids", "worker_id"]} | body.pop("nvext", {})
        if worker is not None:
            nvext["backend_instance_id"] = worker
        self.body: dict[str, Any] = {
            "model": "nano",
            "prompt": prompt,
            "max_tokens": n,
            "temperature": 0,
        }
        self.body |= {"stream": True, "stream_options": {"include_usage": True}, "nvext": nvext}
        self.body |= body
        self._options: dict[str, Any] = {"timeout": timeout_s}
        self.tokens: list[int] = []
        self.worker: int | None = None
        self.end: str | None = None
        self.n_cached: int | None = None
        self.error = ""

    def __iter__(self) -> Generator[int, None, None]:
        try:
            with httpx.stream("POST", self._url, json=self.body, **self._options) as response:
                if response.status_code != 200:
                    self.error = f"{response.status_code}: {response.read().decode()}"
                    return
                for line in response.iter_lines():
                    if line.startswith("data: {"):
                        yield from self._take(json.loads(line.removeprefix("data: ")))
        except httpx.TransportError as error:
            self.error = repr(error)

    def _take(self, event: dict[str, Any]) -> Iterator[int]:
        if "error" in event:
            self.error = str(event["error"])
            return
        extra = event.get("nvext") or {}
        self.worker = (extra.get("worker_id") or {}).get("decode_worker_id", self.worker)
        if usage := event.get("usage"):
            self.n_cached = usage["prompt_tokens_details"]["cached_tokens"]
        for choice in event["choices"]:
            self.end = choice.get("finish_reason") or self.end
        for token in extra.get("completion_token_ids") or []:
            self.tokens.append(token)
            yield token


def known_to(url: str) -> dict[int, list[str]]:
    """The workers that a frontend knows, and the address and port of each."""
    try:
        health = httpx.get(f"{url}/health").json()
    except httpx.TransportError:
        return {}
    return {
        each["instance_id"]: each["transport"]["tcp"].split("/")[0].split(":")
        for each in health["instances"]
        if each["endpoint"] == "generate"
    }


def _ports(process: subprocess.Popen[bytes]) -> set[int]:
    connections = psutil.Process(process.pid).net_connections(kind="tcp")
    return {c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN}


@contextmanager
def running(packages: Path, home: Path, folder: Path, **options: Any) -> Iterator[Cluster]:
    cluster = Cluster(packages, home, folder, **options)
    try:
        yield cluster
    finally:
        cluster.close()
