"""Start a server at login: a systemd user unit on Linux, a scheduled task on Windows."""

import os
import sys
from pathlib import Path

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
_TASK = """\
$action = New-ScheduledTaskAction -Execute conhost.exe -Argument '--headless "{command}" serve'
$trigger = New-ScheduledTaskTrigger -AtLogOn -User $env:USERNAME
$settings = New-ScheduledTaskSettingsSet -ExecutionTimeLimit 0 -AllowStartIfOnBatteries
Register-ScheduledTask gptoss -Action $action -Trigger $trigger -Settings $settings -Force
Start-ScheduledTask gptoss
"""
_UNTASK = "Stop-ScheduledTask gptoss; Unregister-ScheduledTask gptoss -Confirm:$false"


def install(log: Log, places: Places, receipt: Receipt) -> str:
    """Start the server now and at every login; return a sentence for the user.

    Without a service manager that answers, nothing is changed: `gptoss run` starts a server, too.
    """
    if sys.platform == "win32":
        _powershell(log, _TASK.format(command=places.bin / "gptoss.exe"))
        receipt.has_service = True
        return "The scheduled task gptoss starts the server at every login."
    if answer_of(["systemctl", "--user", "show-environment"]) is None:
        return "No service: systemd has no user session here. gptoss run starts a server, too."
    unit = _unit_file()
    unit.parent.mkdir(parents=True, exist_ok=True)
    unit.write_text(unit_text(places.bin / "gptoss"), encoding="utf-8")
    receipt.files.append(str(unit))
    receipt.has_service = True
    _systemctl(log, "daemon-reload")
    _systemctl(log, "enable", "--quiet", UNIT)
    _systemctl(log, "restart", UNIT)
    return "The user service gptoss runs: systemctl --user status gptoss"


def remove(log: Log) -> None:
    """Stop the server and its start at login; the unit's file goes with the receipt."""
    if sys.platform == "win32":
        _powershell(log, _UNTASK)
    elif _unit_file().is_file():
        _systemctl(log, "disable", "--quiet", "--now", UNIT)


def unit_text(command: Path) -> str:
    """Return the unit for a `gptoss`; systemd reads % and a backslash in its own way."""
    return _TEXT.format(command=str(command).replace("\\", "\\\\").replace("%", "%%"))


def _unit_file() -> Path:
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "systemd" / "user" / UNIT


def _systemctl(log: Log, *words: str) -> None:
    try:
        log.run(
            ["systemctl", "--user", *words],
            failed=f"systemctl --user {words[0]} failed",
            hint="systemctl --user status gptoss says more.",
        )
    except SetupError as error:  # not a reason to stop: the program itself is installed
        log.say(f"{error} {error.hint}")


def _powershell(log: Log, script: str) -> None:
    options = ("-NoProfile", "-NonInteractive", "-Command")
    try:
        log.run(
            ["powershell", *options, f"$ErrorActionPreference = 'Stop'\n{script}"],
            failed="The scheduled task could not be changed",
            hint="taskschd.msc shows it.",
        )
    except SetupError as error:
        log.say(f"{error} {error.hint}")
