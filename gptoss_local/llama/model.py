"""The weights of one GGUF file, mapped or uploaded by llama.cpp."""

from collections.abc import Callable
from ctypes import c_void_p
from pathlib import Path

import llama_cpp

from gptoss_local.errors import ModelLoadError
from gptoss_local.llama.library import recent_log, start_library


class Model:
    """A loaded model. Close it (or the process) to give its memory back.

    Args:
        path: The GGUF file.
        n_gpu_layers: Layers kept in VRAM; negative means all. Without a GPU it has no effect.
        on_progress: Called with 0.0 .. 1.0 while the weights load.

    Raises:
        ModelLoadError: llama.cpp refused the file; its own reason is quoted.
    """

    def __init__(
        self,
        path: Path,
        *,
        n_gpu_layers: int = -1,
        on_progress: Callable[[float], None] | None = None,
    ) -> None:
        start_library()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = n_gpu_layers
        if on_progress is not None:
            params.progress_callback = _progress_callback(on_progress)
        self._handle = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self._handle:
            raise ModelLoadError(
                f"llama.cpp could not load {path.name}: {recent_log()}",
                hint="Check that the file is a complete gpt-oss GGUF and that memory is free.",
            )

    @property
    def handle(self) -> int:
        """Address of the `llama_model`, for the other classes of this package."""
        return int(self._handle)

    @property
    def n_vocab(self) -> int:
        return int(llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._handle)))

    @property
    def n_ctx_train(self) -> int:
        """Context length that the model declares, in tokens."""
        return int(llama_cpp.llama_model_n_ctx_train(self._handle))

    @property
    def size_bytes(self) -> int:
        """Sum of all tensors."""
        return int(llama_cpp.llama_model_size(self._handle))

    def close(self) -> None:
        if self._handle:
            llama_cpp.llama_model_free(self._handle)
            self._handle = None


def _progress_callback(on_progress: Callable[[float], None]) -> object:
    def callback(fraction: float, _user_data: c_void_p) -> bool:
        on_progress(fraction)
        return True

    return llama_cpp.llama_progress_callback(callback)
