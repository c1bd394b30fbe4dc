"""`gptoss upstream`: models that are computed elsewhere. Needs no server."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from gptoss_local.base.errors import GptOssError, ModelNotFoundError, UpstreamError, UsageError
from gptoss_local.base.settings import Settings, load_settings, user_models_file
from gptoss_local.base.validation import in_words
from gptoss_local.base.whole_file import change_toml
from gptoss_local.cli._options import Json
from gptoss_local.cli._output import print_json, print_table, report, say
from gptoss_local.models.catalog import (
    UpstreamAddress,
    canonical_name,
    check_models_file,
    known_model,
)
from gptoss_local.models.store import ModelEntry, find_model, list_models

if TYPE_CHECKING:
    from tomlkit import TOMLDocument
    from tomlkit.items import AoT


def upstream(
    action: Annotated[
        Literal["ls", "add", "test", "rm"],
        typer.Argument(metavar="[ls|add|test|rm]", help="What to do."),
    ] = "ls",
    name: Annotated[str, typer.Argument(help="The model's name here.")] = "",
    kind: Annotated[
        str,
        typer.Option(
            help="vllm, nim, sglang, tensorrt-llm, dynamo or llama-server; "
            "without it, a gptoss on another PC."
        ),
    ] = "",
    url: Annotated[
        list[str] | None, typer.Option(help="Address of an engine; several may be equal.")
    ] = None,
    model: Annotated[str, typer.Option(help="The model's name there.")] = "",
    key_env: Annotated[
        str, typer.Option(metavar="VARIABLE", help="The environment variable that has the key.")
    ] = "",
    json: Json = False,
) -> None:
    """Such models are in models.toml, next to config.toml. A key is never written there."""
    if action != "add" and (kind or url or model or key_env):
        raise UsageError("--kind, --url, --model and --key-env belong to `gptoss upstream add`")
    if action == "ls":
        if name:
            raise UsageError(f"ls takes no name, and got '{name}'")
        _list(load_settings(), json=json)
        return
    if not name:
        raise UsageError("name a model", hint="`gptoss upstream` lists them.")
    if action == "add":
        fields = {"kind": kind or "gptoss", "urls": url or [], "model": model, "key_env": key_env}
        if fields["kind"] == "gptoss":
            fields["model"] = model or name
        _add(name, fields, load_settings(), json=json)
    elif action == "rm":
        file = _remove_upstream(name)
        report(f"Removed {name} from {file}.", as_json=json, file=file, removed=name)
    else:
        _test(name, load_settings(), json=json)


def _list(settings: Settings, *, json: bool) -> None:
    found = [(e.name, e.upstream) for e in list_models(settings) if e.upstream]
    if json:
        print_json(models=[{"name": name, "upstream": address} for name, address in found])
    elif not found:
        say("There are none. Add one: gptoss upstream add NAME --url URL --model MODEL")
    else:
        rows = [(n, a.kind, a.model or "-", a.key_env or "-", ", ".join(a.urls)) for n, a in found]
        print_table(("NAME", "KIND", "MODEL", "KEY IN", "URL"), rows)


def _add(name: str, fields: dict[str, Any], settings: Settings, *, json: bool) -> None:
    if not fields["urls"]:
        raise UsageError("an upstream needs --url")
    if fields["kind"] != "llama-server" and not fields["model"]:
        raise UsageError(
            f"{fields['kind']} needs --model, the model's name there",
            hint=f"It lists them: {fields['urls'][0].rstrip('/').removesuffix('/v1')}/v1/models",
        )
    try:
        address = msgspec.convert(fields, UpstreamAddress)
    except msgspec.ValidationError as error:
        raise UsageError(in_words(error, fields)) from error
    file = _add_upstream(name, address, settings)
    text = f"Added {name} to {file}.\nTry it: gptoss upstream test {name}"
    report(text, as_json=json, file=file, added=name)


def _add_upstream(name: str, address: UpstreamAddress, settings: Settings) -> Path:
    import tomlkit  # PERF: 60 ms

    wanted = canonical_name(name)
    try:
        there = find_model(wanted, settings)
    except ModelNotFoundError:
        pass
    else:
        how = f"gptoss upstream rm {wanted}" if there.upstream else f"gptoss rm {wanted}"
        raise UsageError(
            f"there is a model '{wanted}' already", hint=f"Choose another name, or remove it: {how}"
        )
    fields = msgspec.to_builtins(address)
    defaults = msgspec.to_builtins(UpstreamAddress(kind=address.kind, urls=address.urls))
    told = {
        key: value
        for key, value in fields.items()
        if key in ("kind", "urls") or value != defaults[key]
    }

    def change(document: "TOMLDocument") -> None:
        table, inline = tomlkit.table(), tomlkit.inline_table()
        inline.update(told)
        table.update({"name": wanted, "upstream": inline})
        if "model" not in document:
            document.add("model", tomlkit.aot())
        _models(document).append(table)

    change_toml(user_models_file(), change, check_models_file)
    return user_models_file()


def _remove_upstream(name: str) -> Path:
    wanted = canonical_name(name)
    known = known_model(wanted)
    if known is None or known.upstream is None:
        raise ModelNotFoundError(
            f"there is no model '{name}' that is computed elsewhere",
            hint="`gptoss upstream ls` lists them.",
        )

    def change(document: "TOMLDocument") -> None:
        models = _models(document)
        for i, table in enumerate(models):
            if canonical_name(str(table["name"])) == wanted:
                del models[i]
                break

    change_toml(user_models_file(), change, check_models_file)
    return user_models_file()


def _models(document: "TOMLDocument") -> "AoT":
    from tomlkit.items import AoT

    models = document["model"]
    if not isinstance(models, AoT):
        raise UsageError(
            f"{user_models_file()} has its models as an array in one line",
            hint="Write each as a table of its own, which begins with [[model]].",
        )
    return models


def _test(name: str, settings: Settings, *, json: bool) -> None:
    entry = find_model(name, settings)
    if entry.upstream is None:
        raise ModelNotFoundError(
            f"'{name}' is a model of this machine", hint="`gptoss upstream` lists the others."
        )
    import asyncio

    found = asyncio.run(_look(entry, settings))
    if json:
        print_json(name=entry.name, kind=entry.upstream.kind, urls=found)
    else:
        works = "one token of gpt-oss in {seconds:.2f} s, context {n_ctx:,}"
        rows = [
            (f["url"], "yes" if f["is_well"] else "no", f["problem"] or works.format_map(f))
            for f in found
        ]
        print_table(("URL", "SAYS IT IS WELL", "TEST"), rows)
    wrong = [each["url"] for each in found if each["problem"]]
    if wrong:
        raise UpstreamError(f"{entry.name} cannot be computed at {', '.join(wrong)}")


async def _look(entry: ModelEntry, settings: Settings) -> list[dict[str, Any]]:
    from gptoss_local.harmony import load_vocabulary  # PERF: with the others 120 ms, of a Tab
    from gptoss_local.models import nano
    from gptoss_local.runner.elsewhere import connect
    from gptoss_local.runner.upstream.connection import silent_urls

    assert entry.upstream is not None
    nano.ensure_gguf(settings.cache_dir)  # neither of these is to count
    load_vocabulary()
    found: list[dict[str, Any]] = []
    for url in entry.upstream.urls:
        address = msgspec.structs.replace(entry.upstream, urls=(url,))
        told: dict[str, Any] = {"url": url, "is_well": not await silent_urls(entry.name, address)}
        told |= {"seconds": None, "n_ctx": None, "problem": None}
        start_s = time.monotonic()
        try:
            model = await connect(entry, address, settings)
        except GptOssError as error:
            told["problem"] = error.message
        else:
            told |= {"seconds": round(time.monotonic() - start_s, 3)}
            told |= {"n_ctx": model.engine.loaded.n_ctx}
            await model.engine.close()
        found.append(told)
    return found
