"""A pipeline whose cost is known, found again from the requests that it served; what is no cost of it is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.conftest import Answer

from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.extensions.planning.virtual.calibration import prior_of
from pytest_npubench.extensions.planning.virtual.cost_file import CostFile, Seen, write_cost_file
from pytest_npubench.suites.hardware_files import known_folders, load_all

MODEL, ON = "llama-3.2-1b", "nvidia-h100"
SYSTEM = ["--model", MODEL, "--hardware", ON, "--chunk-size", 512, "--max-batch", 64]
Run = Callable[..., Answer]


def known_cost(path: Path, num_stages: int) -> Path:
    """Of factors of 1 over the peaks; beforehand 1.25 to 2 are believed."""
    shape = decoder_shape(MODEL)
    prior = prior_of(shape, load_all(known_folders())[ON], tensor_parallel=1, dtype="bf16")
    logs = (0.0,) * len(prior.names)
    content = CostFile(
        model=shape.name,
        num_layers=shape.num_layers,
        has_experts=False,
        hardware=ON,
        tensor_parallel=1,
        pipeline_parallel=num_stages,
        dtype="bf16",
        asynchronous=True,
        kv_capacity_tokens=100_000,
        terms=prior.names,
        unit_s=tuple(prior.unit_s.tolist()),
        logs=(logs,),
        centre=logs,
        seen=Seen(prefill_tokens=9999, decode_rows=99, context_tokens=10**6),
        source="a test",
        num_seen=9,
        errors={},
    )
    write_cost_file(path, content)
    return path


def served(call: Run, folder: Path, cost: Path, seed: int) -> Path:
    """What the pipeline leaves behind of a few short requests."""
    chance, path = random.Random(seed), folder / "load.csv"
    rows = [(chance.randint(50, 3000), chance.randint(2, 25), round(0.03 * number, 3)) for number in range(8)]
    lines = [",".join(map(str, row)) for row in [("input_tokens", "output_tokens", "arrival_s"), *rows]]
    path.write_text("\n".join(lines), encoding="utf-8")
    load = ["--workload", path, "--replay", "--policy", "chunked", "--requests-out", folder / "run.jsonl"]
    done = call("simulate", *SYSTEM, "--cost", cost, *load)
    assert done.status == 0, done.err
    return folder / "run.jsonl"


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_pipeline_is_found_again_from_its_requests(call: Run, tmp_path: Path, seed: int) -> None:
    """As one stage, the same requests have factors of 0.3 to 0.7 of the fixed part, and 0.2 to 5 of a row."""
    run, cost = served(call, tmp_path, known_cost(tmp_path / "known.json", 2), seed), tmp_path / "cost.json"
    done = call("calibrate", run, *SYSTEM, "--seed", seed, "-o", cost, "--json")
    assert done.status == 0, done.err
    for name in ("fixed_s", "weights_s", "row_s"):
        assert done.json["factors"][name][0] == pytest.approx(1.0, abs=0.15), name
    again = call("simulate", *SYSTEM, "--cost", cost, "--run", run, "--against", run, "--json").json
    assert again["pipeline_parallel"] == 2
    values = {one["name"]: one for one in again["runs"][0]["metrics"]}
    for name in ("ttft_mean_s", "tpot_mean_s", "e2e_mean_s"):
        assert values[name]["value"] == pytest.approx(values[name]["measured"], rel=0.03), name


def test_a_cost_is_of_so_many_stages_and_their_links(call: Run, tmp_path: Path) -> None:
    known = known_cost(tmp_path / "known.json", 2)
    load = ["--workload", "layered-sharegpt", "--num-requests", 2, "--rate", 1, "--policy", "chunked"]
    content = json.loads(known.read_text(encoding="utf-8"))
    (tmp_path / "alone.json").write_text(json.dumps(content | {"pipeline_parallel": 1}), encoding="utf-8")
    del content["pipeline_parallel"]
    (tmp_path / "unsaid.json").write_text(json.dumps(content), encoding="utf-8")
    runs = [
        call("simulate", *SYSTEM, "--cost", tmp_path / name, *load, "--json").json["runs"]
        for name in ("alone.json", "unsaid.json")
    ]
    assert runs[0] == runs[1]
    other = call("simulate", *SYSTEM, "--cost", known, *load, "--pipeline-parallel", 4)
    assert (other.status, "is of 2 stages, not of 4" in other.err) == (2, True)
    alone = call("simulate", "--model", MODEL, "--cost", known, *load)
    assert (alone.status, "pipeline parallel 2: no --hardware is not simulated with it" in alone.err) == (2, True)
    (tmp_path / "steps.log").write_text("nothing", encoding="utf-8")
    log = ["--pipeline-parallel", 2, "-o", tmp_path / "cost.json"]
    steps = call("calibrate", tmp_path / "steps.log", "--model", MODEL, "--hardware", ON, *log)
    assert (steps.status, "iterations overlap there; want requests of that run" in steps.err) == (1, True)
