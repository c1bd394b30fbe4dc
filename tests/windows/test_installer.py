"""The installer on Windows' own Python."""

import getpass
import json
import re
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.installers.conftest import INSTALLERS
from tests.installers.github import github
from tests.windows import on_wine
from tests.windows.conftest import ON_WINDOWS, Pc, Running, windows_path

pytestmark = ON_WINDOWS

COMPILER = "x86_64-w64-mingw32-gcc-posix"
SMI = '#include <stdio.h>\nint main(void) {{ puts("NVIDIA GeForce {}"); return 0; }}'


def dry_run(pc: Pc, folder: Path, gpu: str, *arguments: str) -> tuple[int, str]:
    """Run it with an nvidia-smi that lists this GPU."""
    source = folder / "smi.c"
    source.write_text(SMI.format(gpu))
    subprocess.run([COMPILER, "-o", folder / "nvidia-smi.exe", source], check=True)
    path = f"{windows_path(folder)};{pc.environment['WINEPATH']}"
    setup = windows_path(INSTALLERS / "setup_app.py")
    running = replace(pc, variables={"WINEPATH": path}).start(setup, "--dry-run", *arguments)
    return running.wait(), " ".join(running.printed.split())


@pytest.mark.parametrize(
    ("gpu", "code", "said"),
    [
        ("RTX 5080, 12.0, 581.29", 0, "CUDA: NVIDIA GeForce RTX 5080 (12.0) {13.4} else {12.4}"),
        ("RTX 4090, 8.9, 576.02", 0, "CUDA: NVIDIA GeForce RTX 4090 (8.9) {12.4}"),
        ("GTX 1080, 6.1, 580.88", 0, "CUDA: NVIDIA GeForce GTX 1080 (6.1) {12.4}"),
        ("GTX 680, 3.0, 474.11", 1, "driver 474 is older than CUDA 12 needs"),
    ],
)
def test_what_a_card_gets(pc: Pc, tmp_path: Path, gpu: str, code: int, said: str) -> None:
    ended, printed = dry_run(pc, tmp_path, gpu, "--backend", "cuda")
    release = r"llama.cpp's release for CUDA \1, about \\d+ MB( log \\S+)?"
    assert re.search(re.sub(r"\{(.*?)\}", release, re.sub(r"[()]", r"\\\g<0>", said)), printed)
    assert ended == code
    if code == 0:
        assert r"AppData\Local\gptoss\bin\gptoss.exe" in printed
        assert "Nothing was changed." in printed


@pytest.mark.timeout(1200)
def test_from_the_release_to_an_answer_and_away_again(pc: Pc, tmp_path: Path) -> None:
    """The packages of the registry, but a numpy that Wine's C runtime has the functions for."""
    installers = tmp_path / "installers"
    local = on_wine.HOME / "prefix" / "drive_c" / "users" / getpass.getuser() / "AppData" / "Local"
    app, wheels = local / "gptoss" / "app", windows_path(tmp_path / "wheels")
    shutil.rmtree(app, ignore_errors=True)
    shutil.copytree(INSTALLERS, installers)
    for name in ("requirements.txt", "constraints.txt"):
        text = (installers / name).read_text()
        numpy = on_wine.NUMPY + (f" --hash={on_wine.NUMPY_HASH}\n" if "--hash" in text else "\n")
        pattern = r"^numpy==(?:.*\\\n)*.*\n"
        (installers / name).write_text(re.sub(pattern, numpy, text, flags=re.M))
    setup = windows_path(installers / "setup_app.py")
    (package,) = (on_wine.HOME / "dist").iterdir()
    with github() as server:
        server.files[on_wine.ARCHIVE.name] = on_wine.ARCHIVE.read_bytes()
        options = ("--yes", "--backend", "cpu", "--llama-releases", server.api, "--wheels", wheels)
        start_s = time.monotonic()
        running = pc.start(setup, *options, "--from", windows_path(package))
        assert running.wait(limit_s=1000) == 0, running.printed
        print(f"installed in {time.monotonic() - start_s:.0f} s")
    assert "it answered, on the CPU" in running.printed
    made = json.loads((app / "install.json").read_text())
    assert list(made["digests"]) == [on_wine.ARCHIVE.name]
    (lib,) = app.glob("env-*/Lib/site-packages/llama_cpp/lib")
    assert {"llama.dll", "ggml.dll", "ggml-base.dll"} < {path.name for path in lib.iterdir()}
    assert not list(lib.glob("*.exe"))
    command = windows_path(local / "gptoss" / "bin" / "gptoss.exe")
    asked = Running(["wine", command, "run", "nano", "What is the capital of France?"], pc)
    assert asked.wait() == 0, asked.printed
    assert "Paris" in asked.printed
    removed = pc.start(setup, "--uninstall", "--yes")
    assert removed.wait() == 0, removed.printed
    assert not app.exists()
    assert not (local / "gptoss" / "bin" / "gptoss.exe").exists()
