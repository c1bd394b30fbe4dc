"""A validator's words never reach a user, and threads may be the first to decode."""

import subprocess
import sys
from typing import Annotated, Any, Literal

import msgspec
import pytest

from gptoss_local.base.validation import in_words

pytestmark = pytest.mark.quick


class Inner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] = 1
    stop: list[str] | str | None = None


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    model: Annotated[str, msgspec.Meta(min_length=1, pattern="^[a-z]")]
    options: Inner = Inner()
    sizes: Annotated[list[int], msgspec.Meta(min_length=1)] = msgspec.field(default_factory=list)
    effort: Literal["low", "high"] = "low"
    stream: bool = True


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"model": "m", "options": {"temperature": "hot"}},
         "options.temperature must be a number, not 'hot'"),
        ({"model": "m", "options": {"temperature": 3}},
         "options.temperature must be a number of at most 2, not 3"),
        ({"model": "m", "options": {"temperature": -1.0}},
         "options.temperature must be a number of at least 0, not -1.0"),
        ({"model": "m", "options": {"stop": 4}}, "options.stop must be text or a list, not 4"),
        ({"model": "m", "options": {"temprature": 4}}, "'temprature' is not known in options"),
        ({"model": "m", "options": []}, "options must be an object, not a list"),
        ({"model": "m", "sizes": [1, "x" * 90]},
         f"sizes[1] must be a whole number, not '{'x' * 39}…"),
        ({"model": "m", "sizes": []}, "sizes must be a list with a length of at least 1"),
        ({"model": "m", "effort": "huge"}, "effort cannot be 'huge'"),
        ({"model": "m", "effort": "x - at y"}, "effort cannot be 'x - at y'"),
        ({"model": "m", "stream": "perhaps"}, "stream must be true or false, not 'perhaps'"),
        ({"model": ""}, "model must be text with a length of at least 1, not ''"),
        ({"model": "5"}, "model must be text that matches '^[a-z]', not '5'"),
        ({"model": True}, "model must be text, not true"),
        ({}, "'model' is missing"),
        ([], "it must be an object, not a list"),
        ("x", "it must be an object, not 'x'"),
    ],
)  # fmt: skip
def test_words(values: Any, words: str) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(values, Outer, strict=False)
    assert in_words(raised.value, values) == words
    assert "`" not in in_words(raised.value)


@pytest.mark.parametrize("text", ["", "{", '{"model": }', '{"model": 1}', "[1", "\x00"])
def test_json(text: str) -> None:
    with pytest.raises(msgspec.DecodeError) as raised:
        msgspec.json.decode(text, type=Outer)
    said = in_words(raised.value)
    assert "`" not in said
    assert "$" not in said


FIRST_TO_DECODE = """
import sys, threading, msgspec
import gptoss_local.base
sys.setswitchinterval(1e-6)
inner = [msgspec.defstruct(f"Inner{i}", [("d", int, 0)]) for i in range(1000)]
outer = [msgspec.defstruct(f"Outer{i}", [("a", int), ("c", list[each])])
         for i, each in enumerate(inner)]
values = {"a": 1, "c": [{"d": 1}]}
ways = [
    lambda kind: msgspec.json.decode(msgspec.json.encode(values), type=kind),
    lambda kind: msgspec.msgpack.decode(msgspec.msgpack.encode(values), type=kind),
    lambda kind: msgspec.convert(values, kind),
]
for i, each in enumerate(outer):
    barrier = threading.Barrier(4)
    def decode():
        barrier.wait()
        ways[i % 3](each)
    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


def test_threads_may_be_the_first_to_decode_a_struct() -> None:
    """Without our lock, msgspec 0.22 ends the process by a segmentation fault."""
    done = subprocess.run([sys.executable, "-c", FIRST_TO_DECODE], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
