"""Hardware files: one TOML a device, read into a HardwareSpec. docs/hardware.md describes every key.

A spec says which devices it is about, the maker's peak figures with their source, the buckets and models that cases
expand to, the latency limits (SLO) and the run sizes quick, nightly and full. It holds no machine state.

ridge_flops_per_byte = peak FLOP/s / peak memory B/s: the arithmetic intensity at which a kernel turns from memory-bound
to compute-bound (Layered Prefill, section 2.5). NVIDIA H100 SXM in bf16: 989.4e12 / 3.35e12 = 295.3 FLOP per byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, TypeVar

from msgspec import Meta

from pytest_npubench.core import families
from pytest_npubench.core.device_names import closest_files
from pytest_npubench.core.record_reader import (
    GIVEN,
    TABLE_NAME,
    Count,
    Counts,
    Fraction,
    Positive,
    Text,
    Texts,
    TomlTable,
    WrongEntryError,
    at_least,
    check_keys,
    check_within,
    key,
    listed,
    one_of,
    tables,
    text,
    unique,
    within,
)
from pytest_npubench.core.similar_hardware import completed
from pytest_npubench.errors import ConfigError, HardwareFileError

FAMILIES = families.names()
CLASSES = ("gpu", "npu")
PROFILES = ("quick", "nightly", "full")
INTEGER_DTYPES = ("int8", "int4")
DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", *INTEGER_DTYPES)
Dtype = Annotated[str, one_of(DTYPES)]
OTHER_PEAKS = ("memory_bandwidth_bytes_per_s", "memory_bytes", "interconnect_bandwidth_bytes_per_s")
SOURCE = "the document that states the figure, with its address"
NOT_RUN = "not_run"
ANY = "*"
SERVER = "server"

SectionT = TypeVar("SectionT")
SizeT = TypeVar("SizeT", bound="RunLength")
FigureT = TypeVar("FigureT", bound="Figure")
Sections = Mapping[str, Callable[[TomlTable], object]]
"""How the sections of suites are read from a file's root table, by key."""

# unit: factor to the base unit, which comes first
FLOP_UNITS = {"FLOP/s": 1.0, "TFLOP/s": 1e12}
OP_UNITS = {"OP/s": 1.0, "TOP/s": 1e12}
BANDWIDTH_UNITS = {"B/s": 1.0, "GB/s": 1e9, "TB/s": 1e12}
CLOCK_UNITS = {"Hz": 1.0, "GHz": 1e9}
MEMORY_UNITS = {"B": 1.0, "GB": 1e9, "GiB": 2.0**30}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A published figure in its base unit (FLOP/s, OP/s, B/s or B) and the document that states it."""

    value: Positive
    unit: Text
    source: Annotated[str, text(SOURCE)]


def _in_base_unit(figure: Figure, units: Mapping[str, float]) -> Figure:
    return Figure(value=figure.value * units[figure.unit], unit=next(iter(units)), source=figure.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Peak(Figure):
    """A figure that may leave its source to the [peak] table."""

    source: Annotated[str, text(SOURCE)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compute(_Peak):
    unit: Annotated[str, one_of((*FLOP_UNITS, *OP_UNITS))]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bandwidth(_Peak):
    unit: Annotated[str, one_of(BANDWIDTH_UNITS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory(_Peak):
    unit: Annotated[str, one_of(MEMORY_UNITS)]


def _flops(figures: Mapping[str, Figure]) -> Mapping[str, Figure]:
    check_keys("", figures, DTYPES)
    units = {dtype: OP_UNITS if dtype in INTEGER_DTYPES else FLOP_UNITS for dtype in DTYPES}
    for dtype, figure in figures.items():
        if figure.unit not in units[dtype]:
            raise WrongEntryError(f"{dtype}.unit", f"want one of {listed(units[dtype])}, not {figure.unit!r}")
    return {dtype: _in_base_unit(figure, units[dtype]) for dtype, figure in figures.items()}


_BytesPerS = Annotated[_Bandwidth, partial(_in_base_unit, units=BANDWIDTH_UNITS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """What the maker publishes for one chip, dense; None or absent where it publishes nothing.

    interconnect_bandwidth_bytes_per_s is what one chip sends to the others of its group, in one direction. `source` is
    that of the figures that name none.
    """

    source: Annotated[str, text(SOURCE)] = ""
    flops_per_s: Annotated[Mapping[str, _Compute], _flops] = field(default_factory=dict)
    memory_bandwidth_bytes_per_s: _BytesPerS | None = None
    memory_bytes: Annotated[Memory, partial(_in_base_unit, units=MEMORY_UNITS)] | None = None
    interconnect_bandwidth_bytes_per_s: _BytesPerS | None = None


def _sourced(peak: Peak) -> Peak:
    """The peaks, each with its source. Raises WrongEntryError where one has none."""

    def sourced(name: str, figure: FigureT) -> FigureT:
        if not (source := figure.source or peak.source):
            raise WrongEntryError(f"{name}.source", f"missing; want {SOURCE}, here or as peak.source")
        return replace(figure, source=source)

    others = {name: figure for name in OTHER_PEAKS if (figure := getattr(peak, name)) is not None}
    return replace(
        peak,
        flops_per_s={dtype: sourced(f"flops_per_s.{dtype}", figure) for dtype, figure in peak.flops_per_s.items()},
        **{name: sourced(name, figure) for name, figure in others.items()},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clock(Figure):
    unit: Annotated[str, one_of(CLOCK_UNITS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Price(Figure):
    unit: Annotated[str, Meta(pattern=r"^[A-Z]{3}/h\Z", description='a currency an hour, such as "USD/h"')]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """What XLA needs to know of a GPU beside its peaks. limits: by their names in XLA's GpuDeviceInfoProto."""

    compute_capability: Annotated[str, Meta(pattern=r"^\d+\.\d\Z", description='a text such as "9.0"')]
    limits: Mapping[str, Positive]
    source: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerSpec:
    """What a vendor's compiler needs to know of absent devices: the compiler's name of a device, its topology by the
    number of devices together (as text), and the clock of its cycles, None where it counts no cycles. gpu: for XLA's
    compiler for GPUs alone, which has no names of GPUs."""

    device_name: Text
    clock: Annotated[_Clock, partial(_in_base_unit, units=CLOCK_UNITS)] | None = None
    topologies: Mapping[str, Text]
    gpu: GpuSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SloSpec:
    """Latency limits of one model on one workload, in seconds; either name may be "*"."""

    model: Text
    workload: Text
    ttft_s: Positive
    tbt_s: Positive
    source: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLength:
    """How long a profile (quick, nightly or full) goes on in one campaign. One round has no spread, so no interval."""

    name: str = field(metadata=TABLE_NAME)
    min_rounds: Annotated[int, at_least(2)]
    max_rounds: Annotated[int, at_least(2)]
    budget_s: Positive

    def __post_init__(self) -> None:
        """Raises WrongEntryError."""
        if self.max_rounds < self.min_rounds:
            want = f"want a whole number of at least {self.min_rounds}, the min_rounds"
            raise WrongEntryError("max_rounds", f"{want}, not {self.max_rounds}")


def size_of(sizes: Sequence[SizeT], profile: str) -> SizeT | None:
    """The run size of that name; None where the profile does nothing."""
    return next((size for size in sizes if size.name == profile), None)


def known_profiles(sizes: tuple[SizeT, ...]) -> tuple[SizeT, ...]:
    """The run sizes of some profiles. Raises WrongEntryError on an unknown one."""
    check_keys("", [size.name for size in sizes], PROFILES)
    return sizes


def all_profiles(sizes: tuple[SizeT, ...]) -> tuple[SizeT, ...]:
    """The run sizes of all profiles. Raises WrongEntryError on an unknown or a missing one."""
    names = [size.name for size in known_profiles(sizes)]
    if missing := [name for name in PROFILES if name not in names]:
        raise WrongEntryError(missing[0], "missing; want a table")
    return sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSize(RunLength):
    """What a profile runs, of the file's models, batch sizes and buckets: all of them where it names none.

    profile_first_output_tokens and profile_output_tokens are l1 and l2 of LENS, Eq. 14: the two output lengths of a
    bucket. Where the first steps behind a prefill take longer than the others, l1 has them, so that TTFT_b does. At
    online_batch_sizes requests of the first workload are served as they arrive, in online_buckets. Engines of
    search_batch_sizes, and of sets of search_buckets, are compared on that workload.
    """

    models: Texts = ()
    batch_sizes: Counts = ()
    buckets: Counts = ()
    workloads: Texts
    num_draws: Count
    profile_first_output_tokens: Count = 1
    profile_output_tokens: Annotated[int, at_least(2)] = 33
    online_batch_sizes: Counts = ()
    online_buckets: Counts = ()
    search_batch_sizes: Counts = ()
    search_buckets: Counts = ()

    def __post_init__(self) -> None:
        """Raises WrongEntryError."""
        RunLength.__post_init__(self)
        if self.profile_first_output_tokens >= self.profile_output_tokens:
            want = f"want a whole number below {self.profile_output_tokens}, the profile_output_tokens"
            raise WrongEntryError("profile_first_output_tokens", f"{want}, not {self.profile_first_output_tokens}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """Another number of devices together than the file's `num_devices`, and the models that fit them.

    max_batch_sizes: the largest batch of a model, for those models that have one.
    """

    num_devices: Count
    models: Texts = ()
    max_batch_sizes: Mapping[str, Count] = field(default_factory=dict, metadata=key("max_batch_size"))


def _regular_expressions(patterns: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise WrongEntryError("", f"{pattern!r} is not a regular expression: {error}") from error
    return patterns


def _distinct(slos: tuple[SloSpec, ...]) -> tuple[SloSpec, ...]:
    names = [(slo.model, slo.workload) for slo in slos]
    for index, (model, workload) in enumerate(names):
        if (model, workload) in names[:index]:
            problem = f"a second entry for model {model!r} and workload {workload!r}; keep one"
            raise WrongEntryError(f"[{index}].workload", problem)
    return slos


Match = Annotated[Texts, _regular_expressions]
Slos = Annotated[tuple[SloSpec, ...], tables("slo"), _distinct]


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
    """One hardware file. case_error and mean_error are the allowed prediction errors, as fractions; their defaults are
    the project's (LENS, section 5.2, reports a mean of 2.15 % and 11.47 % at the worst). aiconfigurator: what NVIDIA's
    table of measured operators calls the device. price: of a chip's hour.

    A file about a server has no buckets, models and batch sizes: none can be seen from outside.
    `sections` are those of suites, each a record of a class of its suite's, or deferred. `group_of` is the file's name
    where the spec is one of its further groups (`with_groups`), else None. `like` is the file that gave what this one
    leaves out. `not_run` says what is missing to run on the device, which is then only calculated with.
    `patterns_of_family` has `match` of each file of the family, where several files were read together.
    """

    name: str = field(metadata=GIVEN)
    like: Text | None = None
    not_run: Text | None = None
    title: Text
    family: Annotated[str, one_of(FAMILIES)]
    classes: Annotated[tuple[str, ...], Meta(description="a list of classes, none twice"), unique, within(CLASSES)] = ()
    match: Match = field(metadata=key("probe.match"))
    tensor_parallel: Count = field(default=1, metadata=key("probe.num_devices"))
    devices_per_chip: Count = field(default=1, metadata=key("probe.devices_per_chip"))
    peak: Annotated[Peak, _sourced] = Peak()
    compiler: CompilerSpec | None = None
    aiconfigurator: Text | None = field(default=None, metadata=key("published.aiconfigurator"))
    price: _Price | None = None
    buckets: Counts = field(metadata=key("buckets.set"))
    buckets_source: Text = field(metadata=key("buckets.source"))
    models: Texts = field(metadata=key("models.default"))
    dtype: Dtype = field(metadata=key("models.dtype"))
    batch_sizes: Counts = field(metadata=key("models.batch_sizes"))
    max_batch_sizes: Mapping[str, Count] = field(default_factory=dict, metadata=key("models.max_batch_size"))
    groups: Annotated[tuple[DeviceGroup, ...], tables("group")] = field(default=(), metadata=key("group"))
    slos: Slos = field(default=(), metadata=key("slo"))
    case_error: Fraction = field(default=0.10, metadata=key("limits.case_error"))
    mean_error: Fraction = field(default=0.05, metadata=key("limits.mean_error"))
    profiles: Annotated[tuple[RunSize, ...], all_profiles] = field(metadata=key("profile"))
    sections: tuple[object, ...] = field(default=(), metadata=GIVEN)
    group_of: str | None = field(default=None, metadata=GIVEN)
    patterns_of_family: Mapping[str, Texts] = field(default_factory=dict, metadata=GIVEN)

    @property
    def file_name(self) -> str:
        """The hardware file's name, which all of its groups share."""
        return self.group_of or self.name

    @property
    def markers(self) -> tuple[str, ...]:
        """The pytest markers of every case of this device: its family, then its classes."""
        return (self.family, *self.classes)

    def matches(self, device_name: str) -> bool:
        """Whether a name that the family's backend reports is this device's, and no other file's more closely."""
        return self.file_name in self.files_of(device_name)

    def files_of(self, device_name: str) -> tuple[str, ...]:
        """The files of the family that describe a device of this name most closely."""
        return closest_files(self.patterns_of_family or {self.file_name: self.match}, device_name)

    def section(self, of: type[SectionT]) -> SectionT | None:
        """The section of that class; None where the file has none. Raises HardwareFileError for a section that cannot
        be read; a mistake in the section of another suite is ignored here."""
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
        if (size := size_of(self.profiles, name)) is None:
            raise ConfigError(f"no profile named {name!r}; allowed: {listed(PROFILES)}")
        return size

    def ridge_flops_per_byte(self, dtype: str) -> float | None:
        """Peak FLOP/s (OP/s for integers) over peak memory B/s; None where either figure is not published."""
        flops, bandwidth = self.peak.flops_per_s.get(dtype), self.peak.memory_bandwidth_bytes_per_s
        return flops.value / bandwidth.value if flops and bandwidth else None

    def batch_sizes_of(self, model: str, size: RunSize) -> tuple[int, ...]:
        """The batch sizes of a run size that the model may have on these devices."""
        most = self.max_batch_sizes.get(model)
        return tuple(batch for batch in size.batch_sizes if most is None or batch <= most)

    @property
    def device_memory_bytes(self) -> float | None:
        """Memory of one device: a chip's, shared out evenly; None where it is not published."""
        memory = self.peak.memory_bytes
        return memory.value / self.devices_per_chip if memory else None

    def slo_for(self, model: str, workload: str) -> SloSpec | None:
        """The most specific entry: both names, then the model's, then the workload's, then the one for all."""
        slos = {(slo.model, slo.workload): slo for slo in self.slos}
        wanted = ((model, workload), (model, ANY), (ANY, workload), (ANY, ANY))
        return next((slos[names] for names in wanted if names in slos), None)


def load_hardware(path: Path, sections: Sections) -> HardwareSpec:
    """Read one hardware file. Raises HardwareFileError naming the file, the dotted key and what is allowed."""
    root = _table(path)
    return _peaks_alone(root) if NOT_RUN in root.entries else _spec(root, sections)


def _table(path: Path) -> TomlTable:
    return completed(TomlTable.of(path, HardwareFileError), default_directory())


@dataclass(frozen=True, slots=True, kw_only=True)
class _PeaksFile:
    """A file about a device that is only calculated with, and why."""

    title: Text
    not_run: Text | None = None
    match: Match = field(default=(), metadata=key("probe.match"))
    dtype: Dtype = field(default="bf16", metadata=key("models.dtype"))
    peak: Annotated[Peak, _sourced]
    slos: Slos = field(default=(), metadata=key("slo"))


def peaks_alone(path: Path) -> HardwareSpec | None:
    """Reads a hardware file with title and [peak] but neither buckets nor profiles, as a simulation needs it; None for
    a whole file. Raises HardwareFileError as load_hardware."""
    root = _table(path)
    return None if {"buckets", "profile", "family"} & set(root.entries) else _peaks_alone(root)


def _peaks_alone(root: TomlTable) -> HardwareSpec:
    file = root.read_itself(_PeaksFile)
    return HardwareSpec(
        name=root.path.stem,
        title=file.title,
        not_run=file.not_run,
        family="unknown",
        match=file.match,
        peak=file.peak,
        buckets=(),
        buckets_source="none are stated",
        models=(),
        dtype=file.dtype,
        batch_sizes=(),
        slos=file.slos,
        profiles=(),
    )


def load_all(directories: Sequence[Path], sections: Sections) -> dict[str, HardwareSpec]:
    """Every hardware file of the directories by name, sorted. Raises HardwareFileError, also on a name used twice."""
    files: dict[str, Path] = {}
    for directory in directories:
        paths = sorted(directory.glob("*.toml"))
        if not paths:
            raise HardwareFileError(f"{directory}: no hardware file there; want a directory with one .toml a device")
        for path in paths:
            if path.stem in files:
                raise HardwareFileError(f"{path}: {path.stem!r} is already defined by {files[path.stem]}; rename one")
            files[path.stem] = path
    specs = {name: load_hardware(files[name], sections) for name in sorted(files)}
    patterns: dict[str, dict[str, Texts]] = {}
    for name, spec in specs.items():
        patterns.setdefault(spec.family, {})[name] = spec.match
    return {name: replace(spec, patterns_of_family=patterns[spec.family]) for name, spec in specs.items()}


def with_groups(specs: Mapping[str, HardwareSpec]) -> dict[str, HardwareSpec]:
    """The specs, each followed by one for every further group of its file. Raises HardwareFileError on a taken name.

    A further group is a hardware of its own, so its ids, campaign keys and digests are: four chips of tpu-v5e are
    `tpu-v5e`, one chip is `tpu-v5e-tp1`. Both carry the same markers.
    """
    groups: dict[str, HardwareSpec] = {}
    for name, spec in specs.items():
        groups[name] = spec
        for group in spec.groups:
            other = _in_group(spec, group)
            if other.name in specs:
                raise HardwareFileError(
                    f"{name}: groups: {group.num_devices} devices together are called {other.name!r}, "
                    "which is a hardware file's name; rename that file"
                )
            groups[other.name] = other
    return groups


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
    """The folder of the hardware files that come with the package, in a wheel or in a checkout."""
    package = Path(__file__).resolve().parents[1]
    packaged = package / "hardware_files"
    return packaged if packaged.is_dir() else package.parent / "hardware"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ServerFile:
    """A file about a server: no device, so of the other tables it has limits on latency alone."""

    title: Text
    family: str
    match: Match = field(metadata=key("probe.match"))
    slos: Slos = field(default=(), metadata=key("slo"))


def _spec(root: TomlTable, sections: Sections) -> HardwareSpec:
    if root.entries.get("family") == SERVER:
        return _server(root, sections[SERVER])
    sections = {name: read for name, read in sections.items() if name != SERVER}
    spec = root.read_itself(HardwareSpec, {"name": root.path.stem}, sections)
    with root.named_errors():
        _check(spec)
    return replace(
        spec,
        groups=tuple(replace(group, models=group.models or spec.models) for group in spec.groups),
        profiles=tuple(_filled(size, spec) for name in PROFILES for size in spec.profiles if size.name == name),
        sections=tuple(read(root) for name, read in sections.items() if name in root.entries),
    )


def _check(spec: HardwareSpec) -> None:
    """Raises WrongEntryError where a table of the file takes what the file does not have."""
    check_keys("models.max_batch_size", spec.max_batch_sizes, spec.models)
    for index, group in enumerate(spec.groups):
        at = f"group[{index}]"
        if group.num_devices in (spec.tensor_parallel, *(earlier.num_devices for earlier in spec.groups[:index])):
            problem = f"a second group of {group.num_devices}; keep one ([probe] num_devices is one)"
            raise WrongEntryError(f"{at}.num_devices", problem)
        check_within(f"{at}.models", group.models, spec.models)
        check_keys(f"{at}.max_batch_size", group.max_batch_sizes, group.models or spec.models)
    for size in spec.profiles:
        for name, chosen, allowed in (
            ("models", size.models, spec.models),
            ("batch_sizes", size.batch_sizes, spec.batch_sizes),
            ("buckets", size.buckets, spec.buckets),
            ("online_batch_sizes", size.online_batch_sizes, spec.batch_sizes),
            ("online_buckets", size.online_buckets, spec.buckets),
            ("search_batch_sizes", size.search_batch_sizes, spec.batch_sizes),
            ("search_buckets", size.search_buckets, spec.buckets),
        ):
            check_within(f"profile.{size.name}.{name}", chosen, allowed)


def _filled(size: RunSize, spec: HardwareSpec) -> RunSize:
    return replace(
        size,
        models=size.models or spec.models,
        batch_sizes=size.batch_sizes or spec.batch_sizes,
        buckets=size.buckets or spec.buckets,
    )


def _server(root: TomlTable, read: Callable[[TomlTable], object]) -> HardwareSpec:
    file = root.read_itself(_ServerFile, {}, (SERVER,))
    return HardwareSpec(
        name=root.path.stem,
        title=file.title,
        family=file.family,
        match=file.match,
        buckets=(),
        buckets_source="a server shows none",
        models=(),
        dtype="unknown",
        batch_sizes=(),
        slos=file.slos,
        case_error=1.0,  # nothing is predicted
        mean_error=1.0,
        profiles=(),
        sections=(read(root),),
    )
