"""The weights of one GGUF file, mapped or uploaded by llama.cpp."""

import ctypes
import mmap
import os
import re
import sys
from collections.abc import Callable
from ctypes import c_void_p
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import llama_cpp

from gptoss_local.base.errors import EngineError, ModelLoadError
from gptoss_local.base.formats.gguf_file import array_size, read_info
from gptoss_local.base.formats.o200k import TOKENS_KEY
from gptoss_local.base.types import LoadMode, ModelParams
from gptoss_local.engine.llama.library import (
    forget_log,
    ggml,
    logged_buffers,
    recent_log,
    start_library,
)

CPU = "CPU"
_GPU = 1  # GGML_BACKEND_DEVICE_TYPE_GPU, ggml-backend.h


def device_handle(name: str) -> int:
    """Return the `ggml_backend_dev_t` of a device, or raise ModelLoadError."""
    by_name = {_name(handle): handle for handle in _handles()}
    if name not in by_name:
        raise ModelLoadError(
            f"llama.cpp has no device {name}", hint=f"It has: {', '.join(sorted(by_name))}."
        )
    return by_name[name]


def buffer_type(device: str) -> int:
    """Return the `ggml_backend_buffer_type_t` of `device`, which for the CPU is the plain one."""
    if device == CPU:
        return int(ggml("ggml_backend_cpu_buffer_type", ctypes.c_void_p))
    handle = ctypes.c_void_p(device_handle(device))
    return int(ggml("ggml_backend_dev_buffer_type", ctypes.c_void_p, handle))


def gpu_function(name: str, restype: Any, *argtypes: Any) -> Any:
    """Return a function of the first GPU's backend (`ggml_backend_reg_get_proc_address`)."""
    pointer = ctypes.c_void_p
    handles = map(pointer, _handles())
    gpus = [h for h in handles if ggml("ggml_backend_dev_type", ctypes.c_int, h) == _GPU]
    if not gpus:
        return None
    backend = pointer(ggml("ggml_backend_dev_backend_reg", pointer, gpus[0]))
    named = ctypes.c_char_p(name.encode())
    address = ggml("ggml_backend_reg_get_proc_address", pointer, backend, named)
    return ctypes.CFUNCTYPE(restype, *argtypes)(address) if address else None


def _handles() -> list[int]:
    start_library()
    n = ggml("ggml_backend_dev_count", ctypes.c_size_t)
    return [ggml("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t(i)) for i in range(n)]


def _name(handle: int) -> str:
    device = ctypes.c_void_p(handle)
    return str(ggml("ggml_backend_dev_name", ctypes.c_char_p, device).decode())


_GAP_BYTES = 2**20  # smaller ones, such as biases', are locked with their neighbours
_REGISTER, _UNREGISTER = (f"ggml_backend_{verb}_host_buffer" for verb in ("register", "unregister"))


class _Part(NamedTuple):
    """Bytes `start` .. `end` - 1 of a file, or of the memory of this process."""

    start: int
    end: int


def can_pin() -> bool:
    return sys.platform == "linux" and gpu_function(_REGISTER, ctypes.c_bool) is not None


def pin(path: Path, is_wanted: Callable[[str], bool]) -> list[int]:
    """Lock tensors of a file that llama.cpp has mapped; return addresses for `unpin`, or nothing.

    NOTE: a process that has the file mapped twice does not know which copy it locks. Source:
    `ggml_backend_cuda_register_host_buffer`, ggml-cuda.cu; it needs GGML_CUDA_REGISTER_HOST.
    """
    register = gpu_function(_REGISTER, ctypes.c_bool, ctypes.c_void_p, ctypes.c_size_t)
    os.environ["GGML_CUDA_REGISTER_HOST"] = "1"
    pinned: list[int] = []
    for part in _in_memory(path, _file_parts(path, is_wanted)):
        if part is None or not register(part.start, part.end - part.start):
            unpin(pinned)
            return []
        pinned.append(part.start)
    return pinned


def unpin(addresses: list[int]) -> None:
    unregister = gpu_function(_UNREGISTER, None, ctypes.c_void_p)
    for address in addresses:
        unregister(address)


def _file_parts(path: Path, is_wanted: Callable[[str], bool]) -> list[_Part]:
    parts: list[_Part] = []
    info = read_info(path)
    for name, (start, end) in sorted(info.tensor_spans.items(), key=lambda item: item[1]):
        if is_wanted(name):
            start -= start % mmap.PAGESIZE
            end += -end % mmap.PAGESIZE
            if parts and start <= parts[-1].end + _GAP_BYTES:
                start = parts.pop().start
            parts.append(_Part(start, end))
    return parts


def _in_memory(path: Path, parts: list[_Part]) -> list[_Part | None]:
    """Return the addresses of parts of a file; None for a part that is not mapped as a whole."""
    fragments = _mapped(path)
    found: list[_Part | None] = []
    for start, end in parts:
        bases = [m.start - at for at, m in fragments if at <= start and end <= at + m.end - m.start]
        found.append(_Part(bases[0] + start, bases[0] + end) if bases else None)
    return found


def _mapped(path: Path) -> list[tuple[int, _Part]]:
    """Return offsets in the file and addresses of its mapped parts; see `proc_pid_maps(5)`."""
    wanted, found = str(path.resolve()), []
    for line in os.fsdecode(Path("/proc/self/maps").read_bytes()).split("\n")[:-1]:
        addresses, _, offset, _, _, *name = line.split(maxsplit=5)
        if name == [wanted]:
            start, end = (int(each, 16) for each in addresses.split("-"))
            found.append((int(offset, 16), _Part(start, end)))
    return found


_LOAD_MODES = {"auto": -1, "none": 0, "mmap": 1, "direct_io": 4, "pinned": 1}  # llama.h


class Model:
    """A loaded model, which must be closed. Every context applies the LoRA `adapter`."""

    def __init__(
        self,
        path: Path,
        params: ModelParams = ModelParams(),  # noqa: B008 (frozen)
        *,
        adapter: Path | None = None,
        on_progress: Callable[[float], None] | None = None,
    ) -> None:
        start_library()
        self.close_first: list[Callable[[], None]] = []
        """Closes each context, before the weights it points into."""
        c = llama_cpp.llama_model_default_params()
        c.n_gpu_layers = params.n_gpu_layers
        devices, overrides = _devices(params), _overrides(params)  # alive until the load is over
        if params.devices is not None:
            c.devices = ctypes.cast(devices, c_void_p)
        if params.tensor_overrides:
            c.tensor_buft_overrides = ctypes.cast(overrides, c_void_p)
        if params.tensor_split is not None:
            n = int(llama_cpp.llama_max_devices())
            c.tensor_split = (ctypes.c_float * n)(*params.tensor_split)
        c.use_extra_bufts = params.repack
        c.no_alloc = params.no_alloc
        if on_progress is not None:
            c.progress_callback = _progress_callback(on_progress)
        mode = params.load_mode
        if mode == "pinned" and not can_pin():
            mode = "none"
        self._handle: int | None = _load(path, c, mode)
        self.n_layers = int(llama_cpp.llama_model_n_layer(self.handle))
        self._pinned: list[int] = []
        if mode == "pinned":
            self._pinned = pin(path, partial(_is_on_host, params, self.n_layers))
            if not self._pinned:
                self.close()
                self._handle = _load(path, c, "none")
        self.adapter = self._load_adapter(adapter) if adapter else None
        self.buffers = logged_buffers()
        self.n_vocab = int(
            llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.handle))
        )
        self.n_ctx_train = int(llama_cpp.llama_model_n_ctx_train(self.handle))
        self.n_swa = int(llama_cpp.llama_model_n_swa(self.handle))
        """Width of the sliding window, in tokens; 0 without one."""
        self.size_bytes = int(llama_cpp.llama_model_size(self.handle))
        self.n_params = int(llama_cpp.llama_model_n_params(self.handle))

    def _load_adapter(self, path: Path) -> Any:
        adapter = llama_cpp.llama_adapter_lora_init(self.handle, str(path).encode())
        if not adapter:
            self.close()
            raise ModelLoadError(
                f"llama.cpp could not load the adapter {path.name}: {recent_log()}",
                hint="Check that it is a LoRA of this model and that memory is free.",
            )
        return adapter

    @property
    def handle(self) -> int:
        if not self._handle:
            raise EngineError("the model is closed")
        return int(self._handle)

    @property
    def description(self) -> str:
        text = ctypes.create_string_buffer(128)
        llama_cpp.llama_model_desc(self.handle, text, len(text))
        return text.value.decode()

    def close(self) -> None:
        while self.close_first:
            self.close_first.pop()()
        if self._handle:
            unpin(self._pinned)
            llama_cpp.llama_model_free(self._handle)
            self._handle = None


def _load(path: Path, c: Any, mode: LoadMode) -> int:
    c.load_mode = _LOAD_MODES[mode]
    c.kv_overrides = _token_count(path)
    forget_log()
    handle = llama_cpp.llama_model_load_from_file(str(path).encode(), c)
    if not handle:
        raise ModelLoadError(
            f"llama.cpp could not load {path.name}: {recent_log()}",
            hint="Check that the file is a complete gpt-oss GGUF and that memory is free.",
        )
    return int(handle)


def _token_count(path: Path) -> Any:
    """Return keys that stand for the vocabulary. PERF: llama.cpp reads it in 0.8 s, in vain."""
    keys = (llama_cpp.llama_model_kv_override * 3)()
    if n_tokens := array_size(path, TOKENS_KEY):
        keys[0].key, keys[0].tag = b"tokenizer.ggml.model", llama_cpp.LLAMA_KV_OVERRIDE_TYPE_STR
        keys[0].value.val_str = b"no_vocab"
        keys[1].key, keys[1].tag = b"gpt-oss.vocab_size", llama_cpp.LLAMA_KV_OVERRIDE_TYPE_INT
        keys[1].value.val_i64 = n_tokens
    return keys


def _is_on_host(params: ModelParams, n_layers: int, tensor: str) -> bool:
    """Return whether a tensor of a layer stays with the CPU.

    Source: `get_layer_buft_list` and `create_tensor` in llama-model.cpp and -model-loader.cpp.
    """
    for pattern, device in params.tensor_overrides:
        if re.search(pattern, tensor):
            return device == CPU
    layer = re.match(r"blk\.(\d+)\.", tensor)
    return layer is not None and 0 <= params.n_gpu_layers < n_layers + 1 - int(layer[1])


class _Override(ctypes.Structure):
    """`llama_model_tensor_buft_override` of llama.h, which llama-cpp-python does not declare."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", c_void_p))


def _devices(params: ModelParams) -> ctypes.Array[c_void_p]:
    handles = [device_handle(name) for name in params.devices or ()]
    return (c_void_p * (len(handles) + 1))(*handles, None)


def _overrides(params: ModelParams) -> ctypes.Array[_Override]:
    pairs = [_Override(p.encode(), buffer_type(device)) for p, device in params.tensor_overrides]
    return (_Override * (len(pairs) + 1))(*pairs, _Override(None, None))


def _progress_callback(on_progress: Callable[[float], None]) -> object:
    def callback(fraction: float, _user_data: c_void_p) -> bool:
        on_progress(fraction)
        return True

    return llama_cpp.llama_progress_callback(callback)
