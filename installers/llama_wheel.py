"""Compile llama.cpp with its Python binding into a wheel, which is kept."""

import hashlib
import os
import platform
import re
import shutil
import sys
import time
from pathlib import Path

import cuda_toolkit
import environments
from environments import pip
from gpu_choice import COMPILER_HINT
from steps import Log, SetupError, duration

NAME = "llama-cpp-python"
_TOOLS = ("scikit-build-core[pyproject]>=0.9.2", "cmake>=3.28", "ninja")
LAYOUT = " ".join(
    (
        # All in one folder, each library once: a wheel has no links, and would hold copies.
        "-DCMAKE_INSTALL_BINDIR=llama_cpp/lib -DCMAKE_INSTALL_LIBDIR=llama_cpp/lib",
        "-DCMAKE_INSTALL_INCLUDEDIR=llama_cpp/include -DCMAKE_INSTALL_RPATH=$ORIGIN",
        "-DCMAKE_PLATFORM_NO_VERSIONED_SONAME=ON -DLLAVA_BUILD=OFF",
    )
)
_CPU_BUILD_S = 600  # of one core, for the CPU's library
_JOB_BYTES = 2 * 2**30  # of RAM for each compiler that runs at the same time


def cmake_args(architectures: tuple[str, ...] = ()) -> str:
    options = [LAYOUT]
    if architectures:
        # NCCL: where found, it brings a libstdc++ of its own, and importing llama_cpp crashes.
        options += ["-DGGML_CUDA=ON", "-DGGML_CUDA_NCCL=OFF"]
        options += [f"-DCMAKE_CUDA_ARCHITECTURES={';'.join(architectures)}"]
    return " ".join([*options, os.environ.get("CMAKE_ARGS", "")]).strip()


def cache_folder() -> Path:
    cache = os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "gptoss" / "wheels"


def wheel_folder(root: Path, version: str, how: str) -> Path:
    """Return the folder of one wheel: of this version and processor, made `how`.

    A build uses all instructions of the processor, so another one must not get it. `how` has the
    options of the build.
    """
    processor = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        flags = re.search(r"^(flags|Features)\s*:.*$", cpuinfo.read_text(), re.M)
        processor = flags[0] if flags else processor
    key = f"{version} {how} {platform.machine()} {sys.platform} {processor}"
    return root / hashlib.sha256(key.encode()).hexdigest()[:16]


def wheel_in(folder: Path) -> Path | None:
    return next(folder.glob("*.whl"), None)


def build(
    log: Log,
    version: str,
    args: str,
    folder: Path,
    cuda: bool = False,
) -> Path:
    """Return the wheel in `folder`, compiled unless it is there; the only slow step.

    With `cuda`, NVIDIA's compiler comes from the package index.
    """
    if kept := wheel_in(folder):
        return kept
    if environments.find_compiler() is None:
        raise SetupError("llama.cpp needs a C++ compiler.", COMPILER_HINT)
    work = folder.parent / f"build-{folder.name}"
    tools = work / "tools"
    python = environments.python_of(tools)
    if not python.is_file():
        environments.make_environment(log, tools)
    packages = (*_TOOLS, cuda_toolkit.COMPILER) if cuda else _TOOLS
    more = " and NVIDIA's compiler" if cuda else ""
    log.say(f"building llama.cpp {version}, once on this machine; after Ctrl-C, it resumes")
    log.say(f"fetching the build's tools{more}")
    if cuda:
        environments.get_resuming_pip(log, python)
    pip(log, python, "install", *packages, doing="install the build's tools")
    source = _source(log, python, version, work)
    _compile(log, python, args, work, source, cuda)
    folder.mkdir(parents=True, exist_ok=True)
    built = only_wheel(work / "out")
    wheel = Path(shutil.move(built, folder / built.name))
    shutil.rmtree(work, ignore_errors=True)  # the wheel is there; leftovers do no harm
    return wheel


def _source(log: Log, python: Path, version: str, work: Path) -> Path:
    """Fetch and unpack the source once, in a place that stays: objects depend on its path."""
    source = work / "source"
    if source.is_dir():
        return source
    options = ("--no-deps", "--no-build-isolation", "--no-binary", NAME, "--dest", work / "sdist")
    wanted = f"{NAME}=={version}"
    pip(log, python, "download", *options, wanted, doing="download llama.cpp's source")
    partial = work / "source.partial"
    shutil.rmtree(partial, ignore_errors=True)
    shutil.unpack_archive(next((work / "sdist").iterdir()), partial)
    next(partial.iterdir()).rename(source)
    return source


def _compile(log: Log, python: Path, args: str, work: Path, source: Path, cuda: bool) -> None:
    environment = environments.compiler_environment() | {"CMAKE_ARGS": args}
    path = environment.get("PATH") or os.environ.get("PATH", "")
    environment["PATH"] = os.pathsep.join((str(python.parent), path))
    if "CMAKE_BUILD_PARALLEL_LEVEL" not in os.environ:
        environment["CMAKE_BUILD_PARALLEL_LEVEL"] = str(n_jobs())
    if cuda:
        site = environments.site_of(work / "tools")
        environment |= cuda_toolkit.build_environment(site)
    os.environ.pop("SOURCE_DATE_EPOCH", None)  # with it, ggml builds without AVX
    # ggml's build takes ccache where it is installed; with this it hits in other folders, too
    environment["CCACHE_BASEDIR"] = os.environ.get("CCACHE_BASEDIR", str(work))
    log.say(f"compiling llama.cpp with {_estimate(cuda)}")
    command = [python, "-m", "pip", "wheel", "--verbose", "--no-deps", "--no-build-isolation"]
    command += ["--config-settings", f"build-dir={work / 'build'}"]
    log.run(
        [*command, "--wheel-dir", work / "out", source],
        failed="llama.cpp did not build",
        hint="If the compiler was killed, memory was short: CMAKE_BUILD_PARALLEL_LEVEL=1 builds "
        "one file at a time. Run the same command again to resume.",
        doing="compiling llama.cpp",
        env=environment,
        on_line=_Progress(log),
    )


def _estimate(cuda: bool) -> str:
    """Return how many compilers work, and how long: CUDA's kernels have not been timed."""
    n = int(os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or n_jobs())
    time_needed = "" if cuda else f": about {max(1, round(_CPU_BUILD_S / n / 60))} min"
    cached = " and ccache" if shutil.which("ccache") else ""
    return f"{n} compiler{'s' * (n > 1)}{cached}{time_needed}"


def n_jobs() -> int:
    """Return how many compilers to run at the same time: one per CPU, as far as the RAM goes."""
    n_cpus = os.cpu_count() or 1
    if not hasattr(os, "sysconf"):
        return n_cpus
    n_bytes: int = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(n_cpus, n_bytes // _JOB_BYTES))


class _Progress:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._shown = 0
        self._start = time.monotonic()

    def __call__(self, line: str) -> None:
        if step := re.search(r"\[(\d+)/(\d+)\]", line):
            n_done, n_all = int(step[1]), int(step[2])
            percent = 100 * n_done // n_all
            if percent >= self._shown + 10:
                self._shown = percent
                left_s = (time.monotonic() - self._start) * (n_all - n_done) / n_done
                rest = f", about {duration(left_s)} to go" if n_done < n_all else ""
                self._log.say(f"  {percent} % compiled{rest}")


def only_wheel(folder: Path) -> Path:
    if wheel := wheel_in(folder):
        return wheel
    raise SetupError(f"{folder} has no wheel.", "Remove that folder and run this again.")
