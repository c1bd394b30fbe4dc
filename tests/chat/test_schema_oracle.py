"""Schemas at random, of pydantic and of zod: the mask agrees with the `jsonschema` package."""

import datetime
import decimal
import enum
import ipaddress
import json
import pathlib
import random
import re
import uuid
from typing import Annotated, Any, Literal, NamedTuple

import jsonschema
import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, Json, RootModel, SecretStr, create_model

from gptoss_local.engine.worker.sampling.mask import Mask, MaskCompiler
from gptoss_local.harmony import JsonFormat, Vocabulary
from gptoss_local.harmony.grammar import compile_grammar
from gptoss_local.harmony.vocabulary import RETURN
from tests.chat.conftest import Accepts

_N_FREE = 60  # tokens of any kind, before the answer is led to its end
_N_MAX = 300
_ENDS = ['"', "}", "]", ":", ",", "0", "null", "{", "[", "a"]  # the first that is allowed
_LIKELY = [
    *" \n{}[],:\"'\\-.+_/@#%ESTZ", *"0123456789", *"abcdefxyzABCDEFXYZ", *"äß日😀\x7f\u2028\ufeff",
    "true", "false", "null", '","', '":', '{"', '"}', "00", "123", "2024", "-02", "-29", " the",
    "name", "value", "yz", "mn", "x-", "a@b", ".com", "P1", "T1", "red", "green", "item", "kind",
    "cat", "dog", "\\n", "\\u", "  ", "\t",
]  # fmt: skip


class Drawer:
    """Draws random answers under a mask."""

    def __init__(self, masks: MaskCompiler, vocabulary: Vocabulary) -> None:
        self._masks, self._vocabulary = masks, vocabulary
        self._ends = [vocabulary.encoding.encode(text)[0] for text in _ENDS]
        self._likely = [vocabulary.encoding.encode(text)[0] for text in _LIKELY]

    def draw(self, schema: dict[str, Any], rng: random.Random) -> str | None:
        """Return an answer; None if it comes to no end."""
        grammar = compile_grammar(JsonFormat(schema), opens_final=True)
        mask = self._masks.compile(grammar).result()
        tokens: list[int] = []
        while not mask.is_complete:
            if len(tokens) == _N_MAX:
                return None
            tokens.append(self._next(mask, rng, is_free=len(tokens) < _N_FREE))
        assert tokens.pop() == RETURN
        return b"".join(self._vocabulary.token_bytes[token] for token in tokens).decode()

    def _next(self, mask: Mask, rng: random.Random, *, is_free: bool) -> int:
        """Accept a token and return it; few are tried first, as a whole mask takes milliseconds."""
        some = rng.sample(self._likely, 8) if is_free else []
        for token in [RETURN, *some, *self._ends, *rng.sample(self._likely, 40)]:
            if mask.accept(token):
                return token
        token = rng.choice(mask.allowed().tolist())
        assert mask.accept(token)
        return token


@pytest.fixture(scope="module")
def drawer(masks: MaskCompiler, vocabulary: Vocabulary) -> Drawer:
    return Drawer(masks, vocabulary)


_CHECKER = jsonschema.FormatChecker(["date", "ipv4", "ipv6", "uuid"])
_TEXTS = ["", "a", "ab", "Zoë", "日本", "😀", 'q"\\/', "x-1", "2024-02-29", "a b\n"]
_NAMES = ["name", "age", "a b", "ключ", 'q"', "x-1"]
_VALUES = [*_TEXTS, 1, -3, 2.5, None, True, [1, "a"], {"a": None}]


class Case(NamedTuple):
    """A schema, and a value that satisfies it, its properties in the schema's order."""

    schema: Any
    value: Any


_STRINGS = [
    ({"pattern": "^[A-Z]{2}[0-9]+$"}, "AB12"),
    ({"pattern": "b.d", "maxLength": 9}, "abcde"),
    ({"pattern": "^(?=.*[0-9])(?!0)[a-z0-9]{2,4}$"}, "a1"),
    ({"pattern": r"^(\w+|\s)\D?$", "format": "word"}, "ab-"),
    ({"pattern": r"^[^\d\n]+\/?$"}, "é/"),
    ({"format": "date"}, "2024-02-29"),
    ({"format": "ipv4"}, "10.0.0.255"),
    ({"format": "ipv6"}, "::ffff:1.2.3.4"),
    ({"format": "uuid"}, "6a3bd0f5-0f4e-4f4c-9c55-6b7d3c9a7b11"),
    ({"format": "path"}, "/tmp"),
]


class Maker:
    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def case(self, depth: int = 3) -> Case:
        """Make one at random."""
        kinds = [self._text, self._string, self._number, self._listed]
        if depth:
            kinds += [self._object, self._map, self._array, self._union, self._reference]
        schema, value = self._rng.choice(kinds)(depth - 1)
        return Case(schema | self._rng.choice([{}, {"title": "T"}, {"propertyOrder": 1}]), value)

    def _text(self, _: int) -> Case:
        text = self._rng.choice(_TEXTS)
        least, most = self._rng.randint(0, len(text)), len(text) + self._rng.randint(0, 3)
        return Case({"type": "string", "minLength": least, "maxLength": most}, text)

    def _string(self, _: int) -> Case:
        schema, text = self._rng.choice(_STRINGS)
        return Case({"type": "string", **schema}, text)

    def _number(self, _: int) -> Case:
        low, width = self._rng.randint(-200, 200), self._rng.randint(1, 50)
        value = low + self._rng.randint(0, width - 1)
        whole = {"type": "integer", "exclusiveMinimum": low - 1, "exclusiveMaximum": low + width}
        real = {"type": "number", "minimum": low - 0.5, "maximum": low + width}
        return self._rng.choice([Case(whole, value), Case(real, value + 0.25)])

    def _listed(self, _: int) -> Case:
        values = self._rng.sample(_VALUES, self._rng.randint(1, 4))
        if len(values) == 1:
            return Case({"const": values[0]}, values[0])
        return Case({"enum": values}, self._rng.choice(values))

    def _object(self, depth: int) -> Case:
        names = self._rng.sample(_NAMES, self._rng.randint(0, 4))
        parts = {name: self.case(depth) for name in names}
        required = [name for name in names if self._rng.random() < 0.5]
        given = [name for name in names if name in required or self._rng.random() < 0.5]
        schema = {
            "type": "object",
            "properties": {name: part.schema for name, part in parts.items()},
            "required": required,
            "additionalProperties": False,
        }
        return Case(schema, {name: parts[name].value for name in given})

    def _map(self, depth: int) -> Case:
        schema, value = self.case(depth)
        keywords, found = self._rng.choice([
            ({"additionalProperties": schema}, {"k": value, "日": value}),
            ({"patternProperties": {"^x-": schema}}, {"x-1": value, "y": 1}),
            ({"propertyNames": {"enum": ["k", "l"]}, "additionalProperties": schema}, {"l": value}),
            ({"required": ["k"], "properties": {"k": schema}}, {"k": value}),
        ])  # fmt: skip
        return Case({"type": "object", **keywords}, found)

    def _array(self, depth: int) -> Case:
        (schema, value), (other, second) = self.case(depth), self.case(depth)
        n = self._rng.randint(0, 3)
        least, most = self._rng.randint(0, n), n + self._rng.randint(0, 2)
        keywords, found = self._rng.choice([
            ({"items": schema, "minItems": least, "maxItems": most}, [value] * n),
            ({"prefixItems": [schema, other], "items": False, "minItems": 2}, [value, second]),
        ])  # fmt: skip
        return Case({"type": "array", **keywords}, found)

    def _union(self, depth: int) -> Case:
        """Make alternatives, discriminated in a `oneOf`."""
        parts = {kind: self.case(depth) for kind in ("cat", "dog")}
        chosen = self._rng.choice(["cat", "dog"])
        if self._rng.random() < 0.5:
            null = self._rng.choice([[], [{"type": "null"}]])
            return Case(
                {"anyOf": [*(p.schema for p in parts.values()), *null]}, parts[chosen].value
            )
        options = [
            {
                "type": "object",
                "properties": {"kind": {"const": kind}, "more": part.schema},
                "required": ["kind", "more"],
            }
            for kind, part in parts.items()
        ]
        return Case({"oneOf": options}, {"kind": chosen, "more": parts[chosen].value})

    def _reference(self, depth: int) -> Case:
        """A recursive chain."""
        schema, value = self.case(depth)
        name = f"n{self._rng.random()}"
        node = {
            "type": "object",
            "properties": {"v": schema, "next": {"$ref": f"#{name}"}},
            "required": ["v"],
            "$anchor": name,
        }
        return Case(node, {"v": value, "next": {"v": value}})


def is_valid(value: Any, schema: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schema, format_checker=_CHECKER).is_valid(value))


@pytest.mark.parametrize("seed", range(60))
def test_they_agree(drawer: Drawer, accepts: Accepts, seed: int) -> None:
    """A valid value is taken, one of another schema only if it is valid, and so is any drawn."""
    schema, value = Maker(seed).case()
    grammar = compile_grammar(JsonFormat(schema), opens_final=True)

    def takes(value: Any) -> bool:
        return accepts(grammar, json.dumps(value, ensure_ascii=False) + "<|return|>")

    assert is_valid(value, schema)
    assert takes(value)
    for other_seed in range(seed + 1, seed + 6):
        other = Maker(other_seed).case().value
        assert not takes(other) or is_valid(other, schema), (schema, other)
    answer = drawer.draw(schema, random.Random(seed))
    if answer is not None:
        assert is_valid(json.loads(answer), schema), (schema, answer)


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    model_config = ConfigDict(extra="allow", json_schema_extra={"propertyOrder": 1})
    kind: Literal["dog", "wolf"]
    breed: str | None = Field(None, description="A name.", examples=["Pug"])


class Tree(BaseModel):
    name: str
    children: list["Tree"] = []


class Point(NamedTuple):
    x: float
    y: float


Color = enum.Enum("Color", {"RED": "red", "GREEN": "green"})
Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
KINDS: list[Any] = [
    str, int, float, bool, None, Any, bytes, decimal.Decimal, datetime.datetime, datetime.date,
    datetime.time, datetime.timedelta, uuid.UUID, pathlib.Path, pydantic.AnyUrl, SecretStr,
    pydantic.Base64Str, ipaddress.IPv4Address, ipaddress.IPv6Address, pydantic.IPvAnyAddress,
    re.Pattern, pydantic.ByteSize, Json[list[int]], Color, Literal["a", 1, None], str | None,
    int | str | list[bool], list[int], tuple[int, str], tuple[int, ...], set[Color],
    dict[str, int], dict[Color, int], dict[int, str], dict[uuid.UUID, str],
    dict[Annotated[str, Field(pattern="^x-")], str],
    Annotated[str, Field(min_length=1, max_length=5)],
    Annotated[str, Field(pattern=r"^[A-Z]{3}-\d+$")],
    Annotated[int, Field(gt=0, le=100, multiple_of=5)], Annotated[float, Field(ge=-0.5, lt=0.5)],
    Annotated[list[int], Field(min_length=1, max_length=3)], pydantic.FutureDate,
    pydantic.AwareDatetime, list[Cat], Cat | Dog, list[Pet], Tree, Point, RootModel[list[str]],
]  # fmt: skip
ZOD = pathlib.Path(__file__).parent / "zod_schemas.json"
SCHEMAS: dict[str, Any] = json.loads(ZOD.read_bytes())["schemas"] | {
    f"pydantic {kind}": create_model("Model", value=(kind, ...)).model_json_schema()
    for kind in KINDS
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_of_pydantic_and_zod(drawer: Drawer, name: str) -> None:
    schema = SCHEMAS[name]
    answer = drawer.draw(schema, random.Random(name))  # None says nothing
    is_plain = "\\p{" not in json.dumps(schema)  # which Python's `re` does not know
    is_json_schema = not name.endswith("@openapi")  # with a `nullable` unlike JSON Schema's
    if answer and is_plain and is_json_schema:
        jsonschema.validate(json.loads(answer), schema)
