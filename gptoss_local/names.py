"""Which model a file of the models folder is, by its name alone; opens no file.

`mine:7b` is `mine%3A7b.gguf`, or `mine%3A7b.json` if it carries defaults or lies elsewhere. Models
that the catalogue knows have the file names it says. Of a split file only the first part counts.
"""

from pathlib import Path
from urllib.parse import unquote

from gptoss_local.catalog import catalog
from gptoss_local.gguf_file import SPLIT_NAME

WEIGHTS_SUFFIX = ".gguf"
MANIFEST_SUFFIX = ".json"


def name_of(file: Path) -> str:
    """The name of the model whose weights or manifest a file is."""
    for model in catalog():
        if model.file == file.name:
            return model.name
    stem = SPLIT_NAME.sub("", file.name) if SPLIT_NAME.search(file.name) else file.stem
    # Bytes that are no text, which Python keeps as half characters, would spoil every JSON list.
    return unquote(stem.encode(errors="replace").decode()).lower()


def weight_files(folder: Path) -> list[Path]:
    """The files in a folder that hold a model each, or the beginning of one."""
    found = folder.glob(f"*{WEIGHTS_SUFFIX}")
    return [f for f in found if not (part := SPLIT_NAME.search(f.name)) or part[1] == "00001"]


def installed_names(models_dir: Path) -> list[str]:
    """Names of the models that can be run, sorted, the embedded one last."""
    files = [*weight_files(models_dir), *models_dir.glob(f"*{MANIFEST_SUFFIX}")]
    local = {model.name for model in catalog() if model.is_local and Path(model.file).is_file()}
    embedded = [model.name for model in catalog() if model.embedded]
    return [*sorted({name_of(file) for file in files} | local), *embedded]
