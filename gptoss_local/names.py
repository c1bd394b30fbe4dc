"""Which model a file of the models folder is, by its name alone; opens no file.

`mine:7b` is `mine%3A7b.gguf`, or `mine%3A7b.json` if it carries defaults. Models that the catalogue
knows have the file names it says.
"""

from pathlib import Path
from urllib.parse import unquote

from gptoss_local.catalog import catalog

WEIGHTS_SUFFIX = ".gguf"
MANIFEST_SUFFIX = ".json"


def name_of(file: Path) -> str:
    """The name of the model whose weights or manifest a file is."""
    for model in catalog():
        if model.file == file.name:
            return model.name
    return unquote(file.stem).lower()


def installed_names(models_dir: Path) -> list[str]:
    """Names of the models that can be run, sorted, the embedded one last."""
    suffixes = (WEIGHTS_SUFFIX, MANIFEST_SUFFIX)
    files = [file for suffix in suffixes for file in models_dir.glob(f"*{suffix}")]
    embedded = [model.name for model in catalog() if model.embedded]
    return [*sorted({name_of(file) for file in files}), *embedded]
