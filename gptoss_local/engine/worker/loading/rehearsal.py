"""Ask llama.cpp what a context would allocate, before anything is read."""

from pathlib import Path

import msgspec

from gptoss_local.engine.llama import Context, Model
from gptoss_local.errors import ModelLoadError
from gptoss_local.types import ContextParams, ModelParams

_MIB = 2**20


def rehearse(
    path: Path, params: ModelParams, context: ContextParams, budget_bytes: dict[str, int]
) -> None:
    """Refuse a load whose graph would take more than planned of any place.

    Weights and cache are known to the byte; the graph's buffer is predicted. That it does not fit
    would otherwise be found out when all weights have been read.

    Args:
        path: The GGUF file.
        params: Where the weights go.
        context: Of the context over them.
        budget_bytes: For the graph's buffer, by place, such as `CUDA0`.

    Raises:
        ModelLoadError: it would; the message says what cannot be allocated.
    """
    model = Model(path, msgspec.structs.replace(params, load_mode="none", no_alloc=True))
    buffers = Context(model, context).buffers
    model.close()
    for buffer in buffers:
        planned = budget_bytes.get(buffer.place, buffer.n_bytes)
        if buffer.purpose == "compute" and buffer.n_bytes > planned:
            raise ModelLoadError(
                f"llama.cpp would allocate {buffer.n_bytes / _MIB:.0f} MiB for its graph on "
                f"{buffer.place}, where {planned / _MIB:.0f} MiB were planned",
                hint="GPTOSS_VRAM leaves more room free.",
            )
