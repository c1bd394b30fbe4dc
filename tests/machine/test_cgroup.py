"""Limits of containers and services, as the kernel's files tell them."""

from pathlib import Path

import pytest

from gptoss_local.machine import cgroup

pytestmark = pytest.mark.quick

STAT = "anon 900\nfile 700\ninactive_file 500\nactive_file 150\nslab_reclaimable 50\nshmem 9\n"
V1_STAT = "inactive_file 1\ntotal_inactive_file 500\ntotal_active_file 200\n"


def left(root: Path, own: str, files: dict[str, str]) -> tuple[tuple[int, int] | None, int | None]:
    """Memory (limit and available) and cores for a process with `own` as its cgroup."""
    for name, text in {"proc/self/cgroup": own, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    sys_dir, proc_dir = root / "sys", root / "proc"
    return cgroup.memory(sys_dir, proc_dir), cgroup.n_cpus(sys_dir, proc_dir)


def v2(folder: str, limit: str, used: int, cpu: str = "max 100000") -> dict[str, str]:
    files = {
        "memory.max": limit,
        "memory.current": str(used),
        "memory.stat": STAT,
        "cpu.max": cpu,
    }
    return {f"sys/fs/cgroup/{folder}/{name}": f"{text}\n" for name, text in files.items()}


def v1(quota: str) -> dict[str, str]:
    group = "sys/fs/cgroup/memory/docker/12"
    return {
        f"{group}/memory.limit_in_bytes": "4000",
        f"{group}/memory.usage_in_bytes": "3000",
        f"{group}/memory.stat": V1_STAT,
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": quota,
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    }


HIGH = "sys/fs/cgroup/./memory.high"  # systemd's MemoryHigh=: beyond it all gets slow
V1_OWN = "4:memory:/docker/12\n1:cpu,cpuacct:/docker/12\n0::/\n"
IN_SLICE = {
    **v2(".", "max", 9000),
    **v2("user.slice", "8000", 7000, "50000 100000"),
    **v2("user.slice/app.scope", "10000", 3000, "400000 100000"),
}


@pytest.mark.parametrize(
    ("own", "files", "memory", "n_cpus"),
    [
        # the page cache of weights that were just read counts as free
        ("0::/\n", v2(".", "4000", 3000, "150000 100000"), (4000, 1700), 2),
        # the narrowest group on the way counts
        ("0::/user.slice/app.scope\n", IN_SLICE, (8000, 1700), 1),
        (V1_OWN, v1("-1"), (4000, 1700), None),
        (V1_OWN, v1("250000"), (4000, 1700), 3),
        ("0::/\n", v2(".", "max", 3000) | {HIGH: "5000\n"}, (5000, 2700), None),
        ("0::/\n", v2(".", "4000", 3000) | {HIGH: "5000\n"}, (4000, 1700), None),
        ("0::/\n", v2(".", "4000", 3000) | {HIGH: "max\n"}, (4000, 1700), None),
        ("0::/\n", {}, None, None),
        ("0::/\n", v2(".", "max", 3000), None, None),
        ("0::/\n", v2(".", "2000", 9000), (2000, 0), None),  # more in use than allowed
    ],
)
def test_limits(
    tmp_path: Path,
    own: str,
    files: dict[str, str],
    memory: tuple[int, int] | None,
    n_cpus: int | None,
) -> None:
    assert left(tmp_path, own, files) == (memory, n_cpus)
    assert cgroup.memory(tmp_path / "no", tmp_path / "no") is None
