"""Hardware files: one TOML a device, read into a HardwareSpec. docs/hardware.md describes every key.

A spec says which devices it is about, the maker's peak figures with their source, the buckets and models that cases
expand to, the latency limits (SLO) and the run sizes quick, nightly and full. It holds no machine state.

ridge_flops_per_byte = peak FLOP/s / peak memory B/s: the arithmetic intensity at which a kernel turns from memory-bound
to compute-bound (Layered Prefill, section 2.5). NVIDIA H100 SXM in bf16: 989.4e12 / 3.35e12 = 295.3 FLOP per byte.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from pytest_npubench.core import families
from pytest_npubench.core.regular_file import SMALL_BYTES, read_text
from pytest_npubench.core.toml_table import TomlTable, listed
from pytest_npubench.errors import ConfigError, HardwareFileError

FAMILIES = families.names()
CLASSES = ("gpu", "npu")
PROFILES = ("quick", "nightly", "full")
FLOAT_DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8")
INTEGER_DTYPES = ("int8", "int4")
DTYPES = (*FLOAT_DTYPES, *INTEGER_DTYPES)
ANY = "*"
SERVER = "server"

SectionT = TypeVar("SectionT")
Sections = Mapping[str, Callable[[TomlTable], object]]
"""How the sections of suites are read from a file's root table, by key."""

# unit: factor to the base unit, which comes first
FLOP_UNITS = {"FLOP/s": 1.0, "TFLOP/s": 1e12}
OP_UNITS = {"OP/s": 1.0, "TOP/s": 1e12}
BANDWIDTH_UNITS = {"B/s": 1.0, "GB/s": 1e9, "TB/s": 1e12}
MEMORY_UNITS = {"B": 1.0, "GB": 1e9, "GiB": 2.0**30}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A published figure in its base unit (FLOP/s, OP/s, B/s or B) and the document that states it."""

    value: float
    unit: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """What the maker publishes for one chip, dense; None or absent where it publishes nothing.

    interconnect_bandwidth_bytes_per_s is what one chip sends to the others of its group, in one direction.
    """

    flops_per_s: tuple[tuple[str, Figure], ...] = ()
    memory_bandwidth_bytes_per_s: Figure | None = None
    memory_bytes: Figure | None = None
    interconnect_bandwidth_bytes_per_s: Figure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SloSpec:
    """Latency limits of one model on one workload, in seconds; either name may be "*"."""

    model: str
    workload: str
    ttft_s: float
    tbt_s: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSize:
    """What a profile (quick, nightly or full) runs. budget_s holds for one campaign.

    profile_output_tokens is l2 of LENS, Eq. 14: the longer of the two output lengths of a profile point.
    """

    name: str
    models: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    buckets: tuple[int, ...]
    workloads: tuple[str, ...]
    num_draws: int
    min_rounds: int
    max_rounds: int
    budget_s: float
    profile_output_tokens: int = 33


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """Another number of devices together than the file's `num_devices`, and the models that fit them.

    max_batch_sizes: the largest batch of a model, for those models that have one.
    """

    num_devices: int
    models: tuple[str, ...]
    max_batch_sizes: tuple[tuple[str, int], ...] = ()


class DeferredSection:
    """A suite's section that is read when somebody first asks for one: a run of one suite needs no code of others."""

    def __init__(self, read: Callable[[], object]) -> None:
        self._read = read

    @cached_property
    def record(self) -> object:
        """Raises HardwareFileError."""
        return self._read()


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareSpec:
    """One hardware file. case_error and mean_error are the allowed prediction errors, as fractions.

    A file about a server has no buckets, models and batch sizes: none can be seen from outside.
    `sections` are those of suites, each a record of a class of its suite's, or deferred. `group_of` is the file's name
    where the spec is one of its further groups (`with_groups`), else None.
    """

    name: str
    title: str
    family: str
    classes: tuple[str, ...]
    match: tuple[str, ...]
    tensor_parallel: int
    devices_per_chip: int
    peak: Peak
    buckets: tuple[int, ...]
    buckets_source: str
    models: tuple[str, ...]
    dtype: str
    batch_sizes: tuple[int, ...]
    slos: tuple[SloSpec, ...]
    case_error: float
    mean_error: float
    profiles: tuple[RunSize, ...]
    sections: tuple[object, ...] = ()
    max_batch_sizes: tuple[tuple[str, int], ...] = ()
    groups: tuple[DeviceGroup, ...] = ()
    group_of: str | None = None

    @property
    def file_name(self) -> str:
        """The hardware file's name, which all of its groups share."""
        return self.group_of or self.name

    @property
    def markers(self) -> tuple[str, ...]:
        """The pytest markers of every case of this device: its family, then its classes."""
        return (self.family, *self.classes)

    def matches(self, device_name: str) -> bool:
        """Whether the name that the family's backend reports is this device's."""
        return any(re.search(pattern, device_name, re.IGNORECASE) for pattern in self.match)

    def section(self, of: type[SectionT]) -> SectionT | None:
        """The section of that class; None where the file has none. Raises HardwareFileError where it is not among those
        that can be read: a mistake in the section of a suite that nobody asks for is no matter of this one."""
        failed: HardwareFileError | None = None
        for section in self.sections:
            try:
                record = section.record if isinstance(section, DeferredSection) else section
            except HardwareFileError as error:
                failed = failed or error
                continue
            if isinstance(record, of):
                return record
        if failed is not None:
            raise failed
        return None

    def profile(self, name: str) -> RunSize:
        """The run size of that name. Raises ConfigError on an unknown one."""
        for size in self.profiles:
            if size.name == name:
                return size
        raise ConfigError(f"no profile named {name!r}; allowed: {listed(PROFILES)}")

    def ridge_flops_per_byte(self, dtype: str) -> float | None:
        """Peak FLOP/s (OP/s for integers) over peak memory B/s; None where either figure is not published."""
        flops, bandwidth = dict(self.peak.flops_per_s).get(dtype), self.peak.memory_bandwidth_bytes_per_s
        return flops.value / bandwidth.value if flops and bandwidth else None

    def batch_sizes_of(self, model: str, size: RunSize) -> tuple[int, ...]:
        """The batch sizes of a run size that the model may have on these devices."""
        most = dict(self.max_batch_sizes).get(model)
        return tuple(batch for batch in size.batch_sizes if most is None or batch <= most)

    @property
    def device_memory_bytes(self) -> float | None:
        """Memory of one device: a chip's, shared out evenly; None where it is not published."""
        memory = self.peak.memory_bytes
        return memory.value / self.devices_per_chip if memory else None

    @property
    def group_memory_bytes(self) -> float | None:
        """Memory of the chips that one tensor-parallel group runs on; None where it is not published."""
        memory = self.device_memory_bytes
        return memory * self.tensor_parallel if memory is not None else None

    def slo_for(self, model: str, workload: str) -> SloSpec | None:
        """The most specific entry: both names, then the model's, then the workload's, then the one for all."""
        slos = {(slo.model, slo.workload): slo for slo in self.slos}
        wanted = ((model, workload), (model, ANY), (ANY, workload), (ANY, ANY))
        return next((slos[names] for names in wanted if names in slos), None)


def load_hardware(path: Path, sections: Sections) -> HardwareSpec:
    """Read one hardware file. Raises HardwareFileError naming the file, the dotted key and what is allowed."""
    try:
        document = _parse(read_text(path, SMALL_BYTES))
    except OSError as error:
        raise HardwareFileError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError are both ValueErrors
        raise HardwareFileError(f"{path}: not a TOML file in UTF-8: {error}") from error
    return _spec(path, document, sections)


def load_all(directories: Sequence[Path], sections: Sections) -> dict[str, HardwareSpec]:
    """Every hardware file of the directories by name, sorted. Raises HardwareFileError, also on a name used twice."""
    found: dict[str, Path] = {}
    for directory in directories:
        paths = sorted(directory.glob("*.toml"))
        if not paths:
            raise HardwareFileError(f"{directory}: no hardware file there; want a directory with one .toml a device")
        for path in paths:
            if path.stem in found:
                raise HardwareFileError(f"{path}: {path.stem!r} is already defined by {found[path.stem]}; rename one")
            found[path.stem] = path
    return {name: load_hardware(found[name], sections) for name in sorted(found)}


def with_groups(specs: Mapping[str, HardwareSpec]) -> dict[str, HardwareSpec]:
    """The specs, each followed by one for every further group of its file. Raises HardwareFileError on a taken name.

    A further group is a hardware of its own, so its ids, campaign keys and digests are: four chips of tpu-v5e are
    `tpu-v5e`, one chip is `tpu-v5e-tp1`. Both carry the same markers.
    """
    found: dict[str, HardwareSpec] = {}
    for name, spec in specs.items():
        found[name] = spec
        for group in spec.groups:
            other = _in_group(spec, group)
            if other.name in specs:
                raise HardwareFileError(
                    f"{name}: groups: {group.num_devices} devices together are called {other.name!r}, "
                    "which is a hardware file's name; rename that file"
                )
            found[other.name] = other
    return found


def _in_group(spec: HardwareSpec, group: DeviceGroup) -> HardwareSpec:
    """The spec on another number of devices: buckets alone, since torch and the compute units use no group."""
    sizes = (
        replace(size, models=tuple(model for model in size.models if model in group.models)) for size in spec.profiles
    )
    return replace(
        spec,
        name=f"{spec.name}-tp{group.num_devices}",
        title=f"{spec.title}, {_together(group.num_devices)}",
        tensor_parallel=group.num_devices,
        models=group.models,
        max_batch_sizes=group.max_batch_sizes,
        profiles=tuple(sizes),
        sections=(),
        groups=(),
        group_of=spec.name,
    )


def _together(num_devices: int) -> str:
    return "one device alone" if num_devices == 1 else f"{num_devices} devices together"


def default_directory() -> Path:
    """Where the hardware files that come with the package lie, installed from a wheel or from a checkout."""
    package = Path(__file__).resolve().parents[1]
    packaged = package / "hardware_files"
    return packaged if packaged.is_dir() else package.parent / "hardware"


def _parse(text: str) -> dict[str, object]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        # mypy checks this branch also where only Python 3.11 or later, and so no tomli, is installed
        import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]
    document: dict[str, object] = tomllib.loads(text)
    return document


def _spec(path: Path, document: dict[str, object], sections: Sections) -> HardwareSpec:
    if document.get("family") == SERVER:
        return _server(path, document, sections)
    keys = ("title", "family", "classes", "probe", "peak", "buckets", "models", "group", "slo", "limits", "profile")
    sections = {name: read for name, read in sections.items() if name != SERVER}
    root = TomlTable(path, "", document, (*keys, *sections))
    probe = root.table("probe", ("match", "num_devices", "devices_per_chip"))
    buckets = root.table("buckets", ("set", "source"))
    models = root.table("models", ("default", "dtype", "batch_sizes", "max_batch_size"))
    names = models.strings("default")
    limits = TomlTable(path, "limits", document.get("limits", {}), ("case_error", "mean_error"))
    spec = HardwareSpec(
        name=path.stem,
        title=root.text("title"),
        family=root.choice("family", FAMILIES),
        classes=() if document.get("classes", []) == [] else root.strings("classes", CLASSES),
        match=_patterns(probe),
        tensor_parallel=probe.integer("num_devices", default=1),
        devices_per_chip=probe.integer("devices_per_chip", default=1),
        peak=_peak(root),
        buckets=buckets.increasing("set"),
        buckets_source=buckets.text("source"),
        models=names,
        dtype=models.choice("dtype", DTYPES),
        batch_sizes=models.increasing("batch_sizes"),
        slos=_slos(root),
        # the defaults are the project's; LENS, section 5.2, reports a mean of 2.15 % and 11.47 % at the worst
        case_error=limits.number("case_error", at_most=1, default=0.10),
        mean_error=limits.number("mean_error", at_most=1, default=0.05),
        profiles=(),
        sections=tuple(read(root) for name, read in sections.items() if name in root),
        max_batch_sizes=_max_batch_sizes(models, names),
    )
    spec = replace(spec, groups=_groups(root, spec))
    return replace(spec, profiles=_profiles(root.table("profile", PROFILES), spec))


def _server(path: Path, document: dict[str, object], sections: Sections) -> HardwareSpec:
    """A file about a server: no device, so of the other tables it has limits on latency alone."""
    root = TomlTable(path, "", document, ("title", "family", "probe", "slo", SERVER))
    return HardwareSpec(
        name=path.stem,
        title=root.text("title"),
        family=SERVER,
        classes=(),
        match=_patterns(root.table("probe", ("match",))),
        tensor_parallel=1,
        devices_per_chip=1,
        peak=Peak(),
        buckets=(),
        buckets_source="a server shows none",
        models=(),
        dtype="unknown",
        batch_sizes=(),
        slos=_slos(root),
        case_error=1.0,  # nothing is predicted
        mean_error=1.0,
        profiles=(),
        sections=(sections[SERVER](root),),
    )


def _patterns(probe: TomlTable) -> tuple[str, ...]:
    patterns = probe.strings("match")
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise probe.error("match", f"{pattern!r} is not a regular expression: {error}") from error
    return patterns


def _groups(root: TomlTable, spec: HardwareSpec) -> tuple[DeviceGroup, ...]:
    groups: dict[int, DeviceGroup] = {}
    for table in root.tables("group", ("num_devices", "models", "max_batch_size")):
        num_devices = table.integer("num_devices")
        if num_devices in (spec.tensor_parallel, *groups):
            raise table.error("num_devices", f"a second group of {num_devices}; keep one ([probe] num_devices is one)")
        models = table.strings("models", spec.models) if "models" in table else spec.models
        groups[num_devices] = DeviceGroup(
            num_devices=num_devices, models=models, max_batch_sizes=_max_batch_sizes(table, models)
        )
    return tuple(groups.values())


def _max_batch_sizes(table: TomlTable, models: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """The largest batch of each model that the table names."""
    if "max_batch_size" not in table:
        return ()
    largest = table.table("max_batch_size", models)
    return tuple((model, largest.integer(model)) for model in largest.entries)


def _peak(root: TomlTable) -> Peak:
    if "peak" not in root:
        return Peak()
    bandwidth, memory, link = "memory_bandwidth_bytes_per_s", "memory_bytes", "interconnect_bandwidth_bytes_per_s"
    peak = root.table("peak", ("flops_per_s", bandwidth, memory, link))
    return Peak(
        flops_per_s=_flops(peak) if "flops_per_s" in peak else (),
        memory_bandwidth_bytes_per_s=_figure(peak, bandwidth, BANDWIDTH_UNITS) if bandwidth in peak else None,
        memory_bytes=_figure(peak, memory, MEMORY_UNITS) if memory in peak else None,
        interconnect_bandwidth_bytes_per_s=_figure(peak, link, BANDWIDTH_UNITS) if link in peak else None,
    )


def _flops(peak: TomlTable) -> tuple[tuple[str, Figure], ...]:
    table = peak.table("flops_per_s", DTYPES)
    units = {dtype: OP_UNITS if dtype in INTEGER_DTYPES else FLOP_UNITS for dtype in DTYPES}
    return tuple((dtype, _figure(table, dtype, units[dtype])) for dtype in table.entries)


def _figure(table: TomlTable, name: str, units: Mapping[str, float]) -> Figure:
    entry = table.table(name, ("value", "unit", "source"))
    unit = entry.choice("unit", tuple(units))
    source = entry.text("source", "the document that states the figure, with its address")
    return Figure(value=entry.number("value") * units[unit], unit=next(iter(units)), source=source)


def _slos(root: TomlTable) -> tuple[SloSpec, ...]:
    if "slo" not in root:
        return ()
    entries = root.entries["slo"]
    if not isinstance(entries, list) or not entries:
        raise root.wrong("slo", "one or more [[slo]] tables")
    slos: dict[tuple[str, str], SloSpec] = {}
    for index, entry in enumerate(entries):
        table = TomlTable(root.path, f"slo[{index}]", entry, ("model", "workload", "ttft_s", "tbt_s", "source"))
        names = table.text("model"), table.text("workload")
        if names in slos:
            raise table.error("workload", f"a second entry for model {names[0]!r} and workload {names[1]!r}; keep one")
        slos[names] = SloSpec(
            model=names[0],
            workload=names[1],
            ttft_s=table.number("ttft_s"),
            tbt_s=table.number("tbt_s"),
            source=table.text("source"),
        )
    return tuple(slos.values())


def _profiles(profiles: TomlTable, spec: HardwareSpec) -> tuple[RunSize, ...]:
    lists = ("models", "batch_sizes", "buckets", "workloads")
    numbers = ("num_draws", "min_rounds", "max_rounds", "budget_s", "profile_output_tokens")
    return tuple(_run_size(name, profiles.table(name, (*lists, *numbers)), spec) for name in PROFILES)


def _run_size(name: str, table: TomlTable, spec: HardwareSpec) -> RunSize:
    """A profile picks from the file's models, batch sizes and buckets; all of them where it names none."""
    min_rounds = table.integer("min_rounds", at_least=2)  # one round has no spread, so no interval
    return RunSize(
        name=name,
        models=table.strings("models", spec.models) if "models" in table else spec.models,
        batch_sizes=table.increasing("batch_sizes", spec.batch_sizes) if "batch_sizes" in table else spec.batch_sizes,
        buckets=table.increasing("buckets", spec.buckets) if "buckets" in table else spec.buckets,
        workloads=table.strings("workloads"),
        num_draws=table.integer("num_draws"),
        min_rounds=min_rounds,
        max_rounds=table.integer("max_rounds", at_least=min_rounds),
        budget_s=table.number("budget_s"),
        profile_output_tokens=table.integer("profile_output_tokens", at_least=2, default=33),
    )
