"""The shipped hardware files against published figures, and what drivers call the devices."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_npubench.core import hardware
from pytest_npubench.core.figures import Figure
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.errors import ConfigError
from pytest_npubench.suites.hardware_files import load_all

SPECS = load_all([default_directory()])

# fmt: off
# Base units: FLOP/s in bf16, B/s, B of one chip; typed from the makers' tables, not from the files.
PUBLISHED = {
    "nvidia-h100": (989.4e12, 3.35e12, 80e9),
    "nvidia-h200": (989.5e12, 4.8e12, 141e9),
    "nvidia-a100": (312e12, 2.039e12, 80e9),
    "amd-mi300x": (1307.4e12, 5.3e12, 192e9),
    "nvidia-a100-40gb": (312e12, 1.555e12, 40e9),
    "nvidia-a10g": (70e12, 0.6e12, 24e9),
    "nvidia-b200": (2.25e15, 8e12, 180e9),
    "nvidia-b300": (2.25e15, 8e12, 288e9),
    "nvidia-gb200": (2.5e15, 8e12, 186e9),
    "nvidia-gh200": (989.5e12, 4e12, 96e9),
    "nvidia-h100-nvl": (835.5e12, 3.9e12, 94e9),
    "nvidia-h100-pcie": (756e12, 2e12, 80e9),
    "nvidia-h200-nvl": (835.5e12, 4.8e12, 141e9),
    "nvidia-l4": (121e12, 0.3e12, 24e9),
    "nvidia-l40s": (362.05e12, 0.864e12, 48e9),
    "nvidia-rtx-4090": (165.2e12, 1.008e12, 24e9),
    "nvidia-rtx-5090": (209.5e12, 1.792e12, 32e9),
    "nvidia-rtx-pro-6000": (503.8e12, 1.792e12, 96e9),
    "tpu-v4": (275e12, 1.2e12, 34_359_738_368),
    "tpu-v5e": (197e12, 0.819e12, 16e9),
    "tpu-v6e": (918e12, 1.64e12, 32e9),
    "tpu-v5p": (459e12, 2.765e12, 102_005_473_280),
    "tpu-v7x": (2307e12, 7.38e12, 206_158_430_208),
    "inferentia2": (190e12, 0.82e12, 32e9),
    "trainium1": (190e12, 0.82e12, 32e9),
    "trainium2": (667e12, 2.9e12, 103_079_215_104),
    "trainium3": (671e12, 4.9e12, 154_618_822_656),
}

# What the drivers and libraries call the devices, and whose file that is.
DEVICE_NAMES = [
    ("cpu", "cpu", "cpu"),
    ("cuda", "NVIDIA H100 80GB HBM3", "nvidia-h100"),
    ("cuda", "NVIDIA H100 PCIe", "nvidia-h100-pcie"),
    ("cuda", "NVIDIA H100 NVL", "nvidia-h100-nvl"),
    ("cuda", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
    ("cuda", "NVIDIA H100 PCIe MIG 1g.10gb", None),
    ("cuda", "NVIDIA H100", None),
    ("cuda", "NVIDIA H200", "nvidia-h200"),
    ("cuda", "NVIDIA H200 NVL", "nvidia-h200-nvl"),
    ("cuda", "NVIDIA H200 NVL MIG 1g.18gb", None),
    ("cuda", "NVIDIA GH200 480GB", "nvidia-gh200"),
    ("cuda", "NVIDIA GH200 144G HBM3e", None),
    ("cuda", "NVIDIA A100-SXM4-80GB", "nvidia-a100"),
    ("cuda", "NVIDIA A100-SXM4-40GB", "nvidia-a100-40gb"),
    ("cuda", "NVIDIA A100-PCIE-40GB", "nvidia-a100-40gb"),
    ("cuda", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
    ("cuda", "NVIDIA A100 80GB PCIe", None),
    ("cuda", "NVIDIA B200", "nvidia-b200"),
    ("cuda", "NVIDIA B200 MIG 1g.23gb", None),
    ("cuda", "NVIDIA GB200", "nvidia-gb200"),
    ("cuda", "NVIDIA B300 SXM6 AC", "nvidia-b300"),
    ("cuda", "NVIDIA GB300", None),
    ("cuda", "NVIDIA L4", "nvidia-l4"),
    ("cuda", "NVIDIA L40", None),
    ("cuda", "NVIDIA L40S", "nvidia-l40s"),
    ("cuda", "NVIDIA A10", None),
    ("cuda", "NVIDIA A10G", "nvidia-a10g"),
    ("cuda", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "nvidia-rtx-pro-6000"),
    ("cuda", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", None),
    ("cuda", "NVIDIA RTX PRO 6000 Blackwell Server Edition", None),
    ("cuda", "NVIDIA RTX 6000 Ada Generation", None),
    ("cuda", "NVIDIA GeForce RTX 5090", "nvidia-rtx-5090"),
    ("cuda", "NVIDIA GeForce RTX 5090 D", None),
    ("cuda", "NVIDIA GeForce RTX 5090 Laptop GPU", None),
    ("cuda", "NVIDIA GeForce RTX 4090", "nvidia-rtx-4090"),
    ("cuda", "NVIDIA GeForce RTX 4090 Laptop GPU", None),
    ("cuda", "NVIDIA GB10", "nvidia-gb10"),
    ("cuda", "Orin", "jetson-orin"),
    ("cuda", "Orin (nvgpu)", "jetson-orin"),
    ("tpu", "TPU v4", "tpu-v4"),
    ("tpu", "TPU v4 lite", None),
    ("tpu", "TPU v5 lite", "tpu-v5e"),
    ("tpu", "TPU v5", "tpu-v5p"),
    ("tpu", "TPU v5p", "tpu-v5p"),
    ("tpu", "TPU7x", "tpu-v7x"),
    ("tpu", "TPU7", None),
    ("tpu", "TPU v6 lite", "tpu-v6e"),
    ("neuron", "Inferentia2", "inferentia2"),
    ("neuron", "inf2.48xlarge", "inferentia2"),
    ("neuron", "Inferentia", None),
    ("neuron", "Trainium2", "trainium2"),
    ("neuron", "trn2.48xlarge", "trainium2"),
    ("neuron", "Trainium", "trainium1"),
    ("neuron", "Trainium1, Trn1", "trainium1"),
    ("neuron", "trn1.32xlarge", "trainium1"),
    ("neuron", "trn1n.32xlarge", "trainium1"),
    ("neuron", "Trainium3", "trainium3"),
    ("neuron", "trn3.48xlarge", "trainium3"),
    ("qualcomm", "qualcomm-snapdragon-8gen3", "snapdragon-8-gen3"),
    ("qualcomm", "Snapdragon® 8 Gen 3", "snapdragon-8-gen3"),
    ("qualcomm", "Snapdragon 8s Gen 3", None),
    ("qualcomm", "qualcomm-snapdragon-8-elite-for-galaxy", "snapdragon-8-elite"),
    ("qualcomm", "Snapdragon 8 Elite QRD", "snapdragon-8-elite"),
    ("qualcomm", "qualcomm-snapdragon-8-elite-gen5", "snapdragon-8-elite-gen5"),
    ("qualcomm", "Snapdragon 8 Elite Gen 5 QRD", "snapdragon-8-elite-gen5"),
    ("qualcomm", "Snapdragon X Elite CRD", "snapdragon-x-elite"),
    ("qualcomm", "qualcomm-snapdragon-x-elite", "snapdragon-x-elite"),
    ("qualcomm", "Snapdragon X Plus 8-Core CRD", None),
    ("openvino", "Intel(R) AI Boost", "intel-core-ultra"),
    ("openvino", "Intel(R) Arc(TM) Graphics (iGPU)", "intel-core-ultra"),
    ("openvino", "Intel(R) Arc(TM) A770 Graphics (dGPU)", None),
]
# fmt: on

# bytes of the bf16 or fp16 weights: 1.24, 7.25 and 14.8 billion parameters, two bytes each
WEIGHT_BYTES = {"llama-3.2-1b": 2.48e9, "mistral-7b-v0.3": 14.5e9, "qwen3-14b": 29.6e9}


def figures(spec: hardware.HardwareSpec) -> list[Figure]:
    peak = spec.peak
    others = (peak.memory_bandwidth_bytes_per_s, peak.memory_bytes)
    return [*peak.flops_per_s.values()] + [figure for figure in others if figure]


def test_the_shipped_files_are_the_promised_ones() -> None:
    phones = {"snapdragon-8-gen3", "snapdragon-8-elite", "snapdragon-8-elite-gen5", "snapdragon-x-elite"}
    promised = {*PUBLISHED, *phones, "cpu", "jetson-orin", "nvidia-gb10", "intel-core-ultra", "openai-server"}
    assert set(SPECS) == promised
    assert list(SPECS) == sorted(SPECS)
    assert {spec.family for spec in SPECS.values() if not spec.not_run} == set(hardware.FAMILIES)
    assert [name for name, spec in SPECS.items() if spec.not_run] == ["amd-mi300x"]


@pytest.mark.parametrize("name", SPECS)
def test_shipped_figures_are_in_base_units_and_name_a_document_with_its_address(name: str) -> None:
    for figure in figures(SPECS[name]):
        assert figure.unit in {"FLOP/s", "OP/s", "B/s", "B"}
        assert re.search(r"; https://\S+$", figure.source), figure.source
    for slo in SPECS[name].slos:
        assert "Table" in slo.source
    assert SPECS[name].buckets_source


@pytest.mark.parametrize("name", PUBLISHED)
def test_shipped_figures_are_the_published_ones(name: str) -> None:
    flops, bandwidth, memory = PUBLISHED[name]
    peak = SPECS[name].peak
    assert peak.flops_per_s["bf16"].value == pytest.approx(flops)
    assert peak.memory_bandwidth_bytes_per_s is not None
    assert peak.memory_bandwidth_bytes_per_s.value == pytest.approx(bandwidth)
    assert peak.memory_bytes is not None
    assert peak.memory_bytes.value == pytest.approx(memory)


@pytest.mark.parametrize(("family", "device_name", "expected"), DEVICE_NAMES)
def test_a_device_name_belongs_to_one_file_of_its_family(family: str, device_name: str, expected: str | None) -> None:
    hits = [name for name, spec in SPECS.items() if spec.family == family and spec.matches(device_name)]
    assert hits == ([expected] if expected else [])


@pytest.mark.parametrize("name", SPECS)
def test_weights_of_every_shipped_model_fit_the_group(name: str) -> None:
    memory = SPECS[name].device_memory_bytes
    known = [WEIGHT_BYTES[model] for model in SPECS[name].models if model in WEIGHT_BYTES]
    assert memory is None or max(known, default=0.0) < memory * SPECS[name].tensor_parallel


@pytest.mark.parametrize("name", [name for name, spec in SPECS.items() if spec.models])
def test_profiles_grow_from_quick_to_full_and_full_has_everything(name: str) -> None:
    spec = SPECS[name]
    quick, nightly, full = (spec.profile(profile) for profile in hardware.PROFILES)
    batch_sizes = {*full.batch_sizes, *full.search_batch_sizes}
    assert (full.models, batch_sizes, full.buckets) == (spec.models, set(spec.batch_sizes), spec.buckets)
    for smaller, larger in ((quick, nightly), (nightly, full)):
        assert set(smaller.models) <= set(larger.models)
        assert set(smaller.batch_sizes) <= set(larger.batch_sizes)
        assert set(smaller.workloads) <= set(larger.workloads)
        assert smaller.num_draws <= larger.num_draws
        assert smaller.budget_s < larger.budget_s


def test_groups_of_the_paper() -> None:
    """LENS, section 5.1: four chips everywhere, TP4 on TPUs and TP8 on Inferentia2; seven buckets, batch 1 to 32."""
    for name, group in (("tpu-v4", 4), ("tpu-v5e", 4), ("tpu-v6e", 4), ("inferentia2", 8)):
        spec = SPECS[name]
        assert spec.tensor_parallel == group
        assert spec.tensor_parallel / spec.devices_per_chip == 4
        assert spec.buckets == (128, 256, 512, 1024, 2048, 4096, 8192)
        assert spec.batch_sizes == (1, 2, 4, 8, 16, 32)
    assert SPECS["inferentia2"].device_memory_bytes == pytest.approx(16e9)


def test_ridge_point() -> None:
    """989.4 TFLOP/s over 3.35 TB/s is 295.3 FLOP per byte, by hand; near the 300 of Layered Prefill, section 2.5."""
    ridge = SPECS["nvidia-h100"].ridge_flops_per_byte("bf16")
    assert ridge is not None
    assert round(ridge, 1) == 295.3
    assert SPECS["nvidia-h100"].ridge_flops_per_byte("int4") is None
    assert SPECS["cpu"].ridge_flops_per_byte("fp32") is None
    assert SPECS["cpu"].device_memory_bytes is None


def test_latency_limits_of_the_h100() -> None:
    """Layered Prefill, Table 5."""
    table = {
        ("qwen3-30b-a3b", "layered-sharegpt"): (5.0, 0.125),
        ("qwen3-30b-a3b", "layered-arxiv"): (10.0, 0.125),
        ("gpt-oss-20b", "layered-sharegpt"): (5.0, 0.100),
        ("gpt-oss-20b", "layered-arxiv"): (10.0, 0.100),
    }
    spec = SPECS["nvidia-h100"]
    assert {(slo.model, slo.workload): (slo.ttft_s, slo.tbt_s) for slo in spec.slos} == table
    assert spec.slo_for("llama-3.2-1b", "layered-arxiv") is None


def test_an_unknown_profile_is_named() -> None:
    with pytest.raises(ConfigError, match=r"'weekly'; allowed: quick, nightly, full"):
        SPECS["cpu"].profile("weekly")


def test_the_worked_example_of_the_documentation_loads(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent / "docs" / "hardware.md").read_text(encoding="utf-8")
    example_file = page.split("```toml\n")[1].split("```")[0]
    (tmp_path / "nvidia-a10.toml").write_text(example_file, encoding="utf-8")
    specs = load_all([default_directory(), tmp_path])
    assert [name for name, spec in specs.items() if spec.matches("NVIDIA A10") and spec.family == "cuda"] == [
        "nvidia-a10"
    ]
    assert [name for name, spec in specs.items() if spec.matches("NVIDIA A10G") and spec.family == "cuda"] == [
        "nvidia-a10g"
    ]


def test_reading_takes_no_heavy_import() -> None:
    code = (
        "import sys; from pytest_npubench.core.hardware_reader import default_directory; "
        "from pytest_npubench.suites.hardware_files import load_all; "
        "assert load_all([default_directory()]); "
        "print(*sorted({'numpy', 'scipy', 'jax', 'torch', 'rich', 'pytest'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
