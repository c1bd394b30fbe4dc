"""NVIDIA's wheels: usable for a linker and for llama.cpp."""

import tomllib
from pathlib import Path

import llama_wheel
import pytest
from from_source import ROOT
from steps import SetupError


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The folder as pip leaves it: libraries with a version."""
    site = tmp_path / "site-packages"
    for name in ("libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libcudadevrt.a"):
        (site / "nvidia/cu13/lib").mkdir(parents=True, exist_ok=True)
        (site / "nvidia/cu13/lib" / name).write_text(name)
    return site


def test_linker_finds_toolkit_and_driver(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = tmp_path / "driver" / "libcuda.so.1"
    driver.parent.mkdir()
    driver.write_text("driver")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{driver.parent}")
    root = site / "nvidia/cu13"
    for _ in range(2):  # a build that is resumed
        found = llama_wheel.cuda_environment(site)
        assert found["CUDACXX"] == str(root / "bin/nvcc")
        assert found["CUDAToolkit_ROOT"] == str(root)
        assert (root / "lib64/libcublas.so").read_text() == "libcublas.so.13"
        assert (root / "lib/stubs/libcuda.so").read_text() == "driver"


def test_driver_without_its_library(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(llama_wheel, "answer_of", lambda _: "libc.so.6 (libc6) => /lib/libc.so.6")
    with pytest.raises(SetupError, match=r"libcuda\.so\.1 is nowhere") as caught:
        llama_wheel.cuda_environment(site)
    assert "LD_LIBRARY_PATH" in caught.value.hint


def test_the_extra_brings_what_the_installer_does() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["cuda"] == [llama_wheel.CUDA_RUNTIME]
