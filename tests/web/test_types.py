"""The page's types against the structs that the server sends: fields, and their types."""

import types
from collections.abc import Iterator
from pathlib import Path
from typing import Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from gptoss_local.api.answers import AnswerMetrics
from gptoss_local.api.gptoss import ModelFit, NamedPreset, ToolGroup
from gptoss_local.api.models import InstalledModel, RunningModel
from gptoss_local.server import web
from gptoss_local.server.chats.changes import ChangeEvent
from gptoss_local.talk.history import ChatSummary, Hit, Turn

pytestmark = pytest.mark.quick

TYPES = (Path(web.__file__).parent / "types.d.ts").read_text(encoding="utf-8")
STRUCTS: dict[str, type[msgspec.Struct]] = {
    "Turn": Turn,
    "Chat": ChatSummary,
    "Hit": Hit,
    "Preset": NamedPreset,
    "ToolGroup": ToolGroup,
    "Fit": ModelFit,
    "Model": InstalledModel,
    "Loaded": RunningModel,
    "Progress": ChangeEvent,
    "Stats": AnswerMetrics,
}
OTHERS = {  # stored next to the figures of a last frame
    "Stats": {"ttft_s", "reasoning_s", "n_reasoning_frames", "error", "seconds", "is_error",
              "folds", "pages", "question"},
}  # fmt: skip
ALWAYS = {"Progress": {"status"}}  # in this event of several


def fields(body: str) -> Iterator[tuple[str, bool, str]]:
    """The fields of an interface: name, whether it may be missing, and its type."""
    depth, start, parts = 0, 0, []
    for i, letter in enumerate(body):
        depth += (letter in "{[(<") - (letter in "}])>")
        if letter == ";" and not depth:
            parts.append(body[start:i])
            start = i + 1
    for part in filter(str.strip, [*parts, body[start:]]):
        name, _, kind = part.strip().partition(":")
        yield name.removesuffix("?"), name.endswith("?"), kind.strip()


def interface(name: str) -> str:
    """The fields of an interface, as text."""
    start = TYPES.index(f"interface {name} {{") + len(f"interface {name} {{")
    depth, end = 1, start
    while depth:
        depth += (TYPES[end] == "{") - (TYPES[end] == "}")
        end += 1
    return TYPES[start : end - 1]


def differences(body: str, struct: type[msgspec.Struct]) -> Iterator[str]:
    """Where fields of the page differ from those in a struct, or of one in it."""
    hints = get_type_hints(struct)
    omits = struct.__struct_config__.omit_defaults
    required = {field.name for field in msgspec.structs.fields(struct) if field.required}
    for name, may_miss, kind in fields(body):
        if name not in hints:
            yield f"{name}: is not sent"
            continue
        if omits and name not in required and not may_miss:
            yield f"{name}: may be missing"
        hint = hints[name]
        parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else [hint]
        if {int, float}.isdisjoint(parts) == ("number" in kind.split(" | ")):
            yield f"{name}: {kind} instead of {hint}"
        if kind.startswith("{"):
            inner = hint if isinstance(hint, type) else get_args(hint)[0]
            yield from differences(kind.removesuffix("[]").strip("{} "), inner)


@pytest.mark.parametrize("name", STRUCTS)
def test_the_page_reads_fields_as_the_server_sends_them(name: str) -> None:
    expected = {f"{field}: is not sent" for field in OTHERS.get(name, ())}
    expected |= {f"{field}: may be missing" for field in ALWAYS.get(name, ())}
    assert set(differences(interface(name), STRUCTS[name])) == expected
