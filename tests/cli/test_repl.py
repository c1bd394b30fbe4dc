"""A conversation in a terminal, in a pipe, and for a screen reader."""

import json
import signal
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, Terminal, run_cli
from tests.conftest import RunningServer

SUM = "17 + 25 = 42"
LOW = ("nano", "--effort", "low")


def talk(cli: Cli, *lines: str) -> tuple[list[str], str]:
    """Return the lines of the answers, and the text on stderr."""
    done = cli("run", "nano", "-i", stdin="".join(f"{line}\n" for line in lines))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def test_in_a_pipe_answers_alone_are_on_stdout(cli: Cli) -> None:
    peter = ("My name is Peter Parker.", "What is my name?")
    answers, said = talk(cli, *peter, "!touch RAN @RAN.py", "/bye", "never read")
    assert answers[:2] == ["Nice to meet you, Peter Parker!", "Your name is Peter Parker."]
    assert len(answers) == 3
    assert said.count(">>> ") == 4
    assert "\x1b" not in said


def test_commands(cli: Cli) -> None:
    answers, said = talk(
        cli,
        *("/help", "/effort high", "/effort", "/effort huge", "/stats on", "/reasoning off"),
        *("What is 17 + 25?", "/retry", "/efort", "/model nanno", "/model gpt-oss-nano", "/system"),
        *("/", "/BYE"),
    )
    assert answers == [SUM, SUM]
    assert said.count("effort: high") == said.count("tokens/s") == 2
    for words in (
        *("/system TEXT", "huge is not one of low, medium, high", "Did you mean /effort?"),
        *("Did you mean nano?", "model: gpt-oss-nano", "there is no command /\n"),
    ):
        assert words in said, words
    assert "/compare" not in said  # the screen's
    assert "so 42" not in said  # the reasoning


def test_the_shell_and_files(server: RunningServer, tmp_path: Path) -> None:
    """As in the chat on the screen; a pipe's lines are text, which others may have written."""
    (tmp_path / "my notes.md").write_text("The passcode is quiet-river-42.\n")
    asked, notes = "What is the passcode?", f"{tmp_path}/my notes.md"
    lines = {
        "!printf 'The passcode is lazy-fox-7.'; exit 3": (
            "The passcode is lazy-fox-7.", "+ output: printf", "exit status 3, 1 line",
        ),
        asked: ("The passcode is lazy-fox-7.",),
        "!true": (),
        "/clear": (),
        f"@{notes} {asked}": ("+ file: my notes.md, 1 line", "quiet-river-42"),
        f"/clear {asked}": ("/new takes nothing after it",),
        f"Of @gone.md and (@{notes}), {asked}": ("no file gone.md", "Send it again"),
        f"Of @gone.md, (@{notes}), {asked}": ("+ file: my notes.md", "quiet-river-42"),
        "me@example.com, @someone and @~": ("~ is too much to attach",),
        f" !touch {tmp_path}/RAN": (),
        f'"""!touch {tmp_path}/RAN"""': (),
        "!echo one; sleep 60": ("one", "stopped, 1 line"),
    }  # fmt: skip
    with Terminal(server, *LOW, TERM="dumb") as terminal:
        for line, said in lines.items():
            terminal.read_until(">>> ")
            terminal.screen = ""
            terminal.type(f"{line}\n")
            terminal.read_until(f"{line}\r\n")
            terminal.screen = terminal.screen.partition(f"{line}\r\n")[2]
            if "sleep" in line:
                terminal.read_until("one\r\n")
                terminal.process.send_signal(signal.SIGINT)
            terminal.read_until(">>> ")
            assert all(words in terminal.screen for words in said), (line, terminal.screen)
            assert ("goes with your next" in terminal.screen) == ("output:" in terminal.screen)
            assert ("output:" in terminal.screen) == line.startswith(("!printf", "!echo"))
        terminal.await_input()
        terminal.process.send_signal(signal.SIGINT)
        terminal.read_until("The output is dropped.")
        assert "Loop" not in terminal.screen  # asyncio's complaint
    assert not (tmp_path / "RAN").exists()


COMMANDS_OF_OLLAMA = {
    "/?": ("/set [NAME VALUE]", "/load NAME ", "/save NAME ", "/clear ", "/bye, /exit "),
    "/? set": ("/set parameter NAME VALUE", "/set nothink"),
    "/? shortcuts": ("Ctrl-G",),
    "/set parameter": ("repeat_last_n INT",),
    "/set parameter temperature 0": ("Set parameter 'temperature' to '0'.",),
    "/set parameter stop a b": ("Set parameter 'stop' to 'a b'.",),
    "/set parameter temp 1": (
        "there is no parameter temp\n  Did you mean /set parameter temperature?",
    ),
    "/set parameter seed x": ("seed must be a whole number, not 'x'",),
    "/set system You are terse.": ("Set system message.\n",),
    "/show system": ("You are terse.\n",),
    "/show parameters": ("temperature                    0\n",),
    "/set verbose": ("Set 'verbose' mode.",),
    "/set think low": ("Set 'think' mode to 'low'.",),
    "/set format schema.json": ("Set format to 'schema.json' mode.",),
    "What is 17 + 25?": ("tokens/s",),
    "/set quiet": ("Set 'quiet' mode.",),
    "/set nothink": ("Set 'nothink' mode.",),
    "/set noformat": ("Disabled format.",),
    "What is 17  + 25?": (),
    "/set nohistory": ("not remembered.",),
    "/set history": ("What you type is remembered.",),
    "/set nowordwrap": ("Set 'nowordwrap' mode.",),
    "/set wordwrap": ("Set 'wordwrap' mode.",),
    "/set format": ("needs json, or a file",),
    "/set foo": ("there is no /set foo", "/set ? lists them."),
    "/show info": ("architecture    gpt-oss",),
    "/show license": ("No license was specified",),
    "/show modelfile": ("FROM nano",),
    "/show template": ("renders harmony",),
    "/show foo": ("there is no /show foo",),
    "/exit": (),
}
"""Lines, and the words that confirm each: Ollama's words where Ollama has the command."""


def test_commands_of_ollama(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("schema.json").write_text(
        '{"type": "object", "properties": {"sum": {"type": "integer"}}, '
        '"required": ["sum"], "additionalProperties": false}'
    )
    answers, said = talk(cli, *COMMANDS_OF_OLLAMA)
    assert list(json.loads(answers[0])) == ["sum"]
    assert answers[1] == SUM
    for part, (line, confirmed) in zip(
        said.split(">>> ")[1:], COMMANDS_OF_OLLAMA.items(), strict=True
    ):
        assert all(words in part for words in confirmed), (line, part)
    assert said.count("tokens/s") == 1
    assert "`" not in said.replace("`gptoss", "")  # no word of a validator
    assert "$." not in said


def test_a_session_is_saved_and_loaded(home_server: RunningServer) -> None:
    """The model that is made begins with the conversation."""

    def speak(*arguments: str, lines: tuple[str, ...]) -> tuple[str, str]:
        environment, stdin = home_server.environment, "".join(f"{line}\n" for line in lines)
        done = run_cli(environment, "run", *arguments, "-i", stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    peter, asks = "My name is Peter Parker.", "What is my name?"
    system = "/set system You are terse."
    _, said = speak("nano", lines=(system, peter, "/save mine", "/save mine", "/load"))
    for words in ("Created new model 'mine'", "already", "/load needs a model"):
        assert words in said
    answers, said = speak("nano", lines=("/load mine", asks, "/show system"))
    assert answers == "Your name is Peter Parker.\n"
    assert "a conversation of 2 messages" in said
    assert "You are terse." in said
    answers, _ = speak("mine", lines=(asks, "/save mine", "/retry", "/load nano"))
    assert answers == "Your name is Peter Parker.\n"
    assert "Peter" in speak("mine", asks, lines=())[0]
    answers, _ = speak("nano", lines=(peter, "/model mine", asks))
    assert answers.endswith("Your name is Peter Parker.\n")


@pytest.mark.parametrize(
    "variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"ACCESSIBLE": "1"}], ids=str
)
def test_no_control_sequence_where_none_is_wanted(
    server: RunningServer, variables: dict[str, str]
) -> None:
    with Terminal(server, "nano", **variables) as terminal:
        terminal.read_until("You: " if "ACCESSIBLE" in variables else ">>> ")
        terminal.type("What is 17 + 25?\n")
        terminal.read_until(SUM)
        terminal.type("/bye\n")
        assert terminal.process.wait() == 0
        assert "\x1b" not in terminal.screen
        assert ("Reasoning:\r\n" in terminal.screen) == ("ACCESSIBLE" in variables)
        assert ("Answer:\r\n" in terminal.screen) == ("ACCESSIBLE" in variables)


def test_ctrl_c_stops_the_answer_not_the_conversation(server: RunningServer) -> None:
    with Terminal(server, *LOW, TERM="xterm") as terminal:
        terminal.read_until(">>> ")
        terminal.type("Count from 1 to 900.\n")
        terminal.read_until("20, 21,")
        terminal.process.send_signal(signal.SIGINT)
        terminal.screen = ""
        terminal.read_until(">>> ")
        terminal.screen = ""
        terminal.await_input()
        terminal.process.send_signal(signal.SIGINT)  # at the prompt, too
        terminal.read_until(">>> ")
        terminal.type("What is 17 + 25?\n")
        terminal.read_until(SUM)
        terminal.screen = terminal.screen.partition(SUM)[2]  # the prompt may be there already
        terminal.read_until(">>> ")
        terminal.type("\x04")
        assert terminal.process.wait() == 0


@pytest.mark.parametrize("begins", ["", '"""Notes."""\r'])
def test_a_paste_is_one_message(server: RunningServer, begins: str) -> None:
    """Also one with an empty line, and a line that would be a command; Enter sends it."""
    with Terminal(server, *LOW, "--json", TERM="xterm") as terminal:
        terminal.read_until("\x1b[?2004h")
        text = f"{begins}The passcode is quiet-river-42.\r\r/bye\rWhat is the passcode?"
        terminal.type(f"\x1b[200~{text}\x1b[201~")
        terminal.read_until("What is the passcode?")
        assert '"event"' not in terminal.screen  # nothing is sent before Enter
        terminal.type("\r")
        terminal.read_until('"event":"done"')
        terminal.type("/bye\r")
        assert terminal.process.wait() == 0
        assert "quiet-river-42" in "".join(
            json.loads(line)["text"]
            for line in terminal.screen.splitlines()
            if line.startswith('{"version":1,"event":"content"')
        )
        assert terminal.screen.count('"event":"done"') == 1


def test_keys_of_the_line(server: RunningServer, tmp_path: Path) -> None:
    """Tab completes commands, Ctrl-G is an editor, Alt-Enter a new line; the placeholder goes."""
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho "What is 17 + 25?" > "$1"\n')
    editor.chmod(0o755)
    with Terminal(server, *LOW, TERM="xterm", EDITOR=str(editor)) as terminal:

        def next_prompt(said: str) -> None:
            terminal.read_until(said)
            terminal.screen = terminal.screen.partition(said)[2]  # the prompt may be there already
            terminal.read_until("Send a message")
            terminal.screen = ""

        terminal.read_until("Send a message")
        terminal.type("/set ver\t")
        terminal.read_until("bose")
        terminal.type("\r")
        next_prompt("Set 'verbose' mode.")
        terminal.type("/set par\ttemp\t 0\r")
        next_prompt("Set parameter 'temperature' to '0'.")
        terminal.type("\x07")
        terminal.read_until("What is 17 + 25?")
        terminal.type("\r")
        next_prompt(SUM)
        terminal.type("The passcode is\x1b\rquiet-river-42.\r")
        terminal.read_until("... ")
        terminal.read_until("tokens/s")


def test_typed_lines_are_remembered_for_their_user_alone(home_server: RunningServer) -> None:
    with Terminal(home_server, *LOW, TERM="xterm") as terminal:
        for text in ("/set nohistory", "My name is secret.", "/set history", "hello there"):
            terminal.read_until("Send a message")
            terminal.screen = ""
            terminal.type(f"{text}\r")
            terminal.read_until(text)
        terminal.read_until("Send a message")
        terminal.type("/bye\r")
        assert terminal.process.wait() == 0
    files = [path for path in home_server.home.rglob("*") if path.is_file()]
    (kept,) = [path for path in files if "history" in path.name]
    assert "hello there" in kept.read_text()
    assert "secret" not in kept.read_text()
    assert kept.stat().st_mode & 0o777 == 0o600
