"""`gptoss web`: it starts a server, prints the address, and opens it in the user's browser."""

import re
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import run_cli
from tests.conftest import wait_until


@pytest.fixture
def opened(fresh: dict[str, str], tmp_path: Path) -> Path:
    """Where the user's browser notes what it opens."""
    noted, browser = tmp_path / "opened", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {noted}\n')
    browser.chmod(0o755)
    fresh["BROWSER"] = f"{browser} %s"
    return noted


@pytest.mark.parametrize("command", [["web"], ["chat", "--web"]], ids=" ".join)
def test_it_opens_the_page(fresh: dict[str, str], opened: Path, command: list[str]) -> None:
    url = f"http://127.0.0.1:{fresh['GPTOSS_PORT']}"
    done = run_cli(fresh, *command)
    assert done.returncode == 0
    assert re.fullmatch(rf"{url}/#open=[\w-]{{43}}\n", done.stdout)
    wait_until(opened.exists)
    assert opened.read_text() == done.stdout
    page = httpx.get(url, headers={"accept": "text/html"}, trust_env=False)
    assert "gptoss-key" in page.text  # the server goes on when the command has ended
    again = run_cli(fresh, *command).stdout
    assert again != done.stdout
    wait_until(lambda: opened.read_text() == done.stdout + again)


def test_it_may_only_print_the_link(fresh: dict[str, str], opened: Path) -> None:
    done = run_cli(fresh, "web", "--no-open")
    assert done.returncode == 0
    assert done.stdout.startswith(f"http://127.0.0.1:{fresh['GPTOSS_PORT']}/#open=")
    assert not opened.exists()


def test_what_is_chosen_in_the_browser_is_no_option(fresh: dict[str, str], opened: Path) -> None:
    for arguments in (["nano"], ["--resume"], ["--effort", "low"], ["--preset", "x"]):
        done = run_cli(fresh, "chat", "--web", *arguments)
        assert done.returncode == 2
        assert "in the browser" in done.stderr
    assert not opened.exists()
