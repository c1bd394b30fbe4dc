"""Get NVIDIA's CUDA toolkit from the package index, so that the system needs no CUDA.

For Linux whose glibc is too old for llama.cpp's releases. Its wheels lack unversioned names for a
linker, and the driver's library.
"""

import os
from pathlib import Path

from environments import find_compiler
from steps import SetupError, answer_of

# 13.3 fixed wrong code of nvcc 13.2, 13.2 the clash with glibc 2.42 that 13.0 has; 13.4
# supports GCC 16. With machine code for the exact GPU, every driver of CUDA 13 runs it.
_VERSION = "13.4.3"
COMPILER = f"cuda-toolkit[nvcc,cccl,cudart,cublas]=={_VERSION}"
RUNTIME = f"cuda-toolkit[cudart,cublas]=={_VERSION}"
_ARM = "/usr/lib/aarch64-linux-gnu"
_FOLDERS = (
    *("/usr/lib/wsl/lib", "/usr/lib/x86_64-linux-gnu", _ARM),
    *(f"{_ARM}/nvidia", "/usr/lib64", "/usr/lib"),  # the first is Jetson's
)


def build_environment(site: Path) -> dict[str, str]:
    """Complete the toolkit in `site` and return variables that make CMake find this one."""
    root = site / "nvidia" / "cu13"
    _add_link(root / "lib64", root / "lib")
    for library in (root / "lib").glob("lib*.so.*"):
        _add_link(root / "lib" / f"{library.name.partition('.so.')[0]}.so", library)
    _add_link(root / "lib" / "stubs" / "libcuda.so", _driver_library())
    nvcc = root / "bin" / "nvcc"
    found = {"CUDACXX": str(nvcc), "CUDAToolkit_ROOT": str(root), "CUDA_PATH": str(root)}
    # nvcc would look for g++ and for nothing else
    return found | {"CUDAHOSTCXX": os.environ.get("CUDAHOSTCXX") or find_compiler() or "g++"}


def _add_link(link: Path, target: Path) -> None:
    link.parent.mkdir(exist_ok=True)
    if not link.exists():
        link.unlink(missing_ok=True)  # it may point at a driver that has moved
        link.symlink_to(target)


def _driver_library() -> Path:
    listed = answer_of(["ldconfig", "-p"]) or answer_of(["/sbin/ldconfig", "-p"]) or ""
    cached = [line.rpartition("=> ")[2] for line in listed.splitlines() if "libcuda.so.1 " in line]
    folders = [*filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")), *_FOLDERS]
    for path in [*(Path(folder) / "libcuda.so.1" for folder in folders), *map(Path, cached)]:
        if path.is_file() and "i386" not in str(path):
            return path
    raise SetupError(
        "NVIDIA's driver library libcuda.so.1 is nowhere to be found.",
        "Install the driver's compute part (Debian: libcuda1, Ubuntu: libnvidia-compute-NNN), or "
        "name its folder in LD_LIBRARY_PATH; --backend cpu does without.",
    )
