"""Calls as models write them, found and repaired against the declared functions."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptoss_local.harmony import Tool
from gptoss_local.harmony.calls import find_calls

pytestmark = pytest.mark.quick


def function(name: str, *required: str, **kinds: str) -> Tool:
    properties = {key: {"type": kind} for key, kind in kinds.items()}
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return Tool(name, "", schema)


SHELL = function("exec_command", "cmd", cmd="string", workdir="string")
GREP = function("grep", "pattern", pattern="string", path="string", line="integer")
READ = function("read-file", "path", path="string", line="integer")
SCRIPT = function("run_script", "code", code="string")
ODD = function("odd", "x", x="any")
TOOLS = (SHELL, GREP, READ, SCRIPT, ODD, Tool("any"))
LS = {"cmd": "ls"}


@pytest.mark.parametrize(
    ("recipient", "text", "found"),
    [
        ("functions.exec_command", '{"cmd": "ls"}', "exec_command"),
        ("exec_command", '{"cmd": "ls"}', "exec_command"),
        ("functions.ExecCommand", '{"cmd": "ls"}', "exec_command"),
        ("functions.read_file", '{"path": "a"}', "read-file"),
        ("container.exec_command", '{"cmd": "ls"}', "exec_command"),
        ("functions.functions.exec_command", '{"cmd": "ls"}', "exec_command"),
        # an unknown name, with arguments that fit one function only
        ("container.exec", '{"cmd": "ls"}', "exec_command"),
        ("browser.open", '{"path": "a", "line": 3}', "read-file"),
        ("container.exec", '{"cmd": ["bash", "-lc", "ls"]}', None),
        ("container.exec", '{"cmd": "ls", "x": 1}', None),
        ("container.exec", '{"code": "ls"}', None),
        ("container.exec", "{}", None),
    ],
)
def test_names(recipient: str, text: str, found: str | None) -> None:
    calls = find_calls(recipient, text, (*TOOLS, function("other", "code", code="string")))
    assert calls == ([] if found is None else [(found, msgspec.json.decode(text))])
    assert find_calls(recipient, text, ()) == []


BODIES: list[tuple[str, str, list[dict[str, Any]]]] = [
    ("exec_command", "", [{}]),
    ("exec_command", ' {"cmd": "ls"} ', [LS]),
    ("exec_command", '{"anything": ["goes"], "that": "parses"}',
     [{"anything": ["goes"], "that": "parses"}]),
    ("exec_command", '```json\n{"cmd": "ls"}\n```', [LS]),
    ("exec_command", "{'cmd': 'ls'}", [LS]),
    ("exec_command", '{"cmd": "ls",}', [LS]),
    ("exec_command", '{"cmd": "ls -la', [{"cmd": "ls -la"}]),
    ("exec_command", '{"cmd": "a\nb"}', [{"cmd": "a\nb"}]),
    ("exec_command", '{cmd: "ls"}', [LS]),
    ("exec_command", '[{"cmd": "ls"}]', [LS]),
    ("exec_command", '"{\\"cmd\\": \\"ls\\"}"', [LS]),
    ("exec_command", '{"cmd": "ls"} I hope this works', [LS]),
    ("exec_command", '{"name": "exec_command", "arguments": {"cmd": "ls"},}', [LS]),
    ("exec_command", '{"arguments": {"cmd": "ls"}}', [LS]),
    ("exec_command", '{"arguments": "{\\"cmd\\": \\"ls\\"}"}', [LS]),
    ("exec_command", '{"function": {"name": "exec_command", "arguments": {"cmd": "ls"}}}', [LS]),
    ("exec_command", '{"cmd": "ls", "arguments": {"cmd": "rm"}}',
     [{"cmd": "ls", "arguments": {"cmd": "rm"}}]),
    *(("exec_command", body, []) for body in
      ("ls -la", "[1, 2]", "{'command': 'ls'}", "{'cmd': 5}", '{"cmd": "\\ud800"', '{"a":' * 3000)),
    ("grep", '{"pattern": "x", "path": null', [{"pattern": "x", "path": None}]),
    ("grep", '{"pattern": "x", "path": None}', [{"pattern": "x", "path": None}]),
    ("grep", '{"pattern": "x", "line": 5.0,}', [{"pattern": "x", "line": 5}]),
    ("grep", '{"pattern": "x", "depth": 3,}', [{"pattern": "x", "depth": 3}]),
    ("grep", '{"pattern": null,}', []),
    ("odd", "{'x': true}", [{"x": True}]),
    ("odd", "{'x': 1}", [{"x": 1}]),
    ("any", '{"a": "\\ud800"}', []),
    ("any", "12", []),
    # bare text, for a function of one text
    ("run_script", "print(1)\n", [{"code": "print(1)\n"}]),
    ("run_script", r'"print(1)\nx"', [{"code": "print(1)\nx"}]),
    ("run_script", "[1", []),
    # calls behind each other: a repair would keep the last one only
    *(("grep", f'{{"pattern": "a"}}{gap}{{"pattern": "b"}}', [{"pattern": "a"}, {"pattern": "b"}])
      for gap in ("", "\n", ", ", ";\n")),
    ("grep", '{"pattern": "a"}{"pattern": "a"}\nDone.', [{"pattern": "a"}] * 2),
    ("grep", '[{"pattern": "a"}, {"arguments": {"pattern": "b"}}]',
     [{"pattern": "a"}, {"pattern": "b"}]),
    ("grep", '[{"pattern": "a"}, {"word": "b"}]', []),
    *(("read-file", '{"path": "a"}' + second, []) for second in
      ('{"path": "b"', '{"file": "b"}', '{"path": 5}', "{'path': 'b'}", '{"path": "\\ud800"}')),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "arguments"), BODIES)
def test_bodies(name: str, text: str, arguments: list[dict[str, Any]]) -> None:
    found = [(name, each) for each in arguments]
    assert find_calls(f"functions.{name}", text, TOOLS) == found
    if len(arguments) > 1:
        assert find_calls(f"functions.{name}", text, TOOLS, is_cut=True) == []


@pytest.mark.parametrize(
    "declared",
    [
        function("python", code="string"),
        function("python", "code", code="string", timeout="integer"),
    ],
)
def test_python_takes_bare_code(declared: Tool) -> None:
    """Models write code even for a client's own function, as for harmony's tool of that name."""
    for recipient in ("python", "functions.python"):
        for text in ("print(1)\n", '{"code": "print(1)\\n"}'):
            found = find_calls(recipient, text, (declared, SHELL))
            assert found == [("python", {"code": "print(1)\n"})]
    two = function("python", "code", "file", code="string", file="string")
    assert find_calls("python", "print(1)", (two,)) == []


ODD_SCHEMAS: list[Any] = [
    None,
    {},
    {"properties": []},
    {"properties": {"a": 5}, "required": "a"},
    {"properties": {"a": {"type": ["string", "null"]}}, "required": ["a", 5]},
    {"properties": {"a": {"type": {"x": 1}}}},
]


@settings(max_examples=4 * settings.default.max_examples)  # type: ignore[union-attr]
@given(
    text=st.text(st.sampled_from("{}[]\":,\\ab1 \n'")) | st.text(),
    schema=st.sampled_from(ODD_SCHEMAS),
    recipient=st.sampled_from(["f", "functions.f", "g", "", "."]),
)
def test_nothing_raises(text: str, schema: Any, recipient: str) -> None:
    for _, arguments in find_calls(recipient, text, [Tool("f", "", schema)]):
        msgspec.json.encode(arguments)
