"""GGUF files in odd forms, made of a real one byte by byte, as gguf-py takes minutes for them."""

from pathlib import Path

from gptoss_local.base.formats.gguf_file import read_info


def as_ollama_wrote_it(source: Path, target: Path) -> Path:
    """The same file with the architecture's name in Ollama's own files."""
    data = source.read_bytes()
    n = read_info(source).n_header_bytes
    ours, theirs = b"\x07" + bytes(7) + b"gpt-oss", b"\x06" + bytes(7) + b"gptoss"
    head = data[:n].replace(ours, theirs, 1)
    target.write_bytes(head + bytes(n - len(head)) + data[n:])
    return target
