"""A client that asks every few milliseconds how the server is, while another one misbehaves.

    python -m tests.server.second_client PORT

It is a process of its own, since a test that sends much would hold it up. It prints how long each
answer took, in seconds, when its stdin is closed.
"""

import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable

_EVERY_S = 0.01
_P99_S = 0.1
_TRIES = 4
_ATTACK_S = 2.0
_REQUEST = b"GET /api/version HTTP/1.1\r\nHost: localhost\r\n\r\n"


def assert_undisturbed(url: str, attack: Callable[[], object]) -> None:
    """Fail if a second client's p99 rises by 100 ms while an attack is repeated for two seconds.

    This machine may be busy with something else, so one try proves nothing, and a wait is compared
    with one that has no attack.
    """
    found = []
    for _ in range(_TRIES):
        p99_s = _p99_during(url, attack)
        if p99_s < _P99_S:
            return
        alone_s = _p99_during(url, lambda: time.sleep(_EVERY_S))
        found.append((p99_s, alone_s))
        if p99_s - alone_s < _P99_S:
            return
    raise AssertionError(f"the 99th percentile, and without the attack: {found} s")


def _p99_during(url: str, attack: Callable[[], object]) -> float:
    waits_s = sorted(_waits_during(url, attack))
    p99_s = waits_s[len(waits_s) * 99 // 100]
    print(f"p99 {1000 * p99_s:.0f} ms, worst {1000 * waits_s[-1]:.0f} ms of {len(waits_s)}")
    return p99_s


def _waits_during(url: str, attack: Callable[[], object]) -> list[float]:
    command = [sys.executable, "-m", "tests.server.second_client", url.rpartition(":")[2]]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()  # it has its first answer
        end_s = time.monotonic() + _ATTACK_S
        while time.monotonic() < end_s:
            attack()
        process.stdin.close()
        found: list[float] = json.loads(process.stdout.read())
        return found


def _ask(port: int) -> None:
    """Ask at fixed times on one connection; an answer that is late makes the next ones late."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _answer(connection)
        print("ready", flush=True)
        waits_s: list[float] = []
        due_s = time.perf_counter()
        while not select.select([sys.stdin], [], [], max(0.0, due_s - time.perf_counter()))[0]:
            _answer(connection)
            now_s = time.perf_counter()
            while due_s < now_s:  # those that could not even be asked, too
                waits_s.append(now_s - due_s)
                due_s += _EVERY_S
    print(json.dumps(waits_s), flush=True)


def _answer(connection: socket.socket) -> None:
    connection.sendall(_REQUEST)
    answer = b""
    while not answer.endswith(b"}"):
        piece = connection.recv(4096)
        assert piece, "the server closed the connection"
        answer += piece


if __name__ == "__main__":
    _ask(int(sys.argv[1]))
