"""Load CUDA's libraries from NVIDIA's packages, which the extra `cuda` brings."""

import ctypes
import importlib.util
import os
import sys
from pathlib import Path

from gptoss_local.machine.hardware import has_cuda_build

_NAMES = ("cudart", "cublasLt", "cublas")  # each needs those before it


def preload_cuda() -> None:
    """Make CUDA's libraries known to this process, for a llama.cpp that was built with CUDA 13.

    The linker does not look into Python packages, but takes a library that is loaded already. The
    system's own libraries are used where the packages are missing.
    """
    if not has_cuda_build():
        return
    for folder in _folders():
        if sys.platform == "win32":
            os.add_dll_directory(str(folder / "bin" / "x86_64"))
            continue
        for name in _NAMES:
            for library in (folder / "lib").glob(f"lib{name}.so.*"):
                ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def _folders() -> list[Path]:
    spec = importlib.util.find_spec("nvidia")
    places = spec.submodule_search_locations if spec else None
    return [folder for place in places or () if (folder := Path(place) / "cu13").is_dir()]
