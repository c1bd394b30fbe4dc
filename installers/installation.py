"""Install a new version next to the old one, which it replaces once it has answered."""

import contextlib
import email.parser
import json
import shutil
import socket
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

import environments
import llama_release
import llama_wheel
import receipt as records
import service
import shell_setup
from environments import pip
from gpu_choice import COMPILED, COMPILED_CUDA, Choice
from llama_release import Build, UnreachableError
from receipt import Places, Receipt
from removal import stop_programs
from steps import Log, SetupError, answer_of

# Measured for a CPU, compiled: 351 MB of program, 126 MB of cache, 217 MB of source. CUDA's release
# has 0.7 GB, and twice that unpacked; NVIDIA's compiler takes as much.
_CPU_BYTES, _CUDA_BYTES = 10**9, 4 * 10**9
CONSTRAINTS = Path(__file__).with_name("constraints.txt")


@dataclass(frozen=True)
class Order:
    """The options of an installation."""

    source: str  # a folder, an archive, a wheel or a URL, for pip
    choice: Choice
    wheels: Path  # where releases and wheels of llama.cpp are kept
    releases: str  # GitHub's API of llama.cpp's releases, or a mirror's
    edit_path: bool = False  # the start-up file of the shell may get a line
    is_served: bool = False  # a server starts at login


@dataclass(frozen=True)
class Package:
    """gptoss as a wheel, its version, and the build of llama.cpp that it is written for."""

    wheel: Path
    version: str
    llama: Build


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
            log.say(f"installing gptoss {package.version}")
            environments.install_dependencies(log, python)
            made = Receipt(package.version, environment.name)
            where = _find_llama(log, environment, package, order, made)
        log.say(f"it answered, on {where}")
        found = problems(environment)
        if made.llama.startswith("cuda") and where != "the GPU":
            found.append("The GPU was not used, though llama.cpp has CUDA: gptoss plan nano")
    except BaseException:
        _discard(environment)
        raise
    notes = _switch(log, places, previous, made, order)
    log.say(f"gptoss {package.version} is installed: gptoss chat")
    for note in [*notes, *found]:
        log.say(note)


def _check_space(places: Places, order: Order) -> None:
    is_cuda = order.choice.backend == "CUDA"
    needed_bytes = _CUDA_BYTES if is_cuda else _CPU_BYTES
    for wanted in (places.app, order.wheels):
        folder = next((path for path in (wanted, *wanted.parents) if path.is_dir()), None)
        if folder is None:  # a drive of Windows
            raise SetupError(f"{wanted.anchor} is not there.", "Name another disk with --wheels.")
        free_bytes = shutil.disk_usage(folder).free
        if free_bytes < needed_bytes:
            hint = "Make room there, or name another disk with --wheels and XDG_DATA_HOME."
            raise SetupError(
                f"{free_bytes / 1e9:.1f} GB are free in {folder}, {needed_bytes / 1e9:.0f} needed.",
                f"{hint} --backend cpu needs 1." if is_cuda else hint,
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
        if llama_release.FILE in archive.namelist():
            build = Build(**json.loads(archive.read(llama_release.FILE)))
            return Package(wheel, metadata["Version"], build)
    hint = "Is it gptoss? Its wheels are called gptoss_local-VERSION-py3-none-any.whl."
    raise SetupError(f"{source} does not say which llama.cpp it needs.", hint)


def _find_llama(log: Log, environment: Path, package: Package, order: Order, made: Receipt) -> str:
    """Try the ways to llama.cpp until nano answers; return where it did, and record the way."""
    failed: SetupError | None = None
    unreachable: SetupError | None = None
    for way in order.choice.ways:
        if unreachable and not way.startswith(COMPILED):
            continue
        if failed:
            log.say(f"{failed} {failed.hint} Now {way}.")
        try:
            made.llama, made.digests = way, put_llama(log, environment, package, order, way)
            if "cuda" in way.lower() and not has_gpu(environment):
                raise SetupError(f"llama.cpp, {way}, finds no GPU that it can use.")
            log.say("asking the built-in model for an answer")
            return check_answer(log, environment)
        except SetupError as error:
            failed = error
            unreachable = error if isinstance(error, UnreachableError) else unreachable
    assert failed
    last = unreachable or failed
    text = str(last) if unreachable else f"No llama.cpp suits this machine. {last}"
    raise SetupError(text, f"{last.hint} Log: {log.path}".strip()) from last


def put_llama(
    log: Log, environment: Path, package: Package, order: Order, way: str
) -> dict[str, str]:
    """Put llama.cpp and gptoss into an environment; return the digests of a release's files."""
    python, build = environments.python_of(environment), package.llama
    lib = environments.site_of(environment) / "llama_cpp" / "lib"
    archives: dict[Path, str] = {}
    if way.startswith(COMPILED):
        is_cuda = way == COMPILED_CUDA
        args = llama_wheel.cmake_args(order.choice.architectures if is_cuda else ())
        folder = llama_wheel.wheel_folder(order.wheels, build.version, args)
        wheel = llama_wheel.build(log, build.version, args, folder, is_cuda)
        if is_cuda:
            environments.install_dependencies(log, python, is_cuda=True)
    else:
        kept = order.wheels / build.build
        wanted = llama_release.names(build.build, way, order.choice.arch)
        archives = llama_release.fetch(log, build, wanted, kept, order.releases)
        wheel = llama_release.binding(log, python, build.version, kept)
    shutil.rmtree(lib, ignore_errors=True)  # of a way that failed
    # pip would take a second wheel, of the same version, for the same thing
    options = ("install", "--force-reinstall", "--no-deps")
    pip(log, python, *options, wheel, doing="install llama.cpp")
    if archives:
        llama_release.unpack(list(archives), lib)
    # Of a newer gptoss, named by --from, more may be missing.
    pip(log, python, "install", "--constraint", CONSTRAINTS, package.wheel, doing="install gptoss")
    return {path.name: digest for path, digest in archives.items()}


def _switch(
    log: Log, places: Places, previous: Receipt | None, made: Receipt, order: Order
) -> list[str]:
    if previous:
        made.edited = previous.edited
        stop_programs(places, places.app / previous.environment)  # its files go now
        made.files = previous.files
    environment = places.app / made.environment
    notes = shell_setup.put_on_path(places, environment, made, order.edit_path)
    if order.is_served:
        notes.append(service.install(log, places, made))
    made.files = sorted(set(made.files))
    records.write(places.app, made)
    for folder in places.app.glob("env-*"):
        if folder != environment:
            shutil.rmtree(folder, ignore_errors=True)
    return notes


def has_gpu(environment: Path) -> bool:
    """Return whether an environment's llama.cpp finds a GPU, in a process that may die of it."""
    code = "from gptoss_local.engine.llama import has_gpu; print(has_gpu())"
    return (answer_of([environments.python_of(environment), "-c", code]) or "").strip() == "True"


def check_answer(log: Log, environment: Path) -> str:
    program = environments.program_of(environment, "gptoss")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    variables = {"GPTOSS_PORT": port, "GPTOSS_HOST": "127.0.0.1"}
    try:
        log.run(
            [program, "run", "nano", "What is the capital of France?"],
            failed="The built-in model nano gave no answer",
            hint="`gptoss doctor` in the new installation may say why.",
            env=variables,
        )
        loaded = answer_of([program, "ps", "--json"], env=variables)
    finally:
        answer_of([program, "stop"], env=variables)
    models = json.loads(loaded or "{}").get("models")
    return "the GPU" if models and models[0].get("size_vram") else "the CPU"


def problems(environment: Path) -> list[str]:
    program = environments.program_of(environment, "gptoss")
    shown = answer_of([program, "doctor", "--json"], statuses=(0, 1))  # 1: it found some
    if not shown:  # nano has answered: what works is not thrown away
        return ["gptoss doctor has ended without a word, or takes a minute: try it."]
    found = [each for each in json.loads(shown)["findings"] if each["level"] == "problem"]
    return [f"doctor: {each['name']}: {each['text']} {each['fix']}" for each in found]
