"""Facts of this machine, and of machines told by their files and drivers."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest

from gptoss_local.machine import hardware, nvidia
from gptoss_local.machine.hardware import Machine, pinnable_bytes, read_machine
from gptoss_local.machine.nvidia import Gpu, read_gpus, visible

pytestmark = pytest.mark.quick

GIB = 2**30
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="as Linux tells it")


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_this_machine(tmp_path: Path) -> None:
    machine = read_machine(tmp_path / "not" / "there")
    assert machine.total_bytes == psutil.virtual_memory().total
    assert 0 < machine.available_bytes <= machine.total_bytes
    assert 1 <= (machine.n_cores or 1) <= (psutil.cpu_count(logical=False) or 10**6)
    assert 1 <= (machine.n_logical_cores or 0) <= (psutil.cpu_count() or 0)
    assert machine.usable_gpus == () or machine.backend != "CPU"


LISTED = [  # as llama.cpp's Vulkan backend counts them
    {"name": "Vulkan0", "description": "Intel(R) Arc(TM) A770", "total_bytes": 16 * GIB},
    {"name": "Vulkan1", "description": "AMD Radeon RX 7900 XT", "total_bytes": 20 * GIB},
    {"name": "Vulkan2", "description": "AMD Radeon RX 7900 XT", "total_bytes": 20 * GIB},
]


@ON_LINUX
@pytest.mark.parametrize(
    ("chosen", "names"), [("", ("Vulkan1", "Vulkan2")), ("0,1", ("Vulkan0", "Vulkan1", "Vulkan2"))]
)
def test_cards_by_vulkan_are_of_one_maker_and_keep_their_names(
    tmp_path: Path, monkeypatch: Any, chosen: str, names: tuple[str, ...]
) -> None:
    devices = [{"free_bytes": 15 * GIB, "shares_ram": False} | each for each in LISTED]
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\necho '{json.dumps(devices)}'\n")
    program.chmod(0o755)
    (tmp_path / "libggml-vulkan.so").touch()
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", chosen)
    machine = read_machine(tmp_path)
    assert (machine.backend, machine.device_names) == ("Vulkan", names)
    assert {gpu.free_bytes for gpu in machine.usable_gpus} == {15 * GIB}
    program.write_text("#!/bin/sh\nexit 1\n")  # as a library for another processor ends
    assert read_machine(tmp_path).usable_gpus == ()


@ON_LINUX
def test_cores_that_this_process_may_not_use_do_not_count(tmp_path: Path) -> None:
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from pathlib import Path; from gptoss_local.machine.hardware import read_machine\n"
        "m = read_machine(Path('/')); print(m.n_cores, m.n_performance_cores, m.n_logical_cores)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1 1 1\n"


@ON_LINUX
def test_a_container_has_a_part_of_cores_and_memory(tmp_path: Path, monkeypatch: Any) -> None:
    """Pinned memory is a share of all memory, and a share of the host's would be too much."""
    limits = {"memory.max": str(GIB), "memory.current": str(GIB // 4), "cpu.max": "100000 100000"}
    write(tmp_path, {f"fs/cgroup/{name}": text for name, text in limits.items()})
    assert hardware._n_cores(tmp_path, tmp_path) == (1, 1, 1)
    monkeypatch.setattr(hardware, "_SYS", tmp_path)
    monkeypatch.setattr(hardware, "_PROC", tmp_path)
    machine = read_machine(tmp_path)
    assert machine.total_bytes == GIB
    assert machine.available_bytes <= GIB * 3 // 4
    assert 0 < machine.pinnable_bytes <= GIB * 3 // 4


def x86_files() -> dict[str, str]:
    """An i9 with 2 fast cores of two threads and 4 slow ones, as the kernel lists it."""
    files = {"devices/cpu_core/cpus": "0-3\n", "devices/cpu_atom/cpus": "4-7\n"}
    for cpu, core in enumerate((0, 0, 4, 4, 8, 9, 10, 11)):
        folder = f"devices/system/cpu/cpu{cpu}/topology"
        files |= {f"{folder}/core_id": str(core), f"{folder}/physical_package_id": "0"}
    return files


def arm_files() -> dict[str, str]:
    """GB10: 10 Cortex-A725 and 10 Cortex-X925, of which some boost a little higher."""
    files, capacities = {}, [718] * 10 + [997] * 9 + [1024]
    for cpu, capacity in enumerate(capacities):
        folder = f"devices/system/cpu/cpu{cpu}"
        files |= {
            f"{folder}/topology/physical_package_id": "0",
            f"{folder}/topology/cluster_id": str(cpu // 10),
            f"{folder}/topology/core_id": str(cpu % 10),
            f"{folder}/cpu_capacity": str(capacity),
        }
    return files


@pytest.mark.parametrize(
    ("files", "n_cores", "allowed", "n_fast"),
    [
        (x86_files(), 6, set(range(8)), 2),
        (x86_files(), 6, {0, 1, 5}, 1),  # as `taskset -c 0,1,5` leaves
        (x86_files(), 6, {5, 6}, 2),  # none but slow ones
        (arm_files(), 20, set(range(20)), 10),
        (arm_files(), 20, {0, 1, 19}, 1),
        (arm_files(), 20, {0, 1}, 2),
    ],
)
def test_fast_cores(
    tmp_path: Path, files: dict[str, str], n_cores: int, allowed: set[int], n_fast: int
) -> None:
    root = write(tmp_path, files)
    assert hardware._n_performance_cores(root, n_cores, allowed) == n_fast


@pytest.mark.parametrize(
    ("flags", "known"), [("fpu sse avx2 fma", True), ("fpu sse avx", False), (None, None)]
)
def test_avx2(tmp_path: Path, flags: str | None, known: bool | None, monkeypatch: Any) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    files = {"cpuinfo": f"model name\t: any\nflags\t\t: {flags}\n"} if flags else {}
    assert hardware._fast_code(write(tmp_path, files) / "cpuinfo") == (known, None)


@pytest.mark.parametrize(
    ("cores", "known"),
    [
        (["fp sve sve2 i8mm asimddp bf16 dgh"] * 2, ("dotprod", "i8mm", "bf16", "SVE", "SVE2")),
        (["fp asimd asimddp i8mm", "fp asimd asimddp"], ("dotprod",)),  # common to all cores
        (["fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid"], ()),  # Cortex-A72
        ([], None),
    ],
)
def test_arm(
    tmp_path: Path, cores: list[str], known: tuple[str, ...] | None, monkeypatch: Any
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    text = "".join(f"processor\t: {n}\nFeatures\t: {f}\n\n" for n, f in enumerate(cores))
    cpuinfo = write(tmp_path, {"cpuinfo": text}) / "cpuinfo"
    assert hardware._fast_code(cpuinfo) == (None, known)
    machine = Machine(total_bytes=GIB, available_bytes=GIB, arm_features=known)
    assert machine.lacks == ("dotprod" if known == () else "")


@pytest.mark.skipif(os.name != "posix", reason="devices have numbers on POSIX")
@pytest.mark.parametrize(
    ("disk", "rotational", "kind"),
    [("nvme0n1", "0", "nvme"), ("sda", "0", "ssd"), ("sda", "1", "rotating"), ("vda", "1", None)],
)
def test_kinds_of_disk(tmp_path: Path, disk: str, rotational: str, kind: str | None) -> None:
    device = tmp_path.stat().st_dev
    part = write(tmp_path / f"devices/{disk}", {"queue/rotational": rotational}) / f"{disk}1"
    part.mkdir()
    link = tmp_path / f"dev/block/{os.major(device)}:{os.minor(device)}"
    link.parent.mkdir(parents=True)
    link.symlink_to(part)
    assert hardware._disk_kind(tmp_path / "models" / "there", tmp_path) == kind


def test_what_can_be_pinned() -> None:
    assert pinnable_bytes("linux", 64 * GIB, 60 * GIB) == 60 * GIB
    assert pinnable_bytes("windows", 64 * GIB, 60 * GIB) == 32 * GIB
    assert pinnable_bytes("wsl", 64 * GIB, 20 * GIB) == 20 * GIB
    assert pinnable_bytes("other", 64 * GIB, 60 * GIB) is None


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        *((None, "abc"), ("", ""), ("-1", ""), ("2,0", "ca")),
        *(("GPU-b", "b"), ("1,7,0", "b"), ("1,1", "b")),
    ],
)
def test_visible_devices(wanted: str | None, found: str) -> None:
    gpus = [
        Gpu(index=i, name=name, uuid=f"GPU-{name}", total_bytes=1, free_bytes=1)
        for i, name in enumerate("abc")
    ]
    assert "".join(gpu.name for gpu in visible(gpus, wanted)) == found


# NVML's answers for an RTX 4090 under Linux; all other calls are not supported.
ANSWERS = {
    "nvmlInit": None,
    "nvmlShutdown": None,
    "nvmlSystemGetDriverVersion": "570.86.15",
    "nvmlSystemGetCudaDriverVersion": 12080,
    "nvmlDeviceGetCount": 1,
    "nvmlDeviceGetHandleByIndex": "handle",
    "nvmlDeviceGetName": b"NVIDIA GeForce RTX 4090",
    "nvmlDeviceGetUUID": "GPU-1234",
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=24 * GIB, free=23 * GIB),
    "nvmlDeviceGetCudaComputeCapability": (8, 9),
    "nvmlDeviceGetMaxPcieLinkGeneration": 4,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetMemoryBusWidth": 384,
    "nvmlDeviceGetNumGpuCores": 16384,
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=12, memory=3),
    "nvmlDeviceGetGraphicsRunningProcesses": [SimpleNamespace(pid=7)],
}
REFUSED, LOST = pynvml.NVMLError_NotSupported(), pynvml.NVMLError_GpuIsLost()


def fake_driver(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    """Let NVML answer so, with changed answers by the ends of calls' names."""
    answers = ANSWERS | {f"nvml{name}": answer for name, answer in changes.items()}
    for name in vars(pynvml).copy():
        if name.startswith("nvml") and name != "nvmlExceptionClass":
            monkeypatch.setattr(pynvml, name, _call(answers.get(name, REFUSED)))
    if "DeviceGetMaxClockInfo" not in changes:
        clocks = {pynvml.NVML_CLOCK_MEM: 10501, pynvml.NVML_CLOCK_SM: 2520}
        monkeypatch.setattr(pynvml, "nvmlDeviceGetMaxClockInfo", lambda _, kind: clocks[kind])


def _call(answer: object) -> Any:
    def call(*_: object) -> object:
        if isinstance(answer, pynvml.NVMLError):
            raise answer
        return answer

    return call


def test_what_a_driver_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver(monkeypatch)
    driver, (gpu,) = read_gpus()
    assert driver == nvidia.Driver("570.86.15", (12, 8))
    assert gpu.name == "NVIDIA GeForce RTX 4090"
    assert (gpu.total_bytes, gpu.free_bytes) == (24 * GIB, 23 * GIB)
    assert gpu.bandwidth_bytes_s == pytest.approx(1008e9, rel=0.001)
    assert (gpu.pcie_generation, gpu.pcie_width, gpu.n_processes) == (4, 16, 1)
    assert (gpu.busy_percent, gpu.is_busy) == (12, False)
    assert gpu.is_wddm is False
    for call, field in (
        ("MaxPcieLinkWidth", "pcie_width"),
        ("MemoryBusWidth", "bandwidth_bytes_s"),
        ("NumGpuCores", "n_cores"),
        ("GraphicsRunningProcesses", "n_processes"),
        ("UtilizationRates", "busy_percent"),
    ):
        fake_driver(monkeypatch, **{f"DeviceGet{call}": REFUSED})
        assert getattr(read_gpus()[1][0], field) is None
    fake_driver(monkeypatch, Init=REFUSED)
    assert read_gpus() == (None, [])


@pytest.mark.parametrize("call", ["HandleByIndex", "MemoryInfo"])
def test_a_gpu_that_does_not_answer_is_left_out(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Lost from the bus, or another user's."""
    fake_driver(monkeypatch, **{f"DeviceGet{call}": LOST})
    driver, gpus = read_gpus()
    assert gpus == []
    assert driver is not None
    assert driver.n_silent == 1


@pytest.mark.parametrize(
    ("name", "total", "shares_ram"),
    [
        ("NVIDIA GB10", None, True),
        ("NVIDIA Thor", None, True),
        ("Orin (nvgpu)", None, True),
        ("NVIDIA GB10", 0, True),  # others have seen these two
        ("NVIDIA GB10", 119 * GIB, True),
        ("NVIDIA GH200 480GB", 96 * GIB, False),
        ("NVIDIA GB200", 186 * GIB, False),
    ],
)
def test_boards_by_their_answers(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    total: int | None,
    shares_ram: bool,
) -> None:
    """Jetson supports few calls; Grace Hopper's GPU has memory of its own."""
    memory = REFUSED if total is None else SimpleNamespace(total=total, free=0)
    missing = ("MaxClockInfo", "MemoryBusWidth", "UUID", "CudaComputeCapability")
    answers = {f"DeviceGet{call}": REFUSED for call in missing}
    answers |= {"DeviceGetName": name, "DeviceGetMemoryInfo": memory}
    fake_driver(monkeypatch, **answers)
    _, (board,) = read_gpus()
    assert board.shares_ram is shares_ram
    ram = psutil.virtual_memory().total
    assert board.total_bytes == (ram if shares_ram else total)
    assert (board.bandwidth_bytes_s, board.compute_capability, board.uuid) == (None, None, "")
    (tmp_path / "libggml-cuda.so").touch()
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    machine = read_machine(tmp_path)
    assert machine.driver is not None
    assert machine.driver.n_silent == 0
    if shares_ram:
        assert 0 < machine.usable_gpus[0].free_bytes <= ram


MIG = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"


@pytest.mark.parametrize(
    ("wanted", "uuids"),
    [
        (MIG, [MIG]),
        (MIG[:12], [MIG]),
        ("MIG-ffff", ["MIG-ffff0000"]),
        ("MIG-nothing", []),
        ("0", [MIG]),
        (None, [MIG]),
        (f"{MIG},MIG-ffff", [MIG]),  # CUDA uses one
    ],
)
def test_parts_of_a_card(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wanted: str | None, uuids: list[str]
) -> None:
    """MIG devices have handles of their own, with the figures of the part."""
    parts = {"first": (MIG, 20), "second": ("MIG-ffff0000", 10)}

    def memory(handle: str) -> object:
        gib = parts[handle][1]
        return SimpleNamespace(total=gib * GIB, free=(gib - 1) * GIB)

    def part(_card: str, index: int) -> str:
        if index >= len(parts):
            raise pynvml.NVMLError_NotFound
        return list(parts)[index]

    fake_driver(monkeypatch, DeviceGetMigMode=(1, 1), DeviceGetMaxMigDeviceCount=7)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigDeviceHandleByIndex", part)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda handle: parts[handle][0])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", memory)
    if wanted is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", wanted)
    machine = read_machine(tmp_path)
    assert [gpu.uuid for gpu in machine.gpus] == uuids
    assert machine.visible_devices == wanted
    if uuids == [MIG]:
        assert (machine.gpus[0].total_bytes, machine.gpus[0].free_bytes) == (20 * GIB, 19 * GIB)


@pytest.mark.parametrize(
    ("name", "linked", "capability", "has_code"),
    [
        ("libggml-cuda.so", b"\0libcublas.so.13\0", (6, 1), False),
        ("libggml-cuda.so", b"\0libcublas.so.13\0", (7, 5), True),
        ("libggml-cuda.so", b"\0libcublas.so.12\0", (6, 1), True),
        ("ggml-cuda.dll", b"\0cublas64_13.dll\0", (6, 1), False),
        ("libggml-cuda.so", b"", (6, 1), True),  # not known
        ("libggml-cuda.so", b"\0libcublas.so.13\0", None, True),
    ],
)
def test_what_a_build_has_code_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    linked: bytes,
    capability: tuple[int, int] | None,
    has_code: bool,
) -> None:
    (tmp_path / name).write_bytes(linked and b"\x7fELF" + bytes(9999) + linked + bytes(99))
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    card = Gpu(index=0, name="c", total_bytes=1, free_bytes=1, compute_capability=capability)
    assert read_machine(tmp_path).has_code_for(card) is has_code
