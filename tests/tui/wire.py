"""What a server with chosen models answers, for the fakes of these tests."""

from collections.abc import Sequence
from typing import Any

from gptoss_local.api.gptoss import GpuMemory, ModelFit, ModelFits, ServerStatus
from gptoss_local.api.models import (
    InstalledModel,
    InstalledModels,
    LoadStatus,
    ModelDetails,
    RunningModel,
    RunningModels,
)


def _details(parameter_size: str) -> ModelDetails:
    return ModelDetails(
        parent_model="",
        format="gguf",
        family="gptoss",
        families=["gptoss"],
        parameter_size=parameter_size,
        quantization_level="MXFP4",
    )


def installed(name: str, size: int = 1, parameter_size: str = "") -> InstalledModel:
    return InstalledModel(name, name, "", size, "", _details(parameter_size), [])


def running(name: str, n_ctx: int, size: int = 1, size_vram: int = 0) -> RunningModel:
    return RunningModel(name, name, size, "", _details(""), "", size_vram, n_ctx)


def answer_of(
    path: str,
    *,
    tags: Sequence[InstalledModel] = (),
    loaded: Sequence[RunningModel] = (),
    fits: Sequence[ModelFit] = (),
    gpus: Sequence[GpuMemory] = (),
    loading: Sequence[LoadStatus] = (),
) -> Any:
    """Return the answer of `GET path`."""
    match path.partition("?")[0]:
        case "/api/tags":
            return InstalledModels(list(tags))
        case "/api/ps":
            return RunningModels(list(loaded))
        case "/api/gptoss/fits":
            return ModelFits(list(fits))
        case "/api/gptoss/status":
            return ServerStatus("", 1, 0.0, list(loading), "", list(gpus))
    raise AssertionError(f"{path} is not asked")
