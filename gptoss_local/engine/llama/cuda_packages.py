"""Preload CUDA's libraries from NVIDIA's packages, which the extra `cuda` installs."""

import ctypes
import importlib.util
from pathlib import Path

from gptoss_local.machine.hardware import llama_backend

_NAMES = ("cudart", "cublasLt", "cublas")  # each needs those before it


def preload_cuda() -> None:
    """Let this process find CUDA's libraries, for a llama.cpp that was built with CUDA 13.

    Linux' linker ignores Python packages but uses libraries already loaded. Where the packages are
    missing, those next to llama.cpp are used, or the system's.
    """
    if llama_backend() != "CUDA":
        return
    spec = importlib.util.find_spec("nvidia")
    places = spec.submodule_search_locations if spec else None
    for folder in filter(Path.is_dir, (Path(place) / "cu13" for place in places or ())):
        for name in _NAMES:
            for library in folder.glob(f"lib/lib{name}.so.*"):
                ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
