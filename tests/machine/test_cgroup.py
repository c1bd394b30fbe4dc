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


def test_a_container(tmp_path: Path) -> None:
    """The page cache of weights that were just read counts as free."""
    assert left(tmp_path, "0::/\n", v2(".", "4000", 3000, "150000 100000")) == ((4000, 1700), 2)


def test_the_narrowest_group_on_the_way_counts(tmp_path: Path) -> None:
    files = v2(".", "max", 9000) | v2("user.slice", "8000", 7000, "50000 100000")
    files |= v2("user.slice/app.scope", "10000", 3000, "400000 100000")
    assert left(tmp_path, "0::/user.slice/app.scope\n", files) == ((8000, 1700), 1)


def test_the_first_version(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/memory/docker/12"
    files = {
        f"{group}/memory.limit_in_bytes": "4000",
        f"{group}/memory.usage_in_bytes": "3000",
        f"{group}/memory.stat": V1_STAT,
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    }
    own = "4:memory:/docker/12\n1:cpu,cpuacct:/docker/12\n0::/\n"
    assert left(tmp_path, own, files) == ((4000, 1700), None)
    files["sys/fs/cgroup/cpu/cpu.cfs_quota_us"] = "250000"
    assert left(tmp_path, own, files) == ((4000, 1700), 3)


def test_what_the_kernel_throttles_at_is_a_limit(tmp_path: Path) -> None:
    """As systemd's MemoryHigh= sets it: nothing is refused beyond it, but all gets slow."""
    files = v2(".", "max", 3000) | {"sys/fs/cgroup/./memory.high": "5000\n"}
    assert left(tmp_path, "0::/\n", files) == ((5000, 2700), None)
    files |= {"sys/fs/cgroup/./memory.max": "4000\n"}
    assert left(tmp_path, "0::/\n", files) == ((4000, 1700), None)
    files |= {"sys/fs/cgroup/./memory.high": "max\n"}
    assert left(tmp_path, "0::/\n", files) == ((4000, 1700), None)


@pytest.mark.parametrize("files", [{}, v2(".", "max", 3000)])
def test_no_limit(tmp_path: Path, files: dict[str, str]) -> None:
    assert left(tmp_path, "0::/\n", files) == (None, None)
    assert cgroup.memory(tmp_path / "no", tmp_path / "no") is None


def test_more_in_use_than_allowed_leaves_nothing(tmp_path: Path) -> None:
    assert left(tmp_path, "0::/\n", v2(".", "2000", 9000))[0] == (2000, 0)
