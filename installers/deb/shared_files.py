"""Put man pages, completion, the unit and documents where Debian wants them."""

import gzip
import shutil
from pathlib import Path

import service
from deb.facts import Facts
from environments import python_of
from from_source import ROOT
from steps import Log, SetupError, answer_of

_HERE = Path(__file__).parent
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/gptoss",
    "zsh": "usr/share/zsh/vendor-completions/_gptoss",
    "fish": "usr/share/fish/vendor_completions.d/gptoss.fish",
}


def add(log: Log, root: Path, environment: Path, facts: Facts) -> None:
    """Add all of them below `root`; `environment` runs the gptoss that they describe."""
    variables = {"SOURCE_DATE_EPOCH": str(facts.epoch), "PYTHONDONTWRITEBYTECODE": "1"}
    python = python_of(environment)
    for shell, name in COMPLETIONS.items():
        script = answer_of([python, "-P", "-m", "gptoss_local", "completion", shell], variables)
        if script is None:
            hint = f"Run {python} -m gptoss_local completion {shell}"
            raise SetupError(f"There is no completion for {shell}.", hint)
        _write(root / name, script)
    pages = root / "usr/share/man/man1"
    log.run(
        [python, _HERE / "man_pages.py", pages],
        failed="The man pages could not be made",
        hint="The log says why.",
        env=variables,
    )
    for page in list(pages.iterdir()):
        _compress(page)
    _write(root / "usr/lib/systemd/user" / service.UNIT, service.unit_text(Path("/usr/bin/gptoss")))
    (root / "usr/bin").mkdir()
    (root / "usr/bin/gptoss").symlink_to("../lib/gptoss/bin/gptoss")
    _add_documents(root / "usr/share/doc/gptoss", facts)
    _write(root / "usr/share/lintian/overrides/gptoss", (_HERE / "lintian-overrides").read_text())


def _add_documents(folder: Path, facts: Facts) -> None:
    folder.mkdir(parents=True)
    for name in ("README.Debian", "copyright"):
        shutil.copyfile(_HERE / name, folder / name)
    shutil.copyfile(ROOT / "CHANGELOG.md", folder / "changelog")
    _compress(folder / "changelog")
    _write(folder / "changelog.Debian", facts.changelog)
    _compress(folder / "changelog.Debian")


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def _compress(file: Path) -> None:
    """Replace a file by one that `gzip -9n` makes: without its name and time."""
    data = gzip.compress(file.read_bytes(), mtime=0)
    file.unlink()
    file.with_name(f"{file.name}.gz").write_bytes(data)
