"""Calls as models write them, found and repaired against the declared functions."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptoss_local.harmony import Tool
from gptoss_local.harmony.calls import find_calls

pytestmark = pytest.mark.quick


def find_call(
    recipient: str, text: str, tools: Any, **how: bool
) -> tuple[str, dict[str, Any]] | None:
    """The one call that there is, if there is one."""
    calls = find_calls(recipient, text, tools, **how)
    assert len(calls) <= 1
    return calls[0] if calls else None


def tool(name: str, *required: str, **properties: str) -> Tool:
    kinds = {key: {"type": kind} for key, kind in properties.items()}
    return Tool(name, "", {"type": "object", "properties": kinds, "required": list(required)})


SHELL = tool("exec_command", "cmd", cmd="string", workdir="string")
READ = tool("read-file", "path", path="string", line="integer")
SCRIPT = tool("run_script", "code", code="string")
TOOLS = (SHELL, READ, SCRIPT, Tool("any"))


@pytest.mark.parametrize(
    ("recipient", "found"),
    [
        ("functions.exec_command", "exec_command"),
        ("exec_command", "exec_command"),
        ("functions.ExecCommand", "exec_command"),
        ("functions.read_file", "read-file"),
        ("container.exec_command", "exec_command"),
        ("functions.functions.exec_command", "exec_command"),
    ],
)
def test_names(recipient: str, found: str) -> None:
    arguments = {"cmd": "ls"} if found == "exec_command" else {"path": "a"}
    text = str(arguments).replace("'", '"')
    assert find_call(recipient, text, TOOLS) == (found, arguments)


def test_an_unknown_name_with_arguments_that_fit_one_function() -> None:
    assert find_call("container.exec", '{"cmd": "ls"}', TOOLS) == ("exec_command", {"cmd": "ls"})
    assert find_call("browser.open", '{"path": "a", "line": 3}', TOOLS) is not None
    assert find_call("container.exec", '{"cmd": ["bash", "-lc", "ls"]}', TOOLS) is None
    assert find_call("container.exec", '{"cmd": "ls", "x": 1}', TOOLS) is None
    assert find_call("container.exec", "{}", TOOLS) is None
    two = (SHELL, tool("other", "cmd", cmd="string"))
    assert find_call("container.exec", '{"cmd": "ls"}', two) is None
    assert find_call("exec_command", '{"cmd": "ls"}', ()) is None


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", {}),
        (' {"cmd": "ls"} ', {"cmd": "ls"}),
        ('{"anything": "goes", "that": ["parses"]}', {"anything": "goes", "that": ["parses"]}),
        ('```json\n{"cmd": "ls"}\n```', {"cmd": "ls"}),
        ("{'cmd': 'ls'}", {"cmd": "ls"}),
        ('{"cmd": "ls",}', {"cmd": "ls"}),
        ('{"cmd": "ls -la', {"cmd": "ls -la"}),
        ('{"cmd": "a\nb"}', {"cmd": "a\nb"}),
        ('{cmd: "ls"}', {"cmd": "ls"}),
        ('[{"cmd": "ls"}]', {"cmd": "ls"}),
        ('"{\\"cmd\\": \\"ls\\"}"', {"cmd": "ls"}),
        ('{"name": "exec_command", "arguments": {"cmd": "ls"},}', {"cmd": "ls"}),
        ('{"cmd": "ls"} I hope this works', {"cmd": "ls"}),
        ("ls -la", None),
        ("[1, 2]", None),
        ("{'command': 'ls'}", None),
        ("{'cmd': 5}", None),
        ('{"cmd": "\\ud800"', None),
        ('{"a":' * 3000, None),
    ],
)
def test_arguments(text: str, arguments: dict[str, Any] | None) -> None:
    found = find_call("functions.exec_command", text, TOOLS)
    assert found == (None if arguments is None else ("exec_command", arguments))


def test_a_type_that_does_not_exist_takes_any_value() -> None:
    odd = tool("odd", "x", x="any")
    for text, value in (("{'x': true}", True), ("{'x': 1}", 1)):
        assert find_call("odd", text, [odd]) == ("odd", {"x": value})


def test_bare_text_for_a_function_of_one_text() -> None:
    assert find_call("run_script", "print(1)\n", TOOLS) == ("run_script", {"code": "print(1)\n"})
    assert find_call("run_script", r'"print(1)\nx"', TOOLS) == (
        "run_script",
        {"code": "print(1)\nx"},
    )
    assert find_call("run_script", "[1", TOOLS) is None


@pytest.mark.parametrize(
    "declared",
    [tool("python", code="string"), tool("python", "code", code="string", timeout="integer")],
)
def test_python_takes_bare_code(declared: Tool) -> None:
    """As harmony's built-in tool of that name does; models write code even for a client's own."""
    for recipient in ("python", "functions.python"):
        found = find_call(recipient, "print(1)\n", (declared, SHELL))
        assert found == ("python", {"code": "print(1)\n"})
        found = find_call(recipient, '{"code": "print(1)"}', (declared, SHELL))
        assert found == ("python", {"code": "print(1)"})
    two = tool("python", "code", "file", code="string", file="string")
    assert find_call("python", "print(1)", (two,)) is None


@pytest.mark.parametrize("gap", ["", "\n", ", ", ";\n"])
def test_calls_behind_each_other_are_all_found(gap: str) -> None:
    """A repair would leave the last one, and the file of the first would never be read."""
    text = gap.join(['{"path": "a"}', '{"path": "b", "line": 2}', '{"path": "a"}'])
    a, b = ({"path": "a"}, {"path": "b", "line": 2})
    assert find_calls("functions.read_file", text, TOOLS) == [("read-file", x) for x in (a, b, a)]
    assert find_calls("functions.read_file", text, TOOLS, is_cut=True) == []
    assert find_calls("functions.read_file", text + "\nDone.", TOOLS)[1:] == [
        ("read-file", b),
        ("read-file", a),
    ]


@pytest.mark.parametrize(
    "second",
    ['{"path": "b"', '{"file": "b"}', '{"path": 5}', "{'path': 'b'}", '{"path": "\\ud800"}'],
)
def test_one_of_several_calls_that_does_not_fit_makes_none(second: str) -> None:
    assert find_calls("functions.read_file", '{"path": "a"}' + second, TOOLS) == []


def test_cut_calls_are_not_completed() -> None:
    """Half a command must not run."""
    assert find_call("exec_command", '{"cmd": "rm -rf /tmp', TOOLS, is_cut=True) is None
    assert find_call("run_script", "rm -rf /tmp", TOOLS, is_cut=True) is None
    assert find_call("exec_command", '{"cmd": "ls"}', TOOLS, is_cut=True) is not None


ODD_SCHEMAS: list[Any] = [
    None,
    {},
    {"properties": []},
    {"properties": {"a": 5}, "required": "a"},
    {"properties": {"a": {"type": ["string", "null"]}}, "required": ["a", 5]},
    {"properties": {"a": {"type": {"x": 1}}}},
]


@settings(max_examples=200)
@given(
    text=st.text(st.sampled_from("{}[]\":,\\ab1 \n'")) | st.text(),
    schema=st.sampled_from(ODD_SCHEMAS),
    recipient=st.sampled_from(["f", "functions.f", "g", "", "."]),
)
def test_nothing_raises(text: str, schema: Any, recipient: str) -> None:
    for _, arguments in find_calls(recipient, text, [Tool("f", "", schema)]):
        msgspec.json.encode(arguments)
