"""Install a new version next to the old one, which it replaces once it has answered."""

import contextlib
import email.parser
import re
import shutil
import tempfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cuda_toolkit
import environments
import llama_wheel
import receipt as records
import service
import shell_setup
import verification
from environments import pip
from gpu_choice import COMPILER_HINT, RELEASE, LlamaOrigin
from receipt import Places, Receipt
from removal import stop_programs
from steps import Log, SetupError

# While it builds; measured without CUDA: 351 MB of program, 126 MB of cache, 217 MB of source. With
# it NVIDIA's compiler has 1.1 GB more, and its libraries lie in the program, too.
_CPU_BYTES, _CUDA_BYTES = 10**9, 4 * 10**9
CONSTRAINTS = Path(__file__).with_name("constraints.txt")


@dataclass(frozen=True)
class Order:
    """The options of an installation.

    Attributes:
        source: A folder, an archive, a wheel or a URL, for pip.
        wheels: Where wheels of llama.cpp are kept.
        index: Of prebuilt ones; empty for none.
        edit_path: The start-up file of the shell may get a line.
        is_served: A server starts at login.
        release: The folder of a release's files; None without one.
    """

    source: str
    choice: LlamaOrigin
    wheels: Path
    index: str
    edit_path: bool
    is_served: bool
    release: Path | None = None


@dataclass(frozen=True)
class Package:
    """gptoss as a wheel, its version, and the version of llama-cpp-python that it pins."""

    wheel: Path
    version: str
    llama: str


def install(log: Log, places: Places, order: Order) -> None:
    """Install, or upgrade; if anything fails, the old version keeps working."""
    shell_setup.check_command(places)
    _check_space(places, order)
    previous = records.read(places.app)
    environment = places.app / time.strftime("env-%Y%m%d-%H%M%S")
    try:
        log.say(f"making an environment in {environment}")
        python = environments.make_environment(log, environment)
        with tempfile.TemporaryDirectory() as folder:
            package = make_package(log, python, order.source, Path(folder))
            more = " and CUDA's libraries" if order.choice.is_cuda else ""
            log.say(f"installing gptoss {package.version}{more}")
            if order.choice.is_cuda:
                environments.get_resuming_pip(log, python)
            llama = _fill(log, environment, package, order)
        log.say("asking the built-in model for an answer")
        where = verification.check_answer(log, environment)
        log.say(f"it answered, on {where}")
        found = verification.problems(environment)
        if order.choice.is_cuda and where != "the GPU":
            found.append("the GPU was not used, though llama.cpp has CUDA: gptoss plan nano")
    except BaseException:
        _discard(environment)
        raise
    made = Receipt(package.version, environment.name, llama)
    notes = _switch(log, places, environment, previous, made, order)
    log.say(f"gptoss {package.version} is installed: gptoss chat")
    for note in [*notes, *(f"doctor: {problem}" for problem in found)]:
        log.say(note)


def _check_space(places: Places, order: Order) -> None:
    needed_bytes = _CUDA_BYTES if order.choice.is_cuda else _CPU_BYTES
    for folder in (places.app, order.wheels):
        while not folder.is_dir():
            folder = folder.parent
        free_bytes = shutil.disk_usage(folder).free
        if free_bytes < needed_bytes:
            raise SetupError(
                f"{free_bytes / 1e9:.1f} GB are free in {folder}, {needed_bytes / 1e9:.0f} needed.",
                "Make room there, or name another disk with --wheels and XDG_DATA_HOME.",
            )


def _discard(environment: Path) -> None:
    shutil.rmtree(environment, ignore_errors=True)
    for folder in (environment.parent, environment.parent.parent):
        with contextlib.suppress(OSError):  # not empty, or not there
            folder.rmdir()


def make_package(log: Log, python: Path, source: str, folder: Path) -> Package:
    pip(log, python, "wheel", "--no-deps", "--wheel-dir", folder, source, doing=f"build {source}")
    wheel = llama_wheel.wheel_in(folder)
    if wheel is None:
        raise SetupError(f"{source} is not a Python package.", "Name gptoss's folder or archive.")
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = email.parser.Parser().parsestr(archive.read(name).decode())
    for requirement in metadata.get_all("Requires-Dist", []):
        if pinned := re.match(rf"{llama_wheel.NAME}\s*==\s*([\w.]+)", requirement):
            return Package(wheel, metadata["Version"], pinned[1])
    hint = "Is it gptoss? Its wheels are called gptoss_local-VERSION-py3-none-any.whl."
    raise SetupError(f"{source} does not say which {llama_wheel.NAME} it needs.", hint)


def _fill(log: Log, environment: Path, package: Package, order: Order) -> str:
    python, choice = environments.python_of(environment), order.choice
    reason = ""
    environments.install_dependencies(log, python, is_cuda=choice.is_cuda)
    # Of a newer gptoss, named by --source, more may be missing.
    options: list[str | Path] = ["--constraint", CONSTRAINTS]
    packages: list[str | Path] = [package.wheel]
    packages += [cuda_toolkit.RUNTIME] if choice.is_cuda else []
    for how, wheel in _candidates(log, python, package.llama, order):
        pip(log, python, "install", *options, wheel, *packages, doing="install gptoss")
        # pip would take a second candidate, of the same version, for the same thing
        options, packages = ["--force-reinstall", "--no-deps"], []
        reason = verification.unsuitable(log, environment, choice.architectures)
        if not reason:
            return how
        log.say(f"llama.cpp, {how}, does not suit. {reason}")
    hint = "--backend cpu does without the GPU. " if choice.is_cuda else ""
    hint += f"Delete {wheel} to have it built again. Log: {log.path}"
    raise SetupError(f"No llama.cpp suits this machine. {reason}", hint)


def _candidates(log: Log, python: Path, version: str, order: Order) -> Iterator[tuple[str, Path]]:
    """Yield wheels of llama.cpp, the quick way first; each is fetched or built on demand."""
    choice = order.choice
    if choice.prebuilt == RELEASE or (choice.prebuilt and order.index):
        try:
            wheel = _prebuilt(log, python, version, order)
        except SetupError as error:
            if not choice.build:
                raise
            log.say(f"no prebuilt llama.cpp: {error}")
        else:
            yield "prebuilt", wheel
    if choice.build:
        args = llama_wheel.cmake_args(choice.architectures)
        folder = llama_wheel.wheel_folder(order.wheels, version, args)
        yield "compiled here", llama_wheel.build(log, version, args, folder, choice.is_cuda)
    elif choice.prebuilt != RELEASE and not order.index:
        raise SetupError("Without a C++ compiler --llama-index must not be empty.", COMPILER_HINT)


def _prebuilt(log: Log, python: Path, version: str, order: Order) -> Path:
    if order.choice.prebuilt == RELEASE and order.release:
        folder = order.wheels / RELEASE
        shutil.rmtree(folder, ignore_errors=True)  # of another release
        return llama_wheel.download(log, python, version, folder, order.release)
    url = f"{order.index}/{order.choice.prebuilt}"
    folder = llama_wheel.wheel_folder(order.wheels, version, url)
    return llama_wheel.download(log, python, version, folder, url)


def _switch(
    log: Log,
    places: Places,
    environment: Path,
    previous: Receipt | None,
    made: Receipt,
    order: Order,
) -> list[str]:
    if previous:
        made.edited = previous.edited
        old = places.app / previous.environment
        stop_programs(places, old)  # its files go now
        made.files = previous.files
    notes = shell_setup.put_on_path(places, environment, made, order.edit_path)
    if order.is_served:
        notes.append(service.install(log, places, made))
    made.files = sorted(set(made.files))
    records.write(places.app, made)
    for folder in places.app.glob("env-*"):
        if folder != environment:
            shutil.rmtree(folder, ignore_errors=True)
    return notes
