"""What cases did and times that no device has, through whole runs on the fake accelerator."""

from __future__ import annotations

from pathlib import Path

from .project import Project

FAULTS = """
def every_second_step(requests, run):
    decode = [part for part in run.segments if part.phase.value == "decode"]
    kept = tuple(part for part in run.segments if part not in decode) + tuple(decode[::2])
    return dataclasses.replace(run, segments=kept)


def fast_clock(requests, run):
    return dataclasses.replace(run, e2e_s=run.e2e_s / 1000)


"""
PEAK = """
[peak.flops_per_s.fp16]
value = 1e9
unit = "FLOP/s"
source = "the test's own"
"""


def with_fault(project: Project, name: str) -> Project:
    """On a device with a peak that it does not reach: a prefill in bucket 16 takes 1.6 ms, and at 1 GFLOP/s 0.5 ms."""
    project.fake(install=f"alter={name}" if name else "")
    project.in_front(FAULTS)
    path: Path = project.root / "hw" / "fake.toml"
    path.write_text(path.read_text(encoding="utf-8") + PEAK, encoding="utf-8")
    return project


def test_an_engine_that_leaves_steps_out_shows_fewer(project: Project) -> None:
    assert with_fault(project, "").run("-k", "fake and profile").ret == 0
    records = project.cases()
    assert {record["verdict"]["kind"] for record in records.values()} == {"no-baseline"}
    key = next(case for case in records if case.endswith("bucket16"))
    # two points, of 1 and 9 tokens for each of two requests: 2 x 2 prefills and 8 steps
    assert records[key]["work"] == {"prefills": 4, "decode steps": 8, "tokens": 20, "decode-16": 8, "prefill-16": 4}
    assert with_fault(project, "every_second_step").run("-k", "fake and profile").ret == 0
    assert project.cases()[key]["work"] == {
        "prefills": 4,
        "decode steps": 4,
        "tokens": 20,
        "decode-16": 4,
        "prefill-16": 4,
    }


def test_a_clock_that_is_off_by_a_thousand_is_found_by_the_first_run(project: Project) -> None:
    with_fault(project, "fast_clock").run("-k", "fake and (profile or prediction)")
    assert len(project.cases()) == 5
    for record in project.cases().values():
        assert record["verdict"]["kind"] == "invalid"
        assert record["verdict"]["reason"].startswith("faster than the device can be (0.")
        assert "of the time that its FLOP take at 1 GFLOP/s): work was left out" in record["verdict"]["reason"]
        assert record["work"]["prefills"] > 0
