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
    for words in (("daemon-reload",), ("enable", "--quiet", UNIT), ("restart", UNIT)):
        _try(log, "systemctl", "--user", *words)
    return "The user service gptoss runs: systemctl --user status gptoss"


def remove(log: Log) -> None:
    """Stop the server and its start at login; the unit's file goes with the receipt."""
    if sys.platform == "win32":
        _powershell(log, _UNTASK)
    elif _unit_file().is_file():
        _try(log, "systemctl", "--user", "disable", "--quiet", "--now", UNIT)


def unit_text(command: Path) -> str:
    """Return the unit for a `gptoss`; systemd reads % and a backslash in its own way."""
    return _TEXT.format(command=str(command).replace("\\", "\\\\").replace("%", "%%"))


def _unit_file() -> Path:
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "systemd" / "user" / UNIT


def _powershell(log: Log, script: str) -> None:
    script = f"$ErrorActionPreference = 'Stop'\n{script}"
    _try(log, "powershell", "-NoProfile", "-NonInteractive", "-Command", script)


def _try(log: Log, program: str, *words: str) -> None:
    """Run a program; a failure is only reported, as gptoss itself is installed."""
    status = "systemctl --user status gptoss says more."
    hint = "taskschd.msc shows the task." if program == "powershell" else status
    try:
        log.run([program, *words], failed=f"{program} could not change the service", hint=hint)
    except SetupError as error:
        log.say(f"{error} {error.hint}")
