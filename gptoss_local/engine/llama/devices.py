"""List the devices ggml can compute on, with their memory and buffer types."""

import ctypes
from typing import Any, Literal

import msgspec

from gptoss_local.base.errors import ModelLoadError
from gptoss_local.engine.llama.library import ggml, start_library

DeviceKind = Literal["cpu", "gpu", "integrated", "accelerator", "meta"]

_KINDS: tuple[DeviceKind, ...] = ("cpu", "gpu", "integrated", "accelerator", "meta")
CPU = "CPU"


class Device(msgspec.Struct, frozen=True):
    name: str
    description: str
    kind: DeviceKind
    free_bytes: int
    total_bytes: int


def list_devices() -> list[Device]:
    """Return all devices, including the CPU, in ggml's order (`ggml_backend_dev_*`)."""
    return [_describe(handle) for handle in _handles()]


def device_handle(name: str) -> int:
    """Return the `ggml_backend_dev_t` of a device, or raise ModelLoadError."""
    by_name = {_describe(handle).name: handle for handle in _handles()}
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
    gpu = next((each for each in _handles() if _describe(each).kind == "gpu"), None)
    if gpu is None:
        return None
    pointer = ctypes.c_void_p
    backend = pointer(ggml("ggml_backend_dev_backend_reg", pointer, pointer(gpu)))
    named = ctypes.c_char_p(name.encode())
    address = ggml("ggml_backend_reg_get_proc_address", pointer, backend, named)
    return ctypes.CFUNCTYPE(restype, *argtypes)(address) if address else None


def _handles() -> list[int]:
    start_library()
    n = ggml("ggml_backend_dev_count", ctypes.c_size_t)
    return [ggml("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t(i)) for i in range(n)]


def _describe(handle: int) -> Device:
    device = ctypes.c_void_p(handle)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    ggml("ggml_backend_dev_memory", None, device, ctypes.byref(free), ctypes.byref(total))
    return Device(
        name=ggml("ggml_backend_dev_name", ctypes.c_char_p, device).decode(),
        description=ggml("ggml_backend_dev_description", ctypes.c_char_p, device).decode(),
        kind=_KINDS[ggml("ggml_backend_dev_type", ctypes.c_int, device)],
        free_bytes=free.value,
        total_bytes=total.value,
    )
