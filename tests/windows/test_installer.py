"""The installer's choice of llama.cpp on Windows' own Python; it changes nothing here."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.installers.conftest import INSTALLERS
from tests.windows.conftest import ON_WINDOWS, Pc, windows_path

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


def test_a_card_that_the_maintainers_wheel_supports(pc: Pc, tmp_path: Path) -> None:
    code, printed = dry_run(pc, tmp_path, "RTX 4090, 8.9, 580.88")
    assert code == 0
    assert r"AppData\Local\gptoss\bin\gptoss.exe" in printed
    assert "llama.cpp CUDA: NVIDIA GeForce RTX 4090 (8.9) the maintainer's build cu130" in printed
    assert "Nothing was changed." in printed


@pytest.mark.parametrize(
    ("gpu", "reason"),
    [
        ("RTX 5090, 12.0, 581.29", "no C++ compiler was found"),
        ("RTX 4090, 8.9, 576.02", "driver 576 is older than CUDA 13 needs"),
        ("GTX 1080, 6.1, 580.88", "CUDA 13 needs an RTX 20 or newer"),
    ],
)
def test_cards_without_one(pc: Pc, tmp_path: Path, gpu: str, reason: str) -> None:
    code, printed = dry_run(pc, tmp_path, gpu, "--backend", "cuda")
    assert code == 1
    assert reason in printed
