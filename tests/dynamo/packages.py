"""NVIDIA Dynamo, which pip fetches (80 MB) on first use into the user's cache."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from tests.convert.llama_cpp_source import UNREACHABLE

PACKAGES = ("ai-dynamo==1.6.1", "ai-dynamo-runtime==1.6.1", "uvloop")


def dynamo_packages() -> Path:
    """A folder for PYTHONPATH; skips the test if no package index has them for this machine."""
    target = user_cache_path("gptoss") / "dynamo" / f"{PACKAGES[0]}-{sys.version_info.minor}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as partial:
            _install(Path(partial) / "packages")
            os.replace(Path(partial) / "packages", target)
    return target


def _install(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--only-binary", ":all:"]
    command += ["--retries", "1", "--target", str(folder), *PACKAGES]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        if UNREACHABLE.search(run.stderr + run.stdout):
            pytest.skip("no package index with NVIDIA Dynamo for this machine can be reached")
        raise RuntimeError(f"pip could not install {', '.join(PACKAGES)}:\n{run.stderr}")
