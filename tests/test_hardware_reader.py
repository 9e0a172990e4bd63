"""The reader of hardware files: a good file key by key, and every error with its words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_npubench.core import hardware, hardware_reader
from pytest_npubench.core.documents import toml_table
from pytest_npubench.core.figures import Figure
from pytest_npubench.core.toml_table import TomlTable
from pytest_npubench.errors import HardwareFileError
from pytest_npubench.suites.hardware_files import load_all, load_hardware

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

BROKEN = {
    # name: (old text, new text, dotted key, what the message says besides)
    "unknown-key": ('title = "A device"', 'titel = "A device"', "titel", "did you mean 'title'?"),
    "unknown-table": ("[limits]", "[limit]", "limit", "did you mean 'limits'?"),
    "unknown-in-profile": ("num_draws", "draws", "profile.quick.draws", "allowed: min_rounds"),
    "unknown-in-slo": ("ttft_s", "ttft", "slo[0].ttft", "did you mean 'ttft_s'?"),
    "unknown-in-figure": ('unit = "TFLOP/s"', 'units = "TFLOP/s"', "peak.flops_per_s.bf16.units", "'unit'"),
    "unknown-dtype-of-peak": ("flops_per_s.bf16", "flops_per_s.bf17", "peak.flops_per_s.bf17", "'bf16'"),
    "unknown-profile": ("[profile.full]", "[profile.ful]", "profile.ful", "allowed: quick, nightly, full"),
    "no-title": ('title = "A device"', "", "title", "missing"),
    "title-number": ('title = "A device"', "title = 3", "title", "want a text that is not empty, not 3"),
    "title-blank": ('title = "A device"', 'title = " "', "title", "want a text that is not empty"),
    "unknown-family": ('family = "cuda"', 'family = "gpu"', "family", "cpu, cuda, tpu, neuron"),
    "unknown-class": ('classes = ["gpu"]', 'classes = ["dsp"]', "classes", "allowed: gpu, npu"),
    "class-not-in-a-list": ('classes = ["gpu"]', 'classes = "gpu"', "classes", "want a list"),
    "no-match": ('match = ["Thing"]', "", "probe.match", "missing"),
    "empty-match": ('match = ["Thing"]', "match = []", "probe.match", "one or more texts"),
    "bad-regex": ('match = ["Thing"]', 'match = ["("]', "probe.match", "'(' is not a regular expr"),
    "match-number": ('match = ["Thing"]', "match = [1]", "probe.match", "want a list"),
    "no-devices": ("[probe]", "[probe]\nnum_devices = 0", "probe.num_devices", "at least 1, not 0"),
    "bool-for-int": ("[probe]", "[probe]\nnum_devices = true", "probe.num_devices", "not True"),
    "float-for-int": ("[probe]", "[probe]\ndevices_per_chip = 1.5", "probe.devices_per_chip", "not 1.5"),
    "nan": ("value = 100", "value = nan", "peak.flops_per_s.bf16.value", "finite number above 0"),
    "infinite": ("value = 100", "value = inf", "peak.flops_per_s.bf16.value", "finite number above 0"),
    "negative": ("value = 100", "value = -1", "peak.flops_per_s.bf16.value", "finite number above 0"),
    "zero": ("value = 100", "value = 0", "peak.flops_per_s.bf16.value", "finite number above 0"),
    "bool-for-number": ("value = 100", "value = true", "peak.flops_per_s.bf16.value", "not True"),
    "text-for-number": ("value = 100", 'value = "100"', "peak.flops_per_s.bf16.value", "not '100'"),
    "no-unit": ('unit = "TFLOP/s"', "", "peak.flops_per_s.bf16.unit", "missing"),
    "wrong-unit": ('"TFLOP/s"', '"TOP/s"', "peak.flops_per_s.bf16.unit", "FLOP/s, TFLOP/s, not 'TOP/s'"),
    "wrong-memory-unit": ('"GB"', '"GB/s"', "peak.memory_bytes.unit", "B, GB, GiB, not 'GB/s'"),
    "no-source": ('source = "a datasheet; https://example.org"', "", "peak.flops_per_s.bf16.source", "missing"),
    "blank": ('source = "a datasheet; https://example.org"', 'source = ""', "peak.flops_per_s.bf16.source", "want"),
    "unsorted-buckets": ("[128, 256, 512]", "[256, 128]", "buckets.set", "256 is followed by 128"),
    "duplicate-buckets": ("[128, 256, 512]", "[128, 128]", "buckets.set", "128 is followed by 128"),
    "empty-buckets": ("[128, 256, 512]", "[]", "buckets.set", "one or more"),
    "bool-bucket": ("[128, 256, 512]", "[true, 256]", "buckets.set", "not [True, 256]"),
    "bucket-zero": ("[128, 256, 512]", "[0, 256]", "buckets.set", "at least 1"),
    "bucket-not-in-a-list": ("[128, 256, 512]", "128", "buckets.set", "want a list"),
    "buckets-source": ('[128, 256, 512]\nsource = "a paper"', "[128, 256]", "buckets.source", "missing"),
    "no-models": ('default = ["one", "two"]', "default = []", "models.default", "one or more texts"),
    "model-twice": ('["one", "two"]', '["one", "one"]', "models.default", "none twice"),
    "unknown-dtype": ('dtype = "bf16"', 'dtype = "float"', "models.dtype", "fp32, tf32, bf16"),
    "batch-zero": ("batch_sizes = [1, 2]", "batch_sizes = [0, 2]", "models.batch_sizes", "at least 1"),
    "no-batch": ("batch_sizes = [1, 2]", "batch_sizes = []", "models.batch_sizes", "one or more"),
    "slo-without-tbt": ("tbt_s = 0.1", "", "slo[0].tbt_s", "missing"),
    "slo-zero": ("ttft_s = 1", "ttft_s = 0", "slo[0].ttft_s", "above 0"),
    "slo-source": ('tbt_s = 0.1\nsource = "a paper"', "tbt_s = 0.1", "slo[0].source", "missing"),
    "group-again": ("[profile.quick]", GROUP_AGAIN, "group[0].num_devices", "a second group of 1"),
    "group-of-nothing": ("[profile.quick]", "[[group]]\n[profile.quick]", "group[0].num_devices", "missing"),
    "group-of-a-strange-model": (
        "[profile.quick]",
        '[[group]]\nnum_devices = 4\nmodels = ["three"]\n[profile.quick]',
        "group[0].models",
        "three; allowed: one, two",
    ),
    "largest-batch-of-a-strange-model": (
        "batch_sizes = [1, 2]",
        "batch_sizes = [1, 2]\nmax_batch_size = { three = 1 }",
        "models.max_batch_size.three",
        "allowed: one, two",
    ),
    "no-largest-batch": (
        "batch_sizes = [1, 2]",
        "batch_sizes = [1, 2]\nmax_batch_size = { one = 0 }",
        "models.max_batch_size.one",
        "at least 1, not 0",
    ),
    "slo-twice": ("[limits]", SLO_AGAIN, "slo[1].workload", "a second entry for model 'one'"),
    "percent": ("case_error = 0.2", "case_error = 20", "limits.case_error", "up to 1, not 20"),
    "limit-zero": ("mean_error = 0.1", "mean_error = 0", "limits.mean_error", "above 0"),
    "model": ('models = ["one"]', 'models = ["three"]', "profile.quick.models", "three; allowed: one, two"),
    "bucket": ("buckets = [128, 256]", "buckets = [64]", "profile.quick.buckets", "64; allowed: 128"),
    "batch": ("batch_sizes = [1]", "batch_sizes = [3]", "profile.quick.batch_sizes", "3; allowed: 1, 2"),
    "empty-in-profile": ("buckets = [128, 256]", "buckets = []", "profile.quick.buckets", "one or more"),
    "no-workloads": ('workloads = ["chat"]', "", "profile.quick.workloads", "missing"),
    "one-round": ("min_rounds = 2", "min_rounds = 1", "profile.quick.min_rounds", "at least 2, not 1"),
    "max-below-min": ("max_rounds = 3", "max_rounds = 1", "profile.quick.max_rounds", "at least 2, not 1"),
    "negative-budget": ("budget_s = 10", "budget_s = -5", "profile.quick.budget_s", "above 0, not -5"),
    "one-token": ("_tokens = 65", "_tokens = 1", "profile.full.profile_output_tokens", "at least 2"),
    "no-second-length": (
        "profile_output_tokens = 65",
        "profile_output_tokens = 65\nprofile_first_output_tokens = 65",
        "profile.full.profile_first_output_tokens",
        "below 65, the profile_output_tokens, not 65",
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_file_names_file_key_and_what_is_allowed(tmp_path: Path, broken: str) -> None:
    old, new, key, words = BROKEN[broken]
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


def test_a_text_that_was_read_before_is_read_again_as_it_stands(tmp_path: Path) -> None:
    for title in ("A device", "Another", "A device"):
        assert load_hardware(written(tmp_path, GOOD.replace("A device", title))).title == title
    shipped = sorted(hardware_reader.default_directory().glob("*.toml"))
    assert load_all([shipped[0].parent]) == load_all([shipped[0].parent])
    for path in shipped:
        table = TomlTable.of(path, HardwareFileError)
        assert table.entries == toml_table(path.read_text(encoding="utf-8"))
        assert table.entries is TomlTable.of(path, HardwareFileError).entries


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


def test_figures_without_a_source_have_that_of_the_table(tmp_path: Path) -> None:
    datasheet = 'source = "a datasheet; https://example.org"'
    text = GOOD.replace(datasheet, "", 1).replace("[peak.flops", '[peak]\nsource = "a table"\n[peak.flops', 1)
    peak = load_hardware(written(tmp_path, text)).peak
    assert peak.memory_bytes is not None
    assert (peak.flops_per_s["bf16"].source, peak.memory_bytes.source) == (
        "a table",
        "a datasheet; https://example.org",
    )
