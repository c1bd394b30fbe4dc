"""Whether a llama.cpp suits a machine, from its own description."""

import pytest
from verification import judge

pytestmark = pytest.mark.quick

CPU = "CPU : SSE3 = 1 | AVX = 1 | AVX2 = 1 | F16C = 1 | FMA = 1 | OPENMP = 1 | REPACK = 1 | "
PLAIN_CPU = "CPU : SSE3 = 1 | AVX = 1 | OPENMP = 1 | "
CUDA = "CUDA : ARCHS = 750,860,890,900 | USE_GRAPHS = 1 | PEER_MAX_BATCH_SIZE = 128 | "
ARM = "CPU : NEON = 1 | ARM_FMA = 1 | DOTPROD = 1 | OPENMP = 1 | REPACK = 1 | "
PLAIN_ARM = "CPU : NEON = 1 | ARM_FMA = 1 | OPENMP = 1 | "
GB10 = "Features\t: fp asimd aes crc32 atomics fphp asimdhp asimddp sve i8mm bf16 sve2\n"
FAST = "flags : fpu sse4_2 avx avx2 f16c\n"


@pytest.mark.parametrize(
    ("info", "architectures", "cpuinfo", "reason"),
    [
        (CPU, (), FAST, ""),
        (PLAIN_CPU, (), "flags : fpu sse4_2\n", ""),
        (CUDA + CPU, ("89-real",), FAST, ""),
        (CUDA + CPU, ("86-real", "89-real"), FAST, ""),
        (CUDA + PLAIN_CPU, ("89-real",), FAST, "AVX2"),
        (CPU, ("89-real",), FAST, "capability 8.9"),
        (ARM, (), GB10, ""),
        (PLAIN_ARM, (), GB10, "DOTPROD"),
        (PLAIN_ARM, (), "Features\t: fp asimd evtstrm aes crc32 cpuid\n", ""),
        (CUDA + CPU, ("120a-real",), FAST, "capability 12.0"),
        (CUDA.replace("900", "1200") + CPU, ("120a-real",), FAST, ""),
    ],
)
def test_judges(info: str, architectures: tuple[str, ...], cpuinfo: str, reason: str) -> None:
    found = judge(info, architectures, cpuinfo)
    assert reason in found
    assert bool(found) is bool(reason)
