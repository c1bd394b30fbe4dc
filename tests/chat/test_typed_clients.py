"""Schemas as pydantic and zod make them: each type is enforced, or refused for a reason we give."""

import json
import random
from pathlib import Path
from typing import Any

import jsonschema
import pydantic
import pytest

from gptoss_local.engine.worker.sampling.mask import MaskCompiler
from gptoss_local.errors import UsageError
from gptoss_local.harmony import JsonFormat, Vocabulary
from gptoss_local.harmony.grammar import compile_grammar
from tests.chat.masked import Drawer
from tests.chat.pydantic_types import models

PYDANTIC = models()
ZOD: dict[str, Any] = json.loads(
    (Path(__file__).parent / "zod_schemas.json").read_text(encoding="utf-8")
)["schemas"]
# docs/api.md gives these reasons.
REFUSED = {
    "set": "'uniqueItems' in properties.value is supported for items of a short enum only",
    "frozenset": "'uniqueItems' in properties.value is supported for items of a short enum only",
    "endless model": "no finite value satisfies it",
}
# Whatever the schema says of them, pydantic wants more: an existing file, a future date, text
# in base64, a time with an offset of less than a day, and so on.
NOT_IN_THE_SCHEMA = {
    "bytes", "Fraction", "complex", "FilePath", "AnyUrl", "HttpUrl", "PostgresDsn", "Base64Str",
    "Base64Bytes", "IPvAnyAddress", "IPv4Network", "Pattern", "ByteSize", "Json", "FutureDate",
    "timedelta", "Decimal", "UUID4", "dict of an int", "Path",
    "dict of a pattern",
}  # fmt: skip


@pytest.fixture(scope="module")
def drawer(nano_gguf: Path, vocabulary: Vocabulary) -> Drawer:
    return Drawer(MaskCompiler(nano_gguf), vocabulary)


@pytest.mark.parametrize("name", PYDANTIC)
def test_pydantic(drawer: Drawer, name: str) -> None:
    """pydantic reads any answer, if its schema says all that it wants."""
    schema = PYDANTIC[name].model_json_schema()
    if name in REFUSED:
        with pytest.raises(UsageError) as caught:
            compile_grammar(JsonFormat(schema))
        assert REFUSED[name] in caught.value.message
        return
    answers = [drawer.draw(schema, random.Random(seed)) for seed in range(1)]
    for answer in filter(None, answers):  # one that has not ended says nothing
        jsonschema.validate(json.loads(answer), schema)
        if name not in NOT_IN_THE_SCHEMA:
            PYDANTIC[name].model_validate_json(answer)


@pytest.mark.parametrize("name", ZOD)
def test_zod(drawer: Drawer, name: str) -> None:
    schema = ZOD[name]
    answer = drawer.draw(schema, random.Random(name))
    is_plain = "\\p{" not in json.dumps(schema)  # which Python's `re` does not know
    is_json_schema = not name.endswith("@openapi")  # whose `nullable` is not JSON Schema's
    if answer and is_plain and is_json_schema:
        jsonschema.validate(json.loads(answer), schema)


def test_what_pydantic_writes_is_taken(drawer: Drawer) -> None:
    """Values as pydantic itself writes them."""
    values = {
        "datetime": "2026-11-25T10:00:00+01:00",
        "date": "2024-02-29",
        "timedelta": "P1DT2H",
        "UUID4": "6a3bd0f5-0f4e-4f4c-9c55-6b7d3c9a7b11",
        "dict of an Enum": {"green": 1, "red": 2},
        "set of an Enum": ["green", "red"],
        "discriminated union": {"kind": "wolf", "breed": None},
        "recursive model": {"name": "a", "children": [{"name": "b", "children": []}]},
        "IPv6Address": "::ffff:1.2.3.4",
    }
    for name, value in values.items():
        model = PYDANTIC[name].model_validate({"value": value})
        answer = model.model_dump_json(by_alias=True)
        assert drawer.takes(model.model_json_schema(), answer), (name, answer)
    assert isinstance(PYDANTIC["model"](value={"kind": "cat"}), pydantic.BaseModel)
