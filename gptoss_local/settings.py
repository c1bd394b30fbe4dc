"""Settings: flags, then `GPTOSS_*`, then `OLLAMA_*` variables, then config.toml, then defaults.

A bad value raises and names its source; nothing is guessed.
"""

import functools
import os
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
import platformdirs

from gptoss_local.errors import UsageError
from gptoss_local.quantities import parse_keep_alive, parse_memory
from gptoss_local.types import KvType, Preset
from gptoss_local.validation import in_words

_APP = "gptoss"
_SENDABLE = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")  # in a header, where spaces around it go
HOSTED_TOOL = r"(web_search|code_interpreter|mcp:[^:*]+:.+)"
"""Names of tools that the server may run for requests, as the owner states them."""
PASSPHRASE = "GPTOSS_PASSPHRASE"
"""The variable with the passphrase of the chats."""
SECRETS = (
    *("GPTOSS_API_KEY", "GPTOSS_SEARCH_KEY", "GPTOSS_EMBEDDINGS_KEY"),
    *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
    PASSPHRASE,
    *("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"),
)
"""Variables that no tool and no engine needs."""
_named_secrets: set[str] = set()


class ToolCommand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program that the model may ask for; docs/tools.md says how it is run.

    Attributes:
        command: The program and its arguments, started without a shell.
        parameters: A JSON schema of an object.
    """

    command: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    description: str = ""
    parameters: dict[str, Any] = {}
    timeout_s: Annotated[float, msgspec.Meta(gt=0)] = 30.0


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: str = "127.0.0.1"
    """Address the server binds to and the command line talks to."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 11434
    preset: Preset = "balanced"
    """Purpose of plans: `latency`, `throughput` or `quiet`; other settings win."""
    context_length: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Tokens of context a model is loaded with, at most the model's own; 0: as many as fit."""
    threads: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 0
    """CPU threads of the engine; 0 takes one per physical core."""
    gpu_layers: Annotated[int, msgspec.Meta(ge=-1)] = -1
    """Layers kept in VRAM, the last ones; -1: all; their experts may be in RAM."""
    cpu_moe: Annotated[int, msgspec.Meta(ge=-1)] = -1
    """Layers, from the first, with their experts in RAM; -1: as few as possible."""
    vram: str = ""
    """Most of each GPU's memory to use, `12GiB`; empty: all free memory."""
    kv_type: KvType = "f16"
    """Type of the cached keys and values; `q8_0` takes half the memory of `f16`."""
    num_parallel: Annotated[int, msgspec.Meta(ge=1, le=64)] | None = None
    """Requests that a model answers at the same time; they share its context; if not set, 4, or
    as the preset has it."""
    max_queue: Annotated[int, msgspec.Meta(ge=0)] = 512
    """Requests that may wait besides those; more get 503."""
    max_loaded_models: Annotated[int, msgspec.Meta(ge=1)] = 3
    """Models kept in memory at the same time, as far as they fit."""
    api_key: str = ""
    """Key that clients must send as `Authorization: Bearer` or `x-api-key`; empty: none needed."""
    api_keys_file: Path | None = None
    """A file with keys of other users, and limits of each; docs/observe.md describes it."""
    insecure: bool = False
    """Let the server listen to other machines without an API key."""
    lan: Literal["off", "https", "http"] = "off"
    """Let callers with a key in from the local network, with TLS or without: docs/web.md."""
    allowed_hosts: str = ""
    """Names under which the server may be asked, besides this machine's: `nas.lan,gpu`."""
    origins: str = ""
    """Web pages that may call the server, besides this machine's: `https://a.example,*`."""
    speculation: bool = True
    """Draft tokens that repeat the conversation, where that is faster; answers stay the same."""
    checkpoint_bytes: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Host memory for continuing from earlier points of conversations; 0: none; if not set,
    512 MiB, or less where RAM is short."""
    shared_prefixes: bool = False
    """Let all callers use the same prefixes; their counts and times tell what others have asked."""
    prefix_disk_bytes: Annotated[int, msgspec.Meta(ge=0)] = 4 * 2**30
    """Disk for prefixes of conversations that outlive the server, all models together; 0: off."""
    prefix_save_s: float = 10.0
    """Seconds a model must have been idle before prefixes are written."""
    prefix_keep_s: float = 120.0
    """Most seconds a written prefix stays in VRAM after its last use, if others are asked."""
    keep_alive_s: float = 300.0
    """Seconds a model stays loaded after its last request; negative means forever."""
    grace_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 5.0
    """Seconds that answers have to finish once the server is told to end."""
    log_format: Literal["text", "json"] = "text"
    """Form of `gptoss serve`'s log: `text` on stderr, or `json` on stdout, an object a line."""
    theme: str = "textual-dark"
    """Colours of the chat; `/theme` lists their names."""
    chat_titles: bool = True
    """Let the model title a chat of the page after its first answer."""
    keys: dict[str, str] = {}
    """Keys of the chat by their action: `"chat.effort" = "f9"`; docs/chat.md has the names."""
    tools: dict[str, ToolCommand] = {}
    """Commands that the model may use in the chat, `[tools.NAME]`; docs/tools.md has an example."""
    enabled_tools: str = ""
    """Built-in tools that new chats have: `python,browser,read_file`."""
    read_folder: Path | None = None
    """The folder with the text files of `read_file`; if not set, where a chat in the terminal was
    started, unless that is the home folder."""
    api_tools: str = ""
    """Tools that the server may run for requests without a user's key:
    `web_search,code_interpreter,mcp`, or `mcp:SERVER:TOOL`."""
    mcp_config: Path | None = None
    """A file with MCP servers, besides mcp.json in the folder of config.toml."""
    python_tool: str = "sandbox"
    """The place where `python` runs: `sandbox` or `jupyter:KERNEL`."""
    python_timeout_s: Annotated[float, msgspec.Meta(gt=0)] = 30.0
    """Seconds after which a call of `python` is stopped."""
    python_memory: str = "256MiB"
    """Memory of the sandbox."""
    search: str = ""
    """The search of `browser`: `searxng`, `exa`, `tavily`, `ddgs`; empty: it opens pages only."""
    searxng_url: str = ""
    """The user's own SearXNG, `http://localhost:8888`."""
    search_key: str = ""
    """Key of Exa or Tavily."""
    embeddings_url: str = ""
    """The server that computes embeddings for clients, such as another Ollama or a llama-server."""
    embeddings_key: str = ""
    """Its key."""
    browser_private: bool = False
    """Let `browser` open addresses of this machine and of private networks."""
    tool_rounds: Annotated[int, msgspec.Meta(ge=0)] = 30
    """Answers with calls of tools, one after the other, before the model is stopped."""
    tool_loop_s: Annotated[float, msgspec.Meta(gt=0)] = 900.0
    """Seconds of such a loop, the time in which the user is asked not counted."""
    home: Path | None = None
    """Root of models, chats, caches and logs, `GPTOSS_HOME`; if not set, the platform's folders."""

    @property
    def vram_bytes(self) -> int | None:
        """`vram` in bytes; None where there is no limit."""
        return parse_memory(self.vram, "vram") if self.vram else None

    @property
    def models_dir(self) -> Path:
        return self._folder("models", platformdirs.user_data_path(_APP) / "models")

    @property
    def cache_dir(self) -> Path:
        """Files that can be made again: the nano GGUF, the vocabulary."""
        return self._folder("cache", platformdirs.user_cache_path(_APP))

    @property
    def prefix_dir(self) -> Path:
        """Saved prefixes, which are conversations in effect; may be removed at any time."""
        return self.cache_dir / "prefixes"

    @property
    def history_path(self) -> Path:
        """The SQLite file of `gptoss chat`, with `-wal` and `-shm` files while in use."""
        return self._folder("chats.sqlite3", platformdirs.user_data_path(_APP) / "chats.sqlite3")

    @property
    def evals_dir(self) -> Path:
        """The scores and logs of `gptoss eval`."""
        return self._folder("evals", platformdirs.user_data_path(_APP) / "evals")

    @property
    def keys_path(self) -> Path:
        """The file of keys; without the setting it has keys of phones alone, or is missing."""
        platform_path = platformdirs.user_data_path(_APP) / "keys.toml"
        return self.api_keys_file or self._folder("keys.toml", platform_path)

    @property
    def input_history(self) -> Path:
        """Lines typed at `gptoss run`, for its Up key."""
        return self._folder("run_history", platformdirs.user_data_path(_APP) / "run_history")

    @property
    def certificate_path(self) -> Path:
        """The certificate and its key for the local network, made when it is needed."""
        return self._folder("lan.pem", platformdirs.user_data_path(_APP) / "lan.pem")

    @property
    def log_dir(self) -> Path:
        return self._folder("log", platformdirs.user_log_path(_APP))

    @property
    def server_log(self) -> Path:
        """The log of servers that commands start; `gptoss serve` logs to its terminal."""
        return self.log_dir / "server.log"

    @property
    def owner_secret_path(self) -> Path:
        """The proof to a running server that a program is of this account."""
        name = re.sub(r"[^\w.-]+", "-", self.url.removeprefix("http://"))
        return self._folder("run", platformdirs.user_data_path(_APP) / "run") / f"{name}.secret"

    @property
    def url(self) -> str:
        """The address of the server for a client on this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def _folder(self, name: str, platform_path: Path) -> Path:
        return self.home / name if self.home else platform_path


def load_settings(**flags: Any) -> Settings:
    """Merge all sources; flags that are None count as not given.

    Raises:
        UsageError: a value has the wrong type, or config.toml does not parse.
    """
    return _merge([*_sources(), ("the flags", {n: v for n, v in flags.items() if v is not None})])


def take_passphrase() -> str:
    """Return GPTOSS_PASSPHRASE, which no child of this process gets from now on; or nothing."""
    return os.environ.pop(PASSPHRASE, "")


def environment_without_secrets() -> dict[str, str]:
    secrets = {*SECRETS, *_named_secrets}
    return {name: value for name, value in os.environ.items() if name not in secrets}


def keep_from_children(variable: str) -> None:
    """Note a variable with a key, which a file of the user names."""
    _named_secrets.add(variable)


def user_models_file() -> Path:
    """Return the user's own catalogue, there or not; see `gptoss_local.models.catalog`."""
    return _models_file(os.environ.get("XDG_CONFIG_HOME", ""))


@functools.lru_cache(4)
def _models_file(_config_home: str) -> Path:
    """PERF: platformdirs takes 20 us, and every request asks several times."""
    return platformdirs.user_config_path(_APP) / "models.toml"


def explain_settings() -> tuple[Settings, dict[str, str]]:
    """Return the settings without flags, and by name the file or variable that set each.

    Raises:
        UsageError: as `load_settings`.
    """
    sources = list(_sources())
    return _merge(sources), {name: source for source, values in sources for name in values}


def config_path() -> Path:
    return platformdirs.user_config_path(_APP) / "config.toml"


def unknown_variables() -> list[str]:
    """Variables that look like settings, of ours or of Ollama, and are not read."""
    known = {*_OLLAMA, *map(_variable, Settings.__struct_fields__), *_NO_SETTINGS}
    return sorted(v for v in os.environ if v.startswith(("GPTOSS_", "OLLAMA_")) and v not in known)


def settings_without_file() -> Settings:
    """Return the settings of variables and defaults, as config.toml cannot be used.

    Raises:
        UsageError: a variable has the wrong type.
    """
    return _merge(list(_variables()))


def check_config() -> None:
    """Raise UsageError if config.toml is there and cannot be used."""
    if (path := config_path()).is_file():
        _convert(_read_config(path), str(path))


def _merge(sources: list[tuple[str, dict[str, Any]]]) -> Settings:
    merged: dict[str, Any] = {}
    for source, values in sources:
        merged |= values
        _convert(values, source)
    return _convert(merged, "the settings")


def _sources() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the sources besides the command line, the weakest first."""
    if (path := config_path()).is_file():
        yield str(path), _read_config(path)
    yield from _variables()


def _variables() -> Iterator[tuple[str, dict[str, Any]]]:
    for variable, parse in _OLLAMA.items():
        if text := os.environ.get(variable, "").strip().strip("\"'"):
            yield variable, parse(text, variable)
    for name in Settings.__struct_fields__:
        if text := os.environ.get(variable := _variable(name), "").strip():
            yield variable, _parse_host(text, variable) if name == "host" else {name: text}


def _variable(name: str) -> str:
    return f"GPTOSS_{name.upper()}"


def _read_config(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} is not valid TOML: {error}",
            hint="Correct it, or let `gptoss doctor --fix` move it aside.",
        ) from error


def _parse_host(text: str, source: str) -> dict[str, Any]:
    """Split `host`, `:port`, `host:port`, `[v6]:port` or an http URL, as OLLAMA_HOST allows."""
    text = text.removeprefix("http://").rstrip("/")
    if "/" in text:
        raise UsageError(f"{source}: '{text}' is not an address", hint="Use HOST or HOST:PORT.")
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        return {"host": text.strip("[]")}
    return {"host": host.strip("[]"), "port": port} if host else {"port": port}


def _unless_zero(name: str) -> "_Parser":
    """Ollama's zero leaves the choice to the program, as our default does."""
    return lambda text, source: {name: text} if text != "0" else {}


def _keep_alive(text: str, source: str) -> dict[str, Any]:
    try:
        return {"keep_alive_s": parse_keep_alive(text)}
    except UsageError as error:
        raise UsageError(f"{source}: {error.message}", hint=error.hint) from error


_Parser = Callable[[str, str], dict[str, Any]]
_OLLAMA: dict[str, _Parser] = {
    "OLLAMA_HOST": _parse_host,
    "OLLAMA_ORIGINS": lambda text, source: {"origins": text},
    "OLLAMA_KEEP_ALIVE": _keep_alive,
    "OLLAMA_CONTEXT_LENGTH": _unless_zero("context_length"),
    "OLLAMA_NUM_PARALLEL": _unless_zero("num_parallel"),
    "OLLAMA_MAX_LOADED_MODELS": _unless_zero("max_loaded_models"),
    "OLLAMA_MAX_QUEUE": lambda text, source: {"max_queue": text},
    "OLLAMA_KV_CACHE_TYPE": lambda text, source: {"kv_type": text.lower()},
}
"""Ollama's variables that mean the same here. Source: Ollama's envconfig/config.go."""
_NO_SETTINGS = ("GPTOSS_DEBUG", PASSPHRASE, "OLLAMA_MODELS")  # read where they are needed


def _convert(values: dict[str, Any], source: str) -> Settings:
    if vram := values.get("vram"):
        parse_memory(str(vram), f"{source}: vram")  # raises now and not with the first request
    for tool in str(values.get("api_tools", "")).split(","):
        if not re.fullmatch(f"(mcp|{HOSTED_TOOL})?", tool.strip()):
            known = "Use web_search, code_interpreter, mcp, mcp:SERVER:TOOL or mcp:SERVER:*."
            raise UsageError(f"{source}: api_tools: there is no tool '{tool.strip()}'", hint=known)
    if not _SENDABLE.fullmatch(str(values.get("api_key", ""))):
        what = "api_key" if source.endswith(".toml") else "the API key"
        raise UsageError(
            f"{source}: {what} has a character that a client cannot send in a header",
            hint="Use letters, digits and punctuation of ASCII, without spaces around them.",
        )
    try:
        return msgspec.convert(values, Settings, strict=False, dec_hook=_to_path)
    except msgspec.ValidationError as error:
        raise UsageError(f"{source}: {in_words(error, values)}", hint=_hint(error)) from error


def _hint(error: msgspec.ValidationError) -> str:
    said = str(error)
    if "unknown field" in said:
        return f"Known settings: {', '.join(Settings.__struct_fields__)}."
    if said.startswith("Invalid enum value"):
        name = said.rpartition("$.")[2].strip("`")
        return f"Use {' or '.join(get_args(Settings.__annotations__[name]))}."
    return "Without it the default is used."


def _to_path(_wanted: type, value: Any) -> Path:
    """Decode the one type msgspec does not know."""
    return Path(os.path.expanduser(value))  # pathlib's raises where there is no such user
