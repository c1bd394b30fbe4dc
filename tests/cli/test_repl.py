"""A conversation in a terminal, in a pipe, and for a screen reader."""

import json
import signal
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, Terminal, run_cli
from tests.conftest import RunningServer

SUM = "17 + 25 = 42"


def talk(cli: Cli, *lines: str, options: tuple[str, ...] = ()) -> tuple[list[str], str]:
    """Lines of the answers, and the text on stderr."""
    done = cli("run", "nano", "-i", *options, stdin="".join(f"{line}\n" for line in lines))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def test_in_a_pipe_answers_alone_are_on_stdout(cli: Cli) -> None:
    answers, said = talk(cli, "My name is Peter Parker.", "What is my name?", "/bye", "never read")
    assert answers == ["Nice to meet you, Peter Parker!", "Your name is Peter Parker."]
    assert said.count(">>> ") == 3
    assert "\x1b" not in said


def test_commands(cli: Cli) -> None:
    answers, said = talk(
        cli,
        *("/help", "/effort high", "/effort", "/effort huge", "/stats on", "/reasoning off"),
        *("What is 17 + 25?", "/retry", "/efort", "/model nanno", "/model gpt-oss-nano", "/system"),
        *("/", "/BYE"),
    )
    assert answers == [SUM, SUM]
    assert "/system TEXT" in said
    assert "/compare" not in said  # the screen's
    assert said.count("effort: high") == 2
    assert "huge is not one of low, medium, high" in said
    assert said.count("tokens/s") == 2
    assert "Did you mean /effort?" in said
    assert "Did you mean nano?" in said
    assert "model: gpt-oss-nano" in said
    assert "there is no command /\n" in said
    assert "so 42" not in said  # the reasoning


def test_commands_of_ollama(cli: Cli, tmp_path: Path) -> None:
    """Each confirms its effect, in Ollama's words where Ollama has the command."""
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "properties": {"sum": {"type": "integer"}}, '
                      '"required": ["sum"], "additionalProperties": false}')  # fmt: skip
    answers, said = talk(
        cli,
        *("/?", "/? set", "/? shortcuts", "/set parameter", "/show"),
        *("/set parameter temperature 0", "/set parameter stop a b", "/set parameter temp 1"),
        *("/set parameter seed x", "/set system You are terse.", "/show system", "/set ?"),
        *("/show parameters", "/set zzz"),
        *("/set verbose", "/set think low", f"/set format {schema}", "What is 17 + 25?"),
        *("/set quiet", "/set nothink", "/set noformat", "What is 17 + 25?", "/set nohistory"),
        *("/set history", "/set nowordwrap", "/set wordwrap", "/set format", "/set foo"),
        *("/show info", "/show license", "/show modelfile", "/show template", "/show foo"),
        "/exit",
    )
    assert list(json.loads(answers[0])) == ["sum"]
    assert answers[1] == SUM
    for expected in (
        *("/set [NAME VALUE]", "/load NAME ", "/save NAME ", "/clear ", "/bye, /exit "),
        *("/set parameter NAME VALUE", "/set nothink", "Ctrl-G", "repeat_last_n INT"),
        *("Set parameter 'temperature' to '0'.", "Set parameter 'stop' to 'a b'."),
        *(
            "there is no parameter temp\n  Did you mean /set parameter temperature?",
            "seed must be a whole number, not 'x'",
        ),
        *("Set system message.\n", "You are terse.\n", "temperature                    0\n"),
        *("Set 'verbose' mode.", "Set 'think' mode to 'low'.", f"Set format to '{schema}' mode."),
        *("Set 'quiet' mode.", "Set 'nothink' mode.", "Disabled format.", "not remembered."),
        *("What you type is remembered.", "Set 'nowordwrap' mode.", "Set 'wordwrap' mode."),
        *(
            "needs json, or a file",
            "there is no /set foo",
            "/set ? lists them.",
            "there is no /show foo",
        ),
        *("architecture    gpt-oss", "No license was specified", "FROM nano", "renders harmony"),
    ):
        assert expected in said, expected
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

    system = "/set system You are terse."
    _, said = speak(
        "nano", lines=(system, "My name is Peter Parker.", "/save mine", "/save mine", "/load")
    )
    assert "Created new model 'mine'" in said
    assert "already" in said
    assert "/load needs a model" in said
    answers, said = speak("nano", lines=("/load mine", "What is my name?", "/show system"))
    assert answers == "Your name is Peter Parker.\n"
    assert "a conversation of 2 messages" in said
    assert "You are terse." in said
    answers, _ = speak("mine", lines=("What is my name?", "/save mine", "/retry", "/load nano"))
    assert answers == "Your name is Peter Parker.\n"
    assert "Peter" in speak("mine", "What is my name?", lines=())[0]
    answers, _ = speak(
        "nano", lines=("My name is Peter Parker.", "/model mine", "What is my name?")
    )
    assert answers.endswith("Your name is Peter Parker.\n")


@pytest.mark.parametrize(
    "variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"ACCESSIBLE": "1"}], ids=str
)
def test_no_control_sequence_where_none_is_wanted(
    server: RunningServer, variables: dict[str, str]
) -> None:
    terminal = Terminal(server, "nano", **variables)
    try:
        terminal.read_until("You: " if "ACCESSIBLE" in variables else ">>> ")
        terminal.type("What is 17 + 25?\n")
        terminal.read_until(SUM)
        terminal.type("/bye\n")
        assert terminal.process.wait() == 0
        assert "\x1b" not in terminal.screen
        assert ("Reasoning:\r\n" in terminal.screen) == ("ACCESSIBLE" in variables)
        assert ("Answer:\r\n" in terminal.screen) == ("ACCESSIBLE" in variables)
    finally:
        terminal.close()


def test_ctrl_c_stops_the_answer_not_the_conversation(server: RunningServer) -> None:
    terminal = Terminal(server, "nano", "--effort", "low", TERM="xterm")
    try:
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
    finally:
        terminal.close()


@pytest.mark.parametrize("begins", ["", '"""Notes."""\r'])
def test_a_paste_is_one_message(server: RunningServer, begins: str) -> None:
    """Also one with an empty line, and a line that would be a command; Enter sends it."""
    terminal = Terminal(server, "nano", "--effort", "low", "--json", TERM="xterm")
    try:
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
    finally:
        terminal.close()


def test_keys_of_the_line(server: RunningServer, tmp_path: Path) -> None:
    """Tab completes commands, Ctrl-G is an editor, Alt-Enter a new line; the placeholder goes."""
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho "What is 17 + 25?" > "$1"\n')
    editor.chmod(0o755)
    terminal = Terminal(server, "nano", "--effort", "low", TERM="xterm", EDITOR=str(editor))

    def next_prompt(said: str) -> None:
        terminal.read_until(said)
        terminal.screen = terminal.screen.partition(said)[2]  # the prompt may be there already
        terminal.read_until("Send a message")
        terminal.screen = ""

    try:
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
    finally:
        terminal.close()


def test_what_is_typed_is_remembered_for_its_user_alone(home_server: RunningServer) -> None:
    home = Path(home_server.environment["GPTOSS_HOME"])
    terminal = Terminal(home_server, "nano", "--effort", "low", TERM="xterm")
    try:
        for text in ("/set nohistory", "My name is secret.", "/set history", "hello there"):
            terminal.read_until("Send a message")
            terminal.screen = ""
            terminal.type(f"{text}\r")
            terminal.read_until(text)
        terminal.read_until("Send a message")
        terminal.type("/bye\r")
        assert terminal.process.wait() == 0
    finally:
        terminal.close()
    kept = [path for path in home.rglob("*") if path.is_file() and "history" in path.name]
    assert len(kept) == 1
    assert "hello there" in kept[0].read_text()
    assert "secret" not in kept[0].read_text()
    assert kept[0].stat().st_mode & 0o777 == 0o600


def test_json_of_an_interrupted_answer_ends_in_done(server: RunningServer) -> None:
    terminal = Terminal(server, "nano", "Count from 1 to 900.", "--effort", "low", "--json")
    try:
        terminal.read_until('"text":"21"')
        terminal.process.send_signal(signal.SIGINT)
        terminal.read_until('"done_reason":"interrupted"')
        assert terminal.process.wait() == 130
    finally:
        terminal.close()


def test_stats_of_one_answer(server: RunningServer) -> None:
    done = run_cli(server.environment, "run", "nano", "hi", "--stats", "--hide-reasoning")
    assert done.stderr.startswith("prompt ")
    assert "tokens/s" in done.stderr
    assert done.stdout[-1] == "\n"
