"""Reads hardware files, of which core/hardware.py describes what they say.

Devices of one maker differ in their names and peaks; buckets, models and run sizes are often the same. A file with
`like = "nvidia-h100"` takes each table that it lacks from that file, and of a table that both have each key that it
lacks. `false` in place of a table or a key leaves it out. What says which device it is, and what anybody says of it
alone, is never taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from pytest_npubench.core.figures import Dtype, Network, Peak, sourced
from pytest_npubench.core.hardware import PROFILES, SERVER, DeviceGroup, HardwareSpec, Match, RunSize, Slos
from pytest_npubench.core.record_reader import (
    Text,
    Texts,
    WrongEntryError,
    check_keys,
    check_within,
    key,
    listed,
)
from pytest_npubench.core.toml_table import TomlTable
from pytest_npubench.errors import HardwareFileError, did_you_mean

LIKE = "like"
OF_EACH_DEVICE = ("title", "probe", "peak", "compiler", "published", "price", "network", "slo", "not_run", LIKE)
Sections = Mapping[str, Callable[[TomlTable], object]]
"""How the sections of suites are read from a file's root table, by key."""


def load_hardware(path: Path, sections: Sections) -> HardwareSpec:
    """Read one hardware file. Raises HardwareFileError naming the file, the dotted key and what is allowed."""
    root = _table(path)
    return _peaks_alone(root) if "not_run" in root.entries else _spec(root, sections)


def _table(path: Path) -> TomlTable:
    return _completed(TomlTable.of(path, HardwareFileError), default_directory())


@dataclass(frozen=True, slots=True, kw_only=True)
class _PeaksFile:
    """A file about a device that is only calculated with, and why."""

    title: Text
    not_run: Text | None = None
    match: Match = field(default=(), metadata=key("probe.match"))
    dtype: Dtype = field(default="bf16", metadata=key("models.dtype"))
    peak: Annotated[Peak, sourced]
    network: Network | None = None
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
        network=file.network,
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
    """Returns the specs, each followed by one for every further group of its file. Raises HardwareFileError on a taken
    name.

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
    """Returns the spec on another number of devices, with the sections that the file gives this group: torch and the
    compute units use none."""
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
        sections=group.read_sections,
        groups=(),
        group_of=spec.name,
    )


def _together(num_devices: int) -> str:
    return "one device alone" if num_devices == 1 else f"{num_devices} devices together"


def default_directory() -> Path:
    """Returns the folder of the hardware files that come with the package, in a wheel or in a checkout."""
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
        _check(spec, root.entries)
    read_sections = {name: read(root) for name, read in sections.items() if name in root.entries}
    of_groups = {name for group in spec.groups for name in group.sections}
    return replace(
        spec,
        groups=tuple(
            replace(
                group,
                models=group.models or spec.models,
                read_sections=tuple(read_sections[name] for name in group.sections if name in read_sections),
            )
            for group in spec.groups
        ),
        profiles=tuple(_filled(size, spec) for name in PROFILES for size in spec.profiles if size.name == name),
        sections=tuple(read for name, read in read_sections.items() if name not in of_groups),
    )


def _check(spec: HardwareSpec, entries: Mapping[str, object]) -> None:
    """Raises WrongEntryError where a table of the file takes what the file does not have."""
    check_keys("models.max_batch_size", spec.max_batch_sizes, spec.models)
    for index, group in enumerate(spec.groups):
        at = f"group[{index}]"
        if group.num_devices in (spec.tensor_parallel, *(earlier.num_devices for earlier in spec.groups[:index])):
            problem = f"a second group of {group.num_devices}; keep one ([probe] num_devices is one)"
            raise WrongEntryError(f"{at}.num_devices", problem)
        check_within(f"{at}.models", group.models, spec.models)
        check_keys(f"{at}.max_batch_size", group.max_batch_sizes, group.models or spec.models)
        check_within(f"{at}.sections", group.sections, tuple(entries))
    for size in spec.profiles:
        for name, chosen, allowed in (
            ("models", size.models, spec.models),
            ("batch_sizes", size.batch_sizes, spec.batch_sizes),
            ("buckets", size.buckets, spec.buckets),
            ("online_batch_sizes", size.online_batch_sizes, spec.batch_sizes),
            ("online_buckets", size.online_buckets, spec.buckets),
            ("search_models", size.search_models, spec.models),
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
        search_models=size.search_models or size.models or spec.models,
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


def _completed(file: TomlTable, shipped: Path) -> TomlTable:
    """Returns the file with what it takes from another: one of its own folder, or of `shipped`. Raises the file's error
    where there is no such file, or where that takes from a third one."""
    if LIKE not in file.entries:
        return file
    name = str(file.entries[LIKE])
    folders = (file.path.parent, shipped)
    path = next((path for folder in folders if (path := folder / f"{name}.toml").is_file()), None)
    if path is None or path == file.path:
        names = sorted({path.stem for folder in folders for path in folder.glob("*.toml")} - {file.path.stem})
        problem = f"no other hardware file is named {name!r}; known: {listed(names)}{did_you_mean(name, names)}"
        raise file.error(LIKE, problem)
    other = TomlTable.of(path, file.kind_of_error)
    if LIKE in other.entries:
        raise file.error(LIKE, f"{name!r} is itself like {other.entries[LIKE]!r}; want that one")
    taken = {key: value for key, value in other.entries.items() if key not in OF_EACH_DEVICE}
    return replace(file, entries=_merged(taken, file.entries, depth=2))


def _merged(taken: Mapping[str, object], entries: Mapping[str, object], *, depth: int) -> Mapping[str, object]:
    merged = {**taken, **entries}
    for name in taken.keys() & entries.keys():
        before, value = taken[name], entries[name]
        if value is False:
            del merged[name]
        elif depth > 1 and isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[name] = _merged(before, value, depth=depth - 1)
    return merged
