"""npubench simulate: what it prints, that it is deterministic, and every way to ask for what cannot be simulated."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Answer

from pytest_npubench.cli.arguments import time_limit
from pytest_npubench.engines.model_directory import config_of
from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.extensions.planning.cli.simulated_metrics import winners
from pytest_npubench.extensions.planning.cli.simulation import System, simulate
from pytest_npubench.extensions.planning.cli.system_options import hardware
from pytest_npubench.extensions.planning.virtual.mixed_layers import step_cost
from pytest_npubench.extensions.planning.virtual.step_cost import PassWork, StepWork
from pytest_npubench.serving.arrivals import load_of
from pytest_npubench.serving.iteration import PrefillRow

Run = Callable[..., Answer]
POLICIES = ("static", "continuous", "chunked", "layered", "hybrid", "disaggregated")
SMALL = {
    "--hardware": "nvidia-h100",
    "--tensor-parallel": 2,
    "--model": "small-moe",
    "--policy": "layered",
    "--workload": "layered-sharegpt",
    "--rate": 20,
    "--num-requests": 8,
}


def arguments(**changes: object) -> list[object]:
    """The small run with options changed, added, or left out where None."""
    options = SMALL | {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
    return ["simulate", *(word for name, value in options.items() if value is not None for word in _words(name, value))]


def _words(name: str, value: object) -> list[object]:
    return [name] if value is True else [name, *value] if isinstance(value, list | tuple) else [name, value]


def values(run: dict[str, Any]) -> dict[str, float | None]:
    return {metric["name"]: metric["value"] for metric in run["metrics"]}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Four requests at 10, 10.5, 12 and 13 s of its own clock."""
    path = tmp_path / "trace.jsonl"
    rows = [(10_000, 300, 5), (10_500, 2000, 3), (12_000, 40, 9), (13_000, 700, 1)]
    path.write_text(
        "".join(f'{{"timestamp": {at}, "input_length": {i}, "output_length": {o}}}\n' for at, i, o in rows),
        encoding="utf-8",
    )
    return path


@pytest.fixture
def refused(call: Run) -> Callable[..., str]:
    """The one line on stderr of a run that ends with status 2."""

    def run(**changes: object) -> str:
        answer = call(*arguments(**changes))
        assert answer.status == 2, answer.out
        assert answer.out == ""
        assert "Traceback" not in answer.err
        return answer.err.splitlines()[-1]

    return run


@pytest.mark.parametrize("policy", POLICIES)
def test_json_has_every_metric_with_its_unit_and_says_that_no_device_ran(policy: str, call: Run) -> None:
    answer = call(*arguments(policy=policy, json=True)).json
    assert answer["clock"] == "virtual"
    assert answer["definition"].startswith("no device ran")
    (run,) = answer["runs"]
    assert run["policy"] == policy
    assert run["settings"]["max_batch_size"] == 256
    for metric in run["metrics"]:
        assert set(metric) >= {"name", "unit", "value", "definition", "better", "num_samples", "interval"}
        assert metric["value"] is not None or metric["note"]
    found = values(run)
    assert found["expert_load_bytes"]
    assert found["expert_load_bytes"] % (3 * 512 * 256 * 2) == 0
    assert found["ttft_mean_s"]
    assert found["ttft_mean_s"] > 0


def test_the_table_is_headed_by_the_clock_and_has_the_realised_rate(call: Run, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    answer = call(*arguments(policy=["chunked", "layered"], rate=[10, 40], chunk_size=256), "--output", page)
    assert answer.status == 0, answer.err
    lines = answer.out.splitlines()
    assert lines[0].startswith("clock      virtual: no device ran")
    assert [line.split()[2:6] for line in lines if line.startswith("winner ")] == [
        ["wins", "at", rate, "requests/s:"] for rate in ("10", "40")
    ]
    names = re.findall(r"<dt>(.*?)</dt>", page.read_text(encoding="utf-8"))
    assert names[:3] == ["winner", "winner", "clock"]  # what the page answers stands first
    titles = [line for line in lines if "requests/s asked for" in line]
    assert len(titles) == 2
    assert re.search(r"10 requests/s asked for, \d+\.\d{3} realised, CV \d\.\d\d", titles[0])
    assert "chunk_size_tokens 256" in answer.out
    assert re.search(r"expert_load_bytes .* GB", answer.out)
    progress = answer.err.splitlines()
    assert [line.split(":")[0] for line in progress] == [
        "chunked at 10 requests/s",
        "layered at 10 requests/s",
        "chunked at 40 requests/s",
        "layered at 40 requests/s",
    ]


def test_one_command_line_is_one_result(call: Run) -> None:
    question = arguments(policy=["static", "hybrid"], json=True)
    first, second = call(*question), call(*question)
    assert first.out == second.out
    assert call(*arguments(policy=["static", "hybrid"], json=True, seed=1)).out != first.out


def test_a_model_s_folder_is_simulated_as_its_shape(call: Run, refused: Callable[..., str], tmp_path: Path) -> None:
    """Name and path give the same figures; what no shape describes is said by key."""
    path = tmp_path / "mine" / "config.json"
    path.parent.mkdir()
    config = config_of(decoder_shape("small-moe"), "bf16")
    path.write_text(json.dumps(config), encoding="utf-8")
    (named,), *others = (
        call(*arguments(model=model, json=True)).json["runs"] for model in ("small-moe", path, path.parent)
    )
    assert [[named]] * 2 == others
    path.write_text(json.dumps({**config, "hidden_act": "gelu"}), encoding="utf-8")
    assert f"{path}: hidden_act is 'gelu'; mine wants 'silu'" in refused(model=path)


def test_a_checkpoint_with_keys_and_values_in_fp8_holds_twice_as_many(call: Run, tmp_path: Path) -> None:
    """As vLLM serves it by itself; an option says otherwise."""
    table = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config_of(decoder_shape("small-moe"), "bf16") | {"quantization_config": table}), "utf-8")
    served, wide = (call(*arguments(model=path, kv_dtype=kv_dtype, json=True)).json for kv_dtype in (None, "bf16"))
    assert (served["kv_dtype"], wide["kv_dtype"]) == ("fp8", "bf16")
    assert served["kv_capacity_tokens"] == pytest.approx(2 * wide["kv_capacity_tokens"], abs=1)


def test_a_replayed_trace_keeps_its_arrivals(call: Run, trace: Path) -> None:
    answer = call(*arguments(workload=trace, replay=True, rate=None, num_requests=4, json=True)).json
    (run,) = answer["runs"]
    assert run["rate_per_s"] is None
    assert run["realised_rate_per_s"] == pytest.approx(3 / 3)
    assert answer["workload"]["num_requests"] == 4
    assert values(run)["ttft_mean_s"]
    (all_of_it,) = call(*arguments(workload=trace, replay=True, rate=None, num_requests=None, json=True)).json["runs"]
    assert all_of_it == run


def test_bursts_have_the_coefficient_of_variation_asked_for(call: Run) -> None:
    answer = call(*arguments(num_requests=400, model="small-dense", cv=1.83, json=True)).json
    assert answer["runs"][0]["realised_cv"] == pytest.approx(1.83, rel=0.2)


def test_the_limits_are_the_hardware_files_unless_given(call: Run) -> None:
    shipped = call(*arguments(model="qwen3-30b-a3b", num_requests=2, json=True)).json["slo"]
    assert (shipped["ttft_s"], shipped["tbt_s"]) == (5, 0.125)
    assert "Table 5" in shipped["source"]
    given = call(*arguments(slo_ttft="250ms", slo_tbt="0.05s", json=True)).json
    assert given["slo"] == {"ttft_s": 0.25, "tbt_s": 0.05, "source": "the command line"}
    assert values(given["runs"][0])["slo_attainment"] is not None
    unknown = call(*arguments(json=True)).json
    assert unknown["slo"] is None
    assert values(unknown["runs"][0])["slo_attainment"] is None


def test_settings_reach_the_policies_that_have_them(call: Run) -> None:
    question = arguments(policy=["chunked", "layered", "static"], chunk_size=64, layer_groups=3, max_batch=7, json=True)
    chunked, layered, static = (run["settings"] for run in call(*question).json["runs"])
    assert (chunked["chunk_size_tokens"], chunked["max_batch_size"]) == (64, 7)
    assert (layered["num_layer_groups"], layered["max_batch_size"]) == (3, 7)
    assert (static["batch_size"], static["max_batch_size"]) == (7, 7)


def test_stages_of_a_pipeline_hold_and_serve_more(call: Run) -> None:
    """A model whose weights nearly fill a device has several times the cache on two, and serves a heavy load sooner."""
    model = {"model": "qwen3-30b-a3b", "policy": "chunked", "tensor_parallel": 1, "num_requests": 60, "json": True}
    one, two = (call(*arguments(**model, pipeline_parallel=number)).json for number in (None, 2))
    assert (one["pipeline_parallel"], two["pipeline_parallel"]) == (1, 2)
    assert two["kv_capacity_tokens"] > 5 * one["kv_capacity_tokens"]
    (alone,), (together,) = (list(map(values, answer["runs"])) for answer in (one, two))
    assert together["output_tokens_per_s"] > 1.2 * alone["output_tokens_per_s"]  # type: ignore[operator]
    assert "on 2 stages of 1 x nvidia-h100," in " ".join(
        call(*arguments(**model | {"json": None}, pipeline_parallel=2)).out.split()
    )


def test_one_request_of_pools_of_two_sizes_is_a_closed_form() -> None:
    """Prefill on 2 of 3 devices, then the keys and values over one link, then a step on the third for each token."""
    shape, spec = decoder_shape("qwen3-8b"), hardware("nvidia-h100")
    system = System(
        shape=shape, spec=spec, tensor_parallel=3, dtype="bf16", kv_capacity_tokens=9000, seed=0, prefill_devices=2
    )
    load = load_of((0.5,), [(700, 3)])
    (record,) = simulate(system, "disaggregated", {}, load).records
    prompt, step = (step_cost(shape, spec, tensor_parallel=devices, dtype="bf16") for devices in (2, 1))
    first_s = 0.5 + prompt.seconds(StepWork([PassWork(0, 36, (PrefillRow(0, 0, 700),), 0)], 0, 0, 0, 1))
    sent_s = 700 * 147_456 / (450e9 * 0.84)
    steps_s = [step.seconds(StepWork([PassWork(0, 36, (), 0)], 1, 700 + token, 0, 1)) for token in (1, 2)]
    assert list(record.token_times_s) == pytest.approx(
        [first_s, first_s + sent_s + steps_s[0], first_s + sent_s + sum(steps_s)], rel=1e-6
    )


def test_requests_that_do_not_fit_are_dropped_and_counted(call: Run) -> None:
    answer = call(*arguments(kv_capacity=2000, json=True)).json
    assert answer["kv_capacity_tokens"] == 2000
    assert answer["workload"]["num_dropped"] > 0
    assert "dropped" in call(*arguments(kv_capacity=2000)).out


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hardware": "h100"}, "no hardware file is named 'h100'; shipped: amd-mi300x"),
        ({"hardware": "none.toml"}, "none.toml: cannot be read"),
        ({"hardware": "cpu"}, "'cpu' states no peak.memory_bytes"),
        ({"hardware": "nvidia-a100-40gb"}, "'nvidia-a100-40gb' states no peak.interconnect_bandwidth_bytes_per_s"),
        ({"tensor_parallel": 3}, "small-moe has 2 key-value heads to share out; want one of 1, 2, 4, 8"),
        ({"tensor_parallel": 0}, "--tensor-parallel: '0': want a whole number from 1 to 1024"),
        ({"model": "small"}, "unknown decoder shape 'small'; known: tiny-llama"),
        ({"model": "qwen3-30b-a3b", "hardware": "tpu-v5e", "tensor_parallel": 1}, "61.1 GB of weights"),
        ({"policy": "layerd"}, "no scheduling policy 'layerd'; known: chunked"),
        ({"policy": "disaggregated", "tensor_parallel": 1}, "want an even number, not 1"),
        ({"policy": "disaggregated", "prefill_devices": 2}, "none of 2 devices is left to decode"),
        ({"prefill_devices": 1}, "--prefill-devices is of --policy disaggregated"),
        ({"decode_replicas": 2}, "--decode-replicas is of --policy disaggregated"),
        ({"pipeline_parallel": 9}, "pipeline parallel 9: the model has 8 layers; want at most a stage each"),
        ({"pipeline_parallel": 2, "policy": "disaggregated"}, "policy disaggregated is not simulated with it"),
        ({"pipeline_parallel": 2, "data_parallel": 2, "expert_parallel": True}, "--expert-parallel is not simulated"),
        ({"pipeline_parallel": 2, "prefix_hit": "ids"}, "--prefix-hit ids is not simulated with it"),
        ({"workload": "layered"}, "no workload is named 'layered'"),
        ({"rate": "0"}, "--rate: '0': want requests a second, 1e-06"),
        ({"rate": "nan"}, "--rate: 'nan': want requests a second, 1e-06"),
        ({"rate": None}, "want --rate, or --replay"),
        ({"replay": True}, "want --rate, or --replay"),
        ({"replay": True, "rate": None}, "workload 'layered-sharegpt' has no arrival times to replay"),
        ({"replay": True, "rate": None, "cv": 2}, "--cv is about arrivals at a --rate"),
        ({"cv": "-1"}, "'-1'"),
        ({"num_requests": 0}, "--num-requests: '0': want a whole number from 1 to 1000000"),
        ({"seed": "-1"}, "'-1'"),
        ({"chunk_size": 64}, "--chunk-size is a setting of none of the policies asked for: layered"),
        ({"layer_groups": 9}, "num_layer_groups is 9; want a whole number from 1 to 8"),
        ({"layer_groups": 2, "tokens_per_iteration": 64}, "want one of them"),
        ({"kv_capacity": 10**9}, "--kv-capacity 1000000000: want 16 (a block) to"),
        ({"kv_capacity": 100}, "within max_total_tokens=100"),
        ({"slo_ttft": "10", "slo_tbt": "125ms"}, "--slo-ttft: '10': want a time above 0 with its unit, s or ms"),
        ({"slo_ttft": "10s", "slo_tbt": "1e3ms"}, "--slo-tbt: '1e3ms': want a time above 0 with its unit"),
        ({"slo_ttft": "10s"}, "want --slo-ttft and --slo-tbt together"),
    ],
)
def test_what_cannot_be_simulated_is_said_in_one_line(
    changes: dict[str, object], words: str, refused: Callable[..., str]
) -> None:
    assert words in refused(**changes)


def test_a_trace_that_is_too_short_or_wrong(refused: Callable[..., str], trace: Path, tmp_path: Path) -> None:
    short = refused(workload=trace, replay=True, rate=None, num_requests=5)
    assert "has 4 requests that fit; want 5" in short
    broken = tmp_path / "broken.csv"
    broken.write_text("input_tokens,output_tokens\n1,x\n", encoding="utf-8")
    assert "line 2, column 'output_tokens': 'x'" in refused(workload=broken)


@pytest.mark.parametrize(("text", "limit_s"), [("10s", 10), ("125ms", 0.125), ("0.5s", 0.5), (" 2s ", 2)])
def test_a_limit_is_a_number_with_its_unit(text: str, limit_s: float) -> None:
    assert time_limit(text) == pytest.approx(limit_s)


def test_one_request_has_no_rate_and_is_simulated_all_the_same(call: Run) -> None:
    run = call(*arguments(num_requests=1, json=True)).json["runs"][0]
    assert (run["realised_rate_per_s"], run["realised_cv"]) == (None, None)
    assert "20 requests/s asked for" in call(*arguments(num_requests=1)).out


PEAKS = """
title = "A device that is only calculated with"
[peak.flops_per_s.bf16]
value = 800
unit = "TFLOP/s"
source = "the test's own"
[peak.memory_bandwidth_bytes_per_s]
value = 1000
unit = "GB/s"
source = "the test's own"
"""


@pytest.fixture
def served(tmp_path: Path) -> dict[str, object]:
    """A run as a server leaves it behind: 24 requests whose tokens came every 20 ms."""
    rows = [
        {
            "input_toks": 100 + 40 * number,
            "output_toks": 12,
            "queued_ts": 5.0 + 0.2 * number,
            "first_token_ts": 5.03 + 0.2 * number,
            "last_token_ts": 5.25 + 0.2 * number,
        }
        for number in range(24)
    ]
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (tmp_path / "peaks.toml").write_text(PEAKS, encoding="utf-8")
    device = {"--hardware": tmp_path / "peaks.toml", "--model": "qwen3-8b", "--kv-capacity": 20_000}
    return {"run": folder, "cost": tmp_path / "cost.json", "device": [word for pair in device.items() for word in pair]}


def test_a_server_s_own_run_is_calibrated_on_and_simulated(call: Run, served: dict[str, Any]) -> None:
    """The whole way: the run, its cost, and the run again, beside what was measured."""
    done = call("calibrate", served["run"], *served["device"], "--first", "50%", "-o", served["cost"])
    assert done.status == 0, done.err
    assert "from    the first 12 of 24 requests" in done.out
    assert "error   on the others, predicted over measured: TTFT MEAN" in done.out
    assert re.search(
        r"seen    iterations of up to \d+ prompt tokens \(\d+ that they look at\), \d+ decode rows and \d+ tokens of "
        r"context",
        done.out,
    )
    again = ["--run", served["run"], "--against", served["run"], "--cost", served["cost"], "--policy", "chunked"]
    answer = call("simulate", *served["device"], *again, "--json").json
    assert answer["workload"]["num_requests"] == 24
    (run,) = answer["runs"]
    by_name = {metric["name"]: metric for metric in run["metrics"]}
    tpot = by_name["tpot_mean_s"]
    assert tpot["measured"] == pytest.approx(0.02)
    assert abs(tpot["error"]) < 0.2  # no such server exists: its times know nothing of lengths
    assert tpot["low"] < tpot["value"] < tpot["high"]
    assert by_name["tbt_mean_s"]["measured"] is None  # a run has first and last tokens alone
    shown = call("simulate", *served["device"], *again)
    assert re.search(r"tpot_mean_s .* ms \(.* to .*\) [+-][\d.]+% .* 20 ms", shown.out), shown.out


def test_more_than_was_calibrated_on_is_said(call: Run, served: dict[str, Any]) -> None:
    call("calibrate", served["run"], *served["device"], "-o", served["cost"])
    large = ["--workload", "layered-sharegpt", "--rate", 50, "--num-requests", 20, "--policy", "chunked"]
    shown = call("simulate", *served["device"], *large, "--cost", served["cost"])
    assert "beyond what was calibrated on, band twice as wide: decode rows: up to" in shown.out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--num-requests", "99"], "--num-requests 99: the run has 24"),
        (["--first", "0%"], "want a part above 0 up to 100 %"),
        (["--first", "10%"], "2 requests to calibrate on; want at least 5"),
        (["--hardware", "nvidia-h1000"], "no hardware file is named 'nvidia-h1000'"),
        (["-o", "RUN/requests.jsonl"], "requests.jsonl"),
    ],
)
def test_what_cannot_be_calibrated_is_said(call: Run, served: dict[str, Any], change: list[str], words: str) -> None:
    change = [word.replace("RUN", str(served["run"])) for word in change]
    done = call("calibrate", served["run"], *served["device"], "-o", served["cost"], *change)
    assert done.status in (1, 2)
    assert words in done.err
    assert not served["cost"].exists()


def test_a_cost_of_another_model_or_a_load_twice_is_refused(
    call: Run, refused: Callable[..., str], served: dict[str, Any]
) -> None:
    call("calibrate", served["run"], *served["device"], "--num-requests", 12, "-o", served["cost"])
    assert "is of qwen3-8b" in refused(cost=served["cost"], dtype=None, tensor_parallel=1)
    both = call("simulate", *served["device"], "--policy", "chunked", "--run", served["run"], "--rate", 3)
    assert both.status == 2
    assert "are another load's" in both.err


def _run_of(policy: str, rate: float | None, attained: float | None, latency_s: float) -> dict[str, Any]:
    values = {"slo_attainment": attained, "e2e_mean_s": latency_s}
    return {"policy": policy, "rate_per_s": rate, "metrics": [{"name": n, "value": v} for n, v in values.items()]}


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ([(0.5, 2.0), (0.9, 3.0)], ["b wins at 4 requests/s: slo_attainment 0.9; a 0.5"]),
        ([(0.9, 2.0), (0.9, 1.5)], ["b wins at 4 requests/s: e2e_mean_s 1.5 s; a 2 s"]),
        ([(None, 2.0), (None, 3.0)], ["a wins at 4 requests/s: e2e_mean_s 2 s; b 3 s"]),
        ([(0.9, 2.0)], []),
    ],
)
def test_the_better_of_several_policies_is_named(figures: list[tuple[Any, float]], words: list[str]) -> None:
    runs = [_run_of("ab"[index], 4.0, *pair) for index, pair in enumerate(figures)]
    assert winners([*runs, _run_of("a", 8.0, 0.1, 1.0)]) == words
