"""Runs that were served: the forms that are read, and what is said of one that cannot be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.cli.run_files import requests_text
from pytest_npubench.errors import WorkloadError
from pytest_npubench.extensions.planning.measured_run import measured_run
from pytest_npubench.serving.metrics import RequestRecord

ROW = {"input_toks": 7, "output_toks": 5, "queued_ts": 10.0, "first_token_ts": 10.2, "last_token_ts": 10.6}


def folder(path: Path, *rows: dict[str, Any], meta: object = None) -> Path:
    (path / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    if meta is not None:
        (path / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    return path


def test_a_folder_with_its_engine_arguments(tmp_path: Path) -> None:
    later = ROW | {
        "queued_ts": 11.0,
        "first_token_ts": 11.5,
        "last_token_ts": 11.5,
        "output_toks": 1,
        "more": "kept out",
    }
    meta = {"engine_kwargs": {"max_num_seqs": 64, "max_num_batched_tokens": 2048, "dtype": "bfloat16"}}
    run = measured_run(folder(tmp_path, later, ROW, meta=meta))
    assert (run.engine.max_batch_size, run.engine.chunk_size_tokens, run.engine.tensor_parallel) == (64, 2048, 1)
    first, second = run.requests  # in order of arrival, from 0 s
    assert (first.ttft_s, first.e2e_s, first.tpot_s) == pytest.approx((0.2, 0.6, 0.1))
    assert (second.arrival_s, second.tpot_s) == (1.0, 0.0)
    assert [request.arrival_s for request in run.load()] == [0.0, 1.0]
    assert run.records()[0].token_times_s == pytest.approx((0.2, 0.3, 0.4, 0.5, 0.6))


def test_what_npubench_load_writes_is_read_again(tmp_path: Path) -> None:
    served = RequestRecord(arrival_s=1.0, token_times_s=(1.5, 1.7), prompt_tokens=7, output_tokens=2)
    (tmp_path / "requests.jsonl").write_text(requests_text([served, replace(served, output_tokens=3)]), "utf-8")
    (only,) = measured_run(tmp_path).requests  # the other was not served to its end
    assert (only.prompt_tokens, only.output_tokens, only.ttft_s) == pytest.approx((7, 2, 0.5))
    assert only.e2e_s == pytest.approx(0.7)


def test_vllm_s_own_statistics_are_stamps(tmp_path: Path) -> None:
    """Its engine notes arrivals between two iterations, and a client's time beside them, on another clock."""
    stamped = ROW | {"arrival_time": 1.7e9, "scheduled_ts": 10.0}
    assert measured_run(folder(tmp_path, stamped, stamped)).is_stamped
    assert not measured_run(folder(tmp_path, stamped, ROW)).is_stamped


def test_vllm_s_benchmark_file(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    columns: dict[str, list[Any]] = {
        "input_lens": [7, 9],
        "output_lens": [5, 0],
        "ttfts": [0.2, 0.0],
        "itls": [[0.1, 0.1, 0.1, 0.1], []],
        "start_times": [100.0, 101.0],
    }
    path.write_text(json.dumps(columns), encoding="utf-8")
    (only,) = measured_run(path).requests  # the other failed
    assert (only.prompt_tokens, only.ttft_s, only.e2e_s) == pytest.approx((7, 0.2, 0.6))
    del columns["start_times"]
    path.write_text(json.dumps(columns), encoding="utf-8")
    with pytest.raises(WorkloadError, match=r"no list 'start_times'; want .*--save-detailed"):
        measured_run(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"first_token_ts": 9.0}, "line 2: first_token_ts: 9.0 is before the arrival at 10.0"),
        ({"last_token_ts": 10.1}, "line 2: last_token_ts: 10.1 is before the first token's"),
        ({"output_toks": 0}, "line 2: output_toks: .*at least 1"),
        ({"input_toks": "many"}, "line 2: input_toks"),
        ({"queued_ts": None}, "line 2: queued_ts"),
    ],
)
def test_a_line_that_is_wrong_is_named(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        measured_run(folder(tmp_path, ROW, ROW | change))


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"requests\.jsonl cannot be read: No such file"):
        measured_run(tmp_path)
    with pytest.raises(WorkloadError, match="holds no request"):
        measured_run(folder(tmp_path))
    short = {name: value for name, value in ROW.items() if name != "last_token_ts"}
    with pytest.raises(WorkloadError, match="line 1: last_token_ts: missing"):
        measured_run(folder(tmp_path, short))
    (tmp_path / "requests.jsonl").write_bytes(b"\xff\xfe{")
    with pytest.raises(WorkloadError, match=r"requests\.jsonl"):
        measured_run(tmp_path)
    (tmp_path / "load.csv").write_text("arrival_time_ns,input_toks,output_toks\n0,7,5\n", encoding="utf-8")
    with pytest.raises(
        WorkloadError, match=r"load\.csv: a CSV of requests has .* simulated by --workload and --replay"
    ):
        measured_run(tmp_path / "load.csv")
    with pytest.raises(WorkloadError, match=r"engine_kwargs\.gpu_memory_utilization"):
        measured_run(folder(tmp_path, ROW, meta={"engine_kwargs": {"gpu_memory_utilization": 1.2}}))
    with pytest.raises(WorkloadError, match=r"engine_kwargs\.max_num_seqs"):
        measured_run(folder(tmp_path, ROW, meta={"engine_kwargs": {"max_num_seqs": -1}}))
