"""A conversation in a terminal, in a pipe, and for a screen reader."""

import json
import signal
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, PseudoTerminal, Terminal, run_cli
from tests.conftest import RunningServer, wait_until

SUM = "17 + 25 = 42"


def talk(cli: Cli, *lines: str, options: tuple[str, ...] = ()) -> tuple[list[str], str]:
    """Lines of the answers, and all that was said beside them."""
    done = cli("run", "nano", "-i", *options, stdin="".join(f"{line}\n" for line in lines))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def test_in_a_pipe_answers_alone_are_on_stdout(cli: Cli) -> None:
    answers, said = talk(cli, "My name is Peter Parker.", "What is my name?", "/bye", "never read")
    assert answers == ["Nice to meet you, Peter Parker!", "Your name is Peter Parker."]
    assert said.count(">>> ") == 3
    assert "\x1b" not in said


def test_a_server_that_was_stopped_is_started_again(fresh: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gptoss_local", "run", "nano", "-i", "--effort", "low"]
    terminal = PseudoTerminal(command, fresh, tmp_path)
    try:
        terminal.read_until(">>> ")
        terminal.type("What is 17 + 25?\n")
        terminal.read_until(SUM)
        assert run_cli(fresh, "stop").returncode == 0
        wait_until(lambda: run_cli(fresh, "status").returncode == 7)
        terminal.type("What is the capital of France?\n")
        terminal.read_until("Paris")
    finally:
        terminal.close()


def test_several_lines(cli: Cli) -> None:
    answers, _ = talk(cli, '"""What', 'is 17 + 25?"""', '"""What is 17 + 25?"""')
    assert answers == [SUM, SUM]


def test_commands(cli: Cli) -> None:
    answers, said = talk(
        cli,
        *("/help", "/effort high", "/effort", "/effort huge", "/stats on", "/reasoning off"),
        *("What is 17 + 25?", "/retry", "/efort", "/model nanno", "/model gpt-oss-nano", "/system"),
    )
    assert answers == [SUM, SUM]
    assert "/system TEXT" in said
    assert said.count("effort: high") == 2
    assert "effort is low, medium, high, not huge" in said
    assert said.count("tokens/s") == 2
    assert "Did you mean /effort?" in said
    assert "Did you mean nano?" in said
    assert "model: gpt-oss-nano" in said
    assert "so 42" not in said  # the reasoning


def test_clear_forgets(cli: Cli) -> None:
    _, said = talk(cli, "/retry", "My name is Peter Parker.", "/clear", "/retry")
    assert said.count("nothing has been asked yet") == 2


def test_a_path_is_a_message(cli: Cli) -> None:
    answers, said = talk(cli, "/usr/bin: what is the capital of France?")
    assert len(answers) >= 1
    assert "no command" not in said


def test_system_message(cli: Cli) -> None:
    """The prompt grows by it, and shrinks without it."""
    options = ("--system", "You are a pirate who likes long sentences.", "--json")
    lines, _ = talk(cli, "hi", '/system ""', "/clear", "hi", options=options)
    counts = [e["prompt_eval_count"] for e in map(json.loads, lines) if e["event"] == "done"]
    assert len(counts) == 2
    assert counts[0] > counts[1]


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
        assert terminal.process.wait(timeout=10) == 0
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
        assert terminal.process.wait(timeout=10) == 0
    finally:
        terminal.close()


def test_lines_can_be_edited_and_called_back(server: RunningServer) -> None:
    terminal = Terminal(server, "nano", "--effort", "low", TERM="xterm")
    try:
        terminal.read_until(">>> ")
        terminal.type("What is 17 + 25x\x7f?\n")
        terminal.read_until(SUM)
        terminal.screen = terminal.screen.partition(SUM)[2]  # the prompt may be there already
        terminal.read_until(">>> ")
        terminal.type("\x1b[A\n")  # the line before
        terminal.read_until(SUM)
    finally:
        terminal.close()


def test_json_of_an_interrupted_answer_ends_in_done(server: RunningServer) -> None:
    terminal = Terminal(server, "nano", "Count from 1 to 900.", "--effort", "low", "--json")
    try:
        terminal.read_until('"text":"21"')
        terminal.process.send_signal(signal.SIGINT)
        terminal.read_until('"done_reason":"interrupted"')
        assert terminal.process.wait(timeout=10) == 130
    finally:
        terminal.close()


def test_stats_of_one_answer(server: RunningServer) -> None:
    done = run_cli(server.environment, "run", "nano", "hi", "--stats", "--hide-reasoning")
    assert done.stderr.startswith("prompt ")
    assert "tokens/s" in done.stderr
    assert done.stdout[-1] == "\n"
