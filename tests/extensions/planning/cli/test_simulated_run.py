"""A simulated run as if it were a server's: written, calibrated on, simulated again, and pictured beside itself."""

from __future__ import annotations

import csv
import json
import math
import re
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.conftest import Answer, small_device

from pytest_npubench.engines.model_directory import config_of
from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.extensions.planning.virtual import calibration
from pytest_npubench.predictors.profile import BucketProfile, BucketTiming

Run = Callable[..., Answer]
LOAD = ["--workload", "layered-sharegpt", "--rate", 60, "--num-requests", 40, "--seed", 3]
SYSTEM = ["--hardware", "nvidia-h100", "--model", "small-moe", "--kv-capacity", 200_000]
REPLICAS = ["--data-parallel", 2, "--expert-parallel"]
META = {
    "engine_kwargs": {
        "data_parallel_size": 2,
        "enable_expert_parallel": True,
        "max_num_batched_tokens": 1024,
        "max_num_seqs": 128,
        "dtype": "bfloat16",
        "kv_cache_dtype": "auto",
    }
}


@pytest.fixture
def served(call: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a server with two replicas of a small MoE leaves it behind, to be calibrated on with fewer draws."""
    monkeypatch.setattr(calibration, "NUM_GENERATIONS", 4)
    monkeypatch.setattr(calibration, "NUM_DRAWS", 30)
    folder = tmp_path / "run"
    folder.mkdir()
    policy = ["--policy", "chunked", "--chunk-size", 1024, "--max-batch", 128]
    done = call("simulate", *SYSTEM, *REPLICAS, *LOAD, *policy, "--requests-out", folder / "requests.jsonl")
    assert done.status == 0, done.err
    assert "2 replicas of 1 x nvidia-h100, experts shared, each with 200000 tokens" in done.out
    (folder / "meta.json").write_text(json.dumps(META), encoding="utf-8")
    return folder


def test_replicas_are_calibrated_on_and_predicted(call: Run, served: Path, tmp_path: Path) -> None:
    """The run says how it was served; what was calibrated says it to the simulation, which needs no hardware file."""
    assert len((served / "requests.jsonl").read_text(encoding="utf-8").splitlines()) == 40
    cost = tmp_path / "cost.json"
    done = call("calibrate", served, *SYSTEM, "--synchronous", "--num-requests", 30, "-o", cost)
    assert done.status == 0, done.err
    written = json.loads(cost.read_text(encoding="utf-8"))
    assert (written["data_parallel"], written["is_expert_parallel"], written["dtype"]) == (2, True, "bf16")
    other = call("simulate", "--hardware", "nvidia-h200", "--model", "small-moe", "--cost", cost, "--run", served)
    assert (other.status, other.out) == (2, "")
    assert f"{cost} was calibrated on nvidia-h100, not on nvidia-h200; want a cost of that one, such as" in other.err
    again = ["--model", "small-moe", "--cost", cost, "--run", served, "--against", served]
    page, timeline = tmp_path / "page.html", tmp_path / "timeline.csv"
    answer = call("simulate", *again, "--output", page, "--timeline", timeline, "--json").json
    assert (answer["data_parallel"], answer["expert_parallel"], answer["kv_capacity_tokens"]) == (2, True, 200_000)
    (run,) = answer["runs"]
    assert run["policy"] == "chunked"
    assert run["settings"] == {"chunk_size_tokens": 1024, "decode_counts": True, "max_batch_size": 128}
    errors = {metric["name"]: metric["error"] for metric in run["metrics"] if metric.get("error") is not None}
    assert abs(errors["e2e_mean_s"]) < 0.1
    assert abs(errors["tpot_mean_s"]) < 0.1
    rows = list(csv.DictReader(timeline.read_text(encoding="utf-8").splitlines()))
    assert sum(int(row["num_prefill_tokens"]) for row in rows) == sum(
        json.loads(line)["input_toks"] for line in (served / "requests.jsonl").read_text(encoding="utf-8").splitlines()
    )
    html = page.read_text(encoding="utf-8")
    assert re.findall(r"<h1[^>]*>(.*?)</h1>", html) == ["small-moe on nvidia-h100, virtual clock"]
    for title in ("TTFT of the requests", "E2E of the requests", "Requests waiting for their first token"):
        assert title in html
    assert "measured" in html


def test_a_cost_that_holds_no_longer_and_one_of_a_disturbed_run(call: Run, served: Path, tmp_path: Path) -> None:
    """The run itself is within its bands; a server that became slower is not; one that became slower half-way cannot
    be calibrated on without a word. Two requests of it move a known cost there."""
    known, slow, mixed, moved = (tmp_path / name for name in ("cost.json", "slow.jsonl", "mixed.jsonl", "moved.json"))
    requests = served / "requests.jsonl"
    requests.write_text("".join(requests.read_text(encoding="utf-8").splitlines(keepends=True)[:15]), encoding="utf-8")
    done = call("calibrate", served, *SYSTEM, "--synchronous", "-o", known)
    (doubt,) = [line for line in done.out.splitlines() if line.startswith("doubt")]
    assert "of 6 terms apart" in doubt  # 15 requests
    slow.write_text(_slower(served, 1.6, since=0), encoding="utf-8")
    mixed.write_text(_slower(served, 1.6, since=7), encoding="utf-8")
    again = ["--model", "small-moe", "--cost", known, "--run", served]
    assert call("simulate", *again, "--against", served, "--gate").status == 0
    old = call("simulate", *again, "--against", slow, "--gate")
    assert old.status == 1
    assert "this cost holds here no longer" in old.out
    assert call("simulate", *again, "--against", slow).status == 0
    doubted = call(
        "calibrate", mixed, *SYSTEM, *REPLICAS, "--synchronous", "-o", tmp_path / "mixed.json", "--json"
    ).json
    assert any("one third of the run" in words for words in doubted["doubts"])
    told = call("simulate", *again[:2], "--cost", tmp_path / "mixed.json", "--run", served)
    assert "doubt" in told.out
    few = tmp_path / "few.jsonl"
    few.write_text("".join(slow.read_text(encoding="utf-8").splitlines(keepends=True)[:2]), encoding="utf-8")
    wanted = [few, *SYSTEM, *REPLICAS, "--chunk-size", 1024, "--synchronous", "-o", moved]
    assert "want at least 5" in call("calibrate", *wanted).err
    done = call("calibrate", *wanted, "--from", known)
    assert done.status == 0, done.err
    before, after = (json.loads(path.read_text(encoding="utf-8")) for path in (known, moved))
    fixed = before["terms"].index("fixed_s")
    assert math.exp(after["centre"][fixed] - before["centre"][fixed]) == pytest.approx(1.6, rel=0.1)


def test_arrivals_that_the_engine_stamped_are_taken_so(
    call: Run, served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server notes arrivals when its next iteration starts. Simulated by its own cost its TTFT is the same; without
    the client's times beside the stamps nobody knows that they are some, and it is up to an iteration longer. By
    another cost a load goes to other replicas, which moves more than that."""
    monkeypatch.setattr(calibration, "NUM_GENERATIONS", 2)
    cost, seen, timeline = (tmp_path / name for name in ("cost.json", "seen.jsonl", "timeline.csv"))
    assert call("calibrate", served, *SYSTEM, "-o", cost).status == 0
    load = ["--workload", "layered-sharegpt", "--rate", 20, "--num-requests", 80, "--seed", 3]
    again = ["--model", "small-moe", "--cost", cost, "--policy", "chunked"]
    assert call("simulate", *again, *load, "--requests-out", seen, "--timeline", timeline).status == 0
    starts = [float(row["start_s"]) for row in csv.DictReader(timeline.read_text(encoding="utf-8").splitlines())]
    starts.sort()
    stamped = []
    for line in seen.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        row["arrival_time"] = 1e9 + row["queued_ts"]
        row["queued_ts"] = starts[bisect_left(starts, row["queued_ts"])]
        stamped.append(row)
    errors = []
    for rows in (stamped, [{name: row[name] for name in row if name != "arrival_time"} for row in stamped]):
        seen.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        (run,) = call("simulate", *again, "--run", seen, "--against", seen, "--json").json["runs"]
        errors += [metric["error"] for metric in run["metrics"] if metric["name"] == "ttft_mean_s"]
    assert errors[0] == pytest.approx(0.0, abs=0.01)
    assert errors[1] > 0.03


def test_a_table_and_profiles_are_costs_too(call: Run, tmp_path: Path) -> None:
    """One request after the other: each takes TTFT, and a step for each token more, as the file says."""
    requests = tmp_path / "one.jsonl"
    line = {"input_toks": 100, "output_toks": 5, "queued_ts": 0.0, "first_token_ts": 1.0, "last_token_ts": 2.0}
    requests.write_text(json.dumps(line) + "\n", encoding="utf-8")
    table = tmp_path / "table.csv"
    points = [(0, 1, 0.01), (512, 0, 0.2), (512, 1, 0.21)]
    rows = [f"{prefill},{batch},{context},{s}" for prefill, batch, s in points for context in (1, 4096)]
    table.write_text("\n".join(["prefill_tokens,decode_rows,mean_context_tokens,seconds", *rows]), encoding="utf-8")
    profiles = []
    for batch, scale in ((1, 1.0), (4, 2.0)):
        profiles.append(tmp_path / f"b{batch}.json")
        buckets = {b: BucketTiming(ttft_s=scale * b / 1e3, tbt_s=scale * b / 1e4) for b in (128, 256)}
        profile = BucketProfile(batch_size=batch, buckets=buckets)
        profiles[-1].write_text(json.dumps(profile.to_json()), encoding="utf-8")
    system = ["--model", "small-dense", "--kv-capacity", 4096, "--run", requests, "--json"]
    for cost, ttft_s, tpot_s in ((["--cost", table], 0.2 * 100 / 512, 0.01), (["--cost", *profiles], 0.128, 0.0128)):
        answer = call("simulate", *system, *cost).json
        found = {metric["name"]: metric["value"] for metric in answer["runs"][0]["metrics"]}
        assert found["ttft_mean_s"] == pytest.approx(ttft_s)
        assert found["tpot_mean_s"] == pytest.approx(tpot_s)
        assert str(cost[1]) in answer["definition"]
    assert "has none" in call("simulate", *system, "--cost", table, "--against", requests, "--gate").err
    assert "one batch size" in call("simulate", *system, "--cost", profiles[0], profiles[0]).err
    long = json.dumps({**line, "input_toks": 300})
    requests.write_text(long + "\n", encoding="utf-8")
    assert "a KV length of 300" in call("simulate", *system, "--cost", *profiles).err


def _slower(served: Path, factor: float, *, since: int) -> str:
    """The run's lines with the times of requests from this one on that much longer."""
    lines = []
    for number, line in enumerate((served / "requests.jsonl").read_text(encoding="utf-8").splitlines()):
        one = json.loads(line)
        for name in ("first_token_ts", "last_token_ts") if number >= since else ():
            one[name] = one["queued_ts"] + factor * (one[name] - one["queued_ts"])
        lines.append(json.dumps(one))
    return "\n".join(lines) + "\n"


def test_replicas_at_their_own_pace_need_no_expert(call: Run) -> None:
    """Twice the devices at the same load: nobody waits longer."""
    dense = ["--hardware", "nvidia-h100", "--model", "qwen3-8b", "--policy", "chunked", *LOAD, "--json"]
    waits = {}
    for number in (1, 2):
        (run,) = call("simulate", *dense, "--data-parallel", number).json["runs"]
        waits[number] = next(metric["value"] for metric in run["metrics"] if metric["name"] == "e2e_mean_s")
    assert waits[2] < waits[1]


def test_a_part_of_the_prompts_in_the_cache_comes_sooner(call: Run) -> None:
    means = []
    for hit in ("1%", "80%"):
        (run,) = call("simulate", *SYSTEM, *LOAD, "--policy", "chunked", "--prefix-hit", hit, "--json").json["runs"]
        means.append(next(metric["value"] for metric in run["metrics"] if metric["name"] == "ttft_mean_s"))
    assert means[1] < means[0]


@pytest.fixture
def conversation(tmp_path: Path) -> Path:
    """Three prompts of 1,100 tokens: the second one repeats the first 1,024 of the first, the third repeats it all."""
    path = tmp_path / "conversation.jsonl"
    rows = [(0, [1, 2, 3]), (60_000, [1, 2, 4]), (120_000, [1, 2, 3])]
    text = '{{"timestamp": {}, "input_length": 1100, "output_length": 4, "hash_ids": {}}}\n'
    path.write_text("".join(text.format(*row) for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("policy", ["chunked", "layered"])
def test_what_prompts_of_a_trace_have_in_common_is_found(call: Run, conversation: Path, policy: str) -> None:
    """1,024 of the second prompt; of the third 68 blocks of 16 tokens, which leave its last 12 to be computed."""
    load = ["--workload", conversation, "--replay", "--num-requests", 3, "--policy", policy, "--prefix-hit", "ids"]
    done = call("simulate", *SYSTEM, *load, "--json")
    (run,) = done.json["runs"]
    values = {metric["name"]: metric["value"] for metric in run["metrics"]}
    assert values["prefix_hit"] == pytest.approx((1024 + 1088) / 3300)
    assert "prefix_hit" in call("simulate", *SYSTEM, *load).out
    two_halves = call("simulate", *SYSTEM, *load, "--policy", "disaggregated", "--tensor-parallel", 2)
    assert "it shares none by --prefix-hit ids" in two_halves.err


def test_prompts_of_a_run_are_known_by_their_token_ids(call: Run, tmp_path: Path) -> None:
    """40 tokens twice: two blocks of 16 are found, and no more, as the rest is not a full one."""
    row = {"input_toks": 40, "output_toks": 2, "first_token_ts": 1.5, "last_token_ts": 2.0}
    rows = [row | {"queued_ts": at, "prompt_token_ids": list(range(40))} for at in (0.0, 1.0)]
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    options = ["--run", path, "--prefix-hit", "ids", "--json"]
    (run,) = call("simulate", *SYSTEM, *options).json["runs"]
    values = {metric["name"]: metric["value"] for metric in run["metrics"]}
    assert values["prefix_hit"] == pytest.approx(32 / 80)
    path.write_text(json.dumps(rows[0] | {"input_toks": 41}) + "\n", encoding="utf-8")
    assert "prompt_token_ids: 40 ids; want input_toks, 41" in call("simulate", *SYSTEM, *options).err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--prefix-hit", "ids"], "has no ids; want --replay of a trace with hash_ids"),
        (["--prefix-hit", "ids", "--no-prefix-caching"], "want it or --no-prefix-caching"),
        (["--prefix-hit", "id"], "want a part above 0 up to 100 %, such as 25%, or ids"),
        (["--moe-layers", "balanced"], "no measured MoE layers of model small-moe; there are qwen3-30b-a3b"),
        (["--moe-layers", "balanced", "--cost", "OUT/none.json"], "--cost has other times"),
        (["--expert-parallel"], "one replica shares with nobody"),
        (["--data-parallel", 2, "--expert-parallel", "--model", "qwen3-8b"], "qwen3-8b has no experts"),
        (["--data-parallel", 2, "--policy", "disaggregated"], "want a data parallel of 1"),
        (["--policy", "layered", "--requests-out", "OUT/r.jsonl"], "r.jsonl is of one run"),
        (["--timeline", "OUT/none/t.csv"], "No such file or directory"),
        (["--prefix-hit", "101%"], "want a part above 0 up to 100 %"),
        (["--kv-dtype", "fp4"], "invalid choice: 'fp4'"),
    ],
)
def test_what_cannot_be_is_said(call: Run, tmp_path: Path, change: list[object], words: str) -> None:
    change = [str(word).replace("OUT", str(tmp_path)) for word in change]
    done = call("simulate", *SYSTEM, *LOAD, "--policy", "chunked", *change)
    assert done.status == 2
    assert words in done.err
    assert not (tmp_path / "r.jsonl").exists()


def test_a_run_is_not_written_over(call: Run, served: Path) -> None:
    before = (served / "requests.jsonl").read_bytes()
    options = ["--run", served, "--requests-out", served / "requests.jsonl"]
    done = call("simulate", *SYSTEM, *options)
    assert done.status == 2
    assert "is the file that is read" in done.err
    assert (served / "requests.jsonl").read_bytes() == before


def round_trip(call: Run, run: Path, model: str, *cost: object) -> tuple[dict[str, list[float]], str]:
    """Factors, with their bands, and doubts of a calibration on a simulated run."""
    run.mkdir()
    system = ["--hardware", "nvidia-h100", "--model", model]
    load = ["--workload", "layered-sharegpt", "--rate", 12, "--num-requests", 40, "--seed", 3, "--policy", "chunked"]
    capacity = ["--kv-capacity", 100_000, "--requests-out", run / "requests.jsonl"]
    assert call("simulate", *system, *load, *cost, *capacity).status == 0
    written = call("calibrate", run, *system, "-o", run / "cost.json", "--json").json
    return written["factors"], " ".join(written["doubts"])


def test_a_run_that_peaks_simulated_has_their_factors(call: Run, tmp_path: Path) -> None:
    """Products reach 0.35 of the peak, attention 0.3 and memory 0.8; 32 layers take 50 us each, the host 2 ms, and the
    unit of what is fixed is 1 ms. What the doubt leaves open is no better known than beforehand."""
    factors, doubt = round_trip(call, tmp_path / "peaks", "mistral-7b-v0.3")
    truth = {"fixed_s": 3.6, "weights_s": 1 / 0.8, "row_s": 1 / 0.35, "pair_s": 1 / 0.3, "context_s": 1 / 0.8}
    assert factors.keys() == truth.keys()
    for term, (middle, low, high) in factors.items():
        assert low < truth[term] < high, term
        assert term in doubt or middle == pytest.approx(truth[term], rel=0.15), term


def test_a_run_that_a_cost_simulated_has_its_factors(
    call: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Experts' terms among them: the second calibration meets the first one's factors, or leaves them open."""
    monkeypatch.setattr(calibration, "NUM_GENERATIONS", 4)
    monkeypatch.setattr(calibration, "NUM_DRAWS", 30)
    first, _ = round_trip(call, tmp_path / "first", "qwen3-30b-a3b")
    again, doubt = round_trip(call, tmp_path / "again", "qwen3-30b-a3b", "--cost", tmp_path / "first" / "cost.json")
    assert "activation_s" in again
    for term, (middle, low, high) in again.items():
        assert term in doubt or low < first[term][0] < high, (term, middle, first[term])


def test_what_is_left_out_of_the_run_that_is_compared_with_is_said(call: Run, served: Path, tmp_path: Path) -> None:
    lines = (served / "requests.jsonl").read_text(encoding="utf-8").splitlines()
    other = tmp_path / "other.jsonl"
    other.write_text("\n".join((json.dumps(json.loads(lines[0]) | {"error": "boom"}), *lines[1:])), encoding="utf-8")
    again = call("simulate", *SYSTEM, "--run", served, "--against", other, "--json").json
    assert "1 of 40 requests are left out: 1 failed" in again["doubts"]
    assert call("simulate", *SYSTEM, "--run", served, "--against", served, "--json").json["doubts"] == []


def test_a_type_that_nobody_knows_is_named(call: Run, served: Path, tmp_path: Path) -> None:
    (served / "meta.json").write_text(json.dumps({"engine_kwargs": {"dtype": "bf17"}}), encoding="utf-8")
    done = call("calibrate", served, *SYSTEM, "-o", tmp_path / "cost.json")
    assert done.status == 1
    assert "dtype: 'bf17'; want one of auto, bfloat16" in done.err


def test_a_full_cache_of_a_size_that_nobody_stated_is_doubted(call: Run, tmp_path: Path) -> None:
    """The server's cache has 3,000 tokens, vLLM's way of saying so is heard, and so is the option."""
    shape, room = decoder_shape("small-dense"), 3_200
    small, run, cost = small_device(tmp_path, shape, room), tmp_path / "run", tmp_path / "cost.json"
    system = ["--hardware", small, "--model", "small-dense", "--dtype", "bf16"]
    run.mkdir()
    load = ["--workload", "lens-sharegpt", "--rate", 4000, "--num-requests", 40, "--seed", 3, "--policy", "chunked"]
    done = call("simulate", *system, *load, "--kv-capacity", 3008, "--requests-out", run / "requests.jsonl")
    assert done.status == 0, done.err
    (run / "meta.json").unlink()
    words = f"full, and no engine stated its size: {room} tokens are what memory leaves; want --kv-capacity"
    calibrate = ["calibrate", run, *system, "--synchronous", "--num-requests", 30, "-o", cost]
    nowhere = call(*calibrate[:-1], tmp_path / "none" / "cost.json")
    assert (nowhere.status, nowhere.out) == (1, "")
    assert f"cost.json: there is no folder {tmp_path / 'none'}" in nowhere.err
    guessed = call(*calibrate)
    assert guessed.status == 0, guessed.err
    assert words in guessed.out
    predict = ["simulate", "--model", "small-dense", "--cost", cost, "--run", run]
    assert any(words in one for one in call(*predict, "--json").json["runs"][0]["beyond"])
    stated = call(*predict, "--kv-capacity", 3008, "--json").json["runs"][0]["beyond"]
    assert not any("no engine stated" in one for one in stated)
    assert "no engine stated" not in call(*calibrate, "--kv-capacity", 3008).out
    (run / "meta.json").write_text(json.dumps({"engine_kwargs": {"num_gpu_blocks_override": 188}}), encoding="utf-8")
    assert "no engine stated" not in call(*calibrate).out
    assert json.loads(cost.read_text(encoding="utf-8"))["kv_capacity_tokens"] == 3008
    (run / "meta.json").write_text(json.dumps({"engine_kwargs": {"gpu_memory_utilization": 0.8}}), encoding="utf-8")
    call(*calibrate)
    weights, token = 2 * shape.num_parameters, shape.kv_bytes_per_token(2)
    less = (0.8 / 0.9 * (weights + room * token) - weights) / token
    assert json.loads(cost.read_text(encoding="utf-8"))["kv_capacity_tokens"] == int(less)


def test_a_request_beyond_the_model_s_context_is_named(call: Run, served: Path, tmp_path: Path) -> None:
    """Drawn lengths beyond it are left out and counted instead."""
    (tmp_path / "moe").mkdir()
    rows = [json.loads(line) for line in (served / "requests.jsonl").read_text(encoding="utf-8").splitlines()]
    median = sorted(row["input_toks"] + row["output_toks"] for row in rows)[len(rows) // 2]
    config = config_of(decoder_shape("small-moe"), dtype="bf16") | {"max_position_embeddings": median}
    (tmp_path / "moe" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    system = ["--hardware", "nvidia-h100", "--model", tmp_path / "moe"]
    done = call("simulate", *system, "--run", served)
    assert done.status == 2
    assert f"tokens; the model's context and the KV cache hold {median}" in done.err
    done = call("calibrate", served, *system, "-o", tmp_path / "cost.json")
    assert done.status == 1
    assert f"tokens; the model's context and the KV cache hold {median}" in done.err
    drawn = call("simulate", *system, *LOAD, "--policy", "chunked", "--json").json
    assert drawn["workload"]["num_dropped"] > 0


def test_a_run_says_how_it_was_served_without_a_cost(call: Run, served: Path) -> None:
    """Replicas, shared experts and the cache are the run's own, as they are where options say them."""
    (served / "meta.json").write_text(json.dumps(META | {"kv_cache": {"num_kv_tokens": 8000}}), encoding="utf-8")
    run = call("simulate", *SYSTEM[:4], "--run", served, "--json").json
    assert (run["data_parallel"], run["expert_parallel"], run["kv_capacity_tokens"]) == (2, True, 8000)
    written = served / "again.jsonl"
    assert call("simulate", *SYSTEM[:4], "--run", served, "--requests-out", written).status == 0
    again = call("simulate", *SYSTEM[:4], "--run", written, "--json").json
    assert again["runs"][0]["settings"] == run["runs"][0]["settings"]
    assert (again["data_parallel"], again["kv_capacity_tokens"], again["doubts"]) == (2, 8000, [])
