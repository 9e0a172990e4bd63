"""Another device's profile for a rival that scales it to this one, from the journal that --npubench-transfer names.

The journal has rounds of the same model at the same batch size on the same engine. Speeds are those that canary kernels
had in the rounds of each profile, or, where one of the two journals has none, the peaks of both hardware files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import fmean

from pytest_npubench.core import families
from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.core.hardware_reader import with_groups
from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines.canary_kernels import KERNELS, sizes
from pytest_npubench.errors import JournalError, MeasurementError, NpubenchError
from pytest_npubench.predictors.protocol import ProfileSamples
from pytest_npubench.predictors.transfer import DeviceSpeed, ProfileTransfer
from pytest_npubench.store.journal_reader import read_journal
from pytest_npubench.suites.buckets.binding import step_work
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.profile_source import SourcedProfile, profile_from_journal
from pytest_npubench.suites.hardware_files import known_folders, load_all


def profile_transfer(plan: BucketPlan, samples: ProfileSamples) -> tuple[ProfileTransfer | None, str]:
    """What a plan's rival scales to the device of these samples; None and why where there is nothing."""
    if plan.transfer is None:
        return None, "no other device's profile is given; want its journal by --npubench-transfer"
    try:
        sourced, name = _other(plan.transfer, f"-{plan.model}-b{plan.batch_size}{plan.engine_suffix}")
        there, here = _speeds(
            plan.spec if name == plan.spec.name else _spec(name), sourced, plan.spec, samples.canaries_s
        )
    except NpubenchError as error:
        return None, str(error)
    work = {(phase, bucket): step_work(plan, phase, bucket) for phase in Phase for bucket in samples.buckets}
    transfer = ProfileTransfer(profile=sourced.profile, there=there, here=here, work=work, source=sourced.source)
    return transfer, ""


@lru_cache(maxsize=16)
def _other(path: str, ending: str) -> tuple[SourcedProfile, str]:
    """Returns the profile of the one campaign of a journal that ends so, and the name of its hardware file."""
    journal = read_journal(Path(path))
    campaigns = dict.fromkeys(record["campaign"] for record in journal.records if record["record"] == "round")
    fitting = [campaign for campaign in campaigns if campaign.endswith(ending)]
    if len(fitting) != 1:
        there = ", ".join(campaigns) or "none"
        raise JournalError(
            f"journal {path}: want rounds of one campaign that ends in {ending}; campaigns there: {there}"
        )
    return profile_from_journal(journal, fitting[0]), fitting[0].removesuffix(ending)


@lru_cache(maxsize=16)
def _spec(name: str) -> HardwareSpec:
    specs = with_groups(load_all(known_folders(), deferred=True))
    if name not in specs:
        raise MeasurementError(f"the other device's hardware file {name} is none of {', '.join(specs)}")
    return specs[name]


def _speeds(
    other: HardwareSpec, sourced: SourcedProfile, spec: HardwareSpec, canaries_s: Mapping[str, Sequence[float]]
) -> tuple[DeviceSpeed, DeviceSpeed]:
    """Of the other device and of this, both by canaries or both by peaks."""
    there_s = sourced.samples.canaries_s if sourced.samples else {}
    by_canaries = (_canary_speed(other, there_s), _canary_speed(spec, canaries_s))
    for there, here in (by_canaries, (_peak_speed(other), _peak_speed(spec))):
        if there is not None and here is not None:
            return there, here
    raise MeasurementError(f"neither canaries ran on both, {other.name} and {spec.name}, nor do both files state peaks")


def _canary_speed(spec: HardwareSpec, canaries_s: Mapping[str, Sequence[float]]) -> DeviceSpeed | None:
    """Each device of a group runs the whole of a kernel, so that all together do as many. None of kernels that are not
    jax's: those have sizes of their own."""
    platform = families.declared(spec.family).jax_platform
    if platform is None or not all(canaries_s.get(kernel) for kernel in KERNELS):
        return None
    size, num_devices = sizes(platform), spec.tensor_parallel
    return DeviceSpeed(
        flop_s=fmean(canaries_s["matmul"]) / (2 * size.matmul_rows**3) / num_devices,
        byte_s=fmean(canaries_s["copy"]) / (2 * size.copy_bytes) / num_devices,
        launch_s=fmean(canaries_s["dispatch"]),
    )


def _peak_speed(spec: HardwareSpec) -> DeviceSpeed | None:
    """None where the hardware file lacks a peak."""
    flops, bandwidth = spec.peak.flops_per_s.get(spec.dtype), spec.peak.memory_bandwidth_bytes_per_s
    if flops is None or bandwidth is None:
        return None
    num_chips = spec.tensor_parallel / spec.devices_per_chip
    return DeviceSpeed(flop_s=1 / flops.value / num_chips, byte_s=1 / bandwidth.value / num_chips)
