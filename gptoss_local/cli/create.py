"""`gptoss create` and `gptoss adapter`: a model made of another one."""

import codecs
import contextlib
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from gptoss_local.base.errors import ModelNotFoundError, UsageError
from gptoss_local.base.formats.ggml_types import GGML_TYPES
from gptoss_local.base.formats.gguf_file import read_info, unused_keys
from gptoss_local.base.settings import Settings, load_settings
from gptoss_local.cli._modelfile import parse_modelfile, parse_parameter
from gptoss_local.cli._options import is_path, named, running_server
from gptoss_local.cli._output import say
from gptoss_local.cli._streams import read_stdin
from gptoss_local.models.store import check_adapter, find_model


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new model's name.")],
    file: Annotated[
        str, typer.Option("--file", "-f", metavar="FILE", help="A Modelfile; - is stdin.")
    ] = "",
    parent: Annotated[
        str, typer.Option("--from", metavar="MODEL", help="Model, or path of a GGUF file.")
    ] = "",
    system: Annotated[str, typer.Option(help="System message.")] = "",
    parameter: Annotated[
        list[str] | None,
        typer.Option("--parameter", "-p", metavar="KEY=VALUE", help="As temperature=0.2; repeat."),
    ] = None,
    quantize: Annotated[
        str, typer.Option("--quantize", "-q", metavar="TYPE", help="Type that the file has.")
    ] = "",
) -> None:
    """Options take precedence over the Modelfile."""
    if not (file or parent):
        raise UsageError(
            "a model is made of another one", hint=f"gptoss create {name} --from MODEL, or -f FILE"
        )
    body, folder = _read(file) if file else ({}, Path())
    if parent:
        body["from"], folder = parent, Path()
    if system:
        body["system"] = system
    body["parameters"] = body.get("parameters", {}) | _parameters(parameter or [])
    settings = load_settings()
    body["from"] = _base(body["from"], folder, settings)
    if quantize:
        _check_type(quantize, body["from"], settings)
    adapters = [
        folder / Path(adapter).expanduser() for adapter in body.pop("adapters", {}).values()
    ]
    _create(name, body, adapters, settings)


def adapter(
    _action: Annotated[Literal["add"], typer.Argument(metavar="add", help="Add an adapter.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the adapted model.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A LoRA of llama.cpp's, in GGUF.")],
    model: Annotated[
        str, typer.Option("--model", metavar="MODEL", help="Model that it was trained on.")
    ],
) -> None:
    """The adapted model is one of `gptoss ls`, for every command and client. It keeps a copy of
    FILE, and shares the file of MODEL. `gptoss rm NAME` removes it.
    """
    settings = load_settings()
    _create(name, {"from": named(model, settings)}, [file], settings)


def _check_type(wanted: str, model: str, settings: Settings) -> None:
    """Refuse another type than a file has: what was rounded is not rounded again."""
    from convert.tensor_types import DENSE_TYPES

    info = read_info(find_model(model, settings).ensure_file(settings))
    kinds = (GGML_TYPES.get(tensor.type_id) for tensor in info.tensors)
    if wanted.lower() not in {kind.name.lower() for kind in kinds if kind} - {"f32"}:
        dense = wanted.lower() if wanted.lower() in DENSE_TYPES else "TYPE"
        raise UsageError(
            f"--quantize {wanted}: {model} is {info.quantization}, and is not rounded again",
            hint=f"`gptoss convert DIR OUT.gguf --dense {dense}` stores attention, embedding and "
            f"head of a checkpoint as {', '.join(DENSE_TYPES)}; its experts stay MXFP4.",
        )


def _base(text: str, folder: Path, settings: Settings) -> str:
    """Return the name of a model; a path, such as a blob of Ollama's, counts from `folder`."""
    path = folder / Path(text).expanduser()
    if not is_path(text):
        with contextlib.suppress(ModelNotFoundError):
            find_model(text, settings)
            return text
    checkpoint = path.parent if path.suffix == ".safetensors" else path
    if path.exists() and any(checkpoint.glob("*.safetensors")):
        raise UsageError(
            f"{text} is a checkpoint, and a model is made of a GGUF file",
            hint=f"gptoss convert {checkpoint} model.gguf makes one; then: FROM ./model.gguf",
        )
    is_file = is_path(text) or path.is_file()
    return named(os.path.abspath(path), settings) if is_file else text


def _create(name: str, body: dict[str, Any], adapters: list[Path], settings: Settings) -> None:
    base = find_model(body["from"], settings).ensure_file(settings) if adapters else Path()
    for path in adapters:  # before anything is stored
        check_adapter(path, base)
        for note in unused_keys(read_info(path).metadata):
            say(f"note: {note}")
    server = running_server(settings)
    body["adapters"] = {path.name: server.upload(path) for path in adapters}
    warning = server.post("/api/create", {"model": name, "stream": False, **body})
    say(f"created {name}: gptoss run {name}")
    if warning:
        say(f"note: {warning}")


def _read(file: str) -> tuple[dict[str, Any], Path]:
    if file == "-":
        return parse_modelfile(read_stdin()), Path()
    try:
        data = Path(file).read_bytes()
        # As Windows writes text: `>` of its PowerShell UTF-16, Notepad at times a BOM.
        is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        text = data.decode("utf-16" if is_wide else "utf-8-sig")
        return parse_modelfile(text), Path(file).parent
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file}: {error}") from error


def _parameters(pairs: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--parameter {pair}: there is no =", hint="As in temperature=0.2.")
        parse_parameter(found, key.strip(), value)
    return found
