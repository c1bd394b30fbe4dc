"""Finds the name of the model in a file of the models folder; opens no file.

`mine:7b` is `mine%3A7b.gguf`, or `mine%3A7b.json` if it carries defaults or lies elsewhere. Models
in the catalogue have its file names. Of a split file only the first part counts.
"""

import hashlib
import re
import unicodedata
from pathlib import Path
from urllib.parse import unquote

from gptoss_local.base.formats.gguf_file import SPLIT_NAME
from gptoss_local.models.catalog import catalog

WEIGHTS_SUFFIX = ".gguf"
MANIFEST_SUFFIX = ".json"


def name_of(file: Path) -> str:
    for model in catalog():
        if model.file == file.name:
            return model.name
    stem = SPLIT_NAME.sub("", file.name) if SPLIT_NAME.search(file.name) else file.stem
    # Bytes that are not text, which Python keeps as half characters, would spoil every JSON list.
    return unquote(stem.encode(errors="replace").decode()).lower()


def weight_files(folder: Path) -> list[Path]:
    return [file for file in folder.glob("*") if is_model_file(file.name)]


def is_model_file(name: str) -> bool:
    part = SPLIT_NAME.search(name)
    return part[1] == "00001" if part else name.lower().endswith(WEIGHTS_SUFFIX)


def name_for(file: Path) -> str:
    """Make a model's name from a file's; a checksum keeps names of other letters apart."""
    stem = SPLIT_NAME.sub("", file.name) if SPLIT_NAME.search(file.name) else file.stem
    letters = unicodedata.normalize("NFKD", stem.lower())
    plain = "".join(c for c in letters if not unicodedata.combining(c))
    name = re.sub(r"[^a-z0-9_.-]+", "-", plain).strip(".-")[:70].rstrip(".")
    if all(c.isascii() or not c.isalnum() for c in plain):
        return name or "model"
    digest = hashlib.sha256(stem.encode(errors="surrogatepass")).hexdigest()[:6]
    return f"{name or 'model'}-{digest}"


def installed_names(models_dir: Path) -> list[str]:
    files = [*weight_files(models_dir), *models_dir.glob(f"*{MANIFEST_SUFFIX}")]
    local = {model.name for model in catalog() if model.is_local and Path(model.file).is_file()}
    embedded = [model.name for model in catalog() if model.embedded]
    return [*sorted({name_of(file) for file in files} | local), *embedded]
