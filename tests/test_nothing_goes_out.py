"""docs/privacy.md: server, engine and commands work without a network, and try to reach no other.

All processes run in a network namespace that has loopback alone, where namespaces are permitted.
strace sees what they try: an address that is not this machine's, or a question for one.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import free_port

STRACE = shutil.which("strace")
pytestmark = pytest.mark.skipif(STRACE is None, reason="needs strace: apt-get install strace")

# With what to do before: bring loopback up, by the ioctl of `ip link set lo up`.
ISOLATED = f"""\
if [ "$(readlink /proc/self/ns/net)" != "$OUTER" ]; then
  "{sys.executable}" -c '
import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14x", b"lo", 1))'
  ! [ -s /proc/net/route ] || [ "$(wc -l < /proc/net/route)" = 1 ]
fi
gptoss() {{ "{sys.executable}" -m gptoss_local "$@"; }}
"""
A_DAY = """
trap "gptoss stop || :" EXIT
gptoss serve &
until gptoss status > /dev/null; do sleep 0.1; done
gptoss run nano "What is the capital of France?" --hide-reasoning
gptoss ps
gptoss ls --json
gptoss show nano > /dev/null
gptoss plan nano > /dev/null
gptoss config > /dev/null
gptoss doctor || [ $? = 1 ]
gptoss tools > /dev/null
"{python}" -m tests.docs.terminal chat nano
gptoss chats
"{python}" -c '
import httpx, os, re
with httpx.Client(base_url="http://127.0.0.1:" + os.environ["GPTOSS_PORT"]) as http:
    page = http.get("/", headers={"Accept": "text/html"}).raise_for_status().text
    files = set(re.findall(r"(?:src|href)=\\"([^\\"#]+)\\"", page))
    assert files, page
    for file in files:
        http.get(file).raise_for_status()
print("the page has", len(files), "files")'
"""
PARTS = re.compile(r"^\d+ +(?:connect|sendto|sendmsg|sendmmsg)\((.*)$", re.MULTILINE)
INTERNET = re.compile(r'inet_addr\("([^"]+)"\)|inet_pton\(AF_INET6, "([^"]+)"')
PORT = re.compile(r"sin6?_port=htons\((\d+)\)")
HERE = re.compile(r"127\.|::1$|::ffff:127\.")
DNS = "53"
# Not nscd, which bash asks for the name of its user. Where it does not run, names go to DNS.
LOOKUP_SERVICE = "io.systemd.Resolve"


def attempts(log: str) -> list[str]:
    """Return the calls that are meant for another machine, or ask for an address."""
    found = []
    for call in PARTS.findall(log):
        address, port = INTERNET.search(call), PORT.search(call)
        is_away = address is not None and not HERE.match(address[1] or address[2])
        asks = (port is not None and port[1] == DNS) or LOOKUP_SERVICE in call
        if is_away or asks:
            found.append(call)
    return found


def traced(script: str, home: Path, folder: Path) -> tuple[str, list[str]]:
    """Run a script; return its output, and the attempts of it and its children."""
    log = folder / "strace"
    outer = os.readlink("/proc/self/ns/net")
    environment = {k: v for k, v in os.environ.items() if "proxy" not in k.lower()}
    environment |= {
        "GPTOSS_HOME": str(home),
        "GPTOSS_PORT": str(free_port()),
        "HOME": str(folder),
        "OUTER": outer,
        "TERM": "xterm-256color",
    }
    unshare = ["unshare", "--map-root-user", "--net"]
    may = (
        shutil.which("unshare")
        and subprocess.run([*unshare, "true"], capture_output=True).returncode == 0
    )
    trace = [str(STRACE), "-f", "--seccomp-bpf", "-qq", "-s", "0", "-e", "trace=network"]
    command = [*trace, "-o", str(log), "bash", "-euo", "pipefail", "-c", ISOLATED + script]
    done = subprocess.run(
        [*(unshare if may else []), *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout, attempts(log.read_text(errors="replace"))


def test_a_day_without_a_network(empty_home: Path, tmp_path: Path) -> None:
    printed, found = traced(A_DAY.replace("{python}", sys.executable), empty_home, tmp_path)
    for part in ("Paris", "nano", "gptoss answers at", "the page has", "capital of France"):
        assert part in printed, printed
    assert found == []


@pytest.mark.parametrize(
    "attempt",
    [
        "socket.socket(socket.AF_INET6).connect(('2001:db8::1', 9))",
        "socket.socket(type=socket.SOCK_DGRAM).sendto(b'', ('127.0.0.53', 53))",
    ],
)
def test_an_attempt_is_seen(tmp_path: Path, attempt: str) -> None:
    program = (
        f"import socket; s = socket; s.setdefaulttimeout(1)\ntry: {attempt}\nexcept OSError: 0"
    )
    printed, found = traced(f'"{sys.executable}" -c "{program}"', tmp_path, tmp_path)
    assert printed == ""
    assert len(found) == 1
