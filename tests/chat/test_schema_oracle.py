"""Random schemas and values: the mask and the `jsonschema` package must agree about them."""

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest

from gptoss_local.engine.worker.sampling.mask import MaskCompiler
from gptoss_local.harmony import Vocabulary
from tests.chat.masked import Drawer

_CHECKER = jsonschema.FormatChecker(["date", "ipv4", "ipv6", "uuid"])
_TEXTS = ["", "a", "ab", "Zoë", "日本", "😀", 'q"\\/', "x-1", "2024-02-29", "a b\n"]
_NAMES = ["name", "age", "a b", "ключ", 'q"', "x-1"]
_VALUES = [*_TEXTS, 1, -3, 2.5, None, True, [1, "a"], {"a": None}]


class Case(NamedTuple):
    """A schema, and a value that satisfies it, its properties in the schema's order."""

    schema: Any
    value: Any


class Maker:
    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def case(self, depth: int = 3) -> Case:
        """Make one at random."""
        kinds = [self._text, self._pattern, self._format, self._number, self._listed]
        if depth:
            kinds += [self._object, self._map, self._array, self._tuple, self._union]
            kinds += [self._one_of, self._reference, self._nullable]
        schema, value = self._rng.choice(kinds)(depth - 1)
        return Case(schema | self._rng.choice([{}, {"title": "T"}, {"propertyOrder": 1}]), value)

    def _text(self, _: int) -> Case:
        text = self._rng.choice(_TEXTS)
        least, most = self._rng.randint(0, len(text)), len(text) + self._rng.randint(0, 3)
        return Case({"type": "string", "minLength": least, "maxLength": most}, text)

    def _pattern(self, _: int) -> Case:
        return self._rng.choice([
            Case({"type": "string", "pattern": "^[A-Z]{2}[0-9]+$"}, "AB12"),
            Case({"type": "string", "pattern": "b.d", "maxLength": 9}, "abcde"),
            Case({"type": "string", "pattern": "^(?=.*[0-9])(?!0)[a-z0-9]{2,4}$"}, "a1"),
            Case({"type": "string", "pattern": r"^(\w+|\s)\D?$", "format": "word"}, "ab-"),
            Case({"type": "string", "pattern": r"^[^\d\n]+\/?$"}, "é/"),
        ])  # fmt: skip

    def _format(self, _: int) -> Case:
        name, text = self._rng.choice([
            ("date", "2024-02-29"), ("ipv4", "10.0.0.255"), ("ipv6", "::ffff:1.2.3.4"),
            ("uuid", "6a3bd0f5-0f4e-4f4c-9c55-6b7d3c9a7b11"), ("path", "/tmp"),
        ])  # fmt: skip
        return Case({"type": "string", "format": name}, text)

    def _number(self, _: int) -> Case:
        low, width = self._rng.randint(-200, 200), self._rng.randint(1, 50)
        value = low + self._rng.randint(0, width - 1)
        if self._rng.random() < 0.5:
            bounds = {"exclusiveMinimum": low - 1, "exclusiveMaximum": low + width}
            return Case({"type": "integer"} | bounds, value)
        return Case({"type": "number", "minimum": low - 0.5, "maximum": low + width}, value + 0.25)

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
        return self._rng.choice([
            Case({"type": "object", "additionalProperties": schema}, {"k": value, "日": value}),
            Case({"type": "object", "patternProperties": {"^x-": schema}}, {"x-1": value, "y": 1}),
            Case(
                {"type": "object", "propertyNames": {"enum": ["k", "l"]},
                 "additionalProperties": schema}, {"l": value}
            ),
            Case({"type": "object", "required": ["k"], "properties": {"k": schema}}, {"k": value}),
        ])  # fmt: skip

    def _array(self, depth: int) -> Case:
        schema, value = self.case(depth)
        n = self._rng.randint(0, 3)
        least, most = self._rng.randint(0, n), n + self._rng.randint(0, 2)
        return Case(
            {"type": "array", "items": schema, "minItems": least, "maxItems": most}, [value] * n
        )

    def _tuple(self, depth: int) -> Case:
        first, second = self.case(depth), self.case(depth)
        parts = [first.schema, second.schema]
        schema = {"type": "array", "prefixItems": parts, "items": False, "minItems": 2}
        return Case(schema, [first.value, second.value])

    def _union(self, depth: int) -> Case:
        options = [self.case(depth) for _ in range(2)]
        schema = {"anyOf": [option.schema for option in options]}
        return Case(schema, self._rng.choice(options).value)

    def _one_of(self, depth: int) -> Case:
        """A discriminated union."""
        parts = {kind: self.case(depth) for kind in ("cat", "dog")}
        options = [
            {
                "type": "object",
                "properties": {"kind": {"const": kind}, "more": part.schema},
                "required": ["kind", "more"],
            }
            for kind, part in parts.items()
        ]
        kind = self._rng.choice(["cat", "dog"])
        return Case({"oneOf": options}, {"kind": kind, "more": parts[kind].value})

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

    def _nullable(self, depth: int) -> Case:
        schema, value = self.case(depth)
        return Case({"anyOf": [schema, {"type": "null"}]}, self._rng.choice([value, None]))


def is_valid(value: Any, schema: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schema, format_checker=_CHECKER).is_valid(value))


@pytest.fixture(scope="module")
def drawer(nano_gguf: Path, vocabulary: Vocabulary) -> Drawer:
    return Drawer(MaskCompiler(nano_gguf), vocabulary)


@pytest.mark.parametrize("seed", range(60))
def test_they_agree(drawer: Drawer, seed: int) -> None:
    """A valid value is taken, one of another schema only if it is valid, and so is any drawn."""
    schema, value = Maker(seed).case()
    assert is_valid(value, schema)
    assert drawer.takes(schema, json.dumps(value, ensure_ascii=False))
    for other_seed in range(seed + 1, seed + 6):
        other = Maker(other_seed).case().value
        if drawer.takes(schema, json.dumps(other, ensure_ascii=False)):
            assert is_valid(other, schema), (schema, other)
    answer = drawer.draw(schema, random.Random(seed))
    if answer is not None:
        assert is_valid(json.loads(answer), schema), (schema, answer)
