"""npubench probe and npubench hardware."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from backends.fake_nvml import FakeNvml

from pytest_npubench import backends
from pytest_npubench.backends.cpu import processor_name
from pytest_npubench.backends.cuda import CudaBackend
from pytest_npubench.backends.protocol import Device, Probe
from pytest_npubench.cli.hardware import largest_campaigns
from pytest_npubench.cli.new_hardware import fitted_entries
from pytest_npubench.core.hardware import FAMILIES
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.suites.hardware_files import load_all, load_hardware
from pytest_npubench.suites.scheduling.spec import ServingSpec

from .conftest import Answer

Run = Callable[..., Answer]
H200 = Device(family="cuda", ordinal=1, name="NVIDIA H200", uuid="GPU-7", memory_bytes=141 * 2**30)
UNKNOWN = Device(family="cuda", ordinal=2, name="NVIDIA GeForce 256")


class Answering:
    """A backend with these answers; remembers the timeout it was given."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self.timeouts_s: list[float] = []

    def probe(self, timeout_s: float) -> Probe:
        self.timeouts_s.append(timeout_s)
        return self._probe


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> dict[str, Answering]:
    """Two GPUs, one of them of a kind that no hardware file describes; nothing else is there."""
    found = {family: Answering(Probe(reason=f"no {family} here")) for family in FAMILIES}
    found["cuda"] = Answering(Probe(devices=(H200, UNKNOWN)))
    monkeypatch.setattr(backends, "backend", found.__getitem__)
    return found


def test_probe_shows_each_device_with_its_hardware_file_or_the_reason(
    call: Run, answering: dict[str, Answering]
) -> None:
    answer = call("probe")
    lines = answer.out.splitlines()
    assert answer.status == 0
    assert lines[0].split(maxsplit=1) == ["cpu", "no cpu here"]
    assert lines[1].split(maxsplit=1) == ["cuda:1", "NVIDIA H200, 141.0 GiB; hardware file nvidia-h200"]
    assert lines[2].split(maxsplit=1) == [
        "cuda:2",
        "NVIDIA GeForce 256; no hardware file describes it; `npubench hardware --new hw/NAME.toml` writes one",
    ]
    assert len(lines) == len(FAMILIES) + 1


def test_probe_asks_only_the_families_named_and_hands_the_timeout_on(
    call: Run, answering: dict[str, Answering]
) -> None:
    answer = call("probe", "tpu", "cuda", "tpu", "--timeout", "2.5", "--json").json["families"]
    assert list(answer) == ["tpu", "cuda"]
    assert answer["tpu"] == {"devices": [], "reason": "no tpu here"}
    assert answer["cuda"]["devices"][0] == {
        "id": "cuda:1",
        "name": "NVIDIA H200",
        "uuid": "GPU-7",
        "memory_bytes": 141 * 2**30,
        "hardware": ["nvidia-h200"],
    }
    assert answer["cuda"]["devices"][1]["hardware"] == []
    assert {family: found.timeouts_s for family, found in answering.items() if found.timeouts_s} == {
        "tpu": [2.5],
        "cuda": [2.5],
    }


def test_probe_of_this_machine(call: Run) -> None:
    answer = call("probe", "cpu", "qualcomm", "--json").json["families"]
    assert answer["cpu"]["devices"][0]["hardware"] == ["cpu"] or answer["cpu"]["reason"]
    assert answer["qualcomm"]["reason"]


@pytest.mark.parametrize("arguments", [("gpu",), ("cpu", "--timeout", "0"), ("--timeout", "nan"), ("--timeout", "x")])
def test_probe_refuses_what_it_does_not_know(arguments: tuple[str, ...], call: Run) -> None:
    answer = call("probe", *arguments)
    assert answer.status == 2
    assert "allowed: cpu, cuda" in answer.err or "want seconds above 0" in answer.err


def test_hardware_lists_every_shipped_file(call: Run) -> None:
    header, *lines = call("hardware").out.splitlines()
    assert header.split() == ["NAME", "MARKERS", "TITLE"]
    assert [line.split()[0] for line in lines] == sorted(path.stem for path in default_directory().glob("*.toml"))


def test_hardware_shows_each_figure_with_its_source(call: Run) -> None:
    out = call("hardware", "nvidia-h200").out
    assert "bf16 compute 989.5 TFLOP/s" in out
    assert "memory bandwidth 4.8 TB/s" in out
    assert "memory 141 GB" in out
    assert "bf16 206.1" in out  # 989.5e12 / 4.8e12
    spec = load_all([default_directory()])["nvidia-h200"]
    for figure in spec.peak.flops_per_s.values():
        assert f"source: {figure.source}" in out


@pytest.mark.parametrize("name", sorted(path.stem for path in default_directory().glob("*.toml")))
def test_every_shipped_file_can_be_shown(name: str, call: Run) -> None:
    answer = call("hardware", name)
    assert answer.status == 0
    assert answer.out.count("profile   ") == (0 if SPECS[name].not_run else 3)
    assert answer.out.startswith(f"{name}: ")


def test_fit_shows_the_largest_campaign_of_each_profile_against_one_device(call: Run) -> None:
    header, *lines = call("hardware", "tpu-v5e", "--fit").out.splitlines()
    assert header.split()[:3] == ["HARDWARE", "PROFILE", "SUITE"]
    rows = [line.split() for line in lines]
    suites = {"tpu-v5e": ["buckets"], "tpu-v5e-tp1": ["buckets"], "tpu-v5e-tp8": ["buckets", "scheduling"]}
    assert [row[:3] for row in rows] == [
        [group, profile, suite]
        for group, names in suites.items()
        for profile in ("quick", "nightly", "full")
        for suite in names
    ]
    # qwen3-14b at batch 8 on four chips: 29.54 / 4, 163,840 x 8 x 16,256 / 4, and 0.9 x 16 GB
    assert rows[1][3:8] == ["qwen3-14b-b8", "7.4", "GB", "5.3", "GB"]
    assert rows[1][-4:] == ["GB", "14.4", "GB", "none"]
    every = call("hardware", "--fit").out
    assert " scheduling " in every
    assert {line.split()[-1] for line in every.splitlines()[1:]} == {"none"}  # what is shipped fits
    assert "cpu " not in every  # nobody says what a processor's host has


def test_fit_in_json_is_in_bytes(call: Run) -> None:
    campaigns = call("hardware", "tpu-v5e", "--fit", "--json").json["campaigns"]
    nightly = campaigns[1]
    assert (nightly["profile"], nightly["campaign"], nightly["skipped"]) == ("nightly", "qwen3-14b-b8", {})
    # as above, in bytes
    assert nightly["cache_bytes"] == pytest.approx(163_840 * 8 * 16_256 / 4)
    assert nightly["usable_bytes"] == pytest.approx(0.9 * 16e9)
    for campaign in campaigns:
        parts = sum(campaign[f"{name}_bytes"] for name in ("weight", "cache", "working"))
        assert campaign["needed_bytes"] == pytest.approx(parts)


@pytest.mark.parametrize("path", sorted(default_directory().glob("*.toml")), ids=lambda path: path.stem)
def test_a_shipped_file_in_json_holds_its_figures_with_units_and_sources(path: Path, call: Run) -> None:
    """Held against the file as TOML reads it, in the units that it was written in."""
    found, written = call("hardware", path.stem, "--json").json, tomllib.loads(path.read_text(encoding="utf-8"))
    assert found["title"] == written["title"]
    assert found["family"] == written.get("family", found["family"])
    assert found["not_run"] == written.get("not_run")
    assert "lines" not in found
    scales = {"T": 1e12, "G": 1e9}
    peak = written.get("peak", {})
    for dtype, figure in peak.get("flops_per_s", {}).items():
        told = found["peak"]["flops_per_s"][dtype]
        assert told["source"] == figure.get("source", peak.get("source"))
        assert figure["unit"].endswith(told["unit"])
        assert told["value"] == pytest.approx(figure["value"] * scales.get(figure["unit"][0], 1))
    assert len(found["slos"]) == len(written.get("slo", []))
    assert [slo["ttft_s"] for slo in found["slos"]] == [slo["ttft_s"] for slo in written.get("slo", [])]
    assert (found["server"] is not None) == ("server" in written)
    assert set(found["ridge_flops_per_byte"]) == set(found["peak"]["flops_per_s"])


def test_fit_says_what_gives_way() -> None:
    spec = load_all([default_directory()])["nvidia-h100"]
    serving = spec.section(ServingSpec)
    assert serving is not None
    serving = replace(serving, kv_capacity={**serving.kv_capacity, "qwen3-30b-a3b": 500_000})
    crowded = {"x": replace(spec, max_batch_sizes={}, sections=(serving,))}
    assert [campaign.row[-1] for campaign in largest_campaigns(crowded) if campaign.profile == "nightly"] == [
        "mistral-7b-v0.3-b32: buckets above 4096; qwen3-14b-b32: buckets above 2048",
        "qwen3-30b-a3b-serving: all",
    ]


SMALL_GPU = """title = "a small GPU"
like = "nvidia-h100"
serving = false
[probe]
match = ["small"]
[peak]
memory_bytes = { value = 24, unit = "GB", source = "made up" }
[models]
default = ["mistral-7b-v0.3"]
max_batch_size = { "mistral-7b-v0.3" = 8 }
[profile]
quick = { workloads = ["lens-sharegpt"], buckets = [128], num_draws = 1, min_rounds = 2, max_rounds = 3, budget_s = 9 }
"""
"""Weights of 14.5 GB, and caches of 131,072 x 8 x 16,256 = 17.0 GB, which 24 GB do not hold."""


def test_fit_and_check_take_a_path_and_say_what_cannot_fit(call: Run, tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL_GPU, encoding="utf-8")
    rows = [line.split() for line in call("hardware", path, "--fit").out.splitlines()[1:]]
    assert [(row[1], row[-4:]) for row in rows][:2] == [
        ("quick", ["GB", "21.6", "GB", "none"]),
        ("nightly", ["above", "2048;", "mistral-7b-v0.3-b8-search:", "all"]),
    ]
    assert call("hardware", "--check", tmp_path, "--fit").out == call("hardware", path, "--fit").out
    words = "nightly of small does not fit 21.6 GB: mistral-7b-v0.3-b8: buckets above 2048"
    answer = call("hardware", "--check", path)
    assert (answer.status, f"no fault found; {words}" in answer.out) == (0, True)
    nightly, _ = call("hardware", "--check", path, "--json").json["right"][0]["does_not_fit"]
    assert nightly.startswith(words)
    assert "memory 24 GB" in call("hardware", path).out
    assert "did you mean 'tpu-v5e'" in call("hardware", "--fit", "tpu-v5ee").error


NEW_GPU = Device(family="cuda", ordinal=0, name="NVIDIA L9 (9+)", uuid="GPU-7", memory_bytes=24_000_000_000)
NEXT = "next: npubench run -m cuda -k mine- --npubench-hardware "


@pytest.fixture
def new_gpu(answering: dict[str, Answering], monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that no file describes behind a FAKE probe and a FAKE NVML; nothing that comes of it is a measurement."""
    nvml = FakeNvml(MaxClockInfo=lambda kind: (2040, 2040, 6251)[kind], MemoryBusWidth=192)  # as an L4 answers
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]
    backend = CudaBackend()
    monkeypatch.setattr(backend, "probe", lambda timeout_s: Probe(devices=(H200, NEW_GPU)), raising=False)
    answering["cuda"] = backend  # type: ignore[assignment]


def test_new_writes_a_file_from_what_the_driver_tells_and_what_is_answered(
    call: Run, new_gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('121 TFLOP/s\n\nits "datasheet"; https://example.org\n'))
    path = tmp_path / "hw" / "mine.toml"
    answer = call("hardware", "--new", path)
    assert (answer.status, f"{NEXT}{path.parent} -rs" in answer.out) == (0, True)
    spec = load_hardware(path)
    assert (spec.title, spec.family, spec.like) == ("NVIDIA L9 (9+)", "cuda", "nvidia-h100")
    assert spec.matches(NEW_GPU.name)
    assert not spec.matches("NVIDIA L9 (9+) Ti")
    assert (spec.peak.flops_per_s["bf16"].value, spec.peak.interconnect_bandwidth_bytes_per_s) == (121e12, None)
    assert spec.peak.flops_per_s["bf16"].source == 'its "datasheet"; https://example.org'
    bandwidth = spec.peak.memory_bandwidth_bytes_per_s
    assert bandwidth is not None
    assert (round(bandwidth.value / 1e9), bandwidth.source) == (300, "what the device's driver reports")
    assert spec.device_memory_bytes == 24e9
    assert (spec.models, spec.max_batch_sizes) == (("llama-3.2-1b", "mistral-7b-v0.3"), {"mistral-7b-v0.3": 2})
    assert spec.section(ServingSpec) is None  # no model with experts fits
    assert {line.split()[-1] for line in call("hardware", path, "--fit").out.splitlines()[1:]} == {"none"}


@pytest.mark.parametrize(
    ("arguments", "answers", "words"),
    [
        (("mine.txt",), "", "want a file NAME.toml that is not there yet"),
        (("nvidia-l4.toml",), "", "and a NAME of no shipped file"),
        (
            ("mine.toml", "--device", "cuda:9"),
            "",
            "no device cuda:9; here: cuda:1 NVIDIA H200 (hardware file nvidia-h200); cuda:0 NVIDIA L9 (9+)\n",
        ),
        (("mine.toml", "--device", "tpu:0"), "", "no device tpu:0; no tpu here"),
        (("mine.toml", "--device", "x:0"), "", "no device x:0; no family x"),
        (("mine.toml", "--fit"), "", "--fit is of files that are there"),
        (("mine.toml",), "121\n", "'121': want a number and one of FLOP/s, TFLOP/s, such as '121 TFLOP/s'"),
        (("mine.toml",), "many TFLOP/s\n", "'many TFLOP/s': want a number"),
    ],
)
def test_new_refuses_what_it_cannot_write(
    arguments: tuple[str, ...],
    answers: str,
    words: str,
    call: Run,
    new_gpu: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO(answers))
    answer = call("hardware", "--new", *arguments)
    assert (answer.status, words in answer.err) == (1, True), answer.err
    assert not list(tmp_path.iterdir())


def test_new_describes_a_tpu_and_says_where_one_has_its_file(
    call: Run, answering: dict[str, Answering], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A FAKE probe. The file that others of the family are like has groups of its device, which are not this one's."""
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    answering["cuda"] = Answering(Probe(reason="no GPU"))
    for name in ("TPU v9", "TPU v6 lite"):
        device = Device(family="tpu", ordinal=0, name=name, memory_bytes=32_000_000_000)
        answering["tpu"] = Answering(Probe(devices=(device,)))
        answer = call("hardware", "--new", tmp_path / f"{name}.toml")
        if name == "TPU v9":
            assert (answer.status, load_hardware(tmp_path / "TPU v9.toml").groups) == (0, ())
    answering["tpu"] = Answering(Probe(devices=(replace(device, name="TPU v1", memory_bytes=10**9),)))
    small = call("hardware", "--new", tmp_path / "small.toml")
    assert (small.status, "fits in 1.0 GB" in small.error, small.out) == (1, True, "")  # before anything is asked
    here = "here: tpu:0 TPU v6 lite (hardware file tpu-v6e); --device ID writes a further file"
    assert answer.error.endswith(f"no device without a hardware file; {here}\n")


def test_new_describes_this_processor(call: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    path = tmp_path / "mine.toml"
    assert call("hardware", "--new", path, "--device", "cpu:0").status == 0
    specs = load_all([default_directory(), tmp_path])
    assert [spec.name for spec in specs.values() if spec.family == "cpu" and spec.matches(processor_name())] == ["mine"]
    assert (specs["mine"].peak, specs["mine"].profiles) == (specs["cpu"].peak, specs["cpu"].profiles)
    again = call("hardware", "--new", path, "--device", "cpu:0")
    assert "want a file NAME.toml that is not there yet" in again.error


def test_figures_that_nobody_has_read_in_their_source_are_named(call: Run, tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL_GPU.replace("[peak]", '[peak]\nunverified = ["memory_bytes"]'), encoding="utf-8")
    assert call("hardware", "--check", path).out.rstrip().endswith("; not read in their source: memory_bytes")
    assert call("hardware", "--check", path, "--json").json["right"][0]["unverified"] == ["memory_bytes"]
    assert "not read in their source: memory_bytes" in call("hardware", path).out
    path.write_text(SMALL_GPU.replace("[peak]", '[peak]\nunverified = ["fp9"]'), encoding="utf-8")
    answer = call("hardware", "--check", path)
    assert (answer.status, "peak.unverified: 'fp9' is no figure here; want some of" in answer.error) == (1, True)


SPECS = load_all([default_directory()])
LIKE_H100 = [name for name, spec in SPECS.items() if spec.like == "nvidia-h100"]


@pytest.mark.parametrize("name", LIKE_H100)
def test_shipped_files_have_the_models_and_caches_that_fit(name: str) -> None:
    spec, memory = SPECS[name], SPECS[name].device_memory_bytes
    assert memory is not None
    entries = fitted_entries(SPECS["nvidia-h100"], memory)
    fitted = tomllib.loads("\n".join(f"[{table}]\n{lines}" if table else lines for table, lines in entries.items()))
    models = {"default": list(SPECS["nvidia-h100"].models), "max_batch_size": SPECS["nvidia-h100"].max_batch_sizes}
    models |= fitted.get("models", {})
    assert [*spec.models] == models["default"]
    assert spec.max_batch_sizes == (models["max_batch_size"] or {})
    serving = spec.section(ServingSpec)
    assert (serving is None) == (fitted.get("serving") is False) == (memory < 80e9)
    for model, tokens in fitted["serving"]["kv_capacity_tokens"].items() if fitted.get("serving") else ():
        assert serving is not None
        assert not isinstance(serving.kv_capacity, int)
        assert 0.95 * tokens <= serving.kv_capacity[model] <= tokens
