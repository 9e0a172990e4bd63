"""Hardware files and their reader: the shipped files against published figures, and every error with its words."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_npubench.core import hardware, hardware_reader
from pytest_npubench.core.figures import Figure
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.errors import ConfigError, HardwareFileError
from pytest_npubench.suites.hardware_files import load_all, load_hardware

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

GOOD = """
title = "A device"
family = "cuda"
classes = ["gpu"]

[probe]
match = ["Thing"]

[peak.flops_per_s.bf16]
value = 100
unit = "TFLOP/s"
source = "a datasheet; https://example.org"

[peak.memory_bytes]
value = 80
unit = "GB"
source = "a datasheet; https://example.org"

[buckets]
set = [128, 256, 512]
source = "a paper"

[models]
default = ["one", "two"]
dtype = "bf16"
batch_sizes = [1, 2]

[[slo]]
model = "one"
workload = "chat"
ttft_s = 1
tbt_s = 0.1
source = "a paper"

[limits]
case_error = 0.2
mean_error = 0.1

[profile.quick]
models = ["one"]
batch_sizes = [1]
buckets = [128, 256]
workloads = ["chat"]
num_draws = 1
min_rounds = 2
max_rounds = 3
budget_s = 10

[profile.nightly]
workloads = ["chat"]
num_draws = 1
min_rounds = 2
max_rounds = 3
budget_s = 10

[profile.full]
workloads = ["chat"]
num_draws = 1
min_rounds = 2
max_rounds = 3
budget_s = 10
profile_output_tokens = 65
"""


def written(directory: Path, text: str, name: str = "thing.toml") -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def edited(directory: Path, *edits: tuple[str, str]) -> Path:
    """GOOD with each first text replaced by the second, at its first place."""
    text = GOOD
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    return written(directory, text)


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


GROUPS = """
[[group]]
num_devices = 1
models = ["one"]
max_batch_size = { one = 1 }

[[group]]
num_devices = 8

[profile.quick]"""
LARGEST = "batch_sizes = [1, 2]\nmax_batch_size = { two = 1 }"


def test_further_groups_of_a_file_are_hardware_of_their_own(tmp_path: Path) -> None:
    text = GOOD.replace("[profile.quick]", GROUPS).replace('["Thing"]', '["Thing"]\nnum_devices = 4')
    spec = load_hardware(written(tmp_path, text.replace("batch_sizes = [1, 2]", LARGEST, 1)))
    found = hardware_reader.with_groups({"thing": spec})
    assert list(found) == [found[name].name for name in found] == ["thing", "thing-tp1", "thing-tp8"]
    assert found["thing"] is spec
    one, eight = found["thing-tp1"], found["thing-tp8"]
    assert [found[name].tensor_parallel for name in found] == [4, 1, 8]
    assert [found[name].device_memory_bytes for name in found] == [80e9, 80e9, 80e9]
    assert {found[name].file_name for name in found} == {"thing"}
    assert {found[name].markers for name in found} == {("cuda", "gpu")}
    nightly = "nightly"
    batches = {
        (name, model): found[name].batch_sizes_of(model, found[name].profile(nightly))
        for name in found
        for model in found[name].profile(nightly).models
    }
    assert batches == {
        ("thing", "one"): (1, 2),
        ("thing", "two"): (1,),  # the file's own limit is that of its own number of devices
        ("thing-tp1", "one"): (1,),
        ("thing-tp8", "one"): (1, 2),
        ("thing-tp8", "two"): (1, 2),
    }
    assert (one.groups, eight.groups) == ((), ())
    with pytest.raises(HardwareFileError, match=r"1 devices together are called 'thing-tp1', which is a hardware"):
        hardware_reader.with_groups({"thing": spec, "thing-tp1": spec})


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


def test_the_most_specific_latency_limit_holds(tmp_path: Path) -> None:
    """Rising order of strength in the file, so that reading the first hit would be wrong."""
    names = [("*", "*"), ("*", "chat"), ("one", "*"), ("one", "mail")]
    slos = [
        f'[[slo]]\nmodel = "{model}"\nworkload = "{workload}"\nttft_s = {index}\ntbt_s = 1\nsource = "a paper"\n'
        for index, (model, workload) in enumerate(names, start=1)
    ]
    head, tail = GOOD.split("[[slo]]")[0], "[limits]" + GOOD.split("[limits]")[1]
    spec = load_hardware(written(tmp_path, head + "".join(slos) + tail))
    asked = [("two", "mail"), ("two", "chat"), ("one", "chat"), ("one", "mail")]
    found = [spec.slo_for(model, workload) for model, workload in asked]
    assert [slo.ttft_s for slo in found if slo] == [1, 2, 3, 4]


def test_a_good_file_read_key_by_key(tmp_path: Path) -> None:
    spec = load_hardware(written(tmp_path, GOOD))
    assert (spec.name, spec.title, spec.family, spec.classes) == ("thing", "A device", "cuda", ("gpu",))
    assert spec.markers == ("cuda", "gpu")
    assert (spec.match, spec.tensor_parallel, spec.devices_per_chip) == (("Thing",), 1, 1)
    source = "a datasheet; https://example.org"
    assert spec.peak.flops_per_s == {"bf16": Figure(value=100e12, unit="FLOP/s", source=source)}
    assert spec.peak.memory_bytes == Figure(value=80e9, unit="B", source=source)
    assert spec.peak.memory_bandwidth_bytes_per_s is None
    assert spec.ridge_flops_per_byte("bf16") is None
    assert (spec.buckets, spec.models, spec.dtype, spec.batch_sizes) == (
        (128, 256, 512),
        ("one", "two"),
        "bf16",
        (1, 2),
    )
    assert (spec.case_error, spec.mean_error) == (0.2, 0.1)
    quick, nightly, full = spec.profiles
    assert (quick.models, quick.batch_sizes, quick.buckets) == (("one",), (1,), (128, 256))
    assert (nightly.models, nightly.batch_sizes, nightly.buckets) == (spec.models, spec.batch_sizes, spec.buckets)
    assert (quick.profile_output_tokens, full.profile_output_tokens) == (33, 65)
    assert spec.matches("some thing 2")
    assert not spec.matches("other")


def test_limits_peak_classes_and_slo_may_be_absent(tmp_path: Path) -> None:
    text = GOOD.replace('classes = ["gpu"]', "").replace("[limits]\ncase_error = 0.2\nmean_error = 0.1\n", "")
    text = re.sub(r"\[peak\..*?(?=\[buckets\])", "", text, flags=re.DOTALL)
    text = re.sub(r"\[\[slo\]\].*?(?=\[profile\.quick\])", "", text, flags=re.DOTALL)
    spec = load_hardware(written(tmp_path, text))
    assert (spec.classes, spec.slos, figures(spec)) == ((), (), [])
    assert (spec.case_error, spec.mean_error) == (0.10, 0.05)
    assert spec.device_memory_bytes is None


def test_an_unknown_profile_is_named() -> None:
    with pytest.raises(ConfigError, match=r"'weekly'; allowed: quick, nightly, full"):
        SPECS["cpu"].profile("weekly")


@pytest.mark.parametrize(
    ("key", "unit", "factor"),
    [
        ("flops_per_s.bf16", "FLOP/s", 1),
        ("flops_per_s.bf16", "TFLOP/s", 10**12),
        ("flops_per_s.int8", "OP/s", 1),
        ("flops_per_s.int8", "TOP/s", 10**12),
        ("memory_bandwidth_bytes_per_s", "B/s", 1),
        ("memory_bandwidth_bytes_per_s", "GB/s", 10**9),
        ("memory_bandwidth_bytes_per_s", "TB/s", 10**12),
        ("memory_bytes", "B", 1),
        ("memory_bytes", "GB", 10**9),
        ("memory_bytes", "GiB", 1024**3),
    ],
)
def test_every_unit(tmp_path: Path, key: str, unit: str, factor: int) -> None:
    figure = f'[peak.{key}]\nvalue = 1.5\nunit = "{unit}"\nsource = "a datasheet"\n\n'
    text = re.sub(r"\[peak\..*?(?=\[buckets\])", figure, GOOD, flags=re.DOTALL)
    (read,) = figures(load_hardware(written(tmp_path, text)))
    assert read.value == pytest.approx(1.5 * factor)


GROUP_AGAIN = "[[group]]\nnum_devices = 1\n\n[profile.quick]"
SLO_AGAIN = '[[slo]]\nmodel = "one"\nworkload = "chat"\nttft_s = 1\ntbt_s = 1\nsource = "x"\n\n[limits]'

BROKEN = [
    # (old text, new text, dotted key, what the message says besides)
    pytest.param('title = "A device"', 'titel = "A device"', "titel", "did you mean 'title'?", id="unknown-key"),
    pytest.param("[limits]", "[limit]", "limit", "did you mean 'limits'?", id="unknown-table"),
    pytest.param("num_draws", "draws", "profile.quick.draws", "allowed: min_rounds", id="unknown-in-profile"),
    pytest.param("ttft_s", "ttft", "slo[0].ttft", "did you mean 'ttft_s'?", id="unknown-in-slo"),
    pytest.param(
        'unit = "TFLOP/s"', 'units = "TFLOP/s"', "peak.flops_per_s.bf16.units", "'unit'", id="unknown-in-figure"
    ),
    pytest.param("flops_per_s.bf16", "flops_per_s.bf17", "peak.flops_per_s.bf17", "'bf16'", id="unknown-dtype-of-peak"),
    pytest.param(
        "[profile.full]", "[profile.ful]", "profile.ful", "allowed: quick, nightly, full", id="unknown-profile"
    ),
    pytest.param('title = "A device"', "", "title", "missing", id="no-title"),
    pytest.param('title = "A device"', "title = 3", "title", "want a text that is not empty, not 3", id="title-number"),
    pytest.param('title = "A device"', 'title = " "', "title", "want a text that is not empty", id="title-blank"),
    pytest.param('family = "cuda"', 'family = "gpu"', "family", "cpu, cuda, tpu, neuron", id="unknown-family"),
    pytest.param('classes = ["gpu"]', 'classes = ["dsp"]', "classes", "allowed: gpu, npu", id="unknown-class"),
    pytest.param('classes = ["gpu"]', 'classes = "gpu"', "classes", "want a list", id="class-not-in-a-list"),
    pytest.param('match = ["Thing"]', "", "probe.match", "missing", id="no-match"),
    pytest.param('match = ["Thing"]', "match = []", "probe.match", "one or more texts", id="empty-match"),
    pytest.param('match = ["Thing"]', 'match = ["("]', "probe.match", "'(' is not a regular expr", id="bad-regex"),
    pytest.param('match = ["Thing"]', "match = [1]", "probe.match", "want a list", id="match-number"),
    pytest.param("[probe]", "[probe]\nnum_devices = 0", "probe.num_devices", "at least 1, not 0", id="no-devices"),
    pytest.param("[probe]", "[probe]\nnum_devices = true", "probe.num_devices", "not True", id="bool-for-int"),
    pytest.param("[probe]", "[probe]\ndevices_per_chip = 1.5", "probe.devices_per_chip", "not 1.5", id="float-for-int"),
    pytest.param("value = 100", "value = nan", "peak.flops_per_s.bf16.value", "finite number above 0", id="nan"),
    pytest.param("value = 100", "value = inf", "peak.flops_per_s.bf16.value", "finite number above 0", id="infinite"),
    pytest.param("value = 100", "value = -1", "peak.flops_per_s.bf16.value", "finite number above 0", id="negative"),
    pytest.param("value = 100", "value = 0", "peak.flops_per_s.bf16.value", "finite number above 0", id="zero"),
    pytest.param("value = 100", "value = true", "peak.flops_per_s.bf16.value", "not True", id="bool-for-number"),
    pytest.param("value = 100", 'value = "100"', "peak.flops_per_s.bf16.value", "not '100'", id="text-for-number"),
    pytest.param('unit = "TFLOP/s"', "", "peak.flops_per_s.bf16.unit", "missing", id="no-unit"),
    pytest.param('"TFLOP/s"', '"TOP/s"', "peak.flops_per_s.bf16.unit", "FLOP/s, TFLOP/s, not 'TOP/s'", id="wrong-unit"),
    pytest.param('"GB"', '"GB/s"', "peak.memory_bytes.unit", "B, GB, GiB, not 'GB/s'", id="wrong-memory-unit"),
    pytest.param(
        'source = "a datasheet; https://example.org"', "", "peak.flops_per_s.bf16.source", "missing", id="no-source"
    ),
    pytest.param(
        'source = "a datasheet; https://example.org"', 'source = ""', "peak.flops_per_s.bf16.source", "want", id="blank"
    ),
    pytest.param("[128, 256, 512]", "[256, 128]", "buckets.set", "256 is followed by 128", id="unsorted-buckets"),
    pytest.param("[128, 256, 512]", "[128, 128]", "buckets.set", "128 is followed by 128", id="duplicate-buckets"),
    pytest.param("[128, 256, 512]", "[]", "buckets.set", "one or more", id="empty-buckets"),
    pytest.param("[128, 256, 512]", "[true, 256]", "buckets.set", "not [True, 256]", id="bool-bucket"),
    pytest.param("[128, 256, 512]", "[0, 256]", "buckets.set", "at least 1", id="bucket-zero"),
    pytest.param("[128, 256, 512]", "128", "buckets.set", "want a list", id="bucket-not-in-a-list"),
    pytest.param('[128, 256, 512]\nsource = "a paper"', "[128, 256]", "buckets.source", "missing", id="buckets-source"),
    pytest.param('default = ["one", "two"]', "default = []", "models.default", "one or more texts", id="no-models"),
    pytest.param('["one", "two"]', '["one", "one"]', "models.default", "none twice", id="model-twice"),
    pytest.param('dtype = "bf16"', 'dtype = "float"', "models.dtype", "fp32, tf32, bf16", id="unknown-dtype"),
    pytest.param("batch_sizes = [1, 2]", "batch_sizes = [0, 2]", "models.batch_sizes", "at least 1", id="batch-zero"),
    pytest.param("batch_sizes = [1, 2]", "batch_sizes = []", "models.batch_sizes", "one or more", id="no-batch"),
    pytest.param("tbt_s = 0.1", "", "slo[0].tbt_s", "missing", id="slo-without-tbt"),
    pytest.param("ttft_s = 1", "ttft_s = 0", "slo[0].ttft_s", "above 0", id="slo-zero"),
    pytest.param('tbt_s = 0.1\nsource = "a paper"', "tbt_s = 0.1", "slo[0].source", "missing", id="slo-source"),
    pytest.param("[profile.quick]", GROUP_AGAIN, "group[0].num_devices", "a second group of 1", id="group-again"),
    pytest.param(
        "[profile.quick]", "[[group]]\n[profile.quick]", "group[0].num_devices", "missing", id="group-of-nothing"
    ),
    pytest.param(
        "[profile.quick]",
        '[[group]]\nnum_devices = 4\nmodels = ["three"]\n[profile.quick]',
        "group[0].models",
        "three; allowed: one, two",
        id="group-of-a-strange-model",
    ),
    pytest.param(
        "batch_sizes = [1, 2]",
        "batch_sizes = [1, 2]\nmax_batch_size = { three = 1 }",
        "models.max_batch_size.three",
        "allowed: one, two",
        id="largest-batch-of-a-strange-model",
    ),
    pytest.param(
        "batch_sizes = [1, 2]",
        "batch_sizes = [1, 2]\nmax_batch_size = { one = 0 }",
        "models.max_batch_size.one",
        "at least 1, not 0",
        id="no-largest-batch",
    ),
    pytest.param("[limits]", SLO_AGAIN, "slo[1].workload", "a second entry for model 'one'", id="slo-twice"),
    pytest.param("case_error = 0.2", "case_error = 20", "limits.case_error", "up to 1, not 20", id="percent"),
    pytest.param("mean_error = 0.1", "mean_error = 0", "limits.mean_error", "above 0", id="limit-zero"),
    pytest.param(
        'models = ["one"]', 'models = ["three"]', "profile.quick.models", "three; allowed: one, two", id="model"
    ),
    pytest.param("buckets = [128, 256]", "buckets = [64]", "profile.quick.buckets", "64; allowed: 128", id="bucket"),
    pytest.param("batch_sizes = [1]", "batch_sizes = [3]", "profile.quick.batch_sizes", "3; allowed: 1, 2", id="batch"),
    pytest.param("buckets = [128, 256]", "buckets = []", "profile.quick.buckets", "one or more", id="empty-in-profile"),
    pytest.param('workloads = ["chat"]', "", "profile.quick.workloads", "missing", id="no-workloads"),
    pytest.param("min_rounds = 2", "min_rounds = 1", "profile.quick.min_rounds", "at least 2, not 1", id="one-round"),
    pytest.param(
        "max_rounds = 3", "max_rounds = 1", "profile.quick.max_rounds", "at least 2, not 1", id="max-below-min"
    ),
    pytest.param("budget_s = 10", "budget_s = -5", "profile.quick.budget_s", "above 0, not -5", id="negative-budget"),
    pytest.param("_tokens = 65", "_tokens = 1", "profile.full.profile_output_tokens", "at least 2", id="one-token"),
    pytest.param(
        "profile_output_tokens = 65",
        "profile_output_tokens = 65\nprofile_first_output_tokens = 65",
        "profile.full.profile_first_output_tokens",
        "below 65, the profile_output_tokens, not 65",
        id="no-second-length",
    ),
]


@pytest.mark.parametrize(("old", "new", "key", "words"), BROKEN)
def test_a_broken_file_names_file_key_and_what_is_allowed(
    tmp_path: Path, old: str, new: str, key: str, words: str
) -> None:
    path = edited(tmp_path, (old, new))
    with pytest.raises(HardwareFileError) as caught:
        load_hardware(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: {key}: ")
    assert words in message


@pytest.mark.parametrize("table", ["probe", "buckets", "models", "profile.nightly"])
def test_a_missing_table_is_named(tmp_path: Path, table: str) -> None:
    text = re.sub(rf"\[{re.escape(table)}\].*?(?=\n\[)", "", GOOD, flags=re.DOTALL)
    path = written(tmp_path, text)
    with pytest.raises(HardwareFileError, match=re.escape(f"{path}: {table}: missing; want a table")):
        load_hardware(path)


@pytest.mark.parametrize("key", ["probe", "peak", "buckets", "models", "limits", "profile"])
def test_a_value_where_a_table_belongs_is_named(tmp_path: Path, key: str) -> None:
    text = f"{key} = 3\n" + re.sub(rf"\[{key}(\.[\w.]+)?\].*?(?=\n\[|\Z)", "", GOOD, flags=re.DOTALL)
    path = written(tmp_path, text)
    with pytest.raises(HardwareFileError, match=re.escape(f"{path}: {key}: want a table, not 3")):
        load_hardware(path)


@pytest.mark.parametrize("slo", ["slo = []", "slo = 3", 'slo = "none"'])
def test_slo_is_a_list_of_tables(tmp_path: Path, slo: str) -> None:
    text = slo + re.sub(r"\[\[slo\]\].*?(?=\[limits\])", "", GOOD, flags=re.DOTALL)
    with pytest.raises(HardwareFileError, match=r"thing.toml: slo: want one or more \[\[slo\]\] tables"):
        load_hardware(written(tmp_path, text))


@pytest.mark.parametrize("content", [b"title = ", b"\xff\xfe", b"a = 1\na = 2\n"])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "thing.toml"
    path.write_bytes(content)
    with pytest.raises(HardwareFileError, match=re.escape(f"{path}: not a TOML file in UTF-8: ")):
        load_hardware(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nothing.toml"
    with pytest.raises(HardwareFileError, match=re.escape(f"{path}: cannot be read: No such file")):
        load_hardware(path)


@given(st.lists(st.integers(-2, 9) | st.sampled_from([128, 256, 8192]), max_size=6))
@example([1, 2, 3])
@example([])
def test_buckets_are_taken_exactly_if_strictly_increasing_and_positive(
    tmp_path_factory: pytest.TempPathFactory, buckets: list[int]
) -> None:
    directory = tmp_path_factory.getbasetemp()
    path = edited(directory, ("set = [128, 256, 512]", f"set = {buckets}"), ("buckets = [128, 256]", ""))
    if buckets and min(buckets) > 0 and sorted(set(buckets)) == buckets:
        spec = load_hardware(path)
        assert spec.buckets == tuple(buckets)
        assert spec.profile("full").buckets == tuple(buckets)
    else:
        with pytest.raises(HardwareFileError, match=r"thing\.toml: buckets\.set: "):
            load_hardware(path)


def test_directories_are_read_together_and_sorted(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for directory, name in ((first, "zeta"), (first, "beta"), (second, "alpha")):
        directory.mkdir(exist_ok=True)
        written(directory, GOOD, f"{name}.toml")
    assert list(load_all([first, second])) == ["alpha", "beta", "zeta"]


def test_a_name_in_two_directories_names_both_files(tmp_path: Path) -> None:
    paths = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        paths.append(written(tmp_path / name, GOOD))
    with pytest.raises(HardwareFileError) as caught:
        load_all([tmp_path / "first", tmp_path / "second"])
    assert all(str(path) in str(caught.value) for path in paths)


@pytest.mark.parametrize("name", ["", "absent"])
def test_a_directory_without_hardware_files_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(HardwareFileError, match=re.escape(f"{tmp_path / name}: no hardware file there")):
        load_all([tmp_path / name])


def test_the_packaged_files_come_before_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package"
    package.mkdir()
    monkeypatch.setattr(hardware_reader, "__file__", str(package / "core" / "hardware_reader.py"))
    assert default_directory() == tmp_path / "hardware"
    (package / "hardware_files").mkdir()
    assert default_directory() == package / "hardware_files"


def test_the_worked_example_of_the_documentation_loads(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent / "docs" / "hardware.md").read_text(encoding="utf-8")
    example_file = page.split("```toml\n")[1].split("```")[0]
    written(tmp_path, example_file, "nvidia-a10.toml")
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


LIKE = """
title = "Another device"
like = "thing"
limits = false

[probe]
match = ["Thing 2"]

[models]
default = ["one"]

[profile]
quick = { workloads = ["mail"], num_draws = 1, min_rounds = 2, max_rounds = 3, budget_s = 10 }
"""


def test_a_file_takes_what_it_lacks_from_the_one_that_it_is_like(tmp_path: Path) -> None:
    thing, other = load_hardware(written(tmp_path, GOOD)), load_hardware(written(tmp_path, LIKE, "thing-2.toml"))
    assert (other.family, other.classes, other.buckets, other.batch_sizes) == (
        "cuda",
        ("gpu",),
        (128, 256, 512),
        (1, 2),
    )
    assert (other.title, other.match, other.models, other.like) == ("Another device", ("Thing 2",), ("one",), "thing")
    assert [size.workloads for size in other.profiles] == [("mail",), ("chat",), ("chat",)]  # a key at a time
    assert other.profile("full").profile_output_tokens == 65
    assert (thing.case_error, other.case_error) == (0.2, 0.10)  # left out by false
    assert (other.peak.flops_per_s, other.peak.memory_bytes, other.slos) == ({}, None, ())  # of each device alone


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LIKE.replace('"thing"', '"thong"'), "like: no other hardware file is named 'thong'; known: amd-mi300x, cpu, "),
        (
            LIKE.replace('"thing"', '"thing-2"'),
            "like: no other hardware file is named 'thing-2'; known: amd-mi300x, cpu, ",
        ),
        (LIKE.replace('"thing"', '"nvidia-a100"'), "like: 'nvidia-a100' is itself like 'nvidia-h100'; want that one"),
        (LIKE.replace('"thing"', "2"), "like: no other hardware file is named '2'; known: amd-mi300x, cpu, "),
        (LIKE.replace("[models]", "[modles]"), "modles: unknown key, did you mean 'models'?"),
    ],
)
def test_a_file_that_is_like_none_is_named(text: str, words: str, tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    with pytest.raises(HardwareFileError, match=re.escape(f"thing-2.toml: {words}")):
        load_hardware(written(tmp_path, text, "thing-2.toml"))


@pytest.mark.parametrize(
    ("device_name", "files"),
    [
        ("Thing", ["any", "thing"]),  # as much of the name
        ("Thing NVL", ["thing-nvl"]),
        ("Thing NVL 94GB", ["thing-nvl"]),
        ("Thing 94GB", ["copy", "thing"]),
        ("Think", ["wild"]),
        ("Thing MIG", ["wild"]),
    ],
)
def test_the_file_that_spells_out_most_of_a_name_describes_the_device(
    device_name: str, files: list[str], tmp_path: Path
) -> None:
    patterns = {
        "any": "Thing$",
        "copy": r"Thing(?= \d)",
        "thing": r"\bThing\b(?!.*MIG)",
        "thing-nvl": r"thing.+NVL",
        "wild": ".*",
    }
    for name, pattern in patterns.items():
        written(tmp_path, GOOD.replace('["Thing"]', f"['{pattern}']"), f"{name}.toml")
    specs = load_all([tmp_path])
    assert [name for name, spec in specs.items() if spec.matches(device_name)] == files
    assert specs["wild"].files_of(device_name) == tuple(files)


def test_figures_without_a_source_have_that_of_the_table(tmp_path: Path) -> None:
    datasheet = 'source = "a datasheet; https://example.org"'
    text = GOOD.replace(datasheet, "", 1).replace("[peak.flops", '[peak]\nsource = "a table"\n[peak.flops', 1)
    peak = load_hardware(written(tmp_path, text)).peak
    assert peak.memory_bytes is not None
    assert (peak.flops_per_s["bf16"].source, peak.memory_bytes.source) == (
        "a table",
        "a datasheet; https://example.org",
    )
