"""Collects the findings of a verification: defects, tensors, the worst error of each class."""

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

TensorClass = Literal["embedding", "attention", "router", "experts", "norms", "head"]

Match = Literal["equal", "rounded", "alike", "different"]
"""The result of comparing a tensor: our bytes; other bytes, within rounding; values that resemble
the checkpoint's, of an unknown type or method; or something else.
"""

_CLASSES: dict[TensorClass, re.Pattern[str]] = {
    "embedding": re.compile(r"token_embd\."),
    "attention": re.compile(r"blk\.\d+\.attn_(?!norm)"),
    "router": re.compile(r"blk\.\d+\.ffn_gate_inp\."),
    "experts": re.compile(r"blk\.\d+\.ffn_\w+_exps\."),
    "norms": re.compile(r"(blk\.\d+\.\w+|output)_norm\."),
    "head": re.compile(r"output\."),
}


class Finding(msgspec.Struct, frozen=True):
    file: str
    where: str
    message: str


class TensorReport(msgspec.Struct, frozen=True):
    """The findings on one tensor of the file.

    Attributes:
        is_sum_right: None without a checksum in the file.
        worst_error: Largest distance to a value of the checkpoint; None without, or if not finite.
        n_different_blocks: Quantized blocks, or single values, of other bytes than we would write.
        relative_error: Root mean square of the distances, relative to the checkpoint's values.
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
    relative_error: float | None = None


class ClassReport(msgspec.Struct, frozen=True):
    name: TensorClass
    n_tensors: int
    n_equal: int
    n_rounded: int
    n_alike: int
    n_different: int
    worst_error: float | None
    worst_tensor: str


class Report(msgspec.Struct):
    """The outcome; notes are limits of the proof, such as missing checksums.

    If it `has_importance`, a matrix of importance rounded values, some by more than a step.
    """

    files: list[Path]
    findings: list[Finding] = []
    notes: list[str] = []
    tensors: list[TensorReport] = []
    has_importance: bool = False
    n_bytes: int = 0
    seconds: float = 0.0

    @property
    def is_proven(self) -> bool:
        return not self.findings

    @property
    def unproven(self) -> list[str]:
        return [
            tensor.name
            for tensor in self.tensors
            if not tensor.is_sum_right and tensor.match not in ("equal", "rounded")
        ]

    @property
    def classes(self) -> list[ClassReport]:
        members: defaultdict[TensorClass, list[TensorReport]] = defaultdict(list)
        for tensor in self.tensors:
            if tensor.match is not None:
                kind = next(each for each, names in _CLASSES.items() if names.match(tensor.name))
                members[kind].append(tensor)
        return [_summarize(name, members[name]) for name in _CLASSES if name in members]

    def find(self, file: Path, where: str, message: str) -> None:
        self.findings.append(Finding(file.name, where, message))

    def fault(self, file: Path, where: str, what: str) -> None:
        self.find(file, where, f"{where} {what}.")

    def note(self, file: Path, message: str) -> None:
        several = f"{file.name}: " if len(self.files) > 1 else ""
        self.notes.append(f"{several}{message}")


def _summarize(name: TensorClass, tensors: Sequence[TensorReport]) -> ClassReport:
    matches = [tensor.match for tensor in tensors]
    worst = max(tensors, key=lambda t: float("inf") if t.worst_error is None else t.worst_error)
    return ClassReport(
        name,
        len(tensors),
        matches.count("equal"),
        matches.count("rounded"),
        matches.count("alike"),
        matches.count("different"),
        worst.worst_error,
        worst.name,
    )
