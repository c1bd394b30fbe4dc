"""Reads the hardware of this machine: GPUs, cores, memory, disk. Unknown facts are None."""

import functools
import importlib.metadata
import importlib.util
import mmap
import os
import platform
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from gptoss_local.machine import cgroup
from gptoss_local.machine.cgroup import read
from gptoss_local.machine.nvidia import Driver, Gpu, read_gpus, visible

Platform = Literal["linux", "wsl", "windows", "other"]
Backend = Literal["CPU", "CUDA", "Vulkan"]
DiskKind = Literal["nvme", "ssd", "rotating"]

_OLDEST_CAPABILITY = {12: (5, 0), 13: (7, 5)}  # that a CUDA's compiler knows. Source: nvcc's guide
_LINKED_CUDA = re.compile(rb"cublas(?:64_|\.so\.)(\d+)")  # `cublas64_13.dll`, `libcublas.so.13`
_SYS, _PROC = Path("/sys"), Path("/proc")
_FAST_CAPACITY = 0.8  # of the fastest core's; cores of one kind differ by less
# Of Arm's, as the kernel names it and as Arm does; llama.cpp is compiled for these.
_ARM_FEATURES = {"asimddp": "dotprod", "i8mm": "i8mm", "bf16": "bf16", "sve": "SVE", "sve2": "SVE2"}
_VULKAN_S = 30.0  # of patience with graphics drivers


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """One machine, at this moment.

    Attributes:
        gpus: As CUDA or Vulkan programs started from here see them, in their order.
        visible_devices: CUDA_VISIBLE_DEVICES, which chose them; None if it is not set.
        backend: What llama.cpp here was built for.
        n_cores: Physical ones that this process may use.
        n_performance_cores: All of them on most machines.
        has_avx2: For llama.cpp's fast code for MXFP4 on x86; None elsewhere.
        arm_features: Fast code needs `dotprod`, more make it faster. None elsewhere.
        ram_bytes_s: Peak bandwidth of RAM, known only for imagined machines.
        available_bytes: RAM that programs can get without swapping, within a container's limit.
        pinnable_bytes: RAM that the driver may lock for fast copies to the GPU.
        n_numa_nodes: Sockets, or parts of one, with memory of their own.
    """

    platform: Platform = "linux"
    gpus: tuple[Gpu, ...] = ()
    driver: Driver | None = None
    visible_devices: str | None = None
    backend: Backend = "CPU"
    cuda_build: int | None = None
    n_cores: int | None = None
    n_performance_cores: int | None = None
    n_logical_cores: int | None = None
    has_avx2: bool | None = None
    arm_features: tuple[str, ...] | None = None
    ram_bytes_s: float | None = None
    total_bytes: int
    available_bytes: int
    pinnable_bytes: int | None = None
    n_numa_nodes: int | None = None
    disk: DiskKind | None = None

    @property
    def usable_gpus(self) -> tuple[Gpu, ...]:
        return () if self.backend == "CPU" else self.gpus

    @property
    def device_names(self) -> tuple[str, ...]:
        """Return llama.cpp's names of `usable_gpus`: `CUDA0` is the first visible one."""
        return tuple(gpu.device or f"CUDA{i}" for i, gpu in enumerate(self.usable_gpus))

    @property
    def lacks(self) -> str:
        """Name the instructions of llama.cpp's fast code for MXFP4, if the CPU lacks them."""
        if self.has_avx2 is False:
            return "AVX2"
        is_old_arm = self.arm_features is not None and "dotprod" not in self.arm_features
        return "dotprod" if is_old_arm else ""

    def has_code_for(self, gpu: Gpu) -> bool:
        oldest = _OLDEST_CAPABILITY.get(self.cuda_build or 0, (0, 0))
        return gpu.compute_capability is None or gpu.compute_capability >= oldest


def read_machine(models_dir: Path) -> Machine:
    """Look at this machine, in milliseconds without Vulkan; `models_dir` need not exist."""
    driver, nvidia = read_gpus()
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    backend = llama_backend()
    gpus = _of_one_maker(_vulkan_gpus()) if backend == "Vulkan" else visible(nvidia, wanted)
    memory = psutil.virtual_memory()
    group = cgroup.memory(_SYS, _PROC) or cgroup.Memory(memory.total, memory.available)
    total_bytes = min(memory.total, group.limit_bytes)
    available_bytes = min(memory.available, group.available_bytes)
    here, library = _platform(), _library("cuda")
    n_cores, n_fast, n_logical = _n_cores(_SYS, _PROC)
    has_avx2, arm_features = _fast_code(_PROC / "cpuinfo")
    return Machine(
        platform=here,
        gpus=tuple(gpus),
        driver=driver,
        visible_devices=wanted,
        backend=backend,
        cuda_build=_linked_cuda(library, library.stat().st_mtime_ns) if library else None,
        n_cores=n_cores,
        n_performance_cores=n_fast,
        n_logical_cores=n_logical,
        has_avx2=has_avx2,
        arm_features=arm_features,
        total_bytes=total_bytes,
        available_bytes=available_bytes,
        pinnable_bytes=pinnable_bytes(here, total_bytes, available_bytes),
        n_numa_nodes=len(list((_SYS / "devices/system/node").glob("node[0-9]*"))) or None,
        disk=_disk_kind(models_dir, _SYS),
    )


class VulkanDevice(msgspec.Struct):
    """One device of any maker as ggml lists it; an integrated one has the system's RAM."""

    name: str
    description: str
    free_bytes: int
    total_bytes: int
    shares_ram: bool


def _vulkan_gpus() -> list[Gpu]:
    """Ask in a process of its own, as graphics drivers keep memory and threads; half a second."""
    command = [sys.executable, "-m", "gptoss_local.engine.llama", "--devices"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_VULKAN_S, check=True)
        devices = msgspec.json.decode(done.stdout, type=list[VulkanDevice])
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError):
        return []  # `gptoss doctor` says why llama.cpp does not load
    return [
        Gpu(
            index=i,
            device=device.name,
            name=device.description,
            total_bytes=device.total_bytes,
            free_bytes=device.free_bytes,
            shares_ram=device.shares_ram,
        )
        for i, device in enumerate(devices)
    ]


def _of_one_maker(gpus: list[Gpu]) -> list[Gpu]:
    """Return the cards of the maker with most memory; a slower kind would hold them up."""
    if os.environ.get("GGML_VK_VISIBLE_DEVICES"):
        return gpus
    makers: dict[str, list[Gpu]] = defaultdict(list)
    for gpu in gpus:
        makers[gpu.name.partition(" ")[0]].append(gpu)
    return max(makers.values(), key=lambda cards: sum(c.total_bytes for c in cards), default=[])


def read_cuda_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that llama.cpp can use and NVML measures."""
    if llama_backend() != "CUDA":
        return ()
    return tuple(visible(read_gpus()[1], os.environ.get("CUDA_VISIBLE_DEVICES")))


def llama_version() -> str:
    try:
        return importlib.metadata.version("llama-cpp-python")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def llama_backend() -> Backend:
    if _library("cuda"):
        return "CUDA"
    return "Vulkan" if _library("vulkan") else "CPU"


def _library(backend: str) -> Path | None:
    """Return llama.cpp's library for GPUs, if any. Source: `llama_cpp.py` (LLAMA_CPP_LIB_PATH)."""
    folder = os.environ.get("LLAMA_CPP_LIB_PATH")
    spec = importlib.util.find_spec("llama_cpp")
    if folder is None and spec is not None and spec.origin:
        folder = str(Path(spec.origin).parent / "lib")
    return next(Path(folder).glob(f"*ggml-{backend}*"), None) if folder is not None else None


@functools.lru_cache(maxsize=4)
def _linked_cuda(library: Path, _mtime_ns: int) -> int | None:
    """Search a file of hundreds of megabytes; on Linux the name comes first in it."""
    if not library.stat().st_size:
        return None
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found = _LINKED_CUDA.search(data)
        return int(found[1]) if found else None


def pinnable_bytes(here: Platform, total_bytes: int, available_bytes: int) -> int | None:
    """Return how much RAM the driver can lock: half of all in Windows and WSL, else all available.

    Source: "Known limitations" of NVIDIA's CUDA on WSL user guide; WDDM's shared GPU memory.
    """
    if here == "linux":
        return available_bytes
    if here in ("wsl", "windows"):
        return min(total_bytes // 2, available_bytes)
    return None


def _platform() -> Platform:
    if sys.platform == "win32":
        return "windows"
    if sys.platform == "linux":
        return "wsl" if "microsoft" in platform.release().lower() else "linux"
    return "other"


def _n_cores(sys_dir: Path, proc_dir: Path) -> tuple[int | None, int | None, int | None]:
    n_cores, n_logical = psutil.cpu_count(logical=False), psutil.cpu_count()
    if sys.platform != "linux":
        return n_cores, None, n_logical
    usable = os.sched_getaffinity(0)
    n_fast = _n_performance_cores(sys_dir, n_cores, usable)
    n_usable = _n_physical(sys_dir, usable)
    n_most = cgroup.n_cpus(sys_dir, proc_dir)
    return _least(n_cores, n_usable, n_most), _least(n_fast, n_most), _least(len(usable), n_most)


def _n_performance_cores(sys_dir: Path, n_cores: int | None, usable: set[int]) -> int | None:
    fast, n_all = _fast_cpus(sys_dir, usable), _n_physical(sys_dir, usable)
    if fast is None:
        return _least(n_cores, n_all)
    return _n_physical(sys_dir, usable & fast) or n_all


def _fast_cpus(sys_dir: Path, usable: set[int]) -> set[int] | None:
    """Return the fast logical cores, on Arm by capacity; None where the kernel knows one kind."""
    listed = read(sys_dir / "devices/cpu_core/cpus")  # only where there are cpu_atom ones, too
    if listed is not None:
        return set(_cpu_list(listed))
    files = {cpu: sys_dir / f"devices/system/cpu/cpu{cpu}/cpu_capacity" for cpu in usable}
    capacities = {cpu: int(read(file) or 0) for cpu, file in files.items()}
    least = _FAST_CAPACITY * max(capacities.values())
    return {cpu for cpu, n in capacities.items() if n >= least} if least else None


def _n_physical(sys_dir: Path, cpus: set[int]) -> int | None:
    cores = set()
    for cpu in cpus:
        folder = sys_dir / f"devices/system/cpu/cpu{cpu}/topology"
        # On Arm a core's number is one within its cluster; elsewhere clusters change nothing.
        places = ("physical_package_id", "cluster_id")
        cores.add((*(read(folder / name) for name in places), read(folder / "core_id") or cpu))
    return len(cores) or None


def _least(*numbers: int | None) -> int | None:
    return min((n for n in numbers if n is not None), default=None)


def _cpu_list(text: str) -> list[int]:
    """Read the kernel's `0-7,16`."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _fast_code(cpuinfo: Path) -> tuple[bool | None, tuple[str, ...] | None]:
    """Return `has_avx2` and `arm_features`: what the kernel names of all cores."""
    here = platform.machine().lower()
    lines = re.findall(r"^(?:flags|Features)\s*:(.*)$", read(cpuinfo) or "", re.M)
    if not lines or here not in ("x86_64", "amd64", "aarch64", "arm64"):
        return None, None
    flags = set.intersection(*(set(line.split()) for line in lines))
    if here in ("x86_64", "amd64"):
        return "avx2" in flags, None
    return None, tuple(name for flag, name in _ARM_FEATURES.items() if flag in flags)


def free_bytes(folder: Path) -> int:
    """Return the free bytes of the disk on which a folder is or would be; may raise OSError."""
    folder = folder.absolute()
    while not os.path.isdir(folder) and folder != folder.parent:  # pathlib's raises where it may
        folder = folder.parent  # not be searched; a drive of Windows may be gone
    return shutil.disk_usage(folder).free


def _disk_kind(path: Path, sys_dir: Path) -> DiskKind | None:
    """Return the kind of disk of the nearest existing folder; only Linux reports it."""
    if os.name != "posix":
        return None
    while not os.path.exists(path) and path != path.parent:
        path = path.parent
    device = path.stat().st_dev
    folder = (sys_dir / f"dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    if folder.name.startswith("nvme"):
        return "nvme"
    if folder.name.startswith(("vd", "xvd")):  # a virtual disk always claims to rotate
        return None
    for place in (folder, folder.parent):  # a partition's queue is its disk's
        if rotational := read(place / "queue/rotational"):
            return "rotating" if rotational == "1" else "ssd"
    return None
