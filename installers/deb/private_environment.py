"""Make the Python environment that the package holds: gptoss and all it needs, for one Python.

It is filled where the package is built, and knows that place until it is `settle`d.
"""

import hashlib
import shutil
from pathlib import Path

from environments import pip, python_of, site_of
from installation import CONSTRAINTS
from steps import Log

FOLDER = Path("usr/lib/gptoss")
_NOTES = ("RECORD", "REQUESTED", "direct_url.json")  # of pip, with the folder of the build
_CMAKE = (  # what llama.cpp's build leaves among the packages; a release's, in its own folder
    *("bin", "include", "lib"),
    *("llama_cpp/include", "llama_cpp/lib/cmake", "llama_cpp/lib/pkgconfig"),
)
_COMMAND = """\
#!/{folder}/bin/python3
import sys

from gptoss_local.__main__ import main

sys.exit(main())
"""
_CONFIGURATION = """\
home = /usr/bin
include-system-site-packages = false
version = {version}
"""


def fill(log: Log, pip_python: Path, root: Path, system_python: Path, wheels: list[Path]) -> Path:
    """Install wheels and what they need below `root`; return the environment.

    Its scripts name the folder of the build, in which it can be run.

    Args:
        log: Gets what pip prints.
        pip_python: A Python that has pip; the environment gets none.
        root: The package's files, as they will lie below `/`.
        system_python: The Python that the package is for.
        wheels: Of gptoss and of llama.cpp.
    """
    environment = root / FOLDER
    environment.parent.mkdir(parents=True)
    log.run(
        [system_python, "-m", "venv", "--without-pip", environment],
        failed="Python could not make an environment",
        hint=f"Is {system_python} there? apt install python3",
    )
    options = ("--no-compile", "--constraint", CONSTRAINTS)
    into = ("--python", python_of(environment))
    pip(log, pip_python, *into, "install", *options, *wheels, doing="install gptoss")
    return environment


def settle(environment: Path, version: str) -> None:
    """Make it fit `/usr/lib/gptoss`, and drop what only building needs; `version` is Python's."""
    site = site_of(environment)
    for folder in [environment / "include", *(site / name for name in _CMAKE)]:
        shutil.rmtree(folder, ignore_errors=True)
    (environment / "lib64").unlink(missing_ok=True)
    for note in [file for name in _NOTES for file in site.glob(f"*.dist-info/{name}")]:
        note.unlink()
    for folder in list(site.rglob("__pycache__")):
        shutil.rmtree(folder)
    _link_copies(site / "llama_cpp" / "lib")
    _keep_programs(environment / "bin")
    (environment / "bin" / "gptoss").write_text(_COMMAND.format(folder=FOLDER))
    (environment / "bin" / "gptoss").chmod(0o755)
    (environment / "bin" / "python3").symlink_to(f"../../../bin/python{version}")
    (environment / "pyvenv.cfg").write_text(_CONFIGURATION.format(version=version))


def _keep_programs(folder: Path) -> None:
    """Drop scripts and links, but keep compiled programs: the tool `python` runs one."""
    for file in folder.iterdir():
        if file.is_symlink() or not is_compiled(file):
            file.unlink()


def is_compiled(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(4) == b"\x7fELF"


def _link_copies(folder: Path) -> None:
    """Replace copies of a library by links, which a wheel cannot hold."""
    originals: dict[bytes, Path] = {}
    for file in sorted(folder.iterdir(), key=lambda path: (-len(path.name), path.name)):
        digest = hashlib.sha256(file.read_bytes()).digest()
        original = originals.setdefault(digest, file)
        if original is not file:
            file.unlink()
            file.symlink_to(original.name)
