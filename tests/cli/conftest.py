"""Runs the real `gptoss` command in processes of its own."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import RunningServer, free_port

Cli = Callable[..., subprocess.CompletedProcess[str]]


def run_cli(
    environment: dict[str, str], *arguments: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gptoss_local", *arguments],
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def cli(server: RunningServer) -> Cli:
    """A command line that reaches the shared server."""
    return lambda *arguments, **kwargs: run_cli(server.environment, *arguments, **kwargs)


@pytest.fixture
def fresh(empty_home: Path) -> Iterator[dict[str, str]]:
    """Environment of a user whose server does not run; stops the one a test started."""
    environment = os.environ | {"GPTOSS_HOME": str(empty_home), "GPTOSS_PORT": str(free_port())}
    yield environment
    run_cli(environment, "stop")
