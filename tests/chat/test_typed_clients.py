"""Schemas as pydantic and zod make them: each type is enforced, or refused for a reason we give."""

import datetime
import decimal
import enum
import ipaddress
import json
import pathlib
import random
import re
import uuid
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, Optional, TypeVar

import jsonschema
import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, Json, RootModel, SecretStr, create_model
from typing_extensions import TypedDict

from gptoss_local.base.errors import UsageError
from gptoss_local.engine.worker.sampling.mask import MaskCompiler
from gptoss_local.harmony import JsonFormat, Vocabulary
from gptoss_local.harmony.grammar import compile_grammar
from tests.chat.masked import Drawer

ItemT = TypeVar("ItemT")


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog", "wolf"]
    breed: str | None = None


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str


class Noted(BaseModel):
    model_config = ConfigDict(json_schema_extra={"propertyOrder": 1, "strict": True})
    name: str = Field(description="A name.", examples=["Bob"], alias="Name")


class Tree(BaseModel):
    name: str
    children: list["Tree"] = []


class Chain(BaseModel):
    next: Optional["Chain"] = None


class Endless(BaseModel):
    next: "Endless"


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Point(NamedTuple):
    x: float
    y: float


@dataclass
class Pair:
    left: str
    right: int = 0


class Box(BaseModel, Generic[ItemT]):
    item: ItemT


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
KINDS: list[Any] = [
    str, int, float, bool, None, Any, bytes, decimal.Decimal, datetime.datetime, datetime.date,
    datetime.time, datetime.timedelta, uuid.UUID, pathlib.Path, pydantic.AnyUrl, SecretStr,
    pydantic.Base64Str, ipaddress.IPv4Address, ipaddress.IPv6Address, pydantic.IPvAnyAddress,
    re.Pattern, pydantic.ByteSize, Json[list[int]], Color, Level, Literal["a", 1, None], str | None,
    int | str | list[bool], list[int], tuple[int, str], tuple[int, ...], deque[int], set[str],
    set[Color], frozenset[int], dict[str, int], dict[Color, int], dict[int, str],
    dict[uuid.UUID, str], dict[Annotated[str, Field(pattern="^x-")], str],
    Annotated[str, Field(min_length=1, max_length=5)],
    Annotated[str, Field(pattern=r"^[A-Z]{3}-\d+$")],
    Annotated[int, Field(gt=0, le=100, multiple_of=5)], Annotated[float, Field(ge=-0.5, lt=0.5)],
    Annotated[list[int], Field(min_length=1, max_length=3)], pydantic.FutureDate,
    pydantic.AwareDatetime, Cat, list[Cat], Cat | Dog, Pet, list[Pet], Strict, Open, Noted, Tree,
    Chain, Endless, Movie, Point, Pair, Box[list[int]], RootModel[list[str]],
]  # fmt: skip
REFUSED = {
    set[str]: "short enum only",
    frozenset[int]: "short enum only",
    Endless: "no finite value",
}
# Whatever the schema says of them, pydantic wants more: a future date, text in base64, and so on.
NOT_IN_THE_SCHEMA = [
    bytes, decimal.Decimal, datetime.timedelta, pathlib.Path, pydantic.AnyUrl, pydantic.Base64Str,
    pydantic.IPvAnyAddress, re.Pattern, pydantic.ByteSize, Json[list[int]], dict[int, str],
    dict[Annotated[str, Field(pattern="^x-")], str], pydantic.FutureDate,
]  # fmt: skip
ZOD: dict[str, Any] = json.loads((Path(__file__).parent / "zod_schemas.json").read_bytes())[
    "schemas"
]


def model_of(kind: Any) -> type[BaseModel]:
    """Return a model with one field of a type."""
    model: type[BaseModel] = create_model("Model", value=(kind, ...))
    return model


@pytest.fixture(scope="module")
def drawer(nano_gguf: Path, vocabulary: Vocabulary) -> Drawer:
    return Drawer(MaskCompiler(nano_gguf), vocabulary)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_pydantic(drawer: Drawer, kind: Any) -> None:
    """pydantic reads any answer, if its schema says all that it wants."""
    model = model_of(kind)
    schema = model.model_json_schema()
    refusal = next((words for refused, words in REFUSED.items() if refused == kind), "")
    if refusal:
        with pytest.raises(UsageError, match=refusal):
            compile_grammar(JsonFormat(schema))
    elif answer := drawer.draw(schema, random.Random(0)):  # one that has not ended says nothing
        jsonschema.validate(json.loads(answer), schema)
        if kind not in NOT_IN_THE_SCHEMA:
            model.model_validate_json(answer)


@pytest.mark.parametrize("name", ZOD)
def test_zod(drawer: Drawer, name: str) -> None:
    schema = ZOD[name]
    answer = drawer.draw(schema, random.Random(name))
    is_plain = "\\p{" not in json.dumps(schema)  # which Python's `re` does not know
    is_json_schema = not name.endswith("@openapi")  # whose `nullable` is not JSON Schema's
    if answer and is_plain and is_json_schema:
        jsonschema.validate(json.loads(answer), schema)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (datetime.datetime, "2026-11-25T10:00:00+01:00"),
        (datetime.date, "2024-02-29"),
        (datetime.timedelta, "P1DT2H"),
        (uuid.UUID, "6a3bd0f5-0f4e-4f4c-9c55-6b7d3c9a7b11"),
        (dict[Color, int], {"green": 1, "red": 2}),
        (set[Color], ["green", "red"]),
        (Pet, {"kind": "wolf", "breed": None}),
        (Tree, {"name": "a", "children": [{"name": "b", "children": []}]}),
        (ipaddress.IPv6Address, "::ffff:1.2.3.4"),
    ],
    ids=str,
)
def test_pydantics_own_json_is_accepted(drawer: Drawer, kind: Any, value: Any) -> None:
    model = model_of(kind).model_validate({"value": value})
    assert drawer.takes(model.model_json_schema(), model.model_dump_json(by_alias=True))
