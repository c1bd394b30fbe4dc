"""`gptoss presets`: what chats can begin with. Needs no server."""

import msgspec

from gptoss_local.cli._options import Json
from gptoss_local.cli._output import print_json, print_table, say, shortened
from gptoss_local.talk.presets import options_text, presets_path, read_presets


def presets(json: Json = False) -> None:
    """List the presets of the chat."""
    found = read_presets()
    if json:
        listed = [
            {"name": name, **msgspec.structs.asdict(preset)} for name, preset in found.items()
        ]
        print_json(file=presets_path(), presets=listed)
        return
    rows = [
        (name, preset.effort or "-", options_text(preset.options) or "-", shortened(preset.system))
        for name, preset in found.items()
    ]
    print_table(("NAME", "EFFORT", "OPTIONS", "SYSTEM"), rows)
    say(f"They are in {presets_path()}: gptoss chat --preset NAME")
