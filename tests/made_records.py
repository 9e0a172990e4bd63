"""A made-up stack, workloads, and judged cases as a journal gives them back: a test says in what its own differ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pytest_npubench.core.case import Case
from pytest_npubench.store.fingerprint import DeviceFacts, HostFacts
from pytest_npubench.verdict.result import JudgedCase, Judgement
from pytest_npubench.workloads.trace import TraceWorkload

HOST = HostFacts(
    name="bench-1",
    cpu_model="A CPU @ 2.0 GHz",
    num_cores=8,
    system="Linux 6.1.0 x86_64",
    python="CPython 3.11.9",
    libraries=(("jax", "0.10.2"), ("numpy", "2.4.6")),
    plugin_version="0.1.0",
    git_revision="0123456789ab",
)
H200 = DeviceFacts(
    family="cuda",
    name="NVIDIA H200",
    device_class="H200 SXM 141 GB",
    driver="570.86",
    runtime="jax 0.10.2",
    compiler="jaxlib 0.10.2 / XLA",
)


def judged_case(case: Case, judgement: Judgement, **differences: Any) -> JudgedCase:
    about = {
        "digest": "0123456789ab",
        "node_id": f"suites/{case.suite}/test_{case.kind}.py::test[{case.id}]",
        "device": "cpu:0",
        "fingerprint": None,
        "duration_s": 1.0,
    }
    return JudgedCase(case=case, judgement=judgement, **{**about, **differences})


def judged_record(case: Case, judgement: Judgement, **differences: Any) -> dict[str, Any]:
    """The same as a journal gives it back."""
    record: dict[str, Any] = json.loads(
        json.dumps(judged_case(case, judgement, **differences).to_json(), allow_nan=False)
    )
    return record


def trace_of(name: str, lengths: Sequence[tuple[int, int]]) -> TraceWorkload:
    """A workload of these (input, output) lengths that come all at once."""
    inputs, outputs = zip(*lengths, strict=True)
    return TraceWorkload(
        name=name,
        kind="trace",
        source="the test's own",
        note="",
        input_tokens=inputs,
        output_tokens=outputs,
        arrival_s=None,
        num_unusable=0,
    )
