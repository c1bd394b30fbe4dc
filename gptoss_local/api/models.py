"""Ollama's wire about models: listed, in memory, described, loaded and downloaded.

Source: Ollama's api/types.go (ListResponse, ProcessResponse, ShowResponse, ProgressResponse).
"""

from typing import Any

import msgspec


class ServerVersion(msgspec.Struct):
    version: str


class ModelDetails(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A model's weights as Ollama describes them; only the constant part if its file is broken."""

    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str
    context_length: int = 0
    embedding_length: int = 0


class InstalledModel(msgspec.Struct, omit_defaults=True):
    """One element of `GET /api/tags`; the last two are of models that are computed elsewhere."""

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: ModelDetails
    capabilities: list[str]
    remote_model: str = ""
    remote_host: str = ""


class InstalledModels(msgspec.Struct):
    models: list[InstalledModel]


class ModelEnergy(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The energy of a model in memory; unknown figures are omitted.

    Attributes:
        joules_per_token: Of its answers since the server started, all GPUs together.
        watts: Power of its GPUs now, whatever runs there.
    """

    joules_per_token: float | None = None
    watts: float | None = None


class RunningModel(msgspec.Struct, omit_defaults=True):
    """One element of `GET /api/ps`; `remote_…` are of models that are computed elsewhere.

    Ours are `kv_type`, the type of cached keys and values, and `energy`.
    """

    name: str
    model: str
    size: int
    digest: str
    details: ModelDetails
    expires_at: str
    size_vram: int
    context_length: int
    kv_type: str = ""
    remote_model: str = ""
    remote_host: str = ""
    energy: ModelEnergy | None = None

    @property
    def vram_share(self) -> float:
        """Return the share of its bytes on GPUs, 0.0 .. 1.0."""
        return self.size_vram / max(1, self.size)


class RunningModels(msgspec.Struct):
    models: list[RunningModel]


class ShownTensor(msgspec.Struct):
    """A tensor; its `shape` begins with the axis that is contiguous, as the file has it."""

    name: str
    type: str
    shape: list[int]


class ShownModel(msgspec.Struct, omit_defaults=True):
    """The answer of `POST /api/show`; `remote_` fields are of models that run elsewhere."""

    license: str
    modelfile: str
    parameters: str
    template: str
    system: str
    messages: list[dict[str, Any]]
    details: ModelDetails
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str
    tensors: list[ShownTensor] = []
    remote_model: str = ""
    remote_host: str = ""


class JobStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line about a pull or another change of models; the last one says `success`."""

    status: str
    digest: str = ""
    total: int = 0
    completed: int = 0


class LoadStatus(msgspec.Struct, frozen=True):
    """One look at a load, as `POST /api/gptoss/load` streams it.

    Attributes:
        status: "waiting" for another model, "loading", "starting", when all is read, and before
            that, once per model and machine, "measuring"; at last "success".
        completed: Bytes of weights read so far, in all tries together; it never falls.
        total: What `completed` will be at the end; it grows with every further try, and is 0 while
            the load waits for another model.
        seconds_left: At the rate so far; None before there is one. Only of reading weights.
        n_tries: 1 for the first; each further one plans smaller, as memory was short.
    """

    model: str
    status: str
    completed: int = 0
    total: int = 0
    seconds_left: float | None = None
    n_tries: int = 0
