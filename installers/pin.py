"""Pin the digests of llama.cpp's release in the repository: `python installers/pin.py`.

A maintainer runs it once for each build of llama.cpp, and reads what it changes.
"""

import dataclasses
import json
import sys
from pathlib import Path

import llama_release
from gpu_choice import CPU, CUDA_12, CUDA_13, VULKAN
from steps import SetupError


def pin(path: Path, api: str = llama_release.API) -> list[str]:
    """Write the digests of all files that an installer may take; return lines for the reader."""
    build = llama_release.Build(**json.loads(path.read_text(encoding="utf-8")))
    listed = llama_release.listed(api, build.build)
    wanted = {
        name
        for system in ("linux", "win32")
        for way in (CPU, VULKAN, CUDA_13, CUDA_12[system])
        for arch in ("x64", "arm64")
        for name in llama_release.names(build.build, way, arch, system)
    }
    digests = {name: listed[name].digest for name in sorted(wanted & listed.keys())}
    pinned = dataclasses.asdict(dataclasses.replace(build, digests=digests))
    path.write_text(json.dumps(pinned, indent=2) + "\n", encoding="utf-8")
    return [f"{digest}  {name}" for name, digest in digests.items()]


if __name__ == "__main__":
    try:
        print("\n".join(pin(Path(__file__).parents[1] / llama_release.FILE)))
    except SetupError as error:
        sys.exit(error.report)
