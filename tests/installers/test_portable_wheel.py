"""llama.cpp for the processors of many machines: its compiled variants, and that each one works.

A processor runs the code of older ones, so all variants up to this machine's best are tried here:
ggml takes the best that it finds.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import llama_wheel
import portable_wheel
import pytest
from steps import Log

from tests.installers.conftest import LLAMA

FOREIGN = next(a for a in portable_wheel.ARCHITECTURES if a != platform.machine())

# From the oldest processors to the newest, as ggml weighs them, with the kernel's flags for each.
_V3 = "sse4_2 avx f16c fma avx2 bmi2"
_AVX512 = f"{_V3} avx512f avx512cd avx512vl avx512dq avx512bw"
X86 = {
    "x64": "",
    "sse42": "sse4_2",
    "sandybridge": "sse4_2 avx",
    "ivybridge": "sse4_2 avx f16c",
    "piledriver": "sse4_2 avx f16c fma",
    "haswell": _V3,
    "alderlake": f"{_V3} avx_vnni",
    "skylakex": _AVX512,
    "cannonlake": f"{_AVX512} avx512vbmi",
    "cascadelake": f"{_AVX512} avx512_vnni",
    "icelake": f"{_AVX512} avx512vbmi avx512_vnni",
    "cooperlake": f"{_AVX512} avx512_vnni avx512_bf16",
    "zen4": f"{_AVX512} avx512vbmi avx512_vnni avx512_bf16",
    "sapphirerapids": f"{_AVX512} avx512vbmi avx512_vnni avx512_bf16 amx_tile amx_int8",
}
ARM = {
    "armv8.0_1": "",
    "armv8.2_1": "asimddp",
    "armv8.2_2": "asimddp asimdhp",
    "armv8.2_3": "asimddp asimdhp sve",
    "armv8.6_1": "asimddp asimdhp sve i8mm",
    "armv8.6_2": "asimddp asimdhp sve i8mm sve2",
}
VARIANTS = {"x86_64": X86, "aarch64": ARM}
ANSWER = Path(__file__).with_name("nano_answer.py")


@pytest.mark.nightly
@pytest.mark.parametrize("arch", portable_wheel.ARCHITECTURES)
def test_a_wheel_has_all_variants_and_no_others(arch: str, tmp_path: Path) -> None:
    wheel = made_wheel(arch, tmp_path)
    assert re.search(rf"manylinux_2_\d\d_{arch}\.whl$", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = [Path(name).name for name in archive.namelist()]
    found = {name[len("libggml-cpu-") : -len(".so")] for name in names if "ggml-cpu-" in name}
    assert found == set(VARIANTS[arch])


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_every_variant_that_runs_here_answers(unpacked: Path, nano_home: Path) -> None:
    here = set(re.findall(r"\w+", Path("/proc/cpuinfo").read_text()))
    variants = VARIANTS[platform.machine()].items()
    usable = [name for name, flags in variants if set(flags.split()) <= here]
    answers = []
    for name in reversed(usable):
        answers.append(answer(unpacked, nano_home, name))
        (unpacked / f"libggml-cpu-{name}.so").unlink()
    assert len(set(map(tuple, answers))) == 1  # nano is sure of it, however it is rounded


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.skipif(platform.machine() != "x86_64", reason="QEMU's names are of x86")
@pytest.mark.parametrize(("model", "variant"), [("Nehalem", "sse42"), ("Haswell", "haswell")])
def test_an_old_processor_gets_its_variant(
    unpacked: Path, nano_home: Path, model: str, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator = shutil.which("qemu-x86_64-static") or pytest.skip("apt-get install qemu-user-static")
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)  # of this processor
    answer(unpacked, nano_home, variant, emulator, "-cpu", model)


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """The folder of the libraries of this machine's wheel."""
    with zipfile.ZipFile(made_wheel(platform.machine(), tmp_path)) as archive:
        archive.extractall(tmp_path)
    return tmp_path / "llama_cpp/lib"


def answer(libraries: Path, nano_home: Path, variant: str, *emulator: str) -> list[int]:
    """Have nano answer with these libraries; returns the tokens."""
    command = [*emulator, sys.executable, ANSWER, nano_home / "cache"]
    variables = os.environ | {"LLAMA_CPP_LIB_PATH": str(libraries)}
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, f"{variant}: {done.stderr[-2000:]}"
    found = json.loads(done.stdout)
    assert found["loaded"] == [f"libggml-cpu-{variant}.so"]
    assert "Paris" in found["text"]
    tokens: list[int] = found["tokens"]
    return tokens


def made_wheel(arch: str, folder: Path) -> Path:
    """Return the wheel that release.py has compiled before; skip the test if it has not."""
    cache = llama_wheel.cache_folder()
    if portable_wheel.kept_wheel(cache, LLAMA, arch) is None:
        pytest.skip(f"python installers/release.py --arch {arch} has not run here")
    return portable_wheel.make(Log(folder / "log"), cache, LLAMA, folder, arch)
