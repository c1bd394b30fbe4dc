"""Packages of no extra of the tests; pip fetches them on first use into the cache."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from filelock import FileLock
from platformdirs import user_cache_path

from tests.convert.llama_cpp_source import UNREACHABLE


def fetched(kind: str, *packages: str, options: tuple[str, ...] = ()) -> Path:
    """A folder for PYTHONPATH; skips the test if no package index has them for this machine."""
    target = user_cache_path("gptoss") / kind / f"{packages[0]}-{sys.version_info.minor}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(f"{target.name}.lock")):  # other workers want it as well
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=target.parent) as partial:
                _install(Path(partial) / "packages", packages, options)
                os.replace(Path(partial) / "packages", target)
    return target


def _install(folder: Path, packages: tuple[str, ...], options: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "pip", "install", "--only-binary", ":all:", *options]
    command += ["--retries", "1", "--target", str(folder), *packages]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        if UNREACHABLE.search(run.stderr + run.stdout):
            pytest.skip(f"no package index with {packages[0]} for this machine can be reached")
        raise RuntimeError(f"pip could not install {', '.join(packages)}:\n{run.stderr}")
