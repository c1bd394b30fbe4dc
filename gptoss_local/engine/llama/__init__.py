"""The only importer of llama_cpp: a small, typed, safe wrapper over llama.cpp's C API."""

from gptoss_local.base.errors import ModelLoadError
from gptoss_local.engine.llama.cuda_packages import preload_cuda

try:
    preload_cuda()
    import llama_cpp  # noqa: F401 (loads the library)
except (ImportError, OSError, RuntimeError, AttributeError) as error:
    raise ModelLoadError(
        f"llama.cpp cannot be loaded: {str(error).splitlines()[0]}",
        hint="Install gptoss again: `gptoss doctor` says which llama.cpp it has.",
    ) from error

from gptoss_local.engine.llama.batch import Batch
from gptoss_local.engine.llama.canary import Canary
from gptoss_local.engine.llama.context import Context, State
from gptoss_local.engine.llama.library import MemoryBuffer, has_gpu, library_version
from gptoss_local.engine.llama.model import Model
from gptoss_local.engine.llama.sampler import Sampler

__all__ = [
    "Batch",
    "Canary",
    "Context",
    "MemoryBuffer",
    "Model",
    "Sampler",
    "State",
    "has_gpu",
    "library_version",
]
