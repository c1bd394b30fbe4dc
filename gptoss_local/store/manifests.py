"""Models that carry defaults: a manifest beside the other models' files, which names its weights.

`mine:7b` with a system message is `mine%3A7b.json`, and its weights are a hard link in `weights/`
of the models folder. The manifest is renamed into place after its weights, and removed before them,
so a model is whole or is not there.
"""

import contextlib
import functools
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from gptoss_local.errors import ModelLoadError
from gptoss_local.names import MANIFEST_SUFFIX
from gptoss_local.settings import Settings

_UNUSED_S = 24 * 3600  # weights whose manifest has not come, as when a process died between the two


class ModelDefaults(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a request to a model gets that does not say otherwise.

    Attributes:
        parent: Name of the model that it was made of.
        parameters: Options of Ollama's requests, by their names there.
        messages: The beginning of every conversation, as Ollama's API spells messages.
    """

    parent: str = ""
    system: str = ""
    parameters: dict[str, Any] = {}
    messages: tuple[dict[str, Any], ...] = ()
    license: tuple[str, ...] = ()

    @property
    def are_none(self) -> bool:
        """Whether a file and a name are all that there is of the model."""
        return not (self.system or self.parameters or self.messages or self.license)


class Manifest(msgspec.Struct, frozen=True):
    """`weights` is the name of a file in the weights folder."""

    weights: str
    defaults: ModelDefaults


def read_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Raises:
        OSError: there is none.
        ModelLoadError: it is not what we write.
    """
    stat = path.stat()
    return _read(path, stat.st_mtime_ns, stat.st_ino)


@functools.lru_cache(256)
def _read(path: Path, _mtime_ns: int, _inode: int) -> Manifest:
    """PERF: every request lists the models; parsing is most of the work."""
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except msgspec.DecodeError as error:
        raise ModelLoadError(
            f"{path} is broken: {error}", hint="Create the model again."
        ) from error
    if manifest.weights != Path(manifest.weights).name:
        raise ModelLoadError(f"{path} names weights outside their folder")
    return manifest


def weights_folder(settings: Settings) -> Path:
    return settings.models_dir / "weights"


def place_weights(make: Callable[[Path], None], settings: Settings) -> Path:
    """Let `make` create a file of weights under a new name, and return it."""
    folder = weights_folder(settings)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{int(time.time())}-{secrets.token_hex(8)}.gguf"
    try:
        make(path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def remove_unnamed_weights(settings: Settings, older_than_s: float = _UNUSED_S) -> None:
    """Remove weights that no manifest names, unless a manifest for them may yet come."""
    named = set(_named_weights(settings.models_dir))
    for path in weights_folder(settings).glob("*.gguf"):
        with contextlib.suppress(OSError, ValueError):  # another process may do the same
            age_s = time.time() - int(path.name.partition("-")[0])
            if path.name not in named and age_s > older_than_s:
                path.unlink()


def _named_weights(folder: Path) -> Iterator[str]:
    for path in folder.glob(f"*{MANIFEST_SUFFIX}"):
        with contextlib.suppress(OSError, ModelLoadError):
            yield read_manifest(path).weights
