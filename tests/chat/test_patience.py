"""A schema that takes long to prepare is refused, and given up when its client leaves."""

import asyncio
import string
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gptoss_local.engine.client import EngineClient
from gptoss_local.errors import UsageError
from gptoss_local.harmony import ChatRequest, JsonFormat, Message, RegexFormat, Vocabulary
from gptoss_local.harmony.grammar import compile_grammar
from gptoss_local.harmony.message import AnswerFormat
from gptoss_local.harmony.patience import Patience
from gptoss_local.harmony.session import answer

LETTERS = string.ascii_lowercase * 2
# Each part may be satisfied in three ways, so all of them in millions.
SLOW: dict[str, Any] = {
    "allOf": [{"anyOf": [{"required": [f"{c}{i}"]} for c in "abc"]} for i in range(14)]
}

# Of three letters each, which the automaton has to tell apart.
_WORDS = [a + b + c for a, b, c in zip(LETTERS, LETTERS[5:], LETTERS[11:], strict=False)]
SLOW_PATTERN = f"^(?!.*(?:{'|'.join(_WORDS)}))[^]*$"


def test_a_slow_schema_is_refused() -> None:
    start_s = time.monotonic()
    with pytest.raises(UsageError, match=r"takes longer than 0\.2 s to prepare"):
        compile_grammar(JsonFormat(SLOW), patience=Patience(0.2))
    assert time.monotonic() - start_s < 3


@pytest.mark.parametrize(
    "answer_format", [RegexFormat(SLOW_PATTERN), JsonFormat({"pattern": SLOW_PATTERN})]
)
def test_a_slow_pattern_is_refused(answer_format: AnswerFormat) -> None:
    start_s = time.monotonic()
    with pytest.raises(UsageError, match=r"takes longer than 0\.2 s to prepare"):
        compile_grammar(answer_format, patience=Patience(0.2))
    assert time.monotonic() - start_s < 3


def test_it_is_given_up_from_another_thread() -> None:
    patience = Patience()
    threading.Timer(0.3, patience.stop).start()
    start_s = time.monotonic()
    with pytest.raises(UsageError):
        compile_grammar(JsonFormat(SLOW), patience=patience)
    assert time.monotonic() - start_s < 3


def test_a_union_of_many_models_is_quick() -> None:
    """Each pair of 500 has to differ."""
    models = {
        f"Model{i}": {
            "type": "object",
            "properties": {"kind": {"const": f"model{i}"}, "value": {"type": "integer"}},
            "required": ["kind"],
        }
        for i in range(500)
    }
    union: dict[str, Any] = {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in models]}
    start_s = time.monotonic()
    assert compile_grammar(JsonFormat({"$defs": models} | union))
    assert time.monotonic() - start_s < 10
    union["oneOf"].append({"$ref": "#/$defs/Model3"})
    with pytest.raises(UsageError, match="options 3 and 500 of 'oneOf'"):
        compile_grammar(JsonFormat({"$defs": models} | union))


def test_a_note_that_stands_often_is_quick() -> None:
    """Each unknown keyword is compared with all known ones, letter by letter."""
    noted = {"type": "string", "markdownDescription": "x", "enumDescriptions": []}
    start_s = time.monotonic()
    assert compile_grammar(JsonFormat({"properties": {f"a{i}": noted for i in range(2500)}}))
    assert time.monotonic() - start_s < 5


async def test_nothing_is_computed_after_a_client_has_left(vocabulary: Vocabulary) -> None:
    engine = cast(
        EngineClient, SimpleNamespace(loaded=SimpleNamespace(n_ctx=4096, n_ctx_train=4096))
    )
    request = ChatRequest(
        messages=(Message(role="user", content="hello"),), format=JsonFormat(SLOW)
    )

    async def ask() -> None:
        async for _ in answer(engine, vocabulary, request):
            pytest.fail("a grammar was made of it")

    asking = asyncio.create_task(ask())
    await asyncio.sleep(1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.sleep(0.5)
    before_s = time.process_time()
    await asyncio.sleep(0.5)
    assert time.process_time() - before_s < 0.2
