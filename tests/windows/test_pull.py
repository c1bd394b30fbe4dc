"""A pull on Windows' own Python from a hub on Linux, killed and continued."""

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import wait_until
from tests.hub.server import Fault, HubServer, run_hub
from tests.windows.conftest import ON_WINDOWS, Pc

pytestmark = ON_WINDOWS

NAME = "team/tiny-gpt-oss"


@pytest.fixture
def hub(nano_checkpoint: Path, pc: Pc) -> Iterator[HubServer]:
    with run_hub() as running:
        running.add(NAME, {path.name: path.read_bytes() for path in nano_checkpoint.iterdir()})
        pc.variables["HF_ENDPOINT"] = running.endpoint
        yield running


def test_killed_and_continued(hub: HubServer, pc: Pc) -> None:
    hub.strike("model.safetensors", Fault(delay_s=0.05))
    running = pc.start("-m", "gptoss_local", "pull", NAME)
    folder = pc.home / "models"
    wait_until(lambda: sum(_sizes(folder)) > 10_000_000)
    for process in psutil.process_iter(["cmdline"]):  # the command and the process of its download
        words = " ".join(process.info["cmdline"] or [])
        if "python.exe" in words and "pull" in words:
            process.kill()
    running.wait()
    before = sum(_sizes(folder))
    assert before > 10_000_000
    hub.heal()
    start = time.time()
    pc.gptoss("pull", NAME)
    assert time.time() - start < 200
    pc.gptoss("verify", NAME)
    assert "Paris" in pc.gptoss("run", NAME, "What is the capital of France?")


def _sizes(folder: Path) -> list[int]:
    return [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
