"""`npubench hardware`: the shipped hardware files, one of them with its figures and sources, or a check of your own."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from pytest_npubench import suites
from pytest_npubench.cli.arguments import add_command, add_json_option, columns, print_document, print_error, say
from pytest_npubench.core.figures import Figure
from pytest_npubench.core.hardware import PROFILES, DeviceGroup, HardwareSpec, RunSize
from pytest_npubench.core.hardware_reader import with_groups
from pytest_npubench.errors import ConfigError, HardwareFileError, RegistryError, did_you_mean
from pytest_npubench.plain_text import plain
from pytest_npubench.suites.hardware_files import folders_of_runs, load_all, load_hardware
from pytest_npubench.suites.protocol import Choice
from pytest_npubench.suites.server.spec import ServerSize, ServerSpec

if TYPE_CHECKING:
    from pytest_npubench.campaign.memory import Fit
    from pytest_npubench.cli.arguments import Commands

UNKNOWN_HERE = "what fits is unknown here"
FIT_HEADS = ("HARDWARE", "PROFILE", "SUITE", "LARGEST CAMPAIGN", "WEIGHTS", "CACHE", "OTHER", "NEEDS", "HAS", "SKIPPED")


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "hardware", about, "npubench hardware nvidia-h100")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("name", nargs="?", help="show this hardware file: a shipped one, or the path of another")
    parser.add_argument(
        "--fit", action="store_true", help="show what each profile needs of the device's memory, and what is skipped"
    )
    group.add_argument("--check", metavar="PATH", nargs="+", type=Path, help="check these files or folders of files")
    group.add_argument(
        "--new", metavar="PATH", type=Path, help="write a file for a device that is here, and ask for its peaks"
    )
    parser.add_argument(
        "--device", metavar="ID", help="with --new: this device, such as cuda:0 (default: the first without a file)"
    )
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Returns 1 where a checked file is wrong, else 0. Raises ConfigError for a name that is neither shipped nor a
    path, HardwareFileError for a file that is wrong."""
    if arguments.device is not None and arguments.new is None:
        raise ConfigError("--device is the device of a new file; want it with --new")
    if arguments.new is not None and arguments.fit:
        raise ConfigError("--fit is of files that are there, and --new writes one that fits; want one of them")
    if arguments.check and not arguments.fit:
        return check(arguments.check, as_json=arguments.json)
    specs = load_all(folders_of_runs())
    if arguments.new is not None:
        return _write(arguments.new, arguments.device, specs)
    paths = arguments.check or ([] if arguments.name in (None, *specs) else [Path(arguments.name)])
    if arguments.name is not None and not all(path.exists() for path in paths):
        raise ConfigError(_unknown(arguments.name, specs))
    chosen = {file.stem: load_hardware(file) for path in paths for file in _files(path)} or specs
    if arguments.name in specs:
        chosen = {arguments.name: specs[arguments.name]}
    if arguments.fit:
        campaigns: list[LargestCampaign] = []
        for name, spec in chosen.items():
            try:
                campaigns += largest_campaigns({name: spec})
            except RegistryError as error:
                if chosen is not specs:
                    raise
                print(plain(f"npubench: warning: {name}: {UNKNOWN_HERE}: {error}"), file=sys.stderr)
        if arguments.json:
            print_document("hardware-fit", campaigns=[asdict(campaign) for campaign in campaigns])
        else:
            print(columns([FIT_HEADS, *(campaign.row for campaign in campaigns)]))
    elif arguments.name is None and arguments.json:
        print_document("hardware", files=[_facts(spec) for spec in specs.values()])
    elif arguments.name is None:
        print(columns([("NAME", "MARKERS", "TITLE"), *map(_row, specs.values())]))
    else:
        for spec in chosen.values():
            if arguments.json:
                print_document("hardware-file", **_whole(spec))
            else:
                print("\n".join(describe(spec)))
    return 0


def _write(path: Path, device_id: str | None, specs: Mapping[str, HardwareSpec]) -> int:
    from pytest_npubench.cli.new_hardware import write_hardware

    spec = write_hardware(path, device_id, specs, _asked)
    say(f"{path}: {spec.title}, like {spec.like}; what was not answered is left out")
    folder = quote(str(path.parent))
    say(f"next: npubench run -m {spec.family} -k {quote(spec.name)}- --npubench-hardware {folder} -rs")
    say(
        f"[tool.npubench] hardware = {json.dumps(str(path.parent))} in pyproject.toml names the folder to every command"
    )
    return 0


def _asked(question: str) -> str:
    """The answer of whoever is there; empty at the end of the input."""
    try:
        return input(question)
    except EOFError:
        return ""


def _facts(spec: HardwareSpec) -> dict[str, object]:
    return {"name": spec.name, "title": spec.title, "family": spec.family, "markers": spec.markers}


def _whole(spec: HardwareSpec) -> dict[str, object]:
    """The file's record and what follows from it; of the sections of suites that of a server alone."""
    server = spec.section(ServerSpec)
    ridges = {dtype: spec.ridge_flops_per_byte(dtype) for dtype in spec.peak.flops_per_s}
    facts = asdict(replace(spec, sections=()))
    del facts["sections"], facts["group_of"]  # of how it was read
    return {**_facts(spec), **facts, "ridge_flops_per_byte": ridges, "server": server and asdict(server)}


def check(paths: Sequence[Path], *, as_json: bool = False) -> int:
    """Prints for each file that it is right, or what is wrong and allowed; returns 1 where one is wrong."""
    errors, right = [], []
    for path in paths:
        if not (files := _files(path)):
            errors.append(f"{path}: no hardware file there; want a folder with one .toml a device")
        for file in files:
            try:
                spec = load_hardware(file)
                too_large, unverified = _too_large(spec), spec.peak.unverified
                right.append(
                    {"path": file, "title": spec.title, "does_not_fit": too_large, "unverified": list(unverified)}
                )
                if not as_json:
                    remarks = [
                        *too_large,
                        *([f"not read in their source: {', '.join(unverified)}"] if unverified else []),
                    ]
                    say(f"{file}: {spec.title}: no fault found{''.join(f'; {what}' for what in remarks)}")
            except HardwareFileError as error:
                errors.append(str(error))
    if as_json:
        print_document("hardware-check", right=right, errors=errors)
        return 1 if errors else 0
    for text in errors:
        print_error(text)
    return 1 if errors else 0


def _too_large(spec: HardwareSpec) -> list[str]:
    """What gives way on the device, in words; or that nobody knows it here, as of a shape that a conftest adds."""
    try:
        return [campaign.gives_way for campaign in largest_campaigns({spec.name: spec}) if campaign.skipped]
    except RegistryError as error:
        return [f"{UNKNOWN_HERE}: {error}"]


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("*.toml")) if path.is_dir() else [path]


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestCampaign:
    """The largest campaign of a hardware, profile and suite against one device's memory. working_bytes: activations,
    other temporaries and binaries. skipped: the cases that do not fit, by campaign."""

    hardware: str
    profile: str
    suite: str
    campaign: str
    weight_bytes: float
    cache_bytes: float
    working_bytes: float
    needed_bytes: float
    usable_bytes: float
    skipped: Mapping[str, str]

    @property
    def row(self) -> tuple[str, ...]:
        need = (self.weight_bytes, self.cache_bytes, self.working_bytes, self.needed_bytes, self.usable_bytes)
        sizes = (f"{num_bytes / 1e9:.1f} GB" for num_bytes in need)
        return (self.hardware, self.profile, self.suite, self.campaign, *sizes, self._words or "none")

    @property
    def gives_way(self) -> str:
        """ "nightly does not fit 21.6 GB: mistral-7b-v0.3-b8: buckets above 2048"."""
        return f"{self.profile} of {self.hardware} does not fit {self.usable_bytes / 1e9:.1f} GB: {self._words}"

    @property
    def _words(self) -> str:
        return "; ".join(f"{name}: {what}" for name, what in self.skipped.items())


def largest_campaigns(specs: Mapping[str, HardwareSpec]) -> Iterator[LargestCampaign]:
    """Yields the largest campaign of each hardware, profile and suite whose hardware file has the necessary figures."""
    # campaigns bring numpy along, which the light commands do without
    from pytest_npubench.campaign.memory import fit

    for spec in with_groups(specs).values():
        for profile in PROFILES:
            for suite in suites.usable():
                plans = () if suite.memory is None else suite.plans(spec, Choice(profile=profile))
                if fits := [fitting for plan in plans if (fitting := fit(suite.memory, plan)) is not None]:
                    yield _largest(spec.name, profile, suite.name, fits)


def _largest(hardware: str, profile: str, suite: str, fits: Sequence[Fit]) -> LargestCampaign:
    largest = max(fits, key=lambda fit: fit.need.total_bytes)
    prefix = f"{hardware}-"
    return LargestCampaign(
        hardware=hardware,
        profile=profile,
        suite=suite,
        campaign=largest.plan.key.removeprefix(prefix),
        weight_bytes=largest.need.weight_bytes,
        cache_bytes=largest.need.cache_bytes,
        working_bytes=largest.need.working_bytes,
        needed_bytes=largest.need.total_bytes,
        usable_bytes=largest.room.usable_bytes,
        skipped={fit.plan.key.removeprefix(prefix): fit.skipped for fit in fits if fit.skipped},
    )


def describe(spec: HardwareSpec) -> list[str]:
    """Describes all that a hardware file says, with the source of each published figure."""
    if (server := spec.section(ServerSpec)) is not None:
        return _server(spec, server)
    if spec.not_run:
        return [f"{spec.name}: {spec.title}", f"not run   {spec.not_run}", *_peaks(spec), *_slos(spec)]
    probe = f"{spec.tensor_parallel} together" if spec.tensor_parallel > 1 else "each alone"
    lines = [
        f"{spec.name}: {spec.title}",
        f"markers   {', '.join(spec.markers)}",
        f"match     {', '.join(spec.match)} (devices: {probe})",
        f"buckets   {', '.join(map(str, spec.buckets))}",
        f"          source: {spec.buckets_source}",
        f"models    {', '.join(spec.models)} in {spec.dtype}, batch sizes {', '.join(map(str, spec.batch_sizes))}",
        *(f"          {model} up to batch {most}" for model, most in spec.max_batch_sizes.items()),
        *map(_group, spec.groups),
        f"limits    prediction error {spec.case_error:.0%} a case, {spec.mean_error:.0%} on average",
    ]
    lines += _peaks(spec)
    return [*lines, *_slos(spec), *map(_size, spec.profiles)]


def _server(spec: HardwareSpec, server: ServerSpec) -> list[str]:
    """Describes a server's file, which has loads and limits instead of figures of a device."""
    asking = server.asking
    lines = [
        f"{spec.name}: {spec.title}",
        f"markers   {', '.join(spec.markers)}",
        f"match     {', '.join(spec.match)} (names of models)",
        f"asking    {asking.api} API, prompts of {asking.prompt}, {asking.max_total_tokens} tokens in all at most",
        *(f"load      {load.workload} at {load.rate_per_s:g} requests/s" for load in server.loads),
        f"limits    {server.attainment:.0%} of the arrived requests attain their SLO",
    ]
    return [*lines, *_slos(spec), *(_server_size(server.size(name)) for name in PROFILES)]


def _server_size(size: ServerSize) -> str:
    return (
        f"profile   {size.name}: {', '.join(size.workloads)}; {size.num_requests} requests a block, "
        f"{size.min_rounds} to {size.max_rounds} rounds, {size.budget_s:g} s"
    )


def _slos(spec: HardwareSpec) -> Iterator[str]:
    for slo in spec.slos:
        limits = f"TTFT {slo.ttft_s * 1e3:g} ms, TBT {slo.tbt_s * 1e3:g} ms"
        yield f"slo       model {slo.model}, workload {slo.workload}: {limits}"
        yield f"          source: {slo.source}"


def _group(group: DeviceGroup) -> str:
    most = group.max_batch_sizes
    models = ", ".join(f"{model} up to batch {most[model]}" if model in most else model for model in group.models)
    return f"group     {group.num_devices} together: {models}"


def _row(spec: HardwareSpec) -> tuple[str, str, str]:
    return spec.name, "not run" if spec.not_run else ", ".join(spec.markers), spec.title


def _unknown(name: str, specs: Mapping[str, HardwareSpec]) -> str:
    shipped = f"shipped: {', '.join(specs)}; your own file: --check PATH"
    return f"no hardware file is named {name!r}; {shipped}{did_you_mean(name, specs)}"


def _peaks(spec: HardwareSpec) -> list[str]:
    figures: list[tuple[str, Figure | None]] = [
        *((f"{dtype} compute", figure) for dtype, figure in spec.peak.flops_per_s.items()),
        ("memory bandwidth", spec.peak.memory_bandwidth_bytes_per_s),
        ("memory", spec.peak.memory_bytes),
        ("interconnect", spec.peak.interconnect_bandwidth_bytes_per_s),
    ]
    if spec.network:
        figures.append((f"network beyond {spec.network.devices_per_node}", spec.network.bandwidth_bytes_per_s))
    published = [(name, figure) for name, figure in figures if figure is not None]
    unverified = (
        [f"          not read in their source: {', '.join(spec.peak.unverified)}"] if spec.peak.unverified else []
    )
    lines = [line for name, figure in published for line in _figure(name, figure)] or ["peak      not published"]
    lines += unverified
    ridges = [f"{dtype} {ridge:.1f}" for dtype in spec.peak.flops_per_s if (ridge := spec.ridge_flops_per_byte(dtype))]
    return [*lines, f"ridge     FLOP per byte: {', '.join(ridges)}"] if ridges else lines


def _figure(name: str, figure: Figure) -> tuple[str, str]:
    scale, prefix = (1e12, "T") if figure.value >= 1e12 else (1e9, "G")
    return f"peak      {name} {figure.value / scale:.4g} {prefix}{figure.unit}", f"          source: {figure.source}"


def _size(size: RunSize) -> str:
    return (
        f"profile   {size.name}: {', '.join(size.models)}; batch {', '.join(map(str, size.batch_sizes))}; "
        f"{len(size.buckets)} buckets; {', '.join(size.workloads)}; {size.num_draws} draws, "
        f"{size.min_rounds} to {size.max_rounds} rounds, {size.budget_s:g} s"
    )
