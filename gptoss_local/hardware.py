"""What this machine has: GPUs, cores, memory, disk. Missing pieces are None, not guessed.

Reads the operating system and the NVIDIA driver; knows no llama.cpp but where its library lies.
"""

import importlib.util
import os
import platform
import re
import sys
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from gptoss_local import cgroup
from gptoss_local.cgroup import read
from gptoss_local.nvidia import Driver, Gpu, read_gpus, visible

Platform = Literal["linux", "wsl", "windows", "other"]
DiskKind = Literal["nvme", "ssd", "rotating"]

_SYS, _PROC = Path("/sys"), Path("/proc")
_CPUINFO = Path("/proc/cpuinfo")


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """One machine, at this moment.

    Attributes:
        gpus: Those that CUDA programs started from here see, in their order.
        driver: Of NVIDIA; None without one.
        has_cuda_build: llama.cpp here was built for CUDA; without, GPUs are of no use to it.
        n_cores: Physical ones, of which a container or `taskset` may leave this process a few.
        n_performance_cores: Those that are no efficiency cores; all of them on most machines.
        n_logical_cores: What the system runs threads on: with SMT, two for most physical ones.
        has_avx2: What llama.cpp's fast code for MXFP4 on x86 needs; None elsewhere.
        available_bytes: RAM that programs can get without swapping, within a container's limit.
        pinnable_bytes: RAM that the driver may lock for fast copies to the GPU.
        n_numa_nodes: Sockets, or parts of one, with memory of their own.
        disk: Kind of the disk that holds the models.
    """

    platform: Platform = "linux"
    gpus: tuple[Gpu, ...] = ()
    driver: Driver | None = None
    has_cuda_build: bool = False
    n_cores: int | None = None
    n_performance_cores: int | None = None
    n_logical_cores: int | None = None
    has_avx2: bool | None = None
    total_bytes: int
    available_bytes: int
    pinnable_bytes: int | None = None
    n_numa_nodes: int | None = None
    disk: DiskKind | None = None

    @property
    def usable_gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that llama.cpp can use, in its order: `CUDA0` is the first."""
        return self.gpus if self.has_cuda_build else ()


def read_machine(models_dir: Path) -> Machine:
    """Look at this machine; takes some milliseconds, more with a GPU.

    Args:
        models_dir: A path, there or not, on the disk in question.
    """
    driver, gpus = read_gpus()
    memory = psutil.virtual_memory()
    group = cgroup.memory(_SYS, _PROC) or cgroup.Memory(memory.total, memory.available)
    total_bytes = min(memory.total, group.limit_bytes)
    available_bytes = min(memory.available, group.available_bytes)
    here = _platform()
    n_cores, n_fast, n_logical = _n_cores(_SYS, _PROC)
    return Machine(
        platform=here,
        gpus=tuple(visible(gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))),
        driver=driver,
        has_cuda_build=has_cuda_build(),
        n_cores=n_cores,
        n_performance_cores=n_fast,
        n_logical_cores=n_logical,
        has_avx2=_has_avx2(_CPUINFO),
        total_bytes=total_bytes,
        available_bytes=available_bytes,
        pinnable_bytes=pinnable_bytes(here, total_bytes, available_bytes),
        n_numa_nodes=len(list((_SYS / "devices/system/node").glob("node[0-9]*"))) or None,
        disk=_disk_kind(models_dir, _SYS),
    )


def read_usable_gpus() -> tuple[Gpu, ...]:
    """The GPUs that llama.cpp can use, at this moment; asks nothing but the driver."""
    if not has_cuda_build():
        return ()
    return tuple(visible(read_gpus()[1], os.environ.get("CUDA_VISIBLE_DEVICES")))


def has_cuda_build() -> bool:
    """Whether the llama.cpp that will be used brings its CUDA library; loads nothing.

    Source: `llama_cpp/llama_cpp.py`, which looks into LLAMA_CPP_LIB_PATH first.
    """
    folder = os.environ.get("LLAMA_CPP_LIB_PATH")
    spec = importlib.util.find_spec("llama_cpp")
    if folder is None and spec is not None and spec.origin:
        folder = str(Path(spec.origin).parent / "lib")
    return folder is not None and any(Path(folder).glob("*ggml-cuda*"))


def pinnable_bytes(here: Platform, total_bytes: int, available_bytes: int) -> int | None:
    """How much RAM the driver can lock.

    On Windows, and in WSL beneath it, that is half of all RAM; on Linux whatever is available.

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
    """Physical cores, those of the fast kind, and logical ones that this process may run on."""
    n_cores, n_logical = psutil.cpu_count(logical=False), psutil.cpu_count()
    if sys.platform != "linux":
        return n_cores, None, n_logical
    usable = os.sched_getaffinity(0)
    n_fast = _n_performance_cores(sys_dir, n_cores, usable)
    n_usable = _n_physical(sys_dir, usable)
    n_most = cgroup.n_cpus(sys_dir, proc_dir)
    return _least(n_cores, n_usable, n_most), _least(n_fast, n_most), _least(len(usable), n_most)


def _n_performance_cores(sys_dir: Path, n_cores: int | None, usable: set[int]) -> int | None:
    """Physical cores of the fast kind: all, unless the kernel tells two kinds apart."""
    fast = read(sys_dir / "devices/cpu_core/cpus")  # only where there are cpu_atom ones, too
    n_all = _n_physical(sys_dir, usable)
    if fast is None:
        return _least(n_cores, n_all)
    return _n_physical(sys_dir, usable & set(_cpu_list(fast))) or n_all


def _n_physical(sys_dir: Path, cpus: set[int]) -> int | None:
    """Cores behind these logical ones; each is one where the kernel does not tell."""
    cores = set()
    for cpu in cpus:
        folder = sys_dir / f"devices/system/cpu/cpu{cpu}/topology"
        cores.add((read(folder / "physical_package_id"), read(folder / "core_id") or cpu))
    return len(cores) or None


def _least(*numbers: int | None) -> int | None:
    """The smallest of those that are known."""
    return min((n for n in numbers if n is not None), default=None)


def _cpu_list(text: str) -> list[int]:
    """Read the kernel's `0-7,16`."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _has_avx2(cpuinfo: Path) -> bool | None:
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return None
    flags = re.search(r"^flags\s*:(.*)$", read(cpuinfo) or "", re.M)
    return "avx2" in flags[1].split() if flags else None


def _disk_kind(path: Path, sys_dir: Path) -> DiskKind | None:
    """Kind of the disk below the nearest folder that exists; Linux alone tells it."""
    if os.name != "posix":
        return None
    while not os.path.exists(path) and path != path.parent:
        path = path.parent
    device = path.stat().st_dev
    folder = (sys_dir / f"dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    if folder.name.startswith("nvme"):
        return "nvme"
    if folder.name.startswith(("vd", "xvd")):  # a virtual disk claims to rotate whatever it is
        return None
    for place in (folder, folder.parent):  # a partition's queue is its disk's
        if rotational := read(place / "queue/rotational"):
            return "rotating" if rotational == "1" else "ssd"
    return None
