"""What compiled cases show: what fits, what is copied, and the stairs of the compiler's estimates."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pytest_npubench.core.measurement import Phase
from pytest_npubench.extensions.compilers.compiled.runtime import TITLE
from pytest_npubench.extensions.compilers.suites.compiled.binaries import CompiledDetail, StepDetail
from pytest_npubench.reports import build, number_text
from pytest_npubench.reports.page import Chart, Parts, Rounds, Table
from pytest_npubench.reports.plot_parts import axis, log_axis, milliseconds
from pytest_npubench.verdict.case_record import CaseRecord, Cases

ESTIMATE = (
    "The compiler's cycles over the device's clock, with what carries no cycles priced beside them: nothing ran. The "
    "dashed line is the roofline, the least that arithmetic or memory allow."
)
NEED = (
    "Weights, the caches of this bucket and all smaller ones, their code, and the largest temporary, of each device. "
    "Copies are instructions that copy a whole layer's keys or values."
)
NAMES = {Phase.PREFILL: "TTFT_b", Phase.DECODE: "TBT_b"}


def parts(cases: Cases, rounds: Rounds) -> Parts:
    profiles = _profiles(cases)
    charts = [_chart(phase, profiles) for phase in Phase] if _has_times(profiles) else []
    return tuple(build.of_kind("profile", charts)), (_table(profiles),), ()


def lines(cases: Cases) -> list[str]:
    """Of each campaign: the largest bucket that fits and how long compiling took, then a line for each bucket."""
    lines = []
    for campaign, members in cases.by(lambda record: record.campaign).items():
        profiles = _profiles(members)
        if not profiles:
            continue
        fitting = [record.detail for record in profiles if not record.judgement.verdict.failing]
        compile_s = sum(step.compile_cpu_s for record in profiles for step in _steps(record.detail).values())
        largest = f"buckets up to {fitting[-1].bucket} fit" if fitting else "no bucket fits"
        lines.append(f"{campaign}, {TITLE}: {largest}; compiling took {compile_s:.0f} s of a core")
        lines += [
            f"  {_bucket_line(record.detail, smaller.detail)}" for smaller, record in pairwise((profiles[0], *profiles))
        ]
    return lines


def _bucket_line(detail: CompiledDetail, smaller: CompiledDetail) -> str:
    steps, below = _steps(detail), _steps(smaller)
    parts = [f"bucket {detail.bucket}: {_memory(detail)}"]
    for phase, step in steps.items():
        times = step.estimated_s, below[phase].estimated_s
        stair = f" x{times[0] / times[1]:.2f}" if smaller is not detail and times[0] and times[1] else ""
        copies = f", {step.cache_copies:.0f} cache copies" if step.cache_copies else ""
        time = phase.value
        if step.estimated_s is not None:
            time = f"{NAMES[phase]} {number_text.milliseconds(step.estimated_s)} ms{stair}"
        parts.append(f"{time}, {_megabytes(step.code_bytes)} MB of code{copies}, {step.compile_cpu_s:.0f} s")
    return "; ".join(parts)


def _profiles(cases: Cases) -> list[CaseRecord[CompiledDetail]]:
    """Of buckets whose binaries were had, the smallest first."""
    profiles = (record for record in cases.of("profile", CompiledDetail) if record.detail.steps)
    return sorted(profiles, key=lambda record: record.detail.bucket or 0)


def _steps(detail: CompiledDetail) -> dict[Phase, StepDetail]:
    return {phase: detail.steps[phase.value] for phase in Phase if detail.steps and phase.value in detail.steps}


def _has_times(profiles: Sequence[CaseRecord[CompiledDetail]]) -> bool:
    steps = [step for record in profiles for step in _steps(record.detail).values()]
    return bool(steps) and all(step.estimated_s is not None for step in steps)


def _memory(detail: CompiledDetail) -> str:
    need = f"{(detail.need_bytes or 0) / 1e9:.2f}"
    return f"{need} GB" if detail.room_bytes is None else f"{need} of {detail.room_bytes / 1e9:.2f} GB"


def _megabytes(number: float | None) -> str:
    return number_text.UNKNOWN if number is None else f"{number / 1e6:.1f}"


def _table(profiles: Sequence[CaseRecord[CompiledDetail]]) -> Table | None:
    if not profiles:
        return None
    rows = [(record.detail, phase, step) for record in profiles for phase, step in _steps(record.detail).items()]
    return build.table(
        f"Binaries, {TITLE}",
        (
            ("bucket", lambda row: str(row[0].bucket)),
            ("step", lambda row: row[1].value),
            ("estimated ms", lambda row: number_text.milliseconds(row[2].estimated_s)),
            ("roofline ms", lambda row: number_text.milliseconds(row[2].bound_s)),
            ("cycles", lambda row: number_text.count(row[2].cycles)),
            ("code MB", lambda row: _megabytes(row[2].code_bytes)),
            ("temporary MB", lambda row: _megabytes(row[2].temporary_bytes)),
            ("cache copies", lambda row: number_text.count(row[2].cache_copies)),
            ("compiling, CPU s", lambda row: f"{row[2].compile_cpu_s:.1f}"),
            ("memory needed", lambda row: _memory(row[0])),
            ("taken for granted", lambda row: "; ".join(row[2].assumed) or number_text.UNKNOWN),
            ("not priced", lambda row: "; ".join(row[2].unpriced) or number_text.UNKNOWN),
        ),
        rows,
        note=NEED,
        without_unknown=True,
    )


def _chart(phase: Phase, profiles: Sequence[CaseRecord[CompiledDetail]]) -> Chart:
    steps = {
        record.detail.bucket or 0: _steps(record.detail)[phase] for record in profiles if phase in _steps(record.detail)
    }
    buckets, name = list(steps), NAMES[phase]
    estimated = milliseconds([step.estimated_s for step in steps.values()])
    bounds = milliseconds([step.bound_s for step in steps.values()])
    title = f"{name} by bucket, {TITLE}"
    return build.chart(
        title,
        f"Estimated {name}: {build.plain(estimated[0])} ms in bucket {buckets[0]}, "
        f"{build.plain(estimated[-1])} ms in bucket {buckets[-1]}.",
        (ESTIMATE,),
        [
            build.treads("estimated", buckets, estimated, "bucket {x}: {y:.4g} ms", index=list(Phase).index(phase)),
            build.line("roofline", buckets, bounds, "bucket {x}: {y:.4g} ms", index=2, dash="dash", size=5),
        ],
        (log_axis("bucket b, tokens", buckets), axis(f"{name}, ms", from_zero=True)),
        build.table(
            title,
            (
                ("bucket", lambda bucket: str(bucket)),
                ("estimated ms", lambda bucket: number_text.milliseconds(steps[bucket].estimated_s)),
                ("roofline ms", lambda bucket: number_text.milliseconds(steps[bucket].bound_s)),
            ),
            buckets,
        ),
    )
