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

from gptoss_local.base.errors import UsageError
from gptoss_local.base.quantities import parse_keep_alive, parse_memory
from gptoss_local.base.types import KvType, Preset
from gptoss_local.base.validation import in_words

_APP = "gptoss"
_SENDABLE = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")  # in a header, where spaces around it go
HOSTED_TOOL = r"(web_search|code_interpreter|mcp:[^:*]+:.+)"
"""Pattern of tools that the server may run for requests."""
PASSPHRASE = "GPTOSS_PASSPHRASE"
SEARCH_KEYS = {"exa": "EXA_API_KEY", "tavily": "TAVILY_API_KEY"}
HUB_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
SECRETS = (
    *("GPTOSS_API_KEY", "GPTOSS_SEARCH_KEY", "GPTOSS_EMBEDDINGS_KEY"),
    *(*SEARCH_KEYS.values(), *HUB_TOKENS, PASSPHRASE),
    *("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"),
)
"""Variables that no child process gets; models.toml may name more."""
_NAMES_SECRET = re.compile(r"""key_env["']?\s*=\s*["'](\w+)""")


class ToolCommand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program that the model may ask for, with a JSON schema of an object: see docs/tools.md."""

    command: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    description: str = ""
    parameters: dict[str, Any] = {}
    timeout_s: Annotated[float, msgspec.Meta(gt=0)] = 30.0


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 11434
    preset: Preset = "balanced"
    """Purpose of plans: `latency`, `throughput` or `quiet`; other settings win."""
    context_length: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Tokens of context, at most the model's own; 0: as many as fit."""
    threads: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 0
    """CPU threads of the engine; 0: one per physical core."""
    gpu_layers: Annotated[int, msgspec.Meta(ge=-1)] = -1
    """Layers in VRAM, counted from the last; -1: all. Their experts may be in RAM."""
    cpu_moe: Annotated[int, msgspec.Meta(ge=-1)] = -1
    """Layers, from the first, with their experts in RAM; -1: as few as possible."""
    vram: str = ""  # limit of each GPU's memory, `12GiB`; empty: all free memory
    kv_type: KvType = "f16"
    num_parallel: Annotated[int, msgspec.Meta(ge=1, le=64)] | None = None
    """Requests answered at the same time, sharing the context; None: 4, or the preset's number."""
    max_queue: Annotated[int, msgspec.Meta(ge=0)] = 512
    """Requests that may wait besides those; more get 503."""
    max_loaded_models: Annotated[int, msgspec.Meta(ge=1)] = 3
    """Models kept in memory at the same time, if they fit."""
    api_key: str = ""
    api_keys_file: Path | None = None  # keys of other users and their limits: docs/observe.md
    insecure: bool = False  # listen to other machines without an API key
    lan: Literal["off", "https", "http"] = "off"
    """Let callers with a key in from the local network, with TLS or without: docs/web.md."""
    allowed_hosts: str = ""  # additional Host names: `nas.lan,gpu`
    origins: str = ""
    """Web pages that may call the server, besides this machine's: `https://a.example,*`."""
    speculation: bool = True
    checkpoint_bytes: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Host memory for returning to earlier points of conversations; 0: none; None: 512 MiB, less
    where RAM is short."""
    shared_prefixes: bool = False
    """Share prefixes between callers; counts and times then tell what others have asked."""
    prefix_disk_bytes: Annotated[int, msgspec.Meta(ge=0)] = 4 * 2**30
    """Disk for prefixes that outlive the server, all models together; 0: off."""
    prefix_save_s: float = 10.0  # idle time of a model before its prefixes are written
    prefix_keep_s: float = 120.0
    """Time a written prefix stays in VRAM after its last use, if others are asked for."""
    keep_alive_s: float = 300.0  # negative: forever
    grace_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 5.0
    """Time that answers have to finish once the server is told to end."""
    log_format: Literal["text", "json"] = "text"
    """`text` goes to stderr, `json` to stdout, an object a line."""
    theme: str = "textual-dark"
    run_saves: bool = False
    alerts: Literal["all", "bell", "off"] = "all"
    chat_titles: bool = True
    keys: dict[str, str] = {}  # keys by action: `"chat.effort" = "f9"`; docs/chat.md has the names
    tools: dict[str, ToolCommand] = {}  # programs by name: docs/tools.md has an example
    enabled_tools: str = ""  # built-in tools of new chats: `python,browser,read_file`
    read_folder: Path | None = None
    """Folder of `read_file`; None: where a chat in the terminal started, unless that is the home
    folder."""
    work_folder: str = ""
    """Folder that chats in the page may work in, as those of `gptoss chat --work`; empty: none."""
    api_tools: str = ""
    """For requests without a user's key: `web_search,code_interpreter,mcp` or `mcp:SERVER:TOOL`."""
    mcp_config: Path | None = None  # read besides mcp.json in the folder of config.toml
    python_tool: str = "sandbox"  # `sandbox` or `jupyter:KERNEL`
    python_timeout_s: Annotated[float, msgspec.Meta(gt=0)] = 30.0
    python_memory: str = "256MiB"
    search: str = ""  # `searxng`, `exa`, `tavily` or `ddgs`; empty: `browser` only opens pages
    searxng_url: str = ""
    search_key: str = ""
    embeddings_url: str = ""  # computes embeddings for clients; another Ollama, or a llama-server
    embeddings_key: str = ""
    browser_private: bool = False
    """Let `browser` open addresses of this machine and of private networks."""
    tool_rounds: Annotated[int, msgspec.Meta(ge=0)] = 30
    """Answers with calls in a row before the model is stopped."""
    tool_loop_s: Annotated[float, msgspec.Meta(gt=0)] = 900.0
    """Time of such a loop, without the time in which the user is asked."""
    home: Path | None = None
    """`GPTOSS_HOME`: root of models, chats, caches and logs; None: the platform's folders."""

    @property
    def vram_bytes(self) -> int | None:
        return parse_memory(self.vram, "vram") if self.vram else None

    @property
    def models_dir(self) -> Path:
        return self._data("models")

    @property
    def cache_dir(self) -> Path:
        """Return the folder of files that can be made again."""
        return self.home / "cache" if self.home else platformdirs.user_cache_path(_APP)

    @property
    def prefix_dir(self) -> Path:
        """Return the folder of saved prefixes, in effect conversations; it may be removed."""
        return self.cache_dir / "prefixes"

    @property
    def history_path(self) -> Path:
        return self._data("chats.sqlite3")

    @property
    def evals_dir(self) -> Path:
        return self._data("evals")

    @property
    def keys_path(self) -> Path:
        """Return the file of keys; by default it has only keys of phones, or is missing."""
        return self.api_keys_file or self._data("keys.toml")

    @property
    def input_history(self) -> Path:
        return self._data("run_history")

    @property
    def certificate_path(self) -> Path:
        """Return the file of the local network's certificate and key; it may not exist yet."""
        return self._data("lan.pem")

    @property
    def log_dir(self) -> Path:
        return self.home / "log" if self.home else platformdirs.user_log_path(_APP)

    @property
    def server_log(self) -> Path:
        """Return the log of servers that commands start; `gptoss serve` logs to its terminal."""
        return self.log_dir / "server.log"

    @property
    def owner_secret_path(self) -> Path:
        """Return the file that proves to a running server that a program is of this account."""
        name = re.sub(r"[^\w.-]+", "-", self.url.removeprefix("http://"))
        return self._data("run") / f"{name}.secret"

    @property
    def url(self) -> str:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def _data(self, name: str) -> Path:
        return (self.home or platformdirs.user_data_path(_APP)) / name


def load_settings(**flags: Any) -> Settings:
    """Merge all sources; flags that are None count as not given. Raises UsageError."""
    return _merge([*_sources(), ("the flags", {n: v for n, v in flags.items() if v is not None})])


def take_passphrase() -> str:
    """Take GPTOSS_PASSPHRASE out of the environment, so that no child gets it; empty if not set."""
    return os.environ.pop(PASSPHRASE, "")


def secrets() -> frozenset[str]:
    file = user_models_file()
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    return frozenset((*SECRETS, *_NAMES_SECRET.findall(text)))


def environment_without_secrets(*kept: str) -> dict[str, str]:
    """Return a child's environment without secrets, but for the `kept` ones."""
    hidden = secrets().difference(kept)
    return {name: value for name, value in os.environ.items() if name not in hidden}


def user_models_file() -> Path:
    """Return the path of the user's catalogue; see `gptoss_local.models.catalog`."""
    return _models_file(os.environ.get("XDG_CONFIG_HOME", ""))


@functools.lru_cache(4)
def _models_file(_config_home: str) -> Path:
    """PERF: platformdirs takes 20 us, and every request asks several times."""
    return platformdirs.user_config_path(_APP) / "models.toml"


def explain_settings() -> tuple[Settings, dict[str, str]]:
    """Return the settings without flags, and the file or variable that set each."""
    sources = list(_sources())
    return _merge(sources), {name: source for source, values in sources for name in values}


def config_path() -> Path:
    return platformdirs.user_config_path(_APP) / "config.toml"


def unknown_variables() -> list[str]:
    """Return variables that look like settings of ours or of Ollama, and are not read."""
    known = {*_OLLAMA, *map(_variable, Settings.__struct_fields__), *_NO_SETTINGS}
    return sorted(v for v in os.environ if v.startswith(("GPTOSS_", "OLLAMA_")) and v not in known)


def settings_without_file() -> Settings:
    """Return the settings of variables and defaults, for when config.toml is broken."""
    return _merge(list(_variables()))


def check_config() -> None:
    if (path := config_path()).is_file():
        _convert(_read_config(path), str(path))


def _merge(sources: list[tuple[str, dict[str, Any]]]) -> Settings:
    merged: dict[str, Any] = {}
    for source, values in sources:
        merged |= values
        _convert(values, source)
    return _convert(merged, "the settings")


def _sources() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the sources below the command line, weakest first."""
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
    """Ignore Ollama's zero, which like our default leaves the choice to the program."""
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
    if (work := str(values.get("work_folder", ""))) and not os.path.isabs(os.path.expanduser(work)):
        hint = "The server may have been started anywhere: write the whole path."
        raise UsageError(f"{source}: work_folder: '{work}' is relative", hint=hint)
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
    path = os.path.expanduser(value)  # pathlib's raises where there is no such user
    return Path(path).absolute()
