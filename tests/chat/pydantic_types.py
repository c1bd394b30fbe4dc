"""Types that people give to the fields of pydantic models."""

import datetime
import decimal
import enum
import fractions
import ipaddress
import pathlib
import re
import uuid
from collections import deque
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NotRequired,
    Optional,
    TypeVar,
    Union,
)

import pydantic
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, Json, RootModel, SecretStr, create_model
from typing_extensions import TypedDict


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


ItemT = TypeVar("ItemT")


class Box(BaseModel, Generic[ItemT]):
    item: ItemT


class Names(RootModel[list[str]]):
    pass


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
TYPES: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "None": None,
    "Any": Any,
    "bytes": bytes,
    "Decimal": decimal.Decimal,
    "Fraction": fractions.Fraction,
    "complex": complex,
    "datetime": datetime.datetime,
    "date": datetime.date,
    "time": datetime.time,
    "timedelta": datetime.timedelta,
    "UUID": uuid.UUID,
    "UUID4": pydantic.UUID4,
    "Path": pathlib.Path,
    "FilePath": pydantic.FilePath,
    "AnyUrl": AnyUrl,
    "HttpUrl": pydantic.HttpUrl,
    "PostgresDsn": pydantic.PostgresDsn,
    "SecretStr": SecretStr,
    "Base64Str": pydantic.Base64Str,
    "Base64Bytes": pydantic.Base64Bytes,
    "IPv4Address": ipaddress.IPv4Address,
    "IPv6Address": ipaddress.IPv6Address,
    "IPvAnyAddress": pydantic.IPvAnyAddress,
    "IPv4Network": ipaddress.IPv4Network,
    "Pattern": re.Pattern,
    "ByteSize": pydantic.ByteSize,
    "Json": Json[list[int]],
    "Enum": Color,
    "IntEnum": Level,
    "Literal": Literal["a", 1, None],
    "Optional": str | None,
    "Union": Union[int, str, list[bool]],  # noqa: UP007
    "list": list[int],
    "tuple": tuple[int, str],
    "tuple of any length": tuple[int, ...],
    "deque": deque[int],
    "set": set[str],
    "set of an Enum": set[Color],
    "frozenset": frozenset[int],
    "dict": dict[str, int],
    "dict of an Enum": dict[Color, int],
    "dict of an int": dict[int, str],
    "dict of a UUID": dict[uuid.UUID, str],
    "dict of a pattern": dict[Annotated[str, Field(pattern="^x-")], str],
    "str with limits": Annotated[str, Field(min_length=1, max_length=5)],
    "str with a pattern": Annotated[str, Field(pattern=r"^[A-Z]{3}-\d+$")],
    "int with limits": Annotated[int, Field(gt=0, le=100, multiple_of=5)],
    "float with limits": Annotated[float, Field(ge=-0.5, lt=0.5)],
    "list with limits": Annotated[list[int], Field(min_length=1, max_length=3)],
    "PositiveInt": pydantic.PositiveInt,
    "FutureDate": pydantic.FutureDate,
    "AwareDatetime": pydantic.AwareDatetime,
    "model": Cat,
    "list of models": list[Cat],
    "union of models": Cat | Dog,
    "discriminated union": Pet,
    "list of a discriminated union": list[Pet],
    "extra=forbid": Strict,
    "extra=allow": Open,
    "json_schema_extra": Noted,
    "recursive model": Tree,
    "recursive chain": Chain,
    "endless model": Endless,
    "TypedDict": Movie,
    "NamedTuple": Point,
    "dataclass": Pair,
    "generic model": Box[list[int]],
    "RootModel": Names,
}


def models() -> dict[str, type[BaseModel]]:
    """A model for each type, with one field of it."""
    return {name: create_model("Model", value=(kind, ...)) for name, kind in TYPES.items()}
