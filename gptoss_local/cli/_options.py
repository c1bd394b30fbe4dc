"""Options that several commands share, and the steps before they ask the server."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from gptoss_local.base.errors import ModelNotFoundError, UsageError
from gptoss_local.base.quantities import parse_keep_alive, parse_number, parse_option
from gptoss_local.base.settings import Settings, load_settings
from gptoss_local.base.types import Progress
from gptoss_local.base.validation import in_words
from gptoss_local.base.whole_file import read_text
from gptoss_local.cli._output import print_error, progress_bar

if TYPE_CHECKING:
    from gptoss_local.api.client import Client
    from gptoss_local.models.store import ModelEntry

_PART = r"[A-Za-z0-9][\w.-]*"
_NAME = re.compile(rf"{_PART}/{_PART}(?:@\S+)?")
_ADDRESS = re.compile(
    rf"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/({_PART}/{_PART})"
    r"(?:/(?:tree|blob|resolve)/([^/?#\s]+)[^?#]*)?/?(?:[?#].*)?"
)

PATHS = ("/", ".", "~")  # with which a path begins, and no name
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
NamesOnly = Annotated[bool, typer.Option("--quiet", "-q", help="Print names only.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Threads; by default one per core, at most 8.")
]
Tokenizer = Annotated[
    Path | None,
    typer.Option(help="Folder, tokenizer.json, .tiktoken or .gguf with the vocabulary."),
]
Adapter = Annotated[
    str, typer.Option(metavar="DIR|REPO", help="LoRA adapter to merge: a folder or OWNER/NAME.")
]
KeepAlive = Annotated[
    str,
    typer.Option(
        "--keep-alive",
        "--keepalive",
        metavar="TIME",
        help="How long it stays in memory, as 90s, 10m or 2h; -1 is forever.",
    ),
]
DenseType = Annotated[
    str,
    typer.Option(
        metavar="TYPE", help="Type of attention, embedding and head: q8_0, q5_1, q4_0 or bf16."
    ),
]


def number(flag: str, low: float, help: str, *, is_whole: bool = False) -> Any:
    """Return an option for a finite number; click's takes `nan`."""
    read = partial(parse_number, source=flag, low=low, is_whole=is_whole)
    return typer.Option(flag, parser=read, metavar="NUMBER", help=help)


def request_option(flag: str, name: str, help: str) -> Any:
    read = partial(parse_option, name, source=flag)
    return typer.Option(flag, parser=read, metavar="NUMBER", help=help)


Context = Annotated[int | None, typer.Option("--ctx", min=1, help="Tokens of context.")]
Parallel = Annotated[
    int | None, typer.Option("--parallel", min=1, max=64, help="Most answers at the same time.")
]
ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="Name, or path of a GGUF file.")]


def repository(text: str) -> str | None:
    """Read `OWNER/NAME[@REVISION]`, `hf://` or an address of the hub; None for other text."""
    text = text.removeprefix("hf://")
    if match := _ADDRESS.fullmatch(text):
        return match[1] if match[2] is None else f"{match[1]}@{match[2]}"
    return text if _NAME.fullmatch(text) else None


def adapter_folder(adapter: str, progress: Progress) -> Path | None:
    """Return the folder of an adapter; files of a repository's come to the cache."""
    repo = None if Path(adapter).exists() else repository(adapter)
    if not adapter or repo is None:
        return Path(adapter) if adapter else None
    from convert.foreign import ADAPTER_FILES
    from gptoss_local.models.hub import TOKENIZER_NAMES, download_files

    folder, also = load_settings().cache_dir / "adapters" / repo.replace("/", "--"), TOKENIZER_NAMES
    with download_files(repo, folder, ADAPTER_FILES, also=also, progress=progress):
        return folder


def with_missing_values(
    arguments: Sequence[str], options: Mapping[str, tuple[Callable[[str], bool], str]]
) -> list[str]:
    """Give an option its usual value unless the word after it is one; click knows no such."""
    given = list(arguments)
    for n, (argument, follows) in enumerate(zip(given, [*given[1:], ""], strict=False)):
        if argument == "--":
            break
        if argument in options and not options[argument][0](follows):
            given[n] = f"{argument}={options[argument][1]}"
    return given


def is_path(text: str) -> bool:
    return text.lower().endswith(".gguf") or text.startswith(PATHS)


def model_and_words(
    model: str | None, prompt: Sequence[str] | None
) -> tuple[str | None, list[str]]:
    """Return MODEL and PROMPT; a MODEL that can only be a text begins the PROMPT."""
    from gptoss_local.models.catalog import NAME, canonical_name

    words = list(prompt or ())
    if model is None or is_path(model) or NAME.fullmatch(canonical_name(model)):
        return model, words
    return None, [model, *words]


def named(model: str, settings: Settings) -> str:
    """Return the name of a model; a file that is named by its path becomes one where it is.

    The server takes names alone: no request may reach a file that its user did not name.
    """
    from gptoss_local.models.store import adopt_file, find_model

    path = Path(os.path.expanduser(model))
    if not is_path(model):
        return model
    if path.is_file():
        return adopt_file(path, settings).name
    if not model.startswith(PATHS):
        with suppress(ModelNotFoundError):  # it may be a name that ends so
            return find_model(model, settings).name
    if path.is_dir():
        raise UsageError(f"{model} is a folder", hint="Name a GGUF file in it.")
    raise ModelNotFoundError(
        f"there is no file {model}", hint="`gptoss ls` lists the models on this machine."
    )


def entry_to_read(model: str, settings: Settings) -> "ModelEntry":
    """Return the model of a name, or the file at a path, without registering it."""
    from gptoss_local.models.store import find_model, look_at_file

    path = Path(model).expanduser()
    if is_path(model) and path.is_file():
        return look_at_file(path, settings)
    return find_model(named(model, settings), settings)


def keep_alive_of(text: str) -> str | int:
    """Return the value of --keep-alive as the API takes it; a number counts seconds."""
    parse_keep_alive(text)
    return int(text) if text.lstrip("-").isdigit() else text


def say_unreadable(settings: Settings) -> list[dict[str, str]]:
    from gptoss_local.models.store import unreadable_manifests

    found = unreadable_manifests(settings)
    for error in found.values():
        print_error(error)
    return [
        {"path": str(path), "error": error.message, "hint": error.hint}
        for path, error in found.items()
    ]


def running_server(settings: Settings) -> "Client":
    from gptoss_local.api.client import Client

    say_unreadable(settings)
    client = Client(settings)
    client.ensure_running()
    return client


def server_for(model: str, settings: Settings) -> "Client":
    """Make sure that a model's file and a server are there; show progress."""
    from gptoss_local.models.store import find_model

    try:
        entry = find_model(model, settings)
    except ModelNotFoundError:
        from gptoss_local.cli._first_model import offer_download
        from gptoss_local.models.catalog import canonical_name

        if not offer_download(canonical_name(model), settings):
            raise
        entry = find_model(model, settings)
    if entry.path is None and entry.upstream is None:
        with progress_bar() as progress:
            entry.ensure_file(settings, progress)
    return running_server(settings)


def read_format(text: str) -> Any:
    """Return `format` as the API takes it: `json`, or the schema in a file or in the text."""
    if text == "json":
        return "json"
    if text.lstrip().startswith("{"):
        return _schema(text, "the schema")
    hint = "A format is json, or a file with a JSON schema."
    return _schema(read_text(Path(text), hint=hint), text)


def _schema(text: str, what: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise UsageError(f"{what} is not a JSON schema: {in_words(error)}") from error
