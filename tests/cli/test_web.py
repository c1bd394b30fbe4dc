"""`gptoss web`: it starts a server, prints the address, and opens it in the user's browser."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest
import segno

from gptoss_local.server.lan import lan_addresses
from tests.cli.conftest import in_terminal, run_cli
from tests.conftest import wait_until


@pytest.fixture
def opened(fresh: dict[str, str], tmp_path: Path) -> Path:
    """The file in which the user's browser notes its pages."""
    noted, browser = tmp_path / "opened", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {noted}\n')
    browser.chmod(0o755)
    fresh["BROWSER"] = f"{browser} %s"
    return noted


@pytest.mark.parametrize("command", [["web"], ["chat", "--web"]], ids=" ".join)
def test_it_opens_the_page(fresh: dict[str, str], opened: Path, command: list[str]) -> None:
    url = f"http://127.0.0.1:{fresh['GPTOSS_PORT']}"
    done = run_cli(fresh, *command, is_process=True)
    assert done.returncode == 0
    assert re.fullmatch(rf"{url}/#open=[\w-]{{43}}\n", done.stdout)
    wait_until(opened.exists)
    assert opened.read_text() == done.stdout
    page = httpx.get(url, headers={"accept": "text/html"}, trust_env=False)
    assert "gptoss-key" in page.text  # the server still runs when the command has ended
    again = run_cli(fresh, *command).stdout
    assert again != done.stdout
    wait_until(lambda: opened.read_text() == done.stdout + again)
    printed = run_cli(fresh, "web", "--no-open").stdout
    assert printed.startswith(f"{url}/#open=")
    assert printed not in opened.read_text()


def test_what_is_chosen_in_the_browser_is_no_option(fresh: dict[str, str], opened: Path) -> None:
    for arguments in (["nano"], ["--resume"], ["--effort", "low"], ["--preset", "x"]):
        done = run_cli(fresh, "chat", "--web", *arguments)
        assert done.returncode == 2
        assert "in the browser" in done.stderr
    for option in ("--stop", "--no-tls"):  # of --lan alone
        assert run_cli(fresh, "web", option).returncode == 2
    assert not opened.exists()


needs_lan = pytest.mark.skipif(not lan_addresses(), reason="needs an address of a local network")


def drawn(screen: str) -> list[list[bool]]:
    """The cells of the QR code on a screen, whether they are dark; light ones are drawn."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", screen)
    halves = {" ": (True, True), "▀": (False, True), "▄": (True, False), "█": (False, False)}
    rows: list[tuple[bool, ...]] = []
    for line in plain.splitlines():
        if len(line) > 30 and set(line) <= set(halves):
            rows += zip(*(halves[char] for char in line), strict=True)
    return [list(row) for row in rows]


@needs_lan
@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}], ids=["colours", "no colours"])
def test_lan_draws_the_link_for_a_phone(fresh: dict[str, str], variables: dict[str, str]) -> None:
    environment = {k: v for k, v in fresh.items() if k not in ("NO_COLOR", "ACCESSIBLE")}
    environment |= {"TERM": "xterm-256color", **variables}
    screen = in_terminal(environment, "web", "--lan")
    address = f"https://{lan_addresses()[0]}:{fresh['GPTOSS_PORT']}"
    link = re.search(rf"{address}/#open=[\w-]{{43}}", screen)
    assert link, screen
    wanted = [[bool(cell) for cell in row] for row in segno.make_qr(link[0]).matrix_iter(border=4)]
    cells = drawn(screen)
    assert cells[: len(wanted)] == wanted
    assert ("\x1b[38;5;231;48;5;16m" in screen) == (not variables)
    narrow = in_terminal(environment, "web", "--lan", columns=30)
    assert drawn(narrow) == []
    assert "columns" in narrow


@needs_lan
def test_lan_says_what_a_phone_needs_and_ends(fresh: dict[str, str], tmp_path: Path) -> None:
    shutil.copy("/bin/sleep", tmp_path / "firewalld")
    with subprocess.Popen([tmp_path / "firewalld", "120"]) as firewall:
        told = json.loads(run_cli(fresh, "web", "--lan", "--json").stdout)
        firewall.kill()
    port = fresh["GPTOSS_PORT"]
    assert told["firewall"] == f"sudo firewall-cmd --add-port={port}/tcp"
    assert re.fullmatch(r"([0-9A-F]{2}:){31}[0-9A-F]{2}", told["fingerprint"])
    shown = run_cli(fresh, "web", "--lan")
    assert shown.stdout.startswith(f"https://{lan_addresses()[0]}:{port}/#open=")
    assert told["fingerprint"] in shown.stderr
    assert "▀" not in shown.stderr
    address, _, link = shown.stdout.split()[0].partition("/#open=")
    opening = f"{address}/api/gptoss/open"
    httpx.post(opening, json={"link": link}, verify=False, trust_env=False).raise_for_status()
    assert address in run_cli(fresh, "status").stdout
    assert "phone" in run_cli(fresh, "keys").stdout
    ended = run_cli(fresh, "web", "--lan", "--stop", "--json")
    assert json.loads(ended.stdout)["removed"] == ["phone"]
    assert json.loads(run_cli(fresh, "keys", "--json").stdout)["keys"] == []
    plain = run_cli(fresh, "web", "--lan", "--no-tls")
    assert plain.stdout.startswith(f"http://{lan_addresses()[0]}")
    assert "read along" in plain.stderr
    run_cli(fresh, "stop")
    wait_until(lambda: run_cli(fresh, "status").returncode == 7)
    assert run_cli(fresh, "web", "--lan", "--stop").returncode == 0  # without a server, too
