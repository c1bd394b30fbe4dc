"""mcp.json as people and other programs write it."""

from pathlib import Path

import json5
import pytest

from gptoss_local.base.errors import ToolError, UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.talk.tools.mcp.config import entry_of, read_entries, without_entry

pytestmark = pytest.mark.quick

OF_OTHERS = """// Servers of mine
{
  "inputs": [{"id": "key"}],
  "mcpServers": {
    "files": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/me"], // all of it
      "autoApprove": ["read_file"], "timeout": 60,
    },
    'remote': {"url": "https://example.org/mcp", "transport": "http", "disabled": true}
    /* more to come, maybe */
  },
}
"""


def test_files_of_other_programs(config: Path, tmp_path: Path) -> None:
    assert read_entries(Settings()) == {}
    config.write_text("")
    assert read_entries(Settings()) == {}
    config.write_text("\ufeff" + OF_OTHERS)
    entries = read_entries(Settings())
    assert [(e.name, not e.fields.disabled, e.reached) for e in entries.values()] == [
        ("files", True, "npx -y @modelcontextprotocol/server-filesystem /home/me"),
        ("remote", False, "https://example.org/mcp"),
    ]
    project = tmp_path / ".vscode-mcp.json"
    project.write_text('{"servers": {"remote": {"type": "sse", "url": "http://localhost:1/sse"}}}')
    entries = read_entries(Settings(mcp_config=project))
    assert list(entries) == ["files", "remote"]
    assert entries["remote"].file == project
    assert entries["remote"].is_sse


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "mcp.json is not valid JSON"),
        ("[]", "mcp.json must be an object with mcpServers"),
        ('{"mcpServers": ["a"]}', "mcp.json: mcpServers must be an object"),
    ],
)
def test_errors_name_the_file(config: Path, text: str, said: str) -> None:
    config.write_text(text)
    with pytest.raises(UsageError) as error:
        read_entries(Settings())
    assert str(config) in error.value.message
    assert said in error.value.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": "npx"}', "mcp.json: a: it must be an object"),
        ('{"a": {}}', "mcp.json: a must have either a command or a url"),
        ('{"a": {"command": "x", "url": "http://x"}}', "a must have either"),
        ('{"a": {"url": "ftp://x"}}', "'ftp://x' is not an http://"),
        ('{"a": {"command": ["npx"]}}', "a: command must be text"),
        ('{"a": {"command": "x", "args": "y"}}', "a: args must be a list"),
        ('{" ": {"command": "x"}}', "' ' cannot be the name of a server"),
        ('{"": {"command": "x"}}', "'' cannot be the name of a server"),
        ('{" a": {"command": "x"}}', "' a' cannot be the name of a server"),
        ('{"a\\\\b": {"command": "x"}}', "cannot be the name of a server"),
        ('{"python": {"command": "x"}}', "there is another tool 'python'"),
    ],
)
def test_problems_name_the_file_and_the_entry(config: Path, text: str, said: str) -> None:
    config.write_text(f'{{"mcpServers": {text}}}')
    (entry,) = read_entries(Settings(), taken={"python"}).values()
    assert str(config) in entry.problem
    assert said in entry.problem
    assert entry.name != "python"
    with pytest.raises(ToolError, match=r"mcp\.json"):
        entry.launch({})


def test_a_file_that_is_named_must_be_there(config: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        read_entries(Settings(mcp_config=tmp_path / "none.json"))


def test_variables() -> None:
    entry = entry_of(
        "a",
        {
            "command": "${BIN}/x",
            "args": ["--key=${env:KEY}", "$KEY", "${NONE:-}", 8],
            "env": {"A": "${KEY}-${OTHER}", "ON": True},
        },
        Path("mcp.json"),
    )
    launch = entry.launch({"BIN": "/opt", "KEY": "secret", "OTHER": "abcdefgh"})
    assert launch.command == ["/opt/x", "--key=secret", "$KEY", "", "8"]
    assert launch.env == {"A": "secret-abcdefgh", "ON": "true"}
    assert {"secret", "abcdefgh", "secret-abcdefgh"} <= set(launch.secrets)
    assert list(launch.secrets) == sorted(launch.secrets, key=len, reverse=True)
    with pytest.raises(ToolError, match=r"mcp.json: a: args needs the variable KEY, which is not"):
        entry.launch({"BIN": "/opt"})


def test_variables_that_only_others_know() -> None:
    headers = {"X": "${input:key}"}
    entry = entry_of("a", {"url": "http://x", "headers": headers}, Path("mcp.json"))
    with pytest.raises(ToolError, match=r"headers.X has \$\{input:key\}, which only other"):
        entry.launch({})


@pytest.mark.parametrize(
    ("entry", "reached"),
    [
        ({"url": "https://me:pw@example.org:8/mcp?key=secret"}, "https://example.org:8/mcp?***"),
        ({"command": "x", "args": ["--api-key", "secret", "-v"]}, "x --api-key '***' -v"),
        ({"command": "x", "args": ["--token=secret", "--auth", "-v"]}, "x '--token=***' --auth -v"),
        ({"command": "x", "args": ["a b", "${KEY}"]}, "x 'a b' '${KEY}'"),
    ],
)
def test_what_is_shown_has_no_secrets(entry: dict[str, object], reached: str) -> None:
    found = entry_of("a", entry, Path("mcp.json"))
    assert found.reached == reached
    assert "secret" not in repr(found)


@pytest.mark.parametrize("names", [["files"], ["remote"], ["files", "remote"]])
def test_all_else_stays_when_a_server_is_removed(names: list[str]) -> None:
    text = OF_OTHERS
    for name in names:
        text = without_entry(text, name, Path("mcp.json"))
    data, before = json5.loads(text), json5.loads(OF_OTHERS)
    for name in names:
        del before["mcpServers"][name]
    assert data == before
    for comment in ("// Servers of mine", "/* more to come, maybe */"):
        assert comment in text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{"mcpServers": {"a": {"command": "x"}}}', '{"mcpServers": {}}'),
        ('{"mcpServers": {/* c */ "a": 1 /* d */,\n}}', '{"mcpServers": {/* c */  /* d */\n}}'),
        ('{"servers": {"a": 1, // c\n "b": 2}}', '{"servers": { // c\n "b": 2}}'),
        ('{"servers": {"b": 1, "a": {"command": "x"} , }}', '{"servers": {"b": 1, }}'),
        ('{"mcpServers": {a: {command: "x"} // ,\n, b: 2}}', '{"mcpServers": { // ,\n b: 2}}'),
        ('{"mcpServers": {"b": 2 // c\n, "a": 1}}', '{"mcpServers": {"b": 2 // c\n}}'),
        (
            '{\n  "mcpServers": {\n    "a": {\n      "command": "x"\n    },\n    "b": 2\n  }\n}\n',
            '{\n  "mcpServers": {\n    "b": 2\n  }\n}\n',
        ),
    ],
)
def test_removing_the_only_or_the_last_one(text: str, left: str) -> None:
    assert without_entry(text, "a", Path("mcp.json")) == left


def test_removing_one_that_is_not_there() -> None:
    with pytest.raises(UsageError) as error:
        without_entry(OF_OTHERS, "none", Path("mcp.json"))
    assert error.value.hint == "There are files, remote."
