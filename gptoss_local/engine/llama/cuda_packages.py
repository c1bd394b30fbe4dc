"""Make known CUDA's libraries in NVIDIA's packages, which the extra `cuda` brings."""

import ctypes
import importlib.util
import os
import sys
from pathlib import Path

from gptoss_local.machine.hardware import has_cuda_build

_NAMES = ("cudart", "cublasLt", "cublas")  # each needs those before it


def preload_cuda() -> None:
    """Let this process find CUDA's libraries, for a llama.cpp that was built with CUDA 13.

    The linker of Linux does not look into Python packages, but takes a library that is loaded
    already. On Windows llama-cpp-python loads with a `winmode` that looks into PATH and ignores
    `os.add_dll_directory`; so does cuBLAS, which loads its compiler when it needs that. The
    system's own libraries are used where the packages are missing.
    """
    if not has_cuda_build():
        return
    for folder in _folders():
        if sys.platform == "win32":
            os.environ["PATH"] = f"{folder / 'bin' / 'x86_64'};{os.environ['PATH']}"
            continue
        for name in _NAMES:
            for library in folder.glob(f"lib/lib{name}.so.*"):
                ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def _folders() -> list[Path]:
    spec = importlib.util.find_spec("nvidia")
    places = spec.submodule_search_locations if spec else None
    return [folder for place in places or () if (folder := Path(place) / "cu13").is_dir()]
