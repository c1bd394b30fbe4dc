"""Pin the digests of llama.cpp's release in the repository: `python installers/pin.py`.

A maintainer runs it once for each build of llama.cpp, and reads what it changes.
"""

import dataclasses
import json
import sys
from pathlib import Path

import llama_release
from gpu_choice import RELEASES
from llama_release import ROOT
from steps import SetupError


def pin(root: Path = ROOT, api: str = llama_release.API) -> list[str]:
    """Write the digests of all files that an installer may take; return lines for the reader."""
    build = llama_release.own_build(root)
    listed = llama_release.listed(api, build.build)
    wanted = {
        name
        for (system, arch), ways in RELEASES.items()
        for way in ways
        for name in llama_release.names(build.build, way, arch, system)
    }
    digests = {name: listed[name].digest for name in sorted(wanted & listed.keys())}
    pinned = dataclasses.asdict(dataclasses.replace(build, digests=digests))
    (root / llama_release.FILE).write_text(json.dumps(pinned, indent=2) + "\n", encoding="utf-8")
    return [f"{digest}  {name}" for name, digest in digests.items()]


if __name__ == "__main__":
    try:
        print("\n".join(pin()))
    except SetupError as error:
        sys.exit(error.report)
