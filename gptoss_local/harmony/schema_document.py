"""A JSON schema as a client sends it: where its parts are, and where references lead.

Knows places in the client's words, such as `properties.path` or `$defs.Node.anyOf[1]`.

Source: JSON Schema 2020-12, core, 8 and 9 (`$id`, `$anchor`, `$ref`), and RFC 6901.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

Schema = dict[str, Any]

NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
SINGLE = (
    "items", "additionalProperties", "additionalItems", "propertyNames", "not", "if", "then",
    "else", "contains", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_PLACE_MAX = 120  # characters


class Target(NamedTuple):
    """The schema that a reference leads to, and its place."""

    schema: Any
    place: str


class Document:
    """One schema with all that is within it."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._resources: dict[str, Target] = {"": Target(root, "")}
        self._anchors: dict[tuple[str, str], Target] = {}
        self._bases: dict[int, str] = {}  # of the schemas within, by their ids
        self._index(root, "", "")

    def resolve(self, reference: str, schema: Schema) -> Target | None:
        """Follow a reference of `schema`; None if it leads nowhere in this document."""
        base = self._bases.get(id(schema), "")
        uri, fragment = _address(base, reference)
        if uri not in self._resources:
            return None
        if fragment and not fragment.startswith("/"):
            return self._anchors.get((uri, unquote(fragment)))
        found = _follow(self._resources[uri], fragment)
        return found or (_follow(self._resources[""], fragment) if uri == base else None)

    def _index(self, schema: Any, place: str, base: str) -> None:
        if not isinstance(schema, dict):
            return
        target = Target(schema, place)
        if isinstance(name := schema.get("$id", schema.get("id")), str):
            uri, fragment = _address(base, name)
            if fragment:
                self._anchors[uri, fragment] = target  # as drafts 4 to 7 name a place
            else:
                self._resources.setdefault(uri, target)
                base = uri if "$id" in schema else base
        for key in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := schema.get(key), str):
                self._anchors[base, name] = target
        self._bases[id(schema)] = base
        for part, step in parts(schema):
            self._index(part, place + step, base)


def parts(schema: Schema) -> Iterator[tuple[Any, str]]:
    """Yield the schemas directly within a schema, and the way to each."""
    for keyword, value in schema.items():
        if keyword in NAMED and isinstance(value, dict):
            for name, part in value.items():
                yield part, step(keyword) + step(name)
        elif isinstance(value, list) and (keyword in LISTED or keyword == "items"):
            for i, part in enumerate(value):
                yield part, step(keyword) + f"[{i}]"
        elif keyword in SINGLE:
            yield value, step(keyword)


def all_schemas(root: Schema) -> Iterator[Schema]:
    """Yield a schema and all within it that are objects, outer ones first."""
    waiting = [root]
    while waiting:
        schema = waiting.pop()
        yield schema
        waiting.extend(part for part, _ in parts(schema) if isinstance(part, dict))


def step(name: str) -> str:
    """Return the next step of a place: `.name`, or `["a b"]`."""
    if name.lstrip("$").isidentifier():
        return f".{name}"
    return f"[{json.dumps(name, ensure_ascii=False)}]"


def within(place: str) -> str:
    """Return a place as the end of a phrase: "'type' in properties.a"."""
    place = place.removeprefix(".")
    if len(place) > _PLACE_MAX:
        place = f"…{place[-_PLACE_MAX:]}"
    return f" in {place}" if place else ""


def _address(base: str, reference: str) -> tuple[str, str]:
    """Return the URI that a reference means, and the fragment of it."""
    try:
        uri, fragment = urldefrag(urljoin(base, reference))
    except ValueError:  # such as an IPv6 address that is not one
        uri, _, fragment = reference.partition("#")
    return uri, fragment


def _follow(target: Target, pointer: str) -> Target | None:
    """Follow a JSON pointer."""
    found, place = target
    for raw in pointer.split("/")[1:]:
        name = unquote(raw).replace("~1", "/").replace("~0", "~")
        is_index = name.isdecimal() and len(name) < 10  # int() refuses thousands of digits
        if isinstance(found, list) and is_index and int(name) < len(found):
            found, place = found[int(name)], f"{place}[{int(name)}]"
        elif isinstance(found, dict) and name in found:
            found, place = found[name], place + step(name)
        else:
            return None
    return Target(found, place)
