"""What a verification found: every defect, every tensor, and the worst error of each class."""

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

TensorClass = Literal["embedding", "attention", "router", "experts", "norms", "head"]

Match = Literal["equal", "rounded", "different"]
"""How a tensor compares with the checkpoint: the bytes that we would write; other bytes, as of
another program's quantizer, but no value farther off than rounding explains; or something else."""

_CLASSES: dict[TensorClass, re.Pattern[str]] = {
    "embedding": re.compile(r"token_embd\."),
    "attention": re.compile(r"blk\.\d+\.attn_(?!norm)"),
    "router": re.compile(r"blk\.\d+\.ffn_gate_inp\."),
    "experts": re.compile(r"blk\.\d+\.ffn_\w+_exps\."),
    "norms": re.compile(r"(blk\.\d+\.\w+|output)_norm\."),
    "head": re.compile(r"output\."),
}


class Finding(msgspec.Struct, frozen=True):
    """Something that is wrong.

    Attributes:
        where: A tensor, a key, or a part of the file.
        message: A full sentence.
    """

    file: str
    where: str
    message: str


class TensorReport(msgspec.Struct, frozen=True):
    """What is known of one tensor of the file.

    Attributes:
        shape: In elements, fastest axis first, as GGUF has it.
        is_sum_right: Whether its checksum in the file is right; None if there is none.
        match: How it compares with the checkpoint, if one was given.
        worst_error: Largest distance between a value and the checkpoint's; None if it cannot be
            told, because a value is not finite or there is no checkpoint.
        n_different_blocks: Quantized blocks, or single values, of other bytes than we would write.
    """

    name: str
    file: str
    type: str
    shape: tuple[int, ...]
    size_bytes: int
    is_sum_right: bool | None
    match: Match | None = None
    worst_error: float | None = None
    n_different_blocks: int = 0


class ClassReport(msgspec.Struct, frozen=True):
    """The tensors of one class, compared with the checkpoint.

    Attributes:
        worst_tensor: The one with the worst error.
    """

    name: TensorClass
    n_tensors: int
    n_equal: int
    n_rounded: int
    n_different: int
    worst_error: float | None
    worst_tensor: str


class Report(msgspec.Struct):
    """The outcome.

    Attributes:
        notes: What a reader must know to judge the proof, such as missing checksums.
        n_bytes: Tensor data that was read.
        seconds: What that took.
    """

    files: list[Path]
    findings: list[Finding] = []
    notes: list[str] = []
    tensors: list[TensorReport] = []
    n_bytes: int = 0
    seconds: float = 0.0

    @property
    def is_proven(self) -> bool:
        return not self.findings

    @property
    def classes(self) -> list[ClassReport]:
        """What the comparison says of each class; empty without one."""
        members: defaultdict[TensorClass, list[TensorReport]] = defaultdict(list)
        for tensor in self.tensors:
            if tensor.match is not None:
                members[_class_of(tensor.name)].append(tensor)
        return [_summarize(name, members[name]) for name in _CLASSES if name in members]

    def find(self, file: Path, where: str, message: str) -> None:
        """Add something that is wrong."""
        self.findings.append(Finding(file.name, where, message))


def _class_of(name: str) -> TensorClass:
    return next(kind for kind, pattern in _CLASSES.items() if pattern.match(name))


def _summarize(name: TensorClass, tensors: Sequence[TensorReport]) -> ClassReport:
    matches = [tensor.match for tensor in tensors]
    worst = max(tensors, key=lambda t: float("inf") if t.worst_error is None else t.worst_error)
    return ClassReport(
        name,
        len(tensors),
        matches.count("equal"),
        matches.count("rounded"),
        matches.count("different"),
        worst.worst_error,
        worst.name,
    )
