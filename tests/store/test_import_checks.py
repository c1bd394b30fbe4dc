"""A file that could not be loaded is refused when it gets a name, in words of its own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.models.store import add_model, adopt_file, list_models, look_at_file
from tests.convert.gguf_file import GgufFile, read_gguf
from tests.convert.write_gguf import write_gguf

pytestmark = pytest.mark.quick


def cut(path: Path, file: GgufFile) -> None:
    path.write_bytes(path.read_bytes()[:-5000])


def other_pre_tokenizer(path: Path, file: GgufFile) -> None:
    write_gguf(path, file.keys | {"tokenizer.ggml.pre": ("STRING", "gpt-4ö")}, file.tensors)


def adapter(path: Path, file: GgufFile) -> None:
    write_gguf(path, file.keys | {"general.type": ("STRING", "adapter")}, {})


FAULTS = {
    cut: "is cut off: it has [0-9,]+ bytes of [0-9,]+",
    other_pre_tokenizer: "the pre-tokenizer 'gpt-4.*, and gpt-oss has gpt-4o",
    adapter: "is a LoRA adapter, and not a model",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_refused_by_name(
    tiny: Path, tmp_path: Path, fault: Callable[[Path, GgufFile], None]
) -> None:
    settings = Settings(home=tmp_path / "home")
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny.read_bytes())
    fault(path, read_gguf(tiny))
    for use in (
        lambda: adopt_file(path, settings),
        lambda: add_model("mine", path, settings),
        lambda: look_at_file(path, settings),
    ):
        with pytest.raises(UsageError, match=FAULTS[fault]) as caught:
            use()
        assert caught.value.hint
    assert [entry.name for entry in list_models(settings)] == ["nano"]


def test_a_vocabulary_with_another_merge(nano_gguf: Path, tmp_path: Path) -> None:
    length = b"\x05\0\0\0\0\0\0\0"
    old, new = (length + f"\u0120 {letter}".encode() for letter in "tu")
    path = tmp_path / "m.gguf"
    path.write_bytes(nano_gguf.read_bytes().replace(old, new, 1))
    with pytest.raises(UsageError, match=r"not gpt-oss's\. The merges differ"):
        adopt_file(path, Settings(home=tmp_path / "home"))
