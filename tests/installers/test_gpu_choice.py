"""How a machine gets its llama.cpp, and whether it suits, for machines that are not here."""

import pytest
from gpu_choice import Facts, ListedGpu, LlamaOrigin, choose, parse_gpus
from steps import SetupError
from verification import judge

pytestmark = pytest.mark.quick

RTX_2060 = ListedGpu("NVIDIA GeForce RTX 2060", (7, 5))
RTX_3090 = ListedGpu("NVIDIA GeForce RTX 3090", (8, 6))
RTX_4090 = ListedGpu("NVIDIA GeForce RTX 4090", (8, 9))
RTX_5080 = ListedGpu("NVIDIA GeForce RTX 5080", (12, 0))
GTX_1080 = ListedGpu("NVIDIA GeForce GTX 1080", (6, 1))


def facts(*gpus: ListedGpu, driver: int | None = 580, **others: str | None) -> Facts:
    return Facts(gpus, driver if gpus else None, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("machine", "architectures", "prebuilt"),
    [
        (facts(RTX_4090), ("89-real",), "cu130"),
        (facts(RTX_4090, compiler=None), ("89-real",), "cu130"),
        (facts(RTX_3090, RTX_2060), ("75-real", "86-real"), "cu130"),
        (facts(RTX_5080), ("120a-real",), ""),  # its FP4 instructions are in no prebuilt one
        (facts(RTX_5080, RTX_4090), ("120a-real", "89-real"), ""),
        (facts(RTX_4090, GTX_1080), ("89-real",), "cu130"),
        (facts(ListedGpu("NVIDIA GB10", (12, 1)), machine="aarch64"), ("121a-real",), ""),
        (facts(ListedGpu("NVIDIA GH200", (9, 0)), machine="aarch64"), ("90-real",), ""),
        (facts(ListedGpu("NVIDIA Thor", (11, 0)), machine="aarch64"), ("110-real",), ""),
        (facts(ListedGpu("Orin (nvgpu)", (8, 7)), machine="aarch64"), ("87-real",), ""),
    ],
)
def test_gpus_get_code_of_their_own(
    machine: Facts, architectures: tuple[str, ...], prebuilt: str
) -> None:
    choice = choose(machine)
    assert (choice.architectures, choice.prebuilt) == (architectures, prebuilt)
    assert choice.build is (machine.compiler is not None)
    assert choice.is_cuda


@pytest.mark.parametrize(
    ("machine", "reason", "advice"),
    [
        (facts(), "no GPU", "install its driver, 580"),
        (facts(RTX_4090, driver=570), "driver 570 is older", "driver 580 or newer"),
        (facts(GTX_1080), "RTX 20 or newer", ""),
        (facts(RTX_5080, compiler=None), "no C++ compiler", "apt install g++"),
    ],
)
def test_else_the_cpu_with_the_reason(machine: Facts, reason: str, advice: str) -> None:
    choice = choose(machine)
    assert not choice.is_cuda
    assert reason in choice.reason
    assert advice in choice.advice
    with pytest.raises(SetupError, match=r"No CUDA build: .*" + reason.replace("+", r"\+")):
        choose(machine, "cuda")


def test_cpu_is_compiled_or_prebuilt() -> None:
    assert choose(facts(RTX_4090), "cpu") == LlamaOrigin((), "", True, "You asked for the CPU.")
    without = choose(facts(compiler=None))
    assert (without.prebuilt, without.build) == ("cpu", False)
    assert "apt install g++" in without.advice
    with pytest.raises(SetupError, match="needs a C\\+\\+ compiler"):
        choose(facts(compiler=None, machine="aarch64"))


def test_reads_nvidia_smi() -> None:
    listed = "NVIDIA GeForce RTX 4090, 8.9, 580.82.07\nNVIDIA GeForce RTX 5080, 12.0, 580.82.07\n"
    assert parse_gpus(listed) == ((RTX_4090, RTX_5080), 580)
    assert parse_gpus("NVIDIA GB10, 12.1, 580.126.09") == (
        (ListedGpu("NVIDIA GB10", (12, 1)),),
        580,
    )
    assert parse_gpus("Orin (nvgpu), [N/A], 595.78") == ((ListedGpu("Orin (nvgpu)", (8, 7)),), 595)
    assert parse_gpus("NVIDIA Thor, N/A, 580.00") == ((ListedGpu("NVIDIA Thor", (11, 0)),), 580)
    assert parse_gpus("A card, [N/A], 580.00") == ((), None)
    assert parse_gpus("NVIDIA-SMI has failed because it couldn't communicate") == ((), None)
    assert parse_gpus("Some GPU, [N/A], 470.1\n") == ((), None)


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
