"""How llama.cpp finds its backends, and CUDA's libraries in NVIDIA's packages."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import llama_cpp
import pytest

from gptoss_local.base.errors import ModelLoadError
from gptoss_local.engine.llama import Model, library

SCRIPT = """
import ctypes, os, sys
from gptoss_local.engine.llama.cuda_packages import preload_cuda
if sys.argv[1:] == ["preload"]:
    preload_cuda()
library = ctypes.CDLL(os.path.join(os.environ["LLAMA_CPP_LIB_PATH"], "libggml-cuda.so"))
print(library.devices())
"""
# llama.cpp itself is the installed one, which has no CUDA and is loaded first
LOADED = """
import os
import gptoss_local.engine.llama
os.environ["LLAMA_CPP_LIB_PATH"] = os.environ["LIBRARIES"]
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Windows has folders for libraries")
def test_a_library_that_needs_cuda_finds_it_among_packages(tmp_path: Path) -> None:
    """Small libraries stand in for them; the linker is real."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    packages, libraries = tmp_path / "site/nvidia/cu13/lib", tmp_path / "lib"

    def compile(path: Path, code: str, *options: str | Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        source = tmp_path / f"{path.name}.c"
        source.write_text(code)
        name = f"-Wl,-soname,{path.name}"
        command = [compiler, "-shared", "-fPIC", name, "-o", path, source, *options]
        subprocess.run(command, check=True)

    cublas = packages / "libcublasLt.so.99"
    compile(cublas, "int count(void) { return 3; }")
    cuda = "int count(void); int devices(void) { return count(); }"
    compile(libraries / "libggml-cuda.so", cuda, cublas)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        variables = {"PYTHONPATH": str(tmp_path / "site"), "LIBRARIES": str(libraries)}
        command = [sys.executable, "-c", LOADED + SCRIPT, *arguments]
        return subprocess.run(command, env=variables, capture_output=True, text=True)

    assert "libcublasLt.so.99: cannot open" in run().stderr
    assert run("preload").stdout == "3\n"


def test_a_library_without_a_backend_for_this_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the processor is older than all of a wheel's variants: ggml loads none."""
    called: list[tuple[str, bytes]] = []

    def ggml(name: str, _restype: object, *arguments: Any) -> int:
        called.append((name, arguments[0].value if arguments else b""))
        return 0

    monkeypatch.setattr(library, "ggml", ggml)
    with pytest.raises(ModelLoadError, match="no backend for this processor"):
        library._load_backends()
    load, folder = called[1]
    assert load == "ggml_backend_load_all_from_path"
    assert folder == str(library._base_path).encode()  # and not the working directory


def test_the_library_describes_itself() -> None:
    assert "CPU : " in library.system_info()


@pytest.mark.quick
def test_a_vocabulary_is_counted_and_not_read(nano_gguf: Path) -> None:
    """llama.cpp would take 0.8 s for 200,000 names that nothing asks it for."""
    model = Model(nano_gguf)
    kind = llama_cpp.llama_vocab_type(llama_cpp.llama_model_get_vocab(model.handle))
    model.close()
    assert (model.n_vocab, kind) == (201_088, llama_cpp.LLAMA_VOCAB_TYPE_NONE)
