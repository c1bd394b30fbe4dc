"""Reads the limits of a container or a service from Linux's control groups.

Limits of all groups above count. In a container the mount often begins at its group, and paths of
/proc do not exist. Source: "Control Group v2" and "Memory Resource Controller" (v1), kernel docs.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_RECLAIMABLE = re.compile(
    r"^(?:total_)?(?:active_file|inactive_file|slab_reclaimable) (\d+)$", re.M
)


class Memory(NamedTuple):
    """The RAM that the groups of a process may take; page cache counts as available."""

    limit_bytes: int
    available_bytes: int


def memory(sys_dir: Path, proc_dir: Path) -> Memory | None:
    names = (
        ("memory.max", "memory.current"),
        ("memory.high", "memory.current"),  # beyond it the kernel takes pages back, all the time
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    )
    limits, available = [], []
    for group in _groups(sys_dir, proc_dir, "memory"):
        for limit_name, used_name in names:
            limit, used = _number(group / limit_name), _number(group / used_name)
            if limit is not None and used is not None:
                limits.append(limit)
                available.append(max(0, limit - max(0, used - _cached_bytes(group))))
    return Memory(min(limits), min(available)) if limits else None


def n_cpus(sys_dir: Path, proc_dir: Path) -> int | None:
    found = []
    for group in _groups(sys_dir, proc_dir, "cpu"):
        quota, _, period = (read(group / "cpu.max") or "").partition(" ")  # v2: both in one
        quota = read(group / "cpu.cfs_quota_us") or quota
        period = read(group / "cpu.cfs_period_us") or period
        if quota.isdigit() and period.isdigit():  # "max" and -1 mean no limit
            found.append(max(1, math.ceil(int(quota) / int(period))))
    return min(found, default=None)


def read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _groups(sys_dir: Path, proc_dir: Path, controller: str) -> Iterator[Path]:
    for line in (read(proc_dir / "self/cgroup") or "0::/").splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = sys_dir / "fs/cgroup" / (controller if controllers else "")
        group = root / name.lstrip("/")
        yield root
        while group.is_relative_to(root) and group != root:
            yield group
            group = group.parent


def _cached_bytes(group: Path) -> int:
    """Return the memory that the kernel gives back when needed. v1 also has groups' sums."""
    text = read(group / "memory.stat") or ""
    sums = "\n".join(line for line in text.splitlines() if line.startswith("total_"))
    return sum(map(int, _RECLAIMABLE.findall(sums or text)))


def _number(path: Path) -> int | None:
    text = read(path) or ""
    return int(text) if text.isdigit() else None
