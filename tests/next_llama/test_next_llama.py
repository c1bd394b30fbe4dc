"""The engine over a newer llama.cpp: what a change of version would break, before it is made.

The index has that build as a library for the CPU, `llama-cpp-py-sync`.
"""

import ctypes
import os
import platform
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from llama_cpp import llama_cpp

from gptoss_local.engine.llama import library_version

VERSION = "0.11739"  # llama.cpp b11739
FOLDER = Path(__file__).parent
OURS = (
    "llama_model_params", "llama_context_params", "llama_batch", "llama_token_data",
    "llama_token_data_array", "llama_sampler_chain_params", "llama_sampler_seq_config",
    "llama_logit_bias",
)  # fmt: skip

# It aborts wherever a sampling chain is attached: docs/design/engine.md.
WORKING = ("engine", "archive", "drafts", "mask", "prefix", "prefix_reuse", "process", "turns")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, unpacked."""
    folder = tmp_path_factory.mktemp("next")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(folder)]
    subprocess.run([*command, f"llama-cpp-py-sync=={VERSION}"], check=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(folder)
    return folder / "llama_cpp_py_sync"


def fields_of(header: str, struct: str) -> list[str]:
    body = re.search(
        rf"^struct {struct} \{{(.*?)^\}}|typedef struct {struct} \{{(.*?)^\}}", header, re.M | re.S
    )
    assert body, struct
    text = re.sub(r"union \{.*?\};|/\*.*?\*/", "", body[1] or body[2], flags=re.S)
    return re.findall(r"(\w+)(?:\[\d+\])?;", text)


@pytest.mark.nightly
def test_its_structs_are_ours_but_for_one_field(package: Path) -> None:
    header = (package / "_cffi_bindings.py").read_text()
    for struct in OURS:
        bound: type[ctypes.Structure] = getattr(llama_cpp, struct)
        ours = [name for name, *_ in bound._fields_]
        theirs = fields_of(header, struct)
        if struct == "llama_context_params":
            assert theirs.pop(theirs.index("type_v") + 1) == "moe_cache_size"
        assert [name for name in ours if name != "value"] == theirs, struct


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("module", WORKING)
def test_the_engine_works_over_it(package: Path, module: str) -> None:
    assert library_version() == "0.3.36"  # take the struct from llama-cpp-python when it has it
    if tuple(map(int, platform.libc_ver()[1].split("."))) < (2, 38):
        pytest.skip("the library needs glibc 2.38")
    paths = os.pathsep.join((str(FOLDER / "site"), str(FOLDER.parents[1])))
    environment = os.environ | {"PYTHONPATH": paths, "LLAMA_CPP_LIB_PATH": str(package)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-m", "not nightly and not gpu", f"tests/engine/test_{module}.py"],
        cwd=FOLDER.parents[1],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:]
