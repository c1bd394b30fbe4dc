"""A client's JSON schema: the places of its parts (`$defs.Node.anyOf[1]`), and references.

Source: JSON Schema 2020-12, core, 8 and 9 (`$id`, `$anchor`, `$ref`), and RFC 6901.
"""

import functools
import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote, urljoin

Schema = dict[str, Any]

_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_SINGLE = (
    "items", "additionalProperties", "additionalItems", "propertyNames", "not", "if", "then",
    "else", "contains", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_PLACE_MAX = 120  # characters


class Target(NamedTuple):
    schema: Any
    place: str


class Document:
    def __init__(self, root: Any) -> None:
        self._targets = {"": Target(root, "")}  # by URI, and by URI#anchor
        self._bases: dict[int, str] = {}  # URIs that references are relative to, by id of a schema
        waiting = [(root, "", "")]
        while waiting:
            schema, place, base = waiting.pop()
            if isinstance(schema, dict):
                base = self._index(Target(schema, place), base)
                waiting += ((part, place + way, base) for part, way in parts(schema))

    def resolve(self, reference: Any, schema: Schema) -> Target | None:
        """Follow a reference of `schema`; None if it leads nowhere in this document."""
        if not isinstance(reference, str):
            return None
        base = self._bases.get(id(schema), "")
        uri, _, fragment = _joined(base, reference).partition("#")
        if fragment and not fragment.startswith("/"):
            return self._targets.get(f"{uri}#{unquote(fragment)}")
        if target := self._targets.get(uri):
            target = _follow(target, fragment)
        return target or (_follow(self._targets[""], fragment) if uri == base else None)

    def _index(self, target: Target, base: str) -> str:
        """Note where a schema is; return the base of the references within."""
        schema = target.schema
        if isinstance(name := schema.get("$id", schema.get("id")), str):
            uri = _joined(base, name).removesuffix("#")  # drafts 4 to 7 name a place as `#name`
            self._targets.setdefault(uri, target)
            base = uri if "$id" in schema and "#" not in uri else base
        for key in {"$anchor", "$dynamicAnchor"} & schema.keys():
            self._targets[f"{base}#{schema[key]}"] = target
        self._bases[id(schema)] = base
        return base


def parts(schema: Schema) -> Iterator[tuple[Any, str]]:
    """Yield the schemas directly within a schema, and the way to each."""
    for keyword, value in schema.items():
        if keyword in _NAMED and isinstance(value, dict):
            for name, part in value.items():
                yield part, step(keyword) + step(name)
        elif keyword in _LISTED and isinstance(value, list):
            for i, part in enumerate(value):
                yield part, f"{step(keyword)}[{i}]"
        elif keyword in _SINGLE:
            yield value, step(keyword)


@functools.lru_cache(maxsize=10_000)
def step(name: str) -> str:
    if name.lstrip("$").isidentifier():
        return f".{name}"
    return f"[{json.dumps(name, ensure_ascii=False)}]"


def within(place: str) -> str:
    """Return a place as the end of a phrase: "'type' in properties.a"."""
    place = place.removeprefix(".")
    if len(place) > _PLACE_MAX:
        place = f"…{place[-_PLACE_MAX:]}"
    return f" in {place}" if place else ""


def _joined(base: str, reference: str) -> str:
    try:
        return urljoin(base, reference)
    except ValueError:  # such as an IPv6 address that is not one
        return reference


def _follow(target: Target, pointer: str) -> Target | None:
    found, place = target
    for raw in pointer.split("/")[1:]:
        name = unquote(raw).replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name in map(str, range(len(found))):
            found, place = found[int(name)], f"{place}[{name}]"
        elif isinstance(found, dict) and name in found:
            found, place = found[name], place + step(name)
        else:
            return None
    return Target(found, place)
