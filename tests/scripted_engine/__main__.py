"""`gptoss serve` with the scripted engine in the place of the real one."""

import os
from pathlib import Path

import msgspec

from gptoss_local.__main__ import main
from tests.scripted_engine import SCRIPT_VARIABLE, Part, play
from tests.scripted_engine.script import PROMPTS_SUFFIX

_path = Path(os.environ[SCRIPT_VARIABLE])


def _note(prompt: list[int]) -> None:
    with _path.with_suffix(PROMPTS_SUFFIX).open("ab") as file:
        file.write(msgspec.json.encode(prompt) + b"\n")


play(msgspec.msgpack.decode(_path.read_bytes(), type=list[Part]), _note)
main()
