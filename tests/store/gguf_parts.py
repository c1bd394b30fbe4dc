"""GGUF files in odd forms, made of the real ones."""

from pathlib import Path

from convert import convert_checkpoint
from gptoss_local.gguf_file import read_info
from gptoss_local.nano.materialize import materialize


def split_nano(folder: Path) -> list[Path]:
    """Nano in several files: `tune-00001-of-0000N.gguf`."""
    materialize(folder / "nano")
    return convert_checkpoint(folder / "nano", folder / "tune.gguf", max_shard_bytes=60_000_000)


def as_ollama_wrote_it(source: Path, target: Path) -> Path:
    """The same file with the architecture's name in Ollama's own files."""
    data = source.read_bytes()
    n = read_info(source).n_header_bytes
    ours, theirs = b"\x07" + bytes(7) + b"gpt-oss", b"\x06" + bytes(7) + b"gptoss"
    head = data[:n].replace(ours, theirs, 1)
    target.write_bytes(head + bytes(n - len(head)) + data[n:])
    return target
