"""Parts of an installation whose faults cannot be had from outside."""

import shutil
from pathlib import Path
from typing import NamedTuple

import installation
import llama_wheel
import pytest
import receipt
import removal
from gpu_choice import Choice
from installation import Order
from receipt import Places, Receipt
from steps import Log, SetupError

RTX_4090 = Choice(("89-real",), "cu130", True, "RTX 4090")


class Usage(NamedTuple):
    free: int


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "share/gptoss/app", tmp_path / "bin", tmp_path / "install.log")


def order(tmp_path: Path, choice: Choice, index: str = "") -> Order:
    return Order("/nowhere", choice, tmp_path / "wheels", index, False, False)


def test_full_disk_is_seen_before_the_first_byte(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(2 * 10**9))
    with pytest.raises(SetupError, match=r"2\.0 GB are free .* 4 needed") as caught:
        installation.install(Log(places.log), places, order(tmp_path, RTX_4090))
    assert "--wheels" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_prebuilt_comes_first_and_a_kept_wheel_before_a_build(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels, log = tmp_path / "wheels", Log(places.log)
    url = "https://example.invalid/whl/cu130"
    kept = {}
    for how in (url, llama_wheel.cmake_args(RTX_4090.architectures)):
        folder = llama_wheel.wheel_folder(wheels, "1.0", how)
        folder.mkdir(parents=True)
        kept[how] = folder / "llama_cpp_python-1.0-py3-none-any.whl"
        kept[how].touch()
    wanted = order(tmp_path, RTX_4090, "https://example.invalid/whl")
    found = list(installation._candidates(log, Path("python"), "1.0", wanted))
    assert [how for how, _ in found] == ["prebuilt", "compiled here"]
    assert [wheel for _, wheel in found] == list(kept.values())
    assert "-DCMAKE_CUDA_ARCHITECTURES=89-real" in llama_wheel.cmake_args(("89-real",))

    kept[url].unlink()  # and there is no network
    found = list(installation._candidates(log, Path("/bin/false"), "1.0", wanted))
    assert [how for how, _ in found] == ["compiled here"]
    assert "no prebuilt llama.cpp" in places.log.read_text()


def test_build_without_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: Places
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="needs a C") as caught:
        llama_wheel.build(Log(places.log), "1.0", "", tmp_path / "wheels")
    assert "apt install g++" in caught.value.hint


def test_a_processor_gets_no_wheel_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = llama_wheel.wheel_folder(tmp_path, "1.0", "")
    assert here == llama_wheel.wheel_folder(tmp_path, "1.0", "")
    assert here != llama_wheel.wheel_folder(tmp_path, "1.1", "")
    assert here != llama_wheel.wheel_folder(tmp_path, "1.0", "-DGGML_CUDA=ON")
    monkeypatch.setattr(llama_wheel.platform, "machine", lambda: "aarch64")
    assert here != llama_wheel.wheel_folder(tmp_path, "1.0", "")


def test_record_that_is_none(places: Places) -> None:
    places.app.mkdir(parents=True)
    assert receipt.read(places.app) is None
    made = Receipt("1", "env-1", "compiled here", ["a"], {"b": True}, True)
    receipt.write(places.app, made)
    assert receipt.read(places.app) == made
    (places.app / "install.json").write_text('{"version": ')
    with pytest.raises(SetupError, match="no record") as caught:
        receipt.read(places.app)
    assert str(places.app) in caught.value.hint


def test_purge_refuses_to_guess_where_models_are(places: Places) -> None:
    broken = Receipt("1", "env-1", "")
    with pytest.raises(SetupError, match="does not say where") as caught:
        removal.uninstall(Log(places.log), places, broken, True, False, lambda _: None)
    assert "without --purge" in caught.value.hint
