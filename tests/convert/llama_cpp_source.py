"""llama.cpp's own converter, from the source distribution of the llama-cpp-python we depend on.

pip fetches it (70 MB) on first use; the scripts stay in the user's cache.
"""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest
from platformdirs import user_cache_path

PACKAGE = "llama-cpp-python"
PARTS = re.compile(
    r"[^/]+/vendor/llama\.cpp/(convert_hf_to_gguf\.py|conversion/.*|gguf-py/gguf/.*)"
)

# pip's words when it reaches no index, or one without this package (an offline mirror).
UNREACHABLE = re.compile(
    r"from versions: none|NewConnectionError|ConnectTimeout|ProxyError|NameResolutionError|"
    r"Network is unreachable|Temporary failure in name resolution"
)


def llama_cpp_source() -> Path:
    """Folder of `convert_hf_to_gguf.py`; skips the test if no package index can be reached."""
    target = user_cache_path("gptoss") / "llama_cpp_source" / version(PACKAGE)
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as partial:
            _fetch(Path(partial))
            _extract(next(Path(partial).glob("*.tar.gz")), Path(partial) / "source")
            os.replace(Path(partial) / "source", target)
    return target


def _fetch(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:"]
    command += ["--retries", "1", "--dest", str(folder), f"{PACKAGE}=={version(PACKAGE)}"]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        if UNREACHABLE.search(run.stderr + run.stdout):
            pytest.skip(f"no package index with the source of {PACKAGE} can be reached")
        raise RuntimeError(f"pip could not fetch the source of {PACKAGE}:\n{run.stderr}")


def _extract(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isfile() and (match := PARTS.fullmatch(member.name)):
                member.name = match[1]
                tar.extract(member, target, filter="data")


def convert_with_llama_cpp(jobs: list[tuple[Path, Path, str]]) -> None:
    """Convert checkpoints, all in one process because importing and the vocabulary cost seconds.

    Args:
        jobs: Of each, the checkpoint folder, the GGUF to write, and `--outtype`.
    """
    script = str(llama_cpp_source() / "convert_hf_to_gguf.py")
    runs = [[script, str(a), "--outfile", str(b), "--outtype", c] for a, b, c in jobs]
    code = f"""
import runpy, sys
sys.path.insert(0, {str(llama_cpp_source())!r})
for sys.argv in {runs!r}:
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
