"""A backend of pip that makes llama-cpp-python's wheel without a library, and no compiler."""

import base64
import hashlib
import re
import zipfile
from pathlib import Path


def build_wheel(folder: str, _settings: object = None, _metadata: object = None) -> str:
    """Pack the unpacked source, which is the current folder."""
    metadata = Path("PKG-INFO").read_bytes()
    version = re.search(rb"^Version: (\S+)", metadata, re.M)
    assert version
    name = f"llama_cpp_python-{version[1].decode()}"
    files = {
        path.as_posix(): path.read_bytes()
        for path in Path("llama_cpp").rglob("*")
        if path.suffix in (".py", ".typed")
    } | {
        f"{name}.dist-info/METADATA": metadata,
        f"{name}.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
        b"Tag: py3-none-any\n",
    }
    record = f"{name}.dist-info/RECORD"
    lines = [f"{record},,"]
    with zipfile.ZipFile(f"{folder}/{name}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            wheel.writestr(path, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{path},sha256={digest},{len(data)}")
        wheel.writestr(record, "\n".join(lines) + "\n")
    return Path(wheel.filename or "").name
