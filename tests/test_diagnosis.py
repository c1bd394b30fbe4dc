"""Each finding of the doctor, by machines that have it."""

import time

import msgspec
import pytest

from gptoss_local.cli.doctor.diagnosis import GIB, Level, Surroundings, Verdict, diagnose
from gptoss_local.machine.hardware import Machine
from gptoss_local.machine.nvidia import Driver
from gptoss_local.runner.losses import Loss
from tests.plan.machines import gpu, machine

pytestmark = pytest.mark.quick

AROUND = Surroundings(
    models_dir="/models", disk_free_bytes=10**12, address="http://127.0.0.1:11434", answers="nobody"
)
PASCAL = gpu(8, compute_capability=(6, 1))
GOOD = msgspec.structs.replace(machine(gpu(16, 15.5)), driver=Driver("580.95", (13, 0)))


def finding(name: str, here: Machine = GOOD, around: Surroundings = AROUND) -> Verdict:
    (found,) = (each for each in diagnose(here, around) if each.name == name)
    return found


def test_a_good_machine_needs_nothing() -> None:
    findings = diagnose(GOOD, AROUND)
    assert {each.level for each in findings} == {"ok"}
    assert not any(each.fix for each in findings)
    assert "15.5 of 16.0 GiB" in finding("GPU 0").text


@pytest.mark.parametrize(
    ("change", "name", "level", "fix"),
    [
        ({"driver": None, "gpus": ()}, "GPU", "note", "install its driver"),
        ({"gpus": ()}, "GPU", "problem", "nvidia-smi -L"),
        ({"gpus": (), "visible_devices": "MIG-1"}, "GPU", "problem", "DEVICES is 'MIG-1'"),
        ({"gpus": (PASCAL,), "cuda_build": 13}, "GPU 0", "note", "not used: CUDA 13"),
        ({"gpus": (gpu(119, 60, shares_ram=True),)}, "GPU 0", "ok", ""),
        ({"driver": Driver("580.1", None, 1)}, "GPU", "problem", "Restart"),
        ({"driver": Driver("570.86", (12, 8))}, "GPU 0", "note", "driver 580"),
        ({"driver": Driver("550.1", (12, 4))}, "GPU 0", "problem", "driver 580"),
        ({"gpus": (gpu(16, 11),)}, "GPU 0", "note", "nvidia-smi"),
        ({"gpus": (gpu(16, 15.5, is_wddm=True),)}, "GPU 0", "note", "Windows"),
        (
            {"gpus": (gpu(16, 15.5, busy_percent=35, n_processes=3),)},
            *("GPU 0", "note", "busy (35 %; programs on it: 3)"),
        ),
        ({"backend": "CPU"}, "llama.cpp", "problem", "GGML_CUDA=on"),
        ({"has_avx2": False}, "CPU", "problem", "AVX2"),
        ({"has_avx2": None, "arm_features": ()}, "CPU", "problem", "without dotprod"),
        ({"available_bytes": 20 * GIB}, "RAM", "note", "Other programs"),
        ({"platform": "wsl"}, "RAM", "note", ".wslconfig"),
        ({"disk": "rotating"}, "disk", "note", "NVMe"),
    ],
)
def test_findings(change: dict[str, object], name: str, level: Level, fix: str) -> None:
    found = finding(name, msgspec.structs.replace(GOOD, **change))
    assert found.level == level
    assert fix in found.fix


def test_a_llama_cpp_that_does_not_load() -> None:
    around = msgspec.structs.replace(AROUND, llama_problem="it cannot be loaded")
    found = finding("llama.cpp", GOOD, around)
    assert (found.level, found.text) == ("problem", "it cannot be loaded")
    assert "docs/install.md" in found.fix


def test_full_disk_and_taken_port() -> None:
    around = msgspec.structs.replace(AROUND, disk_free_bytes=10**9, answers="other")
    assert finding("disk", GOOD, around).level == "problem"
    assert "GPTOSS_PORT" in finding("server", GOOD, around).fix
    around = msgspec.structs.replace(AROUND, answers="gptoss")
    assert finding("server", GOOD, around).level == "ok"


@pytest.mark.parametrize(
    ("message", "fix"),
    [
        ("the model runner stopped unexpectedly (signal 9)", "RAM ran out"),
        ("it stopped (signal 6): CUDA error: out of memory", "`nvidia-smi`"),
        ("llama_decode failed with status -2: ", "`nvidia-smi`"),
        ("it stopped (signal 6): CUDA error: unknown error", "NVreg_PreserveVideoMemory"),
        ("it was stopped: a step hangs, and has taken 60 s", "Xid"),
    ],
)
def test_an_engine_that_was_lost(message: str, fix: str) -> None:
    now_s = time.time()
    old, last = Loss(now_s - 8 * 86400, "old", "long ago"), Loss(now_s, "gpt-oss:20b", message)
    assert not any(
        each.name == "model runner"
        for each in diagnose(GOOD, msgspec.structs.replace(AROUND, losses=(old,)))
    )
    found = finding("model runner", GOOD, msgspec.structs.replace(AROUND, losses=(old, last, last)))
    assert found.level == "note"
    assert "2 times in the last 7 days" in found.text
    assert f"with gpt-oss:20b: {message}" in found.text
    assert found.fix.count(fix) == 1
