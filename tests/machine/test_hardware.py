"""Facts of this machine, and of machines told by their files and drivers."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pynvml
import pytest

from gptoss_local.machine import hardware, nvidia
from gptoss_local.machine.hardware import Machine, pinnable_bytes, read_machine
from gptoss_local.machine.nvidia import Gpu, read_gpus, visible

pytestmark = pytest.mark.quick

GIB = 2**30


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
    assert machine.usable_gpus == () or machine.has_cuda_build


def test_hybrid_processors(tmp_path: Path) -> None:
    """An i9 with 2 fast cores of two threads and 4 slow ones, as the kernel lists it."""
    files = {"devices/cpu_core/cpus": "0-3\n", "devices/cpu_atom/cpus": "4-7\n"}
    for cpu, core in enumerate((0, 0, 4, 4, 8, 9, 10, 11)):
        folder = f"devices/system/cpu/cpu{cpu}/topology"
        files |= {f"{folder}/core_id": str(core), f"{folder}/physical_package_id": "0"}
    root = write(tmp_path, files)
    assert hardware._n_performance_cores(root, 6, set(range(8))) == 2
    assert hardware._n_performance_cores(root, 6, {0, 1, 5}) == 1  # as `taskset -c 0,1,5` leaves
    assert hardware._n_performance_cores(root, 6, {5, 6}) == 2  # none but slow ones


@pytest.mark.skipif(sys.platform != "linux", reason="affinity as Linux tells it")
def test_cores_that_this_process_may_not_use_do_not_count(tmp_path: Path) -> None:
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from pathlib import Path; from gptoss_local.machine.hardware import read_machine\n"
        "m = read_machine(Path('/')); print(m.n_cores, m.n_performance_cores, m.n_logical_cores)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1 1 1\n"


@pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux'")
def test_a_container_leaves_a_part_of_the_cores(tmp_path: Path) -> None:
    group = write(tmp_path, {"fs/cgroup/cpu.max": "100000 100000"})
    assert hardware._n_cores(group, tmp_path) == (1, 1, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux'")
def test_a_container_has_no_more_memory_than_its_limit(tmp_path: Path, monkeypatch: Any) -> None:
    """Pinned memory is a share of all memory, and a share of the host's would be too much."""
    names = {"memory.max": str(GIB), "memory.current": str(GIB // 4)}
    write(tmp_path, {f"fs/cgroup/{name}": text for name, text in names.items()})
    monkeypatch.setattr(hardware, "_SYS", tmp_path)
    monkeypatch.setattr(hardware, "_PROC", tmp_path)
    machine = read_machine(tmp_path)
    assert machine.total_bytes == GIB
    assert machine.available_bytes <= GIB * 3 // 4
    assert 0 < machine.pinnable_bytes <= GIB * 3 // 4


@pytest.mark.parametrize(
    ("flags", "known"), [("fpu sse avx2 fma", True), ("fpu sse avx", False), (None, None)]
)
def test_avx2(tmp_path: Path, flags: str | None, known: bool | None, monkeypatch: Any) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    files = {"cpuinfo": f"model name\t: any\nflags\t\t: {flags}\n"} if flags else {}
    assert hardware._has_avx2(write(tmp_path, files) / "cpuinfo") is known


GB10_FEATURES = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma "
    "lrcpc dcpop sha3 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm sb paca pacg dcpodp sve2 "
    "sveaes svepmull svebitperm svesha3 svesm4 flagm2 frint svei8mm svebf16 i8mm bf16 dgh bti ecv"
)


@pytest.mark.parametrize(
    ("cores", "known"),
    [
        ([GB10_FEATURES] * 2, ("dotprod", "i8mm", "bf16", "SVE", "SVE2")),
        (["fp asimd asimddp i8mm", "fp asimd asimddp"], ("dotprod",)),  # common to all cores
        (["fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid"], ()),  # Cortex-A72
        ([], None),
    ],
)
def test_arm(
    tmp_path: Path,
    cores: list[str],
    known: tuple[str, ...] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    text = "".join(f"processor\t: {n}\nFeatures\t: {f}\n\n" for n, f in enumerate(cores))
    root = write(tmp_path, {"cpuinfo": text})
    assert hardware._arm_features(root / "cpuinfo") == known
    assert hardware._has_avx2(root / "cpuinfo") is None
    machine = Machine(total_bytes=GIB, available_bytes=GIB, arm_features=known)
    assert machine.lacks == ("dotprod" if known == () else "")


def arm_cores(root: Path, cores: list[tuple[int, int, int]]) -> Path:
    """Cores by cluster, number in it, and capacity, as arm64's kernels list them."""
    files = {}
    for cpu, (cluster, core, capacity) in enumerate(cores):
        folder = f"devices/system/cpu/cpu{cpu}"
        files |= {
            f"{folder}/topology/physical_package_id": "0",
            f"{folder}/topology/cluster_id": str(cluster),
            f"{folder}/topology/core_id": str(core),
            f"{folder}/cpu_capacity": str(capacity),
        }
    return write(root, files)


def test_fast_cores_of_arm(tmp_path: Path) -> None:
    """GB10: 10 Cortex-A725 and 10 Cortex-X925, of which some boost a little higher."""
    small, large = [(0, n, 718) for n in range(10)], [(1, n, 997) for n in range(9)]
    root = arm_cores(tmp_path, [*small, *large, (1, 9, 1024)])
    assert hardware._n_performance_cores(root, 20, set(range(20))) == 10
    assert hardware._n_performance_cores(root, 20, {0, 1, 19}) == 1
    assert hardware._n_performance_cores(root, 20, {0, 1}) == 2


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
        (None, "abc"),
        ("", ""),
        ("-1", ""),
        ("2,0", "ca"),
        ("GPU-b", "b"),
        ("1,7,0", "b"),
        ("1,1", "b"),
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
    "nvmlDeviceGetMemoryInfo": type("M", (), {"total": 24 * GIB, "free": 23 * GIB})(),
    "nvmlDeviceGetCudaComputeCapability": (8, 9),
    "nvmlDeviceGetMaxPcieLinkGeneration": 4,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetMemoryBusWidth": 384,
    "nvmlDeviceGetNumGpuCores": 16384,
    "nvmlDeviceGetGraphicsRunningProcesses": [type("P", (), {"pid": 7})()],
}


def fake_driver(monkeypatch: pytest.MonkeyPatch, *, missing: str = "") -> None:
    """Let NVML answer so, and refuse the call `missing`."""
    for name in vars(pynvml).copy():
        if name.startswith("nvml") and name != "nvmlExceptionClass":
            answer = ANSWERS.get(name, pynvml.NVMLError_NotSupported())
            is_missing = name == missing
            monkeypatch.setattr(
                pynvml, name, _call(pynvml.NVMLError_NotSupported() if is_missing else answer)
            )
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
    assert gpu.is_wddm is False


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ("nvmlDeviceGetMaxPcieLinkWidth", "pcie_width"),
        ("nvmlDeviceGetMemoryBusWidth", "bandwidth_bytes_s"),
        ("nvmlDeviceGetNumGpuCores", "n_cores"),
        ("nvmlDeviceGetGraphicsRunningProcesses", "n_processes"),
    ],
)
def test_what_it_does_not_tell_is_none(
    monkeypatch: pytest.MonkeyPatch, call: str, field: str
) -> None:
    fake_driver(monkeypatch, missing=call)
    _, (gpu,) = read_gpus()
    assert getattr(gpu, field) is None


@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetMemoryInfo"])
def test_a_gpu_that_does_not_answer_is_left_out(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Lost from the bus, or another user's."""
    fake_driver(monkeypatch)
    monkeypatch.setattr(pynvml, call, _call(pynvml.NVMLError_GpuIsLost()))
    driver, gpus = read_gpus()
    assert gpus == []
    assert driver is not None
    assert driver.n_silent == 1


def test_a_gpu_without_memory_of_its_own_has_the_systems(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """GB10 (DGX Spark) and Jetson: NVML supports the GPU, and not the question for its memory."""
    fake_driver(monkeypatch, missing="nvmlDeviceGetMemoryInfo")
    (tmp_path / "libggml-cuda.so").touch()
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    machine = read_machine(tmp_path)
    (gpu,) = machine.usable_gpus
    assert gpu.shares_ram
    assert gpu.total_bytes == psutil.virtual_memory().total
    assert 0 < gpu.free_bytes <= gpu.total_bytes
    assert machine.driver is not None
    assert machine.driver.n_silent == 0


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
    monkeypatch: pytest.MonkeyPatch, name: str, total: int | None, shares_ram: bool
) -> None:
    """Jetson supports few calls; Grace Hopper's GPU has memory of its own."""
    fake_driver(monkeypatch)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", _call(name))
    memory = type("M", (), {"total": total, "free": 0})()
    refused = pynvml.NVMLError_NotSupported()
    answer = refused if total is None else memory
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", _call(answer))
    for call in ("MaxClockInfo", "MemoryBusWidth", "UUID", "CudaComputeCapability"):
        monkeypatch.setattr(pynvml, f"nvmlDeviceGet{call}", _call(refused))
    _, (board,) = read_gpus()
    assert board.shares_ram is shares_ram
    ram = psutil.virtual_memory().total
    assert board.total_bytes == (ram if shares_ram else total)
    assert (board.bandwidth_bytes_s, board.compute_capability, board.uuid) == (None, None, "")


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
    fake_driver(monkeypatch)
    parts = {"first": (MIG, 20), "second": ("MIG-ffff0000", 10)}

    def memory(handle: str) -> object:
        gib = parts[handle][1]
        return type("M", (), {"total": gib * GIB, "free": (gib - 1) * GIB})()

    def part(_card: str, index: int) -> str:
        if index >= len(parts):
            raise pynvml.NVMLError_NotFound
        return list(parts)[index]

    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigMode", lambda _: (1, 1))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMaxMigDeviceCount", lambda _: 7)
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


def test_no_driver_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver(monkeypatch, missing="nvmlInit")
    assert read_gpus() == (None, [])
