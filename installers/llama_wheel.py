"""Compile llama.cpp with its Python binding into a wheel, which is kept."""

import hashlib
import os
import platform
import re
import shutil
import sys
import time
from pathlib import Path

import environments
from environments import find_compiler, pip
from gpu_choice import COMPILER_HINT
from steps import Log, SetupError, answer_of, duration

NAME = "llama-cpp-python"
_TOOLS = ("scikit-build-core[pyproject]>=0.9.2", "cmake>=3.28", "ninja")
LAYOUT = (  # all in one folder, each library once: a wheel has no links, and would hold copies
    "-DCMAKE_INSTALL_BINDIR=llama_cpp/lib -DCMAKE_INSTALL_LIBDIR=llama_cpp/lib "
    "-DCMAKE_INSTALL_INCLUDEDIR=llama_cpp/include -DCMAKE_INSTALL_RPATH=$ORIGIN "
    "-DCMAKE_PLATFORM_NO_VERSIONED_SONAME=ON -DLLAVA_BUILD=OFF"
)
_CPU_BUILD_S = 600  # of one core, for the CPU's library
_JOB_BYTES = 2 * 2**30  # of RAM for each compiler that runs at the same time
_CPUINFO = Path("/proc/cpuinfo")
# 13.3 fixed wrong code of nvcc 13.2, 13.2 the clash with glibc 2.42 that 13.0 has; 13.4
# supports GCC 16. With machine code for the exact GPU, every driver of CUDA 13 runs it.
_VERSION = "13.4.3"
CUDA_COMPILER = f"cuda-toolkit[nvcc,cccl,cudart,cublas]=={_VERSION}"
CUDA_RUNTIME = f"cuda-toolkit[cudart,cublas]=={_VERSION}"


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
    """Return the folder of one wheel: of this version and processor, made with these options.

    A build uses all instructions of the processor, so another one must not get it.
    """
    cpuinfo = _CPUINFO.read_text() if _CPUINFO.is_file() else ""
    flags = re.search(r"^(flags|Features)\s*:.*$", cpuinfo, re.M)
    key = f"{version} {how} {platform.machine()} {sys.platform} {flags[0] if flags else ''}"
    return root / hashlib.sha256(key.encode()).hexdigest()[:16]


def wheel_in(folder: Path) -> Path | None:
    return next(folder.glob("*.whl"), None)


def build(log: Log, version: str, args: str, folder: Path, cuda: bool = False) -> Path:
    """Return the wheel in `folder`, compiled unless it is there; CUDA's compiler from the index."""
    if kept := wheel_in(folder):
        return kept
    if find_compiler() is None:
        raise SetupError("llama.cpp needs a C++ compiler.", COMPILER_HINT)
    work = folder.parent / f"build-{folder.name}"
    python = environments.python_of(work / "tools")
    if not python.is_file():
        environments.make_environment(log, work / "tools")
    more = " and NVIDIA's compiler" if cuda else ""
    log.say(f"building llama.cpp {version}, once on this machine; after Ctrl-C, it resumes")
    log.say(f"fetching the build's tools{more}")
    if cuda:  # files of hundreds of MB, which this version of pip resumes
        pip(log, python, "install", "--upgrade", "pip>=25.1", doing="upgrade itself")
    packages = (*_TOOLS, CUDA_COMPILER) if cuda else _TOOLS
    pip(log, python, "install", *packages, doing="install the build's tools")
    environment = {"CMAKE_ARGS": args}
    if cuda:
        environment |= cuda_environment(environments.site_of(work / "tools"))
    _compile(log, python, work, _source(log, python, version, work), environment, cuda)
    built = wheel_in(work / "out")
    if not built:
        raise SetupError(f"{work} has no wheel.", "Remove that folder and run this again.")
    folder.mkdir(parents=True, exist_ok=True)
    wheel = Path(shutil.move(built, folder / built.name))
    shutil.rmtree(work, ignore_errors=True)  # the wheel is there; leftovers do no harm
    return wheel


def _source(log: Log, python: Path, version: str, work: Path) -> Path:
    """Fetch and unpack the source once, in a place that stays: objects depend on its path."""
    source, partial = work / "source", work / "source.partial"
    if source.is_dir():
        return source
    options = ("--no-deps", "--no-build-isolation", "--no-binary", NAME, "--dest", work / "sdist")
    wanted = f"{NAME}=={version}"
    pip(log, python, "download", *options, wanted, doing="download llama.cpp's source")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.unpack_archive(next((work / "sdist").iterdir()), partial)
    next(partial.iterdir()).rename(source)
    return source


def _compile(
    log: Log, python: Path, work: Path, source: Path, environment: dict[str, str], cuda: bool
) -> None:
    n_compilers = int(os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or n_jobs())
    environment |= {
        "PATH": os.pathsep.join((str(python.parent), os.environ.get("PATH", ""))),
        "CMAKE_BUILD_PARALLEL_LEVEL": str(n_compilers),
        # ggml's build takes ccache where it is installed; with this it hits in other folders, too
        "CCACHE_BASEDIR": os.environ.get("CCACHE_BASEDIR", str(work)),
    }
    os.environ.pop("SOURCE_DATE_EPOCH", None)  # with it, ggml builds without AVX
    n_minutes = 15 if cuda else max(1, round(_CPU_BUILD_S / n_compilers / 60))
    log.say(f"compiling llama.cpp: about {n_minutes} min{' or more' if cuda else ''}")
    log.run(
        [
            *(python, "-m", "pip", "wheel", "--verbose", "--no-deps", "--no-build-isolation"),
            *("--config-settings", f"build-dir={work / 'build'}"),
            *("--wheel-dir", work / "out", source),
        ],
        failed="llama.cpp did not build",
        hint="If the compiler was killed, memory was short: CMAKE_BUILD_PARALLEL_LEVEL=1 builds "
        "one file at a time. Run the same command again to resume.",
        doing="compiling llama.cpp",
        env=environment,
        on_line=_Progress(log),
    )


def n_jobs() -> int:
    """Return how many compilers to run at the same time: one per CPU, as far as the RAM goes."""
    n_bytes: int = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(os.cpu_count() or 1, n_bytes // _JOB_BYTES))


class _Progress:
    def __init__(self, log: Log) -> None:
        self._log, self._shown, self._start = log, 0, time.monotonic()

    def __call__(self, line: str) -> None:
        if step := re.search(r"\[(\d+)/(\d+)\]", line):
            n_done, n_all = int(step[1]), int(step[2])
            if 100 * n_done // n_all >= self._shown + 10:
                self._shown = 100 * n_done // n_all
                left_s = (time.monotonic() - self._start) * (n_all - n_done) / n_done
                self._log.say(f"  {self._shown} % compiled, about {duration(left_s)} to go")


def cuda_environment(site: Path) -> dict[str, str]:
    """Complete the toolkit in `site` and return variables that make CMake find this one."""
    root = site / "nvidia" / "cu13"
    _add_link(root / "lib64", root / "lib")
    for library in (root / "lib").glob("lib*.so.*"):
        _add_link(root / "lib" / f"{library.name.partition('.so.')[0]}.so", library)
    _add_link(root / "lib" / "stubs" / "libcuda.so", _driver_library())
    nvcc = root / "bin" / "nvcc"
    found = {"CUDACXX": str(nvcc), "CUDAToolkit_ROOT": str(root), "CUDA_PATH": str(root)}
    # nvcc would look for g++ and for nothing else
    return found | {"CUDAHOSTCXX": os.environ.get("CUDAHOSTCXX") or find_compiler() or "g++"}


def _add_link(link: Path, target: Path) -> None:
    link.parent.mkdir(exist_ok=True)
    if not link.exists():
        link.unlink(missing_ok=True)  # it may point at a driver that has moved
        link.symlink_to(target)


def _driver_library() -> Path:
    listed = answer_of(["ldconfig", "-p"]) or answer_of(["/sbin/ldconfig", "-p"]) or ""
    cached = [line.rpartition("=> ")[2] for line in listed.splitlines() if "libcuda.so.1 " in line]
    folders = [*filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")), "/usr/lib/wsl/lib"]
    for path in [*(Path(folder) / "libcuda.so.1" for folder in folders), *map(Path, cached)]:
        if path.is_file() and "i386" not in str(path):
            return path
    raise SetupError(
        "NVIDIA's driver library libcuda.so.1 is nowhere to be found.",
        "Install the driver's compute part (Debian: libcuda1, Ubuntu: libnvidia-compute-NNN), or "
        "name its folder in LD_LIBRARY_PATH; --backend cpu does without.",
    )
