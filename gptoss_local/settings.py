"""Settings: command-line flags, then `GPTOSS_*` variables, then config.toml, then defaults.

A bad value raises and names its source; nothing is guessed. Knows no other module of ours but
errors.
"""

import functools
import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec
import platformdirs

from gptoss_local.errors import UsageError

_APP = "gptoss"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a user can set, with its default."""

    host: str = "127.0.0.1"
    """Address the server binds to and the command line talks to."""
    port: int = 11434
    context_length: int = 0
    """Tokens of context a model is loaded with, at most what it was made for; 0: what fits."""
    threads: int = 0
    """CPU threads of the engine; 0 takes one per physical core."""
    gpu_layers: int = -1
    """Layers kept in VRAM, the last ones; negative: all of what a token reads whole."""
    cpu_moe: int = -1
    """Layers, from the first, whose experts stay in RAM; negative: as few as possible."""
    vram: str = ""
    """Most of each GPU's memory to use, `12GiB`; empty: what is free."""
    num_parallel: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    """Requests that a model answers at once; they share its context."""
    max_queue: Annotated[int, msgspec.Meta(ge=0)] = 512
    """Requests that may wait besides those; more get 503."""
    max_loaded_models: Annotated[int, msgspec.Meta(ge=1)] = 3
    """Models kept in memory at once, as far as they fit."""
    api_key: str = ""
    """What clients must send as `Authorization: Bearer` or `x-api-key`; empty: nothing."""
    insecure: bool = False
    """Let the server listen to other machines without an API key."""
    origins: str = ""
    """Web pages that may call the server, besides those of this machine: `https://a.example,*`."""
    speculation: bool = True
    """Draft tokens that repeat the conversation, where that is faster; answers stay the same."""
    checkpoint_bytes: Annotated[int, msgspec.Meta(ge=0)] = 512 * 2**20
    """Host memory for going on from earlier points of conversations; 0 for none."""
    prefix_disk_bytes: Annotated[int, msgspec.Meta(ge=0)] = 4 * 2**30
    """Disk for prefixes of conversations that outlive the server, all models together; 0: off."""
    prefix_save_s: float = 10.0
    """Seconds a model must have been idle before prefixes are written."""
    keep_alive_s: float = 300.0
    """Seconds a model stays loaded after its last request; negative means forever."""
    theme: str = ""
    """Colours of the chat; `/theme` lists their names."""
    keys: dict[str, str] = {}
    """Keys of the chat by what they do: `"chat.effort" = "f9"`; docs/chat.md has the names."""
    home: Path | None = None
    """Root of models, chats, caches and logs, `GPTOSS_HOME`; if not set, the platform's folders."""

    @property
    def vram_bytes(self) -> int | None:
        """`vram` in bytes; None where there is no limit."""
        return parse_size(self.vram, "vram") if self.vram else None

    @property
    def models_dir(self) -> Path:
        """GGUF files, one per model."""
        return self._folder("models", platformdirs.user_data_path(_APP) / "models")

    @property
    def cache_dir(self) -> Path:
        """What can be made again: the nano GGUF, the vocabulary."""
        return self._folder("cache", platformdirs.user_cache_path(_APP))

    @property
    def prefix_dir(self) -> Path:
        """Saved prefixes, which are conversations in effect; may be removed at any time."""
        return self.cache_dir / "prefixes"

    @property
    def history_path(self) -> Path:
        """The chats of `gptoss chat`: one SQLite file, with `-wal` and `-shm` beside it in use."""
        return self._folder("chats.sqlite3", platformdirs.user_data_path(_APP) / "chats.sqlite3")

    @property
    def log_dir(self) -> Path:
        return self._folder("log", platformdirs.user_log_path(_APP))

    @property
    def server_log(self) -> Path:
        """What the server says that a command started; `gptoss serve` logs to its terminal."""
        return self.log_dir / "server.log"

    @property
    def url(self) -> str:
        """Where a client on this machine reaches the server."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def _folder(self, name: str, platform_path: Path) -> Path:
        return self.home / name if self.home else platform_path


def load_settings(**flags: Any) -> Settings:
    """Merge all sources; flags that are None count as not given.

    Raises:
        UsageError: a value has the wrong type, or config.toml does not parse.
    """
    values = _from_config(platformdirs.user_config_path(_APP) / "config.toml")
    values |= _from_environment()
    values |= {name: value for name, value in flags.items() if value is not None}
    settings = _convert(values, "the settings")
    _ = settings.vram_bytes  # raises now and not with the first request
    return settings


def user_models_file() -> Path:
    """The user's own catalogue, there or not; see `gptoss_local.catalog`."""
    return _models_file(os.environ.get("XDG_CONFIG_HOME", ""))


@functools.lru_cache(4)
def _models_file(_config_home: str) -> Path:
    """PERF: platformdirs takes 20 us, and every request asks several times."""
    return platformdirs.user_config_path(_APP) / "models.toml"


def parse_size(text: str, source: str) -> int:
    """Read a size as Hugging Face's tools do: `4GB` are 4 * 10^9 bytes, `4GiB` are 4 * 2^30.

    Raises:
        UsageError: it is none; `source` says where it stands.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", text.strip(), re.IGNORECASE)
    if match is None or (match[3] and not match[2]):
        raise UsageError(f"{source} {text!r} is not a size.", hint="Write it as 4GB.")
    power = " KMGT".index(match[2].upper() or " ")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


def _from_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    _convert(values, str(path))
    return values


def _from_environment() -> dict[str, Any]:
    values: dict[str, Any] = {}
    if ollama_host := os.environ.get("OLLAMA_HOST", "").strip():
        values |= _parse_host(ollama_host, "OLLAMA_HOST")
    if origins := os.environ.get("OLLAMA_ORIGINS", "").strip():
        values["origins"] = origins
    for field in Settings.__struct_fields__:
        variable = f"GPTOSS_{field.upper()}"
        text = os.environ.get(variable, "").strip()
        if not text:
            continue
        found = _parse_host(text, variable) if field == "host" else {field: text}
        _convert(found, variable)
        values |= found
    return values


def _parse_host(text: str, source: str) -> dict[str, Any]:
    """Split `host`, `:port`, `host:port`, `[v6]:port` or an http URL, as OLLAMA_HOST allows."""
    text = text.removeprefix("http://").rstrip("/")
    if "/" in text:
        raise UsageError(f"{source}: '{text}' is not an address", hint="Use HOST or HOST:PORT.")
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        return {"host": text.strip("[]")}
    return {"host": host.strip("[]"), "port": port} if host else {"port": port}


def _convert(values: dict[str, Any], source: str) -> Settings:
    try:
        return msgspec.convert(values, Settings, strict=False, dec_hook=_to_path)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{source}: {error}", hint=f"Known settings: {', '.join(Settings.__struct_fields__)}."
        ) from error


def _to_path(_wanted: type, value: Any) -> Path:
    """Decode the one type msgspec does not know."""
    return Path(value).expanduser()
