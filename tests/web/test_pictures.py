"""The pictures of docs/web.md and the README are there, sharp and small."""

import re

import pytest
from PIL import Image

from tests.web.vendor import ROOT

pytestmark = pytest.mark.quick

PAGE = (ROOT / "docs" / "web.md").read_text(encoding="utf-8")
PICTURES = re.findall(r"\((web[\w-]*\.webp)\)", PAGE)
MAX_BYTES = 150_000


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture(name: str) -> None:
    path = ROOT / "docs" / name
    assert path.stat().st_size < MAX_BYTES
    with Image.open(path) as image:
        assert min(image.size) >= 700
        assert len(image.convert("RGB").getcolors(1 << 24) or ()) > 100  # not blank


def test_there_are_pictures() -> None:
    assert len(PICTURES) == 3
    assert "docs/web.webp" in (ROOT / "README.md").read_text(encoding="utf-8")
