"""Load a model and serve it through a frontend of Dynamo until the process is told to end."""

import asyncio
import math
import os
import signal
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
from dynamo.common.backend import WorkerConfig
from dynamo.common.backend.worker import Worker
from dynamo.llm.exceptions import DynamoException

from gptoss_local.base.errors import ServerUnavailableError, disk_error
from gptoss_local.base.formats.o200k import VOCAB_SIZE
from gptoss_local.base.settings import Settings
from gptoss_local.base.types import Progress
from gptoss_local.cluster.dynamo.address import variables
from gptoss_local.cluster.dynamo.engine import DynamoEngine
from gptoss_local.harmony.vocabulary import STOP_TOKENS, Vocabulary
from gptoss_local.models.nano.materialize import GENERATION_CONFIG, tokenizer_config, tokenizer_json
from gptoss_local.models.store import ModelEntry, find_model
from gptoss_local.runner.loading import LoadedModel
from gptoss_local.runner.manager import ModelManager

_DEFAULTS = {
    "DYN_DISCOVERY_BACKEND": "file",
    "DYN_REQUEST_PLANE": "tcp",
    "DYN_EVENT_PLANE": "zmq",
    "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "1",
}
"""Dynamo's variables without etcd and NATS; the last gives frontends time to notice the end."""

Progressing = AbstractContextManager[Progress]

_MARGIN_S = 10  # between the end of the answers and of Dynamo's patience

_VERSION = 1  # of the folder's contents; another version has another folder


class WorkerPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's IPv4 address and names in Dynamo; `served_name` is for clients of the frontend."""

    address: str
    served_name: str
    namespace: str
    component: str


def run_worker(
    entry: ModelEntry, place: WorkerPlace, settings: Settings, progress: Progressing
) -> None:
    """Serve until SIGTERM or SIGINT and the end of running answers; `progress` is for the load."""
    grace_s = math.ceil(settings.grace_s) + _MARGIN_S
    defaults = _DEFAULTS | variables(place.address)
    defaults |= {
        "DYN_WORKER_GRACEFUL_SHUTDOWN_TIMEOUT": str(grace_s),
        "DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS": str(grace_s),
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    asyncio.run(_serve(entry, place, settings, progress))


async def _serve(
    entry: ModelEntry, place: WorkerPlace, settings: Settings, progress: Progressing
) -> None:
    settings = msgspec.structs.replace(settings, keep_alive_s=-1.0)
    manager = ModelManager(settings)
    try:
        with progress as report:
            async for status in manager.load(entry):
                if status.total:
                    report(f"loading {entry.name}", status.completed, status.total)
        entry = find_model(entry.name, settings)  # an embedded model has a file now
        async with manager.use(entry) as model:
            if not isinstance(model, LoadedModel):
                raise AssertionError("a model of this machine is loaded here")
            vocabulary, n_ctx_train = model.vocabulary, model.engine.loaded.n_ctx_train
        folder = await asyncio.to_thread(
            write_model_folder, settings.cache_dir, vocabulary, n_ctx_train
        )
        engine = DynamoEngine(manager, entry, folder, place.served_name, settings.grace_s)
        for number in (signal.SIGTERM, signal.SIGINT):  # Dynamo's handlers call those before them
            signal.signal(number, signal.SIG_DFL)
        await Worker(engine, _config(place, str(folder))).run()
    except DynamoException as error:
        raise ServerUnavailableError(
            f"Dynamo did not start: {error}", hint="Look at the variables DYN_*: docs/dynamo.md."
        ) from error
    finally:
        await manager.close()


def _config(place: WorkerPlace, folder: str) -> WorkerConfig:
    return WorkerConfig(
        namespace=place.namespace,
        component=place.component,
        model_name=folder,
        served_model_name=place.served_name,
        endpoint_types="completions",
        discovery_backend=os.environ["DYN_DISCOVERY_BACKEND"],
        request_plane=os.environ["DYN_REQUEST_PLANE"],
        event_plane=os.environ["DYN_EVENT_PLANE"],
    )


def write_model_folder(cache_dir: Path, vocabulary: Vocabulary, n_ctx_train: int) -> Path:
    """Return a folder in Hugging Face's layout, written unless it is there.

    It is the same for all gpt-oss models with this context, and has no chat template, as only our
    own renderer is known to render harmony right; the model is registered for completions alone.
    """
    folder = cache_dir / "dynamo" / f"o200k_harmony-{n_ctx_train}-{_VERSION}"
    if folder.is_dir():
        return folder
    config = {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "vocab_size": VOCAB_SIZE,
        "max_position_embeddings": n_ctx_train,
        "eos_token_id": STOP_TOKENS[0],
    }
    files: dict[str, dict[str, Any]] = {
        "config.json": config,
        "generation_config.json": GENERATION_CONFIG,
        "tokenizer.json": tokenizer_json(vocabulary.token_bytes),
        "tokenizer_config.json": tokenizer_config(),
    }
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as place:
            written = Path(place) / folder.name
            written.mkdir()
            for name, content in files.items():
                (written / name).write_bytes(msgspec.json.encode(content))
            written.rename(folder)
    except OSError as error:
        if not folder.is_dir():  # another worker may have been faster
            message = f"{folder} cannot be written: {error.strerror}"
            raise disk_error(message, error, hint="GPTOSS_HOME says where it is.") from error
    return folder
