"""Jobs by the unmodified client: submitted once, waited for, resumed; and every way they can go wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.errors import AccessRefusedError, DeviceUnavailableError, MeasurementError
from pytest_npubench.extensions.compilers.hub import jobs as jobs_module
from pytest_npubench.extensions.compilers.hub.graph import GraphSpec
from pytest_npubench.extensions.compilers.hub.jobs import GraphJobs, JobOptions
from pytest_npubench.extensions.compilers.hub.ledger import JobLedger
from pytest_npubench.extensions.compilers.hub.service import AiHubService

GRAPH = GraphSpec(shape=decoder_shape("tiny-llama"), phase=Phase.PREFILL, bucket=8)
MakeJobs = Callable[..., GraphJobs]


def export(graph: GraphSpec, folder: Path) -> Path:
    """The stand-in does not look into graphs."""
    folder.mkdir(parents=True)
    path = folder / "model.onnx"
    path.write_bytes(graph.name.encode())
    return path


@pytest.fixture
def jobs(hub: Any, tmp_path: Path, quick: Callable[..., JobOptions]) -> MakeJobs:
    """A new process's view of the same ledger."""

    def make(**changes: Any) -> GraphJobs:
        service = AiHubService()
        device = next(item for item in service.devices() if item.name == "Samsung Galaxy S24")
        ledger = JobLedger(tmp_path / "jobs.json")
        options = {name: changes.pop(name) for name in ("stage", "sleep", "now_s") if name in changes}
        return GraphJobs(service, device, "s24", ledger, quick(**changes), export=export, **options)

    return make


def profiled(jobs: GraphJobs, unit: str = "npu") -> tuple[float, ...]:
    jobs.submit_compile(GRAPH)
    jobs.wait_compile(GRAPH)
    jobs.submit_profile(GRAPH, unit)
    return jobs.profile(GRAPH, unit).times_s


def test_one_graph_on_every_unit(hub: Any, jobs: MakeJobs) -> None:
    said: list[str] = []
    view = jobs(stage=said.append)
    times = {unit: profiled(view, unit)[0] for unit in ("npu", "gpu", "cpu")}
    assert times == pytest.approx({"npu": 80e-6, "gpu": 160e-6, "cpu": 400e-6})
    assert hub.names("compile_job") == ["npubench-prefill-tiny-llama-b1-8"]
    assert len(hub.models) == 1
    options = [job.body.options for job in hub.jobs.values()]
    assert options[:2] == [
        "--target_runtime qnn_dlc --qairt_version 2.37",
        "--compute_unit npu --max_profiler_iterations 100 --qairt_version 2.37",
    ]
    assert said[0] == "exporting prefill-tiny-llama-b1-8"
    assert any("profiling prefill-tiny-llama-b1-8 on gpu: job j2 measuring_performance" in text for text in said)


def test_a_later_run_takes_up_what_was_not_used(hub: Any, jobs: MakeJobs) -> None:
    first = jobs()
    profiled(first)
    second = jobs()
    second.submit_compile(GRAPH)
    assert second.wait_compile(GRAPH).resumed
    second.submit_profile(GRAPH, "npu")
    second.profile(GRAPH, "npu")
    assert len(hub.jobs) == 2
    second.settle([second.profile_key(GRAPH, "npu")])
    profiled(jobs())  # what was used once is measured anew; the binary is not made again
    assert Counter(job.kind for job in hub.jobs.values()) == {"compile_job": 1, "inference_job": 2}


def test_other_options_are_other_jobs(hub: Any, jobs: MakeJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    profiled(jobs())
    monkeypatch.setattr(jobs_module, "NUM_ITERATIONS", 10)
    profiled(jobs())
    assert Counter(job.kind for job in hub.jobs.values()) == {"compile_job": 1, "inference_job": 2}
    profiled(jobs(qairt="2.36", qairt_full="2.37"))
    assert Counter(job.kind for job in hub.jobs.values()) == {"compile_job": 2, "inference_job": 3}
    assert len(hub.models) == 1


@pytest.mark.parametrize(
    ("part", "reason"),
    [*((part, "Failed to profile: HTP ran out of VTCM") for part in ("b1-8-npu", "prefill")), ("prefill", "")],
)
def test_failed_job(hub: Any, jobs: MakeJobs, part: str, reason: str) -> None:
    hub.script.failing[part] = reason
    with pytest.raises(MeasurementError, match=rf"job j\d failed: {reason or 'the service gives no reason'}"):
        profiled(jobs())
    hub.script.failing.clear()
    assert profiled(jobs())[0] == pytest.approx(80e-6)  # what failed gets another try


def test_hung_job(hub: Any, jobs: MakeJobs) -> None:
    """It stays on the ledger: the next run asks for that job, and submits no other."""
    hub.script.hanging.add("b1-8-npu")
    now = [1000.0]
    view = jobs(sleep=lambda seconds: now.__setitem__(0, now[0] + 10), now_s=lambda: now[0])
    with pytest.raises(MeasurementError, match=r"job j1 is measuring_performance 30 s after it was submitted"):
        profiled(view)
    hub.script.hanging.clear()
    assert profiled(jobs())[0] == pytest.approx(80e-6)
    assert len(hub.jobs) == 2


def test_result_missing(hub: Any, jobs: MakeJobs) -> None:
    hub.script.without_result.add("b1-8-npu")
    with pytest.raises(MeasurementError, match="job j1: the service has no profile of it"):
        profiled(jobs())
    hub.script.without_result.clear()
    profiled(jobs())
    assert Counter(job.kind for job in hub.jobs.values()) == {"compile_job": 1, "inference_job": 2}


def test_other_tools_than_the_fingerprint_says(hub: Any, jobs: MakeJobs) -> None:
    hub.script.tool_version = "2.38.1"
    with pytest.raises(MeasurementError, match=r"job j1 ran on QAIRT 2.38.1; the fingerprint says 2.37.0.250724"):
        profiled(jobs())


def test_rate_limited_submission(hub: Any, jobs: MakeJobs) -> None:
    """The client gives up after 7 tries; we go on for rate_limit_s."""
    pauses: list[float] = []
    hub.script.refuse_posts = 16
    profiled(jobs(poll_s=10.0, rate_limit_s=1800.0, sleep=pauses.append))
    assert pauses[:2] == [10.0, 20.0]
    assert len(hub.jobs) == 2
    hub.script.refuse_posts = 10_000
    with pytest.raises(MeasurementError, match=r"limits the rate of requests: profile job .* was refused, for 70 s"):
        profiled(jobs(poll_s=10.0, rate_limit_s=60.0, sleep=pauses.append), "gpu")


def test_rate_limited_polling(hub: Any, jobs: MakeJobs) -> None:
    view = jobs()
    view.submit_compile(GRAPH)
    hub.script.refuse_gets = 9
    assert view.wait_compile(GRAPH).job_id == "j0"


def test_token_that_expires_between(hub: Any, jobs: MakeJobs) -> None:
    """Said at once: waiting would not mend it."""
    view = jobs(sleep=lambda seconds: pytest.fail("waited"))
    view.submit_compile(GRAPH)
    hub.script.expired = True
    with pytest.raises(AccessRefusedError, match="refused the token"):
        view.wait_compile(GRAPH)


def test_service_that_goes_away(hub: Any, jobs: MakeJobs) -> None:
    view = jobs()
    view.submit_compile(GRAPH)
    hub.script.never = True
    with pytest.raises(DeviceUnavailableError, match="cannot be reached"):
        view.wait_compile(GRAPH)
    hub.script.never = False
    assert profiled(jobs())[0] == pytest.approx(80e-6)
    assert len(hub.jobs) == 2


def test_answer_lost_after_the_job_was_made(hub: Any, jobs: MakeJobs) -> None:
    """The client repeats a submission whose answer was lost, seven times; once it gives up the job is found by name."""
    view = jobs()
    hub.script.drop_after = 7
    view.submit_compile(GRAPH)
    entry = view.ledger.job(view._compile_key(GRAPH))
    assert entry is not None
    assert len(hub.jobs) == 7
    assert {job.name for job in hub.jobs.values()} == {entry.name}
    assert entry.job_id == "j6"


@pytest.mark.parametrize("asked", [True, False])
def test_killed_before_noting(hub: Any, jobs: MakeJobs, asked: bool) -> None:
    """The ledger says intended; a job that exists is found by its name, and not submitted again."""
    view = jobs()
    view.submit_compile(GRAPH)
    if not asked:
        hub.jobs.clear()
    view.ledger.change(view._compile_key(GRAPH), state="intended", job_id=None)
    assert profiled(jobs())[0] == pytest.approx(80e-6)
    assert len(hub.jobs) == 2


def test_job_that_the_service_forgot(hub: Any, jobs: MakeJobs) -> None:
    view = jobs()
    view.submit_compile(GRAPH)
    view.ledger.change(view._compile_key(GRAPH), job_id="j99")
    with pytest.raises(MeasurementError, match="job j99"):
        profiled(jobs())
    assert profiled(jobs())[0] == pytest.approx(80e-6)


def test_model_that_the_service_forgot(hub: Any, jobs: MakeJobs) -> None:
    view = jobs()
    view.ledger.put_model(GRAPH.digest, "m99")
    with pytest.raises(MeasurementError, match=r"Model ID .m99. could not be found"):
        view.submit_compile(GRAPH)
    assert profiled(jobs())[0] == pytest.approx(80e-6)


CHILD = """
import sys
from pathlib import Path
from pytest_npubench.extensions.compilers.hub.service import AiHubService
from pytest_npubench.extensions.compilers.hub.graph import GraphSpec
from pytest_npubench.extensions.compilers.hub.jobs import GraphJobs
from pytest_npubench.extensions.compilers.hub.jobs import JobOptions
from pytest_npubench.extensions.compilers.hub.ledger import JobLedger
from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.core.measurement import Phase

def export(graph, folder):
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(b"x")
    return folder / "model.onnx"

service = AiHubService()
device = next(item for item in service.devices() if item.name == "Samsung Galaxy S24")
jobs = GraphJobs(service, device, "s24", JobLedger(Path(sys.argv[1])), JobOptions(poll_s=0.05), export=export)
shape = decoder_shape("tiny-llama")
graphs = [GraphSpec(shape=shape, phase=phase, bucket=bucket) for phase in Phase for bucket in (8, 16)]
for graph in graphs:
    jobs.submit_compile(graph)
for graph in graphs:
    jobs.wait_compile(graph)
    jobs.submit_profile(graph, "npu")
for graph in graphs:
    print(jobs.profile(graph, "npu").times_s[0])
"""


def test_killed_half_way(hub: Any, tmp_path: Path) -> None:
    """SIGKILL at several moments; the last run gets all results, and every job was submitted exactly once."""
    command = [sys.executable, "-c", CHILD, str(tmp_path / "jobs.json")]
    hub.script.hanging.update({"decode-tiny-llama-b1-16-npu"})
    for num_jobs in (2, 5, 8):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline_s = time.monotonic() + 60
        while len(hub.jobs) < num_jobs and time.monotonic() < deadline_s:
            time.sleep(0.005)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert len(hub.jobs) >= num_jobs
    hub.script.hanging.clear()
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert [float(line) for line in answer.stdout.split()] == pytest.approx([80e-6, 160e-6, 508e-6, 516e-6])
    assert set(Counter(hub.names("compile_job")).values()) == {1}
    assert set(Counter(hub.names("inference_job")).values()) == {1}
    assert len(hub.jobs) == 8


def test_options_that_are_not_pinned() -> None:
    options = JobOptions()
    assert options.compile_options == "--target_runtime qnn_dlc"
    assert options.profile_options("npu") == "--compute_unit npu --max_profiler_iterations 100"
