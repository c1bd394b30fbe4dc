"""Make a Debian package for the release of Debian or Ubuntu that this runs on.

    python3 installers/deb/build.py --llama-wheel llama_cpp_python-0.3.36-….whl

It needs dpkg-dev, libgomp1 and python3-venv. The same commit, packages and release give the same
bytes.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - before an older Python trips over what follows
    sys.exit("gptoss needs Python 3.11 or newer")

import argparse
import shutil
import tempfile
from hashlib import md5
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from deb import private_environment, shared_files
from deb.facts import PYTHON, Facts, gather
from deb.private_environment import is_compiled
from environments import make_environment
from from_source import ROOT
from installation import make_package
from steps import Log, SetupError

_SCRIPTS = ("postinst", "prerm")


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    log = Log(Path(tempfile.gettempdir()) / "gptoss-deb.log")
    try:
        print(build(log, options.llama_wheel.absolute(), options.out.absolute()))
    except SetupError as error:
        print(error.report, file=sys.stderr)
    except OSError as error:
        print(f"{error}\nIs the disk full, or a folder not yours?", file=sys.stderr)
    else:
        return 0
    return 1


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--llama-wheel", type=Path, required=True, help="llama-cpp-python, for every CPU meant")
    add("--out", type=Path, default=ROOT / "dist", metavar="FOLDER", help="default: dist")
    return parser.parse_args(arguments)


def build(log: Log, llama_wheel: Path, out: Path) -> Path:
    """Make the package and return its path.

    Raises:
        SetupError: a tool is missing, no network, or a wheel that does not fit.
    """
    if not llama_wheel.is_file():
        raise SetupError(f"{llama_wheel} does not exist.", "--llama-wheel takes a wheel's path.")
    with tempfile.TemporaryDirectory(prefix="gptoss-deb-") as folder:
        work = Path(folder)
        log.say("making an environment to build in")
        pip_python = make_environment(log, work / "tools")
        package = make_package(log, pip_python, str(ROOT), work / "wheel")
        facts = gather(package.version)
        log.say(f"installing gptoss {package.version} for Python {facts.python}")
        wheels = [llama_wheel, package.wheel]
        environment = private_environment.fill(log, pip_python, work / "root", PYTHON, wheels)
        return pack(log, work / "root", environment, facts, out)


def pack(log: Log, root: Path, environment: Path, facts: Facts, out: Path) -> Path:
    """Complete the files below `root`, of which `environment` is filled, and make the package."""
    log.say("writing man pages and completion")
    shared_files.add(log, root, environment, facts)
    private_environment.settle(environment, facts.python)
    add_control(log, root, facts)
    out.mkdir(parents=True, exist_ok=True)
    package = out / f"gptoss_{facts.debian_version}_{facts.architecture}.deb"
    log.say("compressing")
    log.run(
        ["dpkg-deb", "--root-owner-group", "--build", root, package],
        failed="dpkg-deb failed",
        hint="Is the disk full?",
        env={"SOURCE_DATE_EPOCH": str(facts.epoch)},  # no file is younger in the package
    )
    return package


def add_control(log: Log, root: Path, facts: Facts) -> None:
    """Write what dpkg reads, and give files the modes that Debian wants, whatever the umask."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    sums = [f"{md5(file.read_bytes()).hexdigest()}  {file.relative_to(root)}\n" for file in files]
    n_bytes = sum(file.stat().st_size for file in files)
    libraries = needed_libraries(log, files, root.parent / "shlibdeps")
    folder = root / "DEBIAN"
    folder.mkdir()
    (folder / "md5sums").write_text("".join(sums))
    (folder / "control").write_text(facts.control(libraries, n_bytes), encoding="utf-8")
    for name in _SCRIPTS:
        shutil.copyfile(Path(__file__).with_name(name), folder / name)
    for path in [root, *root.rglob("*")]:
        if not path.is_symlink():
            is_program = path.parent.name == "bin" or path.name in _SCRIPTS
            path.chmod(0o755 if path.is_dir() or is_program else 0o644)


def needed_libraries(log: Log, files: list[Path], work: Path) -> str:
    """Return the packages of the libraries that compiled files link to, as `Depends` has them."""
    compiled = [file for file in files if is_compiled(file)]
    source = work / "debian"  # dpkg-shlibdeps runs in the folder of a source package
    source.mkdir(parents=True)
    (source / "control").write_text("Source: gptoss\n\nPackage: gptoss\nArchitecture: any\n")
    options = [f"-l{folder}" for folder in sorted({file.parent for file in compiled})]
    options += ["-O", "--ignore-missing-info", *(f"-e{file}" for file in compiled)]
    lines: list[str] = []
    log.run(
        ["env", "-C", work, "dpkg-shlibdeps", *options],
        failed="dpkg-shlibdeps failed",
        hint="apt install dpkg-dev libgomp1, or the library that it misses.",
        on_line=lines.append,
    )
    (found,) = [line for line in lines if line.startswith("shlibs:Depends=")]
    return found.partition("=")[2].strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
