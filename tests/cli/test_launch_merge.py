"""Settings put into existing files: nothing else in those files changes."""

import io
import json
import re
from typing import Any

import json5
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings_file import Default, ListEntry, merge

pytestmark = pytest.mark.quick

NAMES = st.text("abcdefgh äü漢-_/:.", min_size=1, max_size=8).filter(lambda t: t.strip() == t)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.text("ab #:'\"\\{}[],漢\n", max_size=9),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)
ENTRY = {"id": "m", "size": 5, "tags": ["x"]}
WANTED: dict[str, Any] = {
    "providers": {"gptoss": {"url": "http://127.0.0.1:1/v1", "models": ListEntry("id", ENTRY)}},
    "version": Default(1),
    "on": True,
}


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A user's settings, some with a part of ours, none with a value of the wrong type."""
    data = draw(st.dictionaries(NAMES, VALUES, max_size=4))
    if draw(st.booleans()):
        other = draw(st.dictionaries(NAMES, VALUES, max_size=2))
        entries = [{"id": "other", "x": draw(VALUES)}] * draw(st.integers(0, 2))
        old = [{"id": "m", "size": draw(st.integers(0, 9)), "mine": 1}] * draw(st.integers(0, 1))
        data["providers"] = {"theirs": other, "gptoss": {"models": entries + old, "mine": [1]}}
    for name, value in (("on", draw(SCALARS)), ("version", draw(st.integers(0, 3)))):
        if draw(st.booleans()):
            data[name] = value
    return data


def expected(data: dict[str, Any]) -> dict[str, Any]:
    data = json.loads(json.dumps(data))
    gptoss = data.setdefault("providers", {}).setdefault("gptoss", {})
    gptoss["url"] = WANTED["providers"]["gptoss"]["url"]
    models = gptoss.setdefault("models", [])
    if not any(model.get("id") == "m" for model in models):
        models.append({})
    next(model for model in models if model.get("id") in ("m", None)).update(ENTRY)
    data["on"] = True
    if data.get("version") is None:
        data["version"] = 1
    return data


def commented(text: str, draw_bits: list[bool]) -> str:
    """The JSON text with comments at ends of lines, and commas before some closing brackets."""
    lines = text.split("\n")
    for n, line in enumerate(lines[:-1]):
        is_last = lines[n + 1].lstrip()[:1] in ("}", "]") and line[-1:] not in "{[,"
        if draw_bits[n % len(draw_bits)]:
            lines[n] = f"{line}{',' if is_last else ''} // note {n}"
    return "\n".join(lines)


@given(documents(), st.sampled_from([None, 1, 2, 4, "\t"]), st.lists(st.booleans(), min_size=1))
def test_json(data: dict[str, Any], indent: int | str | None, bits: list[bool]) -> None:
    text = commented(json.dumps(data, indent=indent, ensure_ascii=False), bits)
    merged = merge(text, WANTED, "json")
    assert json5.loads(merged) == expected(data)
    assert re.findall(r"// note \d+$", merged, re.M) == re.findall(r"// note \d+$", text, re.M)
    assert merge(merged, WANTED, "json") == merged
    if "//" not in text:
        json.loads(merged)  # strict JSON stays strict


@given(documents())
def test_yaml(data: dict[str, Any]) -> None:
    out = io.StringIO()
    YAML().dump(data, out)
    text = f"# first\n{out.getvalue()}# last\n" if data else "# first\n# last\n"
    try:
        merged = merge(text, WANTED, "yaml")
    except UsageError:  # by name, and only after an empty item in a nested list
        assert re.search(r"^(?:- -| +-) ?(?:\[\]|\{\})?\n# last", text, re.MULTILINE)
        return
    assert YAML(typ="safe").load(merged) == expected(data)
    assert merged.startswith("# first\n")
    assert "# last\n" in merged
    assert merge(merged, WANTED, "yaml") == merged


def test_a_yaml_comment_that_would_be_lost_is_named() -> None:
    with pytest.raises(UsageError, match="the comment '# mine' would be lost"):
        merge("a:\n- -\n# mine\nb: 1\n", {"on": True}, "yaml")


BEFORE = """// mine
{
    "theme":   "dark", // night
    "providers": {
        "other": {"models": [1, 2,], },
        /* the local one */
        "gptoss": {"url": "http://old"}
        // nothing else
    },
}
"""


def test_lines_that_are_not_meant_stay_as_they_are() -> None:
    wanted = {"providers": {"gptoss": {"url": "http://new", "n": {"a": 1}}}, "on": True}
    added = """"http://new",
            "n": {
                "a": 1
            }
        }"""
    after = BEFORE.replace('"http://old"}', added).replace("    },\n}", '    },\n    "on": true\n}')
    assert merge(BEFORE, wanted, "json") == after


def test_a_file_that_is_a_list() -> None:
    wanted = {"": ListEntry("name", {"name": "local", "url": "u"})}
    text = '[\n  {"name": "work", "models": [1]}, // mine\n]\n'
    merged = merge(text, wanted, "json")
    assert json5.loads(merged) == [
        {"name": "work", "models": [1]},
        {"name": "local", "url": "u"},
    ]
    assert merged.startswith(text.removesuffix("\n]\n"))
    assert merge(merged, wanted, "json") == merged
    assert json.loads(merge("", wanted, "json")) == [{"name": "local", "url": "u"}]
    with pytest.raises(UsageError, match="the file is not a list"):
        merge("{}", wanted, "json")


@pytest.mark.parametrize(
    ("text", "form", "said"),
    [
        ('{"a": 1 "b": 2}', "json", "line 1 column 9"),
        ("// nothing else", "json", ""),
        ("[1]", "json", "the file has no names and values"),
        ('{"providers": [1]}', "json", "providers has no names and values"),
        ('{"providers": {"gptoss": {"models": "m"}}}', "json", "gptoss.models is not a list"),
        ("a: [1", "yaml", "line 1"),
        ("a: 1\na: 2\n", "yaml", "duplicate key"),
        ("- 1\n", "yaml", "the file has no names and values"),
    ],
)
def test_what_cannot_be_changed_is_refused(text: str, form: Any, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        merge(text, WANTED, form)
    assert said in raised.value.message
