"""Start a server at login: a systemd user unit on Linux, a scheduled task on Windows."""

import os
import sys
import tempfile
from pathlib import Path
from xml.sax.saxutils import escape

from receipt import Places, Receipt
from steps import Log, SetupError, answer_of

UNIT = "gptoss.service"
_TEXT = """\
[Unit]
Description=gptoss, a local server for gpt-oss models

[Service]
ExecStart="{command}" serve
Restart=on-failure
KillMode=mixed

[Install]
WantedBy=default.target
"""
TASK = "gptoss"
_TASK_XML = """\
<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <Triggers><LogonTrigger><UserId>{user}</UserId></LogonTrigger></Triggers>
  <Principals>
    <Principal id="user"><UserId>{user}</UserId><LogonType>InteractiveToken</LogonType></Principal>
  </Principals>
  <Settings>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
  </Settings>
  <Actions Context="user">
    <Exec><Command>conhost.exe</Command><Arguments>--headless "{command}" serve</Arguments></Exec>
  </Actions>
</Task>
"""


def install(log: Log, places: Places, receipt: Receipt) -> str:
    """Start the server now and at every login, if there is a service manager; return a sentence."""
    if sys.platform == "win32":
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "task.xml"
            file.write_text(_task_xml(places.bin / "gptoss.exe"), encoding="utf-16")
            _try(log, "schtasks", "/create", "/f", "/tn", TASK, "/xml", str(file))
        _try(log, "schtasks", "/run", "/tn", TASK)
        receipt.has_service = True
        return "The scheduled task gptoss starts the server at every login."
    if answer_of(["systemctl", "--user", "show-environment"]) is None:
        return "No service: systemd has no user session here. gptoss run starts a server, too."
    unit = _unit_file()
    unit.parent.mkdir(parents=True, exist_ok=True)
    unit.write_text(unit_text(places.bin / "gptoss"), encoding="utf-8")
    receipt.files.append(str(unit))
    receipt.has_service = True
    for words in (("daemon-reload",), ("enable", "--quiet", UNIT), ("restart", UNIT)):
        _try(log, "systemctl", "--user", *words)
    return "The user service gptoss runs: systemctl --user status gptoss"


def remove(log: Log) -> None:
    """Stop the server and its start at login; the unit's file goes with the receipt."""
    if sys.platform == "win32":
        for verb, *options in (("/end",), ("/delete", "/f")):
            _try(log, "schtasks", verb, "/tn", TASK, *options)
    elif _unit_file().is_file():
        _try(log, "systemctl", "--user", "disable", "--quiet", "--now", UNIT)


def unit_text(command: Path) -> str:
    """Return the unit for a `gptoss`, with % and backslashes escaped for systemd."""
    return _TEXT.format(command=str(command).replace("\\", "\\\\").replace("%", "%%"))


def _unit_file() -> Path:
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "systemd" / "user" / UNIT


def _task_xml(command: Path) -> str:
    """Return a task that starts a server without a window, for as long as its user is there."""
    user = rf"{os.environ['USERDOMAIN']}\{os.environ['USERNAME']}"
    return _TASK_XML.format(user=escape(user), command=escape(str(command)))


def _try(log: Log, program: str, *words: str) -> None:
    """Run a program; a failure is only reported, as gptoss itself is installed."""
    status = "systemctl --user status gptoss says more."
    hint = "taskschd.msc shows the task." if program == "schtasks" else status
    try:
        log.run([program, *words], failed=f"{program} could not change the service", hint=hint)
    except SetupError as error:
        log.say(f"{error} {error.hint}")
