"""Builds llama.cpp's own server, once: `python -m tests.upstream.llama_server.build`.

Only the server is compiled, without optimisation. It computes with the libraries of the llama_cpp
that is installed here, so it answers as our engine does, to the last bit.
"""

import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from platformdirs import user_cache_path

PACKAGE = "llama-cpp-python"


def llama_server() -> Path:
    """Where the program is, or will be."""
    return user_cache_path("gptoss") / "llama_server" / version(PACKAGE) / "llama-server"


def libraries() -> Path:
    """The folder of libllama.so, which the program must be told in LD_LIBRARY_PATH."""
    spec = find_spec("llama_cpp")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "lib"


def main() -> None:
    target = llama_server()
    if target.is_file():
        print(target)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        fetch = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*fetch, "--dest", folder, f"{PACKAGE}=={version(PACKAGE)}"], check=True)
        shutil.unpack_archive(next(folder.glob("*.tar.gz")), folder, filter="data")
        source = next(folder.glob("llama_cpp_python-*/vendor/llama.cpp"))
        options = {
            "LLAMA_CPP": source,
            "LLAMA_LIB": libraries(),
            "CMAKE_CXX_FLAGS": "-O0 -w",
            "CMAKE_SKIP_RPATH": "ON",  # another environment's libraries do as well
        }
        configure = ["cmake", "-G", "Ninja", "-S", Path(__file__).parent, "-B", folder / "build"]
        configure += [f"-D{name}={value}" for name, value in options.items()]
        subprocess.run(configure, check=True)
        build = ["cmake", "--build", folder / "build", "--target", "llama-server"]
        subprocess.run(build, check=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(".partial")
        shutil.copy2(folder / "build" / "tools" / "server" / "llama-server", partial)
        partial.replace(target)
    print(target)


if __name__ == "__main__":
    main()
