"""A partition profile from the stand-in: units measured alone by jobs, pairs predicted and labelled so, and kills."""

from __future__ import annotations

import json
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

pytest.importorskip("onnx", reason="onnx is not installed: pip install pytest-npubench[qaihub]")

from pytest_npubench.backends.qualcomm import open_named
from pytest_npubench.cli.main import main
from pytest_npubench.engines.aihub.matmul import MatmulGraph
from pytest_npubench.errors import AccessRefusedError, DeviceUnavailableError, MeasurementError, PartitionError
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU
from pytest_npubench.extensions.pairs.partition.model_shapes import OPERATOR_SHAPES, OperatorShape, operators
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.plan import make_plan
from pytest_npubench.extensions.pairs.partition.profile_file import read_profile, write_profile
from pytest_npubench.extensions.pairs.phone_profile import (
    PhoneProfile,
    PhoneProfiler,
    affordable,
    wanted_points,
)

PHONE = "Samsung Galaxy S24"
LABEL = "predicted: the units were measured alone, sync assumed"
MODEL = "made-up"
SHAPES = (OperatorShape(name="ffn_gate_up", rows=512, cols=64),)
LENGTHS = (1, 256)
OPTIONS = SplitOptions(standard_sizes=(1, 256), tile=32, decode_shares=(0.5,), prefill_shares=(0.2, 0.4))
ALL_JOBS = 1000
ARGUMENTS = (
    *("--model", MODEL, "--length", "1", "256", "--size", "1", "256", "--tile", "32"),
    *("--decode-shares", "0.5", "--prefill-shares", "0.2", "0.4"),
)

Call = Callable[..., str]


@pytest.fixture(autouse=True)
def _made_up_model(monkeypatch: pytest.MonkeyPatch, hub: Any) -> None:
    """Jobs are done when they are first asked for, so nothing waits."""
    monkeypatch.setitem(OPERATOR_SHAPES, MODEL, SHAPES)
    hub.script.polls = 0


@pytest.fixture
def profiler(hub: Any, tmp_path: Path) -> Callable[[], PhoneProfiler]:
    """A new process's view of the same ledger."""
    return lambda: PhoneProfiler(open_named(PHONE), tmp_path / "s24.json.jobs")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """npubench partition ...: what it printed, or the one line of an error."""

    def run(*arguments: object, status: int = 0) -> str:
        found = main(["partition", *map(str, arguments)])
        said = capsys.readouterr()
        assert found == status, said.err
        return said.out if status == 0 else said.err

    return run


def measured(profiler: PhoneProfiler, **changes: Any) -> PhoneProfile:
    return profiler.measure(SHAPES, LENGTHS, OPTIONS, **({"max_jobs": ALL_JOBS, "sync_s": 4e-4} | changes))


def made_up_s(unit: str, rows: int, tokens: int) -> float:
    """The median of the stand-in's times, by its own docstring: 20 of them 0 to 4 us above."""
    return ((100 + rows * tokens // 64) * (2 if unit == GPU else 1) + 2) * 1e-6


def num_jobs(hub: Any) -> dict[str, int]:
    return dict(Counter(job.kind for job in hub.jobs.values()))


def submitted_once(hub: Any) -> bool:
    names = Counter(hub.names("compile_job")) + Counter(hub.names("inference_job"))
    return set(names.values()) == {1}


def test_from_jobs_to_a_plan_that_says_predicted(hub: Any, call: Call, tmp_path: Path) -> None:
    """The whole way by the command line; the plan's times are those of the parts, and 400 us."""
    path = tmp_path / "s24.json"
    said = call("profile", "--pair", f"aihub:{PHONE}", *ARGUMENTS, "-o", path)
    assert f"note    {LABEL}" in said
    assert "finished" in said
    assert "unfinished" not in said
    assert "assumed  400.0 us  400.0 us" in said
    profile = read_profile(path)
    points = wanted_points(SHAPES, LENGTHS, OPTIONS)
    assert {item.key for item in profile.latencies} == {point.key for point in points}
    for item in profile.latencies:
        assert len(item.samples_s) == 20
        assert item.median_s == pytest.approx(made_up_s(item.unit, item.rows, item.tokens))
    assert (profile.measured_alone, profile.is_finished, profile.slowdowns, profile.copies) == (True, True, (), ())
    assert "stand-in" in dict(profile.fingerprint)["device"]
    assert dict(profile.fingerprint)["runtime"] == "QAIRT 2.37.0.250724"
    graphs = {point.key[1:] for point in points}
    assert num_jobs(hub) == {"compile_job": len(graphs), "inference_job": len(points)}
    assert submitted_once(hub)

    source = ("--profile", path, "--model", MODEL)
    plan = json.loads(call("plan", *source, "--length", 1, 256, "--json"))
    assert (plan["version"], plan["note"]) == (2, LABEL)
    decode, prefill = plan["decisions"]
    assert decode["strategy"] == "gpu_only"  # 236 us against 110 us and 400 us of waiting
    assert decode["predicted"]["total_s"] == pytest.approx(made_up_s(GPU, 512, 1))
    assert {part["unit"]: part["num_rows"] for part in prefill["parts"]} == {GPU: 192, NPU: 320}
    assert prefill["predicted"]["total_s"] == pytest.approx(made_up_s(GPU, 192, 256) + 400e-6)
    assert LABEL in call("plan", *source)
    explained = call("explain", *source, "--operator", "ffn_gate_up", "--length", 256)
    assert explained.rstrip().splitlines()[-1].strip() == LABEL


def test_an_assumed_signal_can_be_another(hub: Any, call: Call, tmp_path: Path) -> None:
    path = tmp_path / "s24.json"
    call("profile", "--pair", f"aihub:{PHONE}", *ARGUMENTS, "-o", path, "--sync", 0)
    (sync,) = read_profile(path).syncs
    assert (sync.mechanism, sync.p50_s, sync.p99_s) == ("assumed", 0, 0)
    plan = json.loads(call("plan", "--profile", path, "--model", MODEL, "--length", 1, "--json"))
    assert plan["decisions"][0]["strategy"] != "gpu_only"


def test_the_most_valuable_points_come_first() -> None:
    """Whole operators at the lengths themselves before any share, the GPU's lengths in between last."""
    shapes = (*SHAPES, OperatorShape(name="ffn_down", rows=64, cols=512))
    points = wanted_points(shapes, LENGTHS, OPTIONS)
    whole = {(512, 64), (64, 512)}
    kinds = [
        2 if point.unit == GPU and point.tokens not in LENGTHS else int((point.rows, point.cols) not in whole)
        for point in points
    ]
    assert kinds == sorted(kinds)
    assert set(kinds) == {0, 1, 2}
    assert len(set(points)) == len(points)
    assert {point.cols for point in points[:2]} == {64, 512}


@pytest.mark.parametrize("max_jobs", [2, 3, 7, 8, 1000])
def test_a_number_of_jobs_is_never_exceeded(
    max_jobs: int, hub: Any, profiler: Callable[[], PhoneProfiler], tmp_path: Path
) -> None:
    """The first points get them; a further run goes on, until nothing is missing."""
    points = wanted_points(SHAPES, LENGTHS, OPTIONS)
    found = measured(profiler(), max_jobs=max_jobs)
    assert sum(num_jobs(hub).values()) <= max_jobs
    keys = [item.key for item in found.profile.latencies]
    assert sorted(keys) == sorted(point.key for point in points[: len(keys)])
    assert found.num_left_out == len(points) - len(keys)
    assert found.profile.is_finished == (not found.num_left_out)
    profiler().settle(found)
    before = sum(num_jobs(hub).values())
    again = measured(profiler(), max_jobs=max_jobs, unfinished=found.profile)
    assert sum(num_jobs(hub).values()) - before <= max_jobs
    assert len(again.profile.latencies) > len(keys) or found.profile.is_finished
    assert submitted_once(hub)


def test_what_jobs_a_list_of_points_needs() -> None:
    """Counted one by one: a profile job each, a compile job for each graph that is new."""
    points = wanted_points(SHAPES, LENGTHS, OPTIONS)
    for max_jobs in range(40):
        chosen = affordable(points, max_jobs)
        needed = [len(part) + len({point.key[1:] for point in part}) for part in (chosen, points[: len(chosen) + 1])]
        assert needed[0] <= max_jobs
        assert needed[1] > max_jobs or chosen == points


def test_too_few_jobs(hub: Any, profiler: Callable[[], PhoneProfiler], call: Call, tmp_path: Path) -> None:
    with pytest.raises(PartitionError, match="1 jobs; want 2 or more"):
        measured(profiler(), max_jobs=1)
    said = call("profile", "--pair", f"aihub:{PHONE}", *ARGUMENTS, "-o", tmp_path / "p.json", "--max-jobs", 4)
    assert "left    " in said
    assert "unfinished: raise --max-jobs, or go on with --resume" in said
    first = num_jobs(hub)
    assert sum(first.values()) <= 4
    call("profile", "--pair", f"aihub:{PHONE}", *ARGUMENTS, "-o", tmp_path / "p.json", "--max-jobs", 4)
    again = {"compile_job": first["compile_job"], "inference_job": 2 * first["inference_job"]}
    assert num_jobs(hub) == again, "what is written is settled: without --resume it is measured anew"


CHILD = f"""
import sys
from pytest_npubench.cli.main import main
from pytest_npubench.extensions.pairs.partition.model_shapes import OPERATOR_SHAPES, OperatorShape
OPERATOR_SHAPES[{MODEL!r}] = (OperatorShape(name="ffn_gate_up", rows=512, cols=64),)
sys.exit(main(["partition", "profile", "--pair", "aihub:{PHONE}", *sys.argv[1:]]))
"""


def test_killed_and_started_again(hub: Any, call: Call, tmp_path: Path) -> None:
    """SIGKILL at several moments, the last while a job is waited for; every job was submitted exactly once."""
    path = tmp_path / "s24.json"
    command = [sys.executable, "-c", CHILD, *ARGUMENTS, "-o", str(path), "--max-jobs", "12"]
    chosen = affordable(wanted_points(SHAPES, LENGTHS, OPTIONS), 12)
    last = chosen[-1]
    hub.script.hanging.add(f"matmul-{last.rows}x{last.cols}-{last.tokens}-{last.unit}")
    total = len(chosen) + len({point.key[1:] for point in chosen})
    for wanted in (2, 6, total):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline_s = time.monotonic() + 60
        while len(hub.jobs) < wanted and time.monotonic() < deadline_s:
            time.sleep(0.005)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert len(hub.jobs) >= wanted
        assert not path.exists()
    hub.script.hanging.clear()
    subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert {item.key for item in read_profile(path).latencies} == {point.key for point in chosen}
    assert len(hub.jobs) == total
    assert submitted_once(hub)


def test_a_finished_profile_is_not_made_of_old_results_again(
    hub: Any, profiler: Callable[[], PhoneProfiler], tmp_path: Path
) -> None:
    """Before it is settled the same jobs answer, afterwards new ones; compiled graphs stay."""
    first = measured(profiler())
    before = num_jobs(hub)
    second = profiler()
    again = measured(second)
    assert num_jobs(hub) == before
    assert again.profile == first.profile
    second.settle(again)
    measured(profiler())
    assert num_jobs(hub) == {"compile_job": before["compile_job"], "inference_job": 2 * before["inference_job"]}


def test_a_failed_job_is_named_and_its_point_left_out(hub: Any, call: Call, tmp_path: Path) -> None:
    """The profile is unfinished; the next run submits that job alone, and the failed graph's compile job once more."""
    path = tmp_path / "s24.json"
    arguments = ("profile", "--pair", f"aihub:{PHONE}", *ARGUMENTS, "-o", path)
    hub.script.failing = {"matmul-512x64-256-gpu": "GPU ran out of memory", "matmul-256x64-1-": "unsupported"}
    said = call(*arguments)
    assert "failed  matmul-512x64-256 on gpu: " in said
    assert "failed: GPU ran out of memory" in said
    assert sum("compiling matmul-256x64-1: job" in line for line in said.splitlines()) == 2
    assert "unfinished" in said
    profile = read_profile(path)
    points = {point.key for point in wanted_points(SHAPES, LENGTHS, OPTIONS)}
    failed = {(GPU, 512, 64, 256), (GPU, 256, 64, 1), (NPU, 256, 64, 1)}
    assert points - {item.key for item in profile.latencies} == failed
    assert not profile.is_finished
    before = num_jobs(hub)
    hub.script.failing = {}
    assert "unfinished" not in call(*arguments, "--resume")
    assert {item.key for item in read_profile(path).latencies} == points
    assert num_jobs(hub) == {
        "compile_job": before["compile_job"] + 1,
        "inference_job": before["inference_job"] + 3,
    }


def test_a_submission_that_is_refused_is_that_of_its_graph(hub: Any, profiler: Callable[[], PhoneProfiler]) -> None:
    """The service has forgotten an uploaded model: both units lack that graph, the others go on."""
    graph = MatmulGraph(rows=512, cols=64, tokens=256)
    view = profiler()
    view._jobs.ledger.put_model(graph.digest, "m99")
    found = measured(view)
    assert set(found.failures) == {f"{graph.name} on gpu", f"{graph.name} on npu"}
    assert all("could not be found" in reason for reason in found.failures.values())
    assert not found.profile.is_finished
    assert measured(profiler(), unfinished=found.profile).profile.is_finished
    assert submitted_once(hub)


def test_where_every_job_fails_nothing_is_written(hub: Any, call: Call, tmp_path: Path) -> None:
    hub.script.failing = {"matmul": "no licence"}
    path = tmp_path / "s24.json"
    error = call("profile", "--pair", f"aihub:{PHONE}", *ARGUMENTS, "-o", path, status=1)
    assert "no point was measured: compiling matmul-512x64-1: job j0 failed: no licence" in error
    assert not path.exists()


def test_a_job_that_fell_back_to_another_unit_is_no_measurement(
    hub: Any, profiler: Callable[[], PhoneProfiler]
) -> None:
    hub.script.fallback = {"matmul-512x64-1-npu": "cpu"}
    found = measured(profiler())
    assert (NPU, 512, 64, 1) not in {item.key for item in found.profile.latencies}
    assert not found.profile.is_finished
    (reason,) = found.failures.values()
    assert reason.endswith("most of it ran on cpu, not on npu")
    before = num_jobs(hub)
    measured(profiler(), unfinished=found.profile)
    assert num_jobs(hub) == before, "the same job would answer the same"


def test_token_that_expires_meanwhile(hub: Any, profiler: Callable[[], PhoneProfiler]) -> None:
    view = profiler()
    hub.script.expired = True
    with pytest.raises(AccessRefusedError, match="refused the token"):
        measured(view)
    hub.script.expired = False
    assert measured(profiler()).profile.is_finished
    assert submitted_once(hub)


def test_no_token(hub: Any, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QAIHUB_CLIENT_INI", str(tmp_path / "none.ini"))
    error = call("profile", "--pair", f"aihub:{PHONE}", *ARGUMENTS, "-o", tmp_path / "p.json", status=1)
    assert "no Qualcomm AI Hub token that can be read" in error
    assert "qai-hub configure --api_token TOKEN" in error


def test_without_onnx(hub: Any, profiler: Callable[[], PhoneProfiler], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("onnx", "pytest_npubench.engines.aihub.onnx_file"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(DeviceUnavailableError, match=r"pip install pytest-npubench\[qaihub\]"):
        measured(profiler())
    assert not hub.jobs


def test_the_phone_by_its_name(hub: Any) -> None:
    """Exactly that one, with the newest system."""
    device = open_named(PHONE).device
    assert (device.name, device.os) == (PHONE, "14")
    assert open_named("Samsung Galaxy S24 Ultra").device.name == "Samsung Galaxy S24 Ultra"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Samsung Galaxy S99", "'Samsung Galaxy S99' is not listed there"),
        ("samsung galaxy s24", "is not listed there"),
        ("", "'' is not listed there"),
        ("Samsung Galaxy S24 (Family)", "only compiles there, or stands for any of several"),
        ("QCS8550 (Proxy)", "only compiles there, or stands for any of several"),
    ],
)
def test_a_device_that_is_not_there(name: str, words: str, hub: Any, call: Call, tmp_path: Path) -> None:
    error = call("profile", "--pair", f"aihub:{name}", *ARGUMENTS, "-o", tmp_path / "p.json", status=1)
    assert words in error
    assert "it profiles on " in error
    assert "Samsung Galaxy S24, Samsung Galaxy S24 Ultra, Snapdragon 8 Elite QRD" in error
    assert not hub.jobs


@pytest.mark.parametrize(
    ("pair", "option"),
    [
        ("host", ("--max-jobs", 5)),
        ("host", ("--sync", 5)),
        (f"aihub:{PHONE}", ("--budget", 5)),
        (f"aihub:{PHONE}", ("--mechanism", "flag")),
    ],
)
def test_options_of_another_kind_of_pair(
    pair: str, option: tuple[str, object], hub: Any, call: Call, tmp_path: Path
) -> None:
    error = call("profile", "--pair", pair, *ARGUMENTS, "-o", tmp_path / "p.json", *option, status=1)
    assert f"{option[0]} means nothing with --pair {pair}" in error
    assert not hub.requests


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "soon"])
def test_a_signal_that_cannot_be(value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["partition", "profile", "--model", MODEL, "-o", str(tmp_path / "p.json"), f"--sync={value}"])
    assert stop.value.code == 2
    assert f"'{value}': want microseconds from 0 to 1000000" in capsys.readouterr().err


def test_only_a_profile_of_the_same_phone_is_gone_on_with(
    hub: Any, profiler: Callable[[], PhoneProfiler], tmp_path: Path
) -> None:
    found = measured(profiler(), max_jobs=2).profile
    other = PhoneProfiler(open_named("Snapdragon 8 Elite QRD"), tmp_path / "other.jobs")
    with pytest.raises(PartitionError, match="the profile was measured elsewhere: device Samsung Galaxy S24"):
        measured(other, unfinished=found)
    with pytest.raises(PartitionError, match="the unfinished profile is of SplitOptions"):
        profiler().measure(SHAPES, LENGTHS, SplitOptions(standard_sizes=(1,)), max_jobs=2, sync_s=0, unfinished=found)


def test_a_real_model_within_the_default_number_of_jobs() -> None:
    """A hundred jobs are every whole operator of llama-8b at the default lengths, and some shares."""
    from pytest_npubench.extensions.pairs.cli.partition_profile import LENGTHS, MAX_JOBS, SIZES, TILE

    options = SplitOptions(standard_sizes=SIZES, tile=TILE)
    points = affordable(wanted_points(operators("llama-8b"), LENGTHS, options), MAX_JOBS)
    whole = {(shape.rows, shape.cols) for shape in operators("llama-8b")}
    for unit, sizes in ((GPU, LENGTHS), (NPU, SIZES)):
        known = {(point.rows, point.cols, point.tokens) for point in points if point.unit == unit}
        assert known >= {(rows, cols, tokens) for rows, cols in whole for tokens in sizes}
    assert {(point.rows, point.cols) for point in points} - whole


def test_a_plan_by_parts_that_are_there(hub: Any, profiler: Callable[[], PhoneProfiler], tmp_path: Path) -> None:
    """With whole operators alone no pair is promised anything: a share is priced as the whole that holds it."""
    path = tmp_path / "few.json"
    write_profile(path, measured(profiler(), max_jobs=6, sync_s=0.0).profile)
    plan = make_plan(read_profile(path), MODEL, SHAPES, LENGTHS)
    assert {item.strategy for item in plan.decisions} == {"npu_only"}
    assert plan.note == LABEL


def test_a_matmul_graph_computes_it(tmp_path: Path) -> None:
    """By ONNX Runtime against numpy in float64, weights inside and beside the graph."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed; it runs the exported graphs")
    import numpy as np

    from pytest_npubench.engines.aihub import onnx_file
    from pytest_npubench.engines.aihub.matmul import export_matmul, seeded_weight

    activation = np.random.default_rng(1).standard_normal((40, 3))
    for dtype, kind, tolerance in (("fp32", np.float32, 1e-5), ("fp16", np.float16, 1e-2)):
        for limit in (1 << 20, 100):
            graph = MatmulGraph(rows=24, cols=40, tokens=3, dtype=dtype)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(onnx_file, "MAX_INSIDE_BYTES", limit)
                path = export_matmul(graph, tmp_path / f"{dtype}-{limit}")
            assert path.is_dir() == (limit == 100)
            session = onnxruntime.InferenceSession(
                path / "model.onnx" if path.is_dir() else path, providers=["CPUExecutionProvider"]
            )
            (output,) = session.run(None, {"activation": activation.astype(kind)})
            weight = seeded_weight(graph).astype(np.float64)
            assert (output.dtype, output.shape) == (kind, (24, 3))
            np.testing.assert_allclose(output, weight @ activation, atol=tolerance, rtol=tolerance)
    assert 0.8 < 40 * weight.var() < 1.2


def test_graphs_that_differ_have_other_digests() -> None:
    graphs = [MatmulGraph(rows=2, cols=3, tokens=4)]
    graphs += [MatmulGraph(**({"rows": 2, "cols": 3, "tokens": 4} | change)) for change in ({"rows": 3}, {"cols": 2})]
    graphs += [MatmulGraph(rows=2, cols=3, tokens=4, dtype="fp32"), MatmulGraph(rows=2, cols=3, tokens=5)]
    graphs += [MatmulGraph(rows=2, cols=3, tokens=4, seed=1)]
    assert len({graph.digest for graph in graphs}) == len(graphs)
    assert graphs[0].weight_bytes == 12
    assert MatmulGraph(rows=28672, cols=4096, tokens=1).weight_bytes == 234_881_024


def test_nothing_measured_yet_names_the_reason(hub: Any, profiler: Callable[[], PhoneProfiler]) -> None:
    hub.script.failing = {"matmul": ""}
    with pytest.raises(MeasurementError, match=r"no point was measured: .* the service gives no reason"):
        measured(profiler())
