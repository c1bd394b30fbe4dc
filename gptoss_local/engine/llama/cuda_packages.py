"""Load CUDA's libraries from NVIDIA's packages, which the extra `cuda` brings."""

import ctypes
import importlib.util
import sys
from pathlib import Path

from gptoss_local.machine.hardware import has_cuda_build

_NAMES = ("cudart", "cublasLt", "cublas")  # each needs those before it


def preload_cuda() -> None:
    """Make CUDA's libraries known to this process, for a llama.cpp that was built with CUDA 13.

    The linker does not look into Python packages, but takes a library that is loaded already. So
    does Windows, where `os.add_dll_directory` would not do: llama-cpp-python loads with a `winmode`
    that ignores it. The system's own libraries are used where the packages are missing.
    """
    if not has_cuda_build():
        return
    pattern = "bin/x86_64/{}64_*.dll" if sys.platform == "win32" else "lib/lib{}.so.*"
    for folder in _folders():
        for name in _NAMES:
            for library in folder.glob(pattern.format(name)):
                ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def _folders() -> list[Path]:
    spec = importlib.util.find_spec("nvidia")
    places = spec.submodule_search_locations if spec else None
    return [folder for place in places or () if (folder := Path(place) / "cu13").is_dir()]
