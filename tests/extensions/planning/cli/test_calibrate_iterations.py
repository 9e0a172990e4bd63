"""A step cost from a journal's iterations: known terms found again, other models left out, what is missing named."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cli.conftest import Answer
from made_records import HOST
from scipy import stats

from pytest_npubench.campaign.served_block import ServedBlock
from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.extensions.planning.cli.simulation import System, simulate
from pytest_npubench.extensions.planning.cli.system_options import hardware
from pytest_npubench.extensions.planning.virtual.calibrated import CalibratedCost
from pytest_npubench.extensions.planning.virtual.calibration import prior_of
from pytest_npubench.extensions.planning.virtual.cost_file import read_cost_file
from pytest_npubench.extensions.planning.virtual.step_calibration import samples_of
from pytest_npubench.serving.arrivals import load_of, poisson
from pytest_npubench.serving.result import ServingResult
from pytest_npubench.store.journal import JournalWriter

Run = Callable[..., Answer]
KV_TOKENS = 100_000
OFF = {"fixed_s": 0.4, "weights_s": 0.25, "row_s": -0.3, "pair_s": 0.3, "context_s": 0.3, "activation_s": -0.3}
MODELS = ("mistral-7b-v0.3", "qwen3-30b-a3b")


def device(model: str, **changes: float) -> tuple[System, CalibratedCost]:
    """An H100 whose factors are far from what is believed beforehand."""
    shape, spec = decoder_shape(model), hardware("nvidia-h100")
    prior = prior_of(shape, spec, tensor_parallel=1, dtype="bf16")
    cost = replace(prior.cost(shape, prior.mean + np.array([OFF[name] for name in prior.names])), **changes)
    system = System(
        shape=shape,
        spec=spec,
        tensor_parallel=1,
        dtype="bf16",
        kv_capacity_tokens=KV_TOKENS,
        seed=0,
        cost=cost,
    )
    return system, cost


def served(model: str, policy: str, seed: int, **changes: float) -> ServingResult:
    random = np.random.default_rng(seed)
    lengths = [(int(random.integers(50, 1500)), int(random.integers(2, 150))) for _ in range(30)]
    return simulate(device(model, **changes)[0], policy, {}, load_of(poisson(8.0, 30, seed), lengths))


def journal(path: Path, *results: ServingResult, slower: tuple[float, ...] = ()) -> Path:
    """As a campaign leaves it behind, a round for each; all times of it so many times as long."""
    with JournalWriter.open(path, host=HOST, settings={}) as writer:
        for index, (result, factor) in enumerate(zip(results, slower or [1.0] * len(results), strict=True)):
            columns = ServedBlock.of_result(result, rate_per_s=8.0).columns()
            points = {
                f"{result.policy}/{name}": [factor * value if name.endswith("_s") else value for value in values]
                for name, values in columns.items()
            }
            ids = {"fingerprint": "fe886da5a1ed", "campaign": "c", "campaign_digest": "9b74c9897bac", "round": index}
            whole = {"failures": {}, "duration_s": 1.0, "complete": False}
            writer.append({"record": "round", **ids, "points": points, **whole})
    return path


@pytest.mark.parametrize("model", MODELS)
def test_the_terms_of_a_device_are_found_in_its_iterations(call: Run, tmp_path: Path, model: str) -> None:
    """Of chunked and of layered prefill together; fixed and weights of a model with experts come only as a sum."""
    path = journal(tmp_path / "j.jsonl", served(model, "chunked", 1), served(model, "layered", 2))
    options = ["--model", model, "--hardware", "nvidia-h100", "--kv-capacity", KV_TOKENS]
    cost = tmp_path / "cost.json"
    done = call("calibrate", path, *options, "--first", "50%", "-o", cost)
    assert done.status == 0, done.err
    assert "error   on the others, predicted over measured: STEP MEAN" in done.out
    _, real = device(model)
    answer = json.loads(cost.read_text(encoding="utf-8"))
    assert answer["asynchronous"] is False
    logs = np.array(answer["logs"]).mean(axis=0)
    found = dict(zip(answer["terms"], (np.array(answer["unit_s"]) * np.exp(logs)).tolist(), strict=True))
    assert found["row_s"] == pytest.approx(real.row_s, rel=0.05)
    assert found["context_s"] == pytest.approx(real.context_s, rel=0.1)
    assert found["fixed_s"] + found["weights_s"] == pytest.approx(real.fixed_s + real.weights_s, rel=0.05)
    assert abs(answer["errors"]["step_mean"]) < 0.01


WAKING_S = 0.05


@pytest.mark.parametrize("peaks", [[], ["--hardware", "nvidia-h100"]], ids=["without", "peaks"])
@pytest.mark.parametrize("model", MODELS)
def test_a_device_that_is_slow_to_wake_is_predicted_with_it(
    call: Run, tmp_path: Path, model: str, peaks: list[str]
) -> None:
    """Of a load with many pauses; the run that is predicted has other requests, and pauses of its own."""
    system, cost = device(model)
    slow = replace(system, cost=replace(cost, waking_s=WAKING_S))
    lengths = [(50 + 37 * number % 900, 2 + 7 * number % 30) for number in range(60)]
    results = [simulate(slow, "chunked", {}, load_of(poisson(3.0, 60, seed), lengths)) for seed in (1, 2)]
    path, file = journal(tmp_path / "j.jsonl", *results), tmp_path / "cost.json"
    done = call("calibrate", path, "--model", model, *peaks, "--kv-capacity", KV_TOKENS, "-o", file)
    assert done.status == 0, done.err
    assert "waking_s" in done.out
    found = read_cost_file(file).calibration(system.shape).best
    assert found.waking_s == pytest.approx(WAKING_S, rel=0.1)
    requests = load_of(poisson(3.0, 60, 3), lengths[::-1])
    real, predicted = (simulate(replace(system, cost=one), "chunked", {}, requests) for one in (slow.cost, found))
    awake = simulate(system, "chunked", {}, requests)
    ttfts_s = [np.mean([record.ttft_s for record in one.records]) for one in (real, predicted, awake)]
    assert ttfts_s[1] == pytest.approx(ttfts_s[0], rel=0.03)
    assert ttfts_s[2] < 0.9 * ttfts_s[0]


SLOWER = (1.0, 1.3, 0.9, 1.15)


@pytest.mark.parametrize("model", MODELS)
def test_without_peaks_what_rounds_differ_by_is_in_the_band(call: Run, tmp_path: Path, model: str) -> None:
    """Of four rounds on a machine that drifts; the band of a further run holds what the fastest and slowest take."""
    results = [served(model, "chunked", seed) for seed in range(1, 5)]
    path, cost = journal(tmp_path / "j.jsonl", *results, slower=SLOWER), tmp_path / "cost.json"
    done = call("calibrate", path, "--model", model, "--kv-capacity", KV_TOKENS, "-o", cost)
    assert done.status == 0, done.err
    assert "doubt   no two rounds" not in done.out
    _, real = device(model)
    answer = json.loads(cost.read_text(encoding="utf-8"))
    assert answer["hardware"] == "unknown"
    assert bool(answer["experts"]) is (model == MODELS[1])
    logs = np.array(answer["logs"])
    found = dict(zip(answer["terms"], (np.array(answer["unit_s"]) * np.exp(logs.mean(axis=0))).tolist(), strict=True))
    assert found["row_s"] == pytest.approx(real.row_s * np.exp(np.log(SLOWER).mean()), rel=0.1)
    row_s = np.quantile(logs[:, answer["terms"].index("row_s")], (0.05, 0.95))
    half = stats.t.ppf(0.95, 3) * np.log(SLOWER).std(ddof=1) * (1 + 1 / 4) ** 0.5
    assert (row_s[1] - row_s[0]) / 2 == pytest.approx(half, rel=0.15)
    load = ["--workload", "layered-sharegpt", "--num-requests", 20, "--rate", 4, "--policy", "chunked", "--json"]
    run = call("simulate", "--model", model, "--cost", cost, *load).json["runs"][0]
    (tpot,) = (metric for metric in run["metrics"] if metric["name"] == "tpot_mean_s")
    assert tpot["high"] / tpot["value"] > np.exp(half) * 0.9
    assert tpot["low"] / tpot["value"] < np.exp(-half) * 1.1


def test_the_model_s_own_router_is_simulated(call: Run, tmp_path: Path) -> None:
    """A file whose batches activate one expert a layer, whatever they are."""
    model = MODELS[1]
    path, cost = journal(tmp_path / "j.jsonl", served(model, "chunked", 1)), tmp_path / "cost.json"
    call("calibrate", path, "--model", model, "--kv-capacity", KV_TOKENS, "-o", cost)
    answer = json.loads(cost.read_text(encoding="utf-8"))
    cost.write_text(json.dumps(answer | {"experts": [[0, 0], [1, 1]]}), encoding="utf-8")
    timeline = tmp_path / "timeline.csv"
    load = ["--workload", "layered-sharegpt", "--num-requests", 5, "--rate", 4, "--policy", "chunked"]
    done = call("simulate", "--model", model, "--cost", cost, *load, "--timeline", timeline)
    assert done.status == 0, done.err
    rows = list(csv.DictReader(timeline.read_text(encoding="utf-8").splitlines()))
    assert {row["expert_activations"] for row in rows} == {str(decoder_shape(model).num_layers)}


def test_a_cost_over_no_peaks_moves_nowhere(call: Run, tmp_path: Path) -> None:
    """Its factors are over a first fit of its own iterations."""
    path, cost = journal(tmp_path / "j.jsonl", served(MODELS[0], "chunked", 1)), tmp_path / "cost.json"
    options = ["--model", MODELS[0], "--kv-capacity", KV_TOKENS]
    assert call("calibrate", path, *options, "-o", cost).status == 0
    moved = [path, *options, "--hardware", "nvidia-h100", "--from", cost, "-o", tmp_path / "moved.json"]
    done = call("calibrate", *moved)
    assert done.status == 1
    assert "its factors are over no peaks" in done.err
    assert call("calibrate", path, *options, "--hardware", "nvidia-h100", "-o", cost).status == 0
    assert call("calibrate", *moved).status == 0


def test_one_round_leaves_a_doubt(call: Run, tmp_path: Path) -> None:
    path = journal(tmp_path / "j.jsonl", served(MODELS[0], "chunked", 1))
    options = ["--model", MODELS[0], "--kv-capacity", KV_TOKENS, "-o", tmp_path / "cost.json"]
    done = call("calibrate", path, *options)
    assert done.status == 0, done.err
    assert "doubt   no two rounds of the same blocks" in done.out
    (doubt,) = json.loads((tmp_path / "cost.json").read_text(encoding="utf-8"))["doubts"]
    assert doubt.endswith("what the machine's speed does between them is in no band")


@pytest.mark.parametrize("model", MODELS)
def test_what_vllm_logs_of_each_iteration_will_do(call: Run, tmp_path: Path, model: str) -> None:
    """To hundredths of a millisecond, and a tenth of a percent of the KV cache; among its other lines."""
    system, real = device(model, pair_s=0.0)  # its log does not tell a prompt's attention
    result = served(model, "chunked", 4, pair_s=0.0)
    held = [number / system.shape.kv_bytes_per_token(2) / KV_TOKENS for number in result.log.kv_bytes]
    rows = zip(
        result.log.num_decode,
        result.log.num_prefill_tokens,
        np.array(result.log.end_s) - np.array(result.log.start_s),
        held,
        strict=True,
    )
    lines = [f"INFO 11-23 [kv_cache_utils.py:1234] GPU KV cache size: {KV_TOKENS:,} tokens"]
    for index, (decode, prompt, seconds, share) in enumerate(rows):
        lines.append(
            f"INFO 11-23 [loggers.py:199] Engine 000: Iteration({index}): {bool(prompt):d} context requests, {prompt} "
            f"context tokens, {decode} generation requests, {decode} generation tokens, iteration elapsed time: "
            f"{seconds * 1e3:.2f} ms, GPU KV cache usage: {share:.1%}"
        )
    lines.append(lines[-1].replace(" ms,", " ms (dummy),"))
    path = tmp_path / "vllm.log"
    path.write_text("\n".join(lines), encoding="utf-8")
    cost = tmp_path / "cost.json"
    done = call("calibrate", path, "--model", model, "--hardware", "nvidia-h100", "--first", "60%", "-o", cost)
    assert done.status == 0, done.err
    assert f"of {len(result.log)} iterations" in done.out
    answer = json.loads(cost.read_text(encoding="utf-8"))
    assert (answer["kv_capacity_tokens"], answer["asynchronous"]) == (KV_TOKENS, True)
    logs = np.array(answer["logs"]).mean(axis=0)
    found = dict(zip(answer["terms"], (np.array(answer["unit_s"]) * np.exp(logs)).tolist(), strict=True))
    assert found["fixed_s"] + found["weights_s"] == pytest.approx(real.fixed_s + real.weights_s, rel=0.1)
    assert found["row_s"] == pytest.approx(real.row_s, rel=0.1)
    assert abs(answer["errors"]["step_mean"]) < 0.02


def test_a_log_without_iterations_is_named(call: Run, tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text("INFO starting\n", encoding="utf-8")
    done = call("calibrate", path, "--model", MODELS[0], "--hardware", "nvidia-h100", "-o", tmp_path / "cost.json")
    assert done.status == 1
    assert "no line of an iteration; want the log of vllm serve --enable-logging-iteration-details" in done.err


@pytest.mark.parametrize("model", MODELS)
def test_an_iteration_takes_what_the_cost_says(model: str) -> None:
    """The columns of the log and the cost's own seconds are one form, written twice."""
    result, (system, cost) = served(model, "layered", 3), device(model)
    samples = samples_of(result.log, system.shape, kv_token_bytes=system.shape.kv_bytes_per_token(2))
    held_by_prompts = np.array(result.log.num_prefill_tokens) > 0
    np.testing.assert_allclose(samples.predicted(cost)[~held_by_prompts], samples.seconds[~held_by_prompts], rtol=1e-6)
    assert abs(samples.predicted(cost).sum() / samples.seconds.sum() - 1) < 0.01


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--model", "qwen3-8b"], "36 layers without experts; it has some of 32 layers without experts"),
        (["--num-requests", "9"], "want --first, such as 50%"),
        (["--first", "1%"], "iterations to calibrate on; want at least 20"),
    ],
)
def test_what_a_journal_does_not_tell_is_said(call: Run, tmp_path: Path, change: list[str], words: str) -> None:
    path = journal(tmp_path / "j.jsonl", served(MODELS[0], "chunked", 1))
    options = ["--model", MODELS[0], "--hardware", "nvidia-h100", "-o", tmp_path / "cost.json"]
    done = call("calibrate", path, *options, *change)
    assert done.status == 1
    assert words in done.err
    assert not (tmp_path / "cost.json").exists()
