"""Hardware files: one TOML a device, read into a HardwareSpec. docs/hardware.md describes every key.

A spec says which devices it is about, the maker's peak figures with their source, the buckets and models that cases
expand to, the latency limits (SLO) and the run sizes quick, nightly and full. It holds no machine state.

ridge_flops_per_byte = peak FLOP/s / peak memory B/s: the arithmetic intensity at which a kernel turns from memory-bound
to compute-bound (Layered Prefill, section 2.5). NVIDIA H100 SXM in bf16: 989.4e12 / 3.35e12 = 295.3 FLOP per byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Annotated, TypeVar

from msgspec import Meta

from pytest_npubench.core import families
from pytest_npubench.core.device_names import closest_files
from pytest_npubench.core.figures import CLOCK_UNITS, NO_PEAK, Clock, Dtype, Network, Peak, Price, in_base_unit, sourced
from pytest_npubench.core.record_reader import (
    GIVEN,
    TABLE_NAME,
    Count,
    Counts,
    Fraction,
    Positive,
    Text,
    Texts,
    WrongEntryError,
    at_least,
    check_keys,
    key,
    listed,
    one_of,
    tables,
    unique,
    within,
)
from pytest_npubench.errors import ConfigError, HardwareFileError

FAMILIES = families.names()
CLASSES = ("gpu", "npu")
PROFILES = ("quick", "nightly", "full")
SERVER = "server"

SectionT = TypeVar("SectionT")
SizeT = TypeVar("SizeT", bound="RunLength")


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
    clock: Annotated[Clock, partial(in_base_unit, units=CLOCK_UNITS)] | None = None
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
    """Returns the run size of that name; None where the profile does nothing."""
    return next((size for size in sizes if size.name == profile), None)


def known_profiles(sizes: tuple[SizeT, ...]) -> tuple[SizeT, ...]:
    """Returns the run sizes of some profiles. Raises WrongEntryError on an unknown one."""
    check_keys("", [size.name for size in sizes], PROFILES)
    return sizes


def all_profiles(sizes: tuple[SizeT, ...]) -> tuple[SizeT, ...]:
    """Returns the run sizes of all profiles. Raises WrongEntryError on an unknown or a missing one."""
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
    search_batch_sizes, and of sets of search_buckets, are compared on that workload; of search_models alone where the
    device's memory does not hold those of every model.
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
    search_models: Texts = ()
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

    max_batch_sizes: the largest batch of a model, for those models that have one. sections: the names of the sections
    that speak of this group, and not of the file's `num_devices`; read_sections: what they say.
    """

    num_devices: Count
    models: Texts = ()
    max_batch_sizes: Mapping[str, Count] = field(default_factory=dict, metadata=key("max_batch_size"))
    sections: Texts = ()
    read_sections: tuple[object, ...] = field(default=(), metadata=GIVEN)


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
    peak: Annotated[Peak, sourced] = NO_PEAK
    compiler: CompilerSpec | None = None
    aiconfigurator: Text | None = field(default=None, metadata=key("published.aiconfigurator"))
    price: Price | None = None
    network: Network | None = None
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
        """Returns the hardware file's name, which all of its groups share."""
        return self.group_of or self.name

    @property
    def markers(self) -> tuple[str, ...]:
        """Returns the pytest markers of every case of this device: its family, then its classes."""
        return (self.family, *self.classes)

    def matches(self, device_name: str) -> bool:
        """Whether a name that the family's backend reports is this device's, and no other file's more closely."""
        return self.file_name in self.files_of(device_name)

    def files_of(self, device_name: str) -> tuple[str, ...]:
        """Returns the files of the family that describe a device of this name most closely."""
        return closest_files(self.patterns_of_family or {self.file_name: self.match}, device_name)

    def section(self, of: type[SectionT]) -> SectionT | None:
        """Returns the section of that class; None where the file has none. Raises HardwareFileError for a section that
        cannot be read; a mistake in the section of another suite is ignored here."""
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
        """Returns the run size of that name. Raises ConfigError on an unknown one."""
        if (size := size_of(self.profiles, name)) is None:
            raise ConfigError(f"no profile named {name!r}; allowed: {listed(PROFILES)}")
        return size

    def ridge_flops_per_byte(self, dtype: str) -> float | None:
        """Peak FLOP/s (OP/s for integers) over peak memory B/s; None where either figure is not published."""
        flops, bandwidth = self.peak.flops_per_s.get(dtype), self.peak.memory_bandwidth_bytes_per_s
        return flops.value / bandwidth.value if flops and bandwidth else None

    def batch_sizes_of(self, model: str, size: RunSize) -> tuple[int, ...]:
        """Returns the batch sizes of a run size that the model may have on these devices."""
        most = self.max_batch_sizes.get(model)
        return tuple(batch for batch in size.batch_sizes if most is None or batch <= most)

    @property
    def device_memory_bytes(self) -> float | None:
        """Memory of one device: a chip's, shared out evenly; None where it is not published."""
        memory = self.peak.memory_bytes
        return memory.value / self.devices_per_chip if memory else None

    def slo_for(self, model: str, workload: str) -> SloSpec | None:
        """Returns the most specific entry: both names, then the model's, then the workload's, then the one for all."""
        slos = {(slo.model, slo.workload): slo for slo in self.slos}
        wanted = ((model, workload), (model, "*"), ("*", workload), ("*", "*"))
        return next((slos[names] for names in wanted if names in slos), None)
