"""Runs that were served: the forms that are read, and what is said of one that cannot be."""

from __future__ import annotations

import gzip
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
    assert run.engine is not None
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
        "input_lens": [7],
        "output_lens": [5],
        "ttfts": [0.2],
        "itls": [[0.1, 0.1, 0.1, 0.1]],
        "start_times": [100.0],
    }
    path.write_text(json.dumps(columns), encoding="utf-8")
    (only,) = measured_run(path).requests
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
        ({"output_toks": -1}, "line 2: output_toks: want a whole number of tokens from 1 to 2147483647, found -1"),
        (
            {"output_toks": 10**30},
            "line 2: output_toks: want a whole number of tokens from 1 to 2147483647, found 1e\\+30",
        ),
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


BENCHMARK: dict[str, list[Any]] = {
    "input_lens": [7] * 20,
    "output_lens": [5] * 20,
    "ttfts": [0.2] * 20,
    "itls": [[0.1] * 4] * 20,
    "start_times": [100.0 + at for at in range(20)],
}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"errors": "boom"}, "failed"),
        ({"output_lens": 0}, "failed"),
        ({"ttfts": 0.0}, "without a TTFT"),
        ({"ttfts": None}, "without a TTFT"),
        ({"itls": []}, "without times between tokens"),
        ({"itls": [0.0, 0.0]}, "without times between tokens"),
        ({"itls": None}, "without times between tokens"),
    ],
)
def test_what_was_not_measured_is_left_out_and_counted(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    """Two of twenty are; three are more than a tenth. Rows of the folder's form are counted alike."""
    path = tmp_path / "bench.json"
    ((name, value),) = change.items()
    for number in (2, 3):
        columns = {"errors": [""] * 20, **BENCHMARK}
        columns[name] = [value] * number + columns[name][number:]
        path.write_text(json.dumps(columns), encoding="utf-8-sig")
        if number == 3:
            with pytest.raises(WorkloadError, match=rf"3 of 20 requests were not measured \(3 {reason}\); at most 10%"):
                measured_run(path)
        else:
            run = measured_run(path)
            assert (len(run.requests), run.doubts[0]) == (
                18,
                f"2 of 20 requests are left out: 2 {reason}",
            )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"first_token_ts": 10.0}, "without a TTFT"),
        ({"first_token_ts": None}, "without a TTFT"),
        ({"last_token_ts": 10.2}, "without times between tokens"),
        ({"output_toks": 0}, "failed"),
        ({"success": False}, "failed"),
        ({"error": "timeout"}, "failed"),
        ({"finish_reason": "abort"}, "failed"),
        ({"finish_reason": "cancelled"}, "failed"),
        ({"success": "False"}, "failed"),
    ],
)
def test_a_line_without_times_is_counted_too(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    run = measured_run(folder(tmp_path, *[ROW] * 9, ROW | change))
    assert (len(run.requests), run.doubts) == (9, (f"1 of 10 requests are left out: 1 {reason}",))


def test_a_request_that_stands_there_twice_is_told(tmp_path: Path) -> None:
    rows = [ROW | {"request_id": str(number % 9)} for number in range(10)]
    doubts = measured_run(folder(tmp_path, *rows)).doubts
    assert doubts == ("1 ids of requests stand there more than once, 0 first: two runs in one file?",)


@pytest.mark.parametrize(
    ("change", "doubts"),
    [
        ({"request_rate": 1.5}, ()),
        ({"request_rate": 20.0}, ("request_rate is 20.0, and 1 by start_times",)),
        ({"request_rate": 2.0, "start_times": [0.0] * 20}, ("request_rate is 2.0, and inf by start_times",)),
        (
            {"output_lens": [50] * 20},
            ("itls are 80 times for 980 tokens after the first: some are missing, or are of several tokens",),
        ),
    ],
)
def test_a_benchmark_that_contradicts_itself_is_doubted(
    tmp_path: Path, change: dict[str, Any], doubts: tuple[str, ...]
) -> None:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(BENCHMARK | change), encoding="utf-8")
    assert measured_run(path).doubts == doubts


@pytest.mark.parametrize("scaled", [("ttfts", "itls"), ("start_times",)])
def test_a_duration_tells_times_of_another_unit(tmp_path: Path, scaled: tuple[str, ...]) -> None:
    starts_s, ttfts_s, itls_s = [5.0, 7.0], [0.2, 0.3], [[0.1], [0.4]]
    entries = {"input_lens": [7, 8], "output_lens": [2, 2], "ttfts": ttfts_s, "itls": itls_s, "start_times": starts_s}
    path = tmp_path / "run.json"
    path.write_text(json.dumps(entries | {"duration": 2.7}), encoding="utf-8")
    assert len(measured_run(path).requests) == 2
    thousands = {
        "ttfts": [200.0, 300.0],
        "itls": [[100.0], [400.0]],
        "start_times": [5000.0, 7000.0],
    }
    changed = entries | {name: thousands[name] for name in scaled}
    path.write_text(json.dumps(changed | {"duration": 2.7}), encoding="utf-8")
    spans = r"[\d.]+ by its requests; want start_times, ttfts and itls in seconds"
    with pytest.raises(WorkloadError, match=rf"duration is 2\.7, and {spans}"):
        measured_run(path)
    for name, value in (("request_throughput", 0.741), *([("mean_ttft_ms", 250)] if "ttfts" in scaled else [])):
        path.write_text(json.dumps(entries | {name: value}), encoding="utf-8")
        assert measured_run(path).doubts == ()
        path.write_text(json.dumps(changed | {name: value}), encoding="utf-8")
        with pytest.raises(WorkloadError, match=rf"{name} is {value}, and {spans}"):
            measured_run(path)
    path.write_text(json.dumps(changed), encoding="utf-8")
    doubt = ("tokens come 250 s apart in the median, and nothing says that times are seconds",)
    assert measured_run(path).doubts == (doubt if "itls" in scaled else ())


def test_requests_that_a_benchmark_did_not_complete_are_told(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    for completed, doubts in ((20, ()), (15, ("20 requests have times and no error, and completed says 15",))):
        path.write_text(json.dumps({**BENCHMARK, "completed": completed}), encoding="utf-8")
        assert measured_run(path).doubts == doubts
    path.write_text(json.dumps({**BENCHMARK, "itls": [[0.1, 0.1, -0.1, 0.1]] * 20}), encoding="utf-8")
    with pytest.raises(WorkloadError, match=r"request 0: itls\[2\]: want seconds from 0 to 1e15"):
        measured_run(path)
    path.write_text(json.dumps({**BENCHMARK, "output_lens": ["5"] * 20}), encoding="utf-8")
    with pytest.raises(
        WorkloadError, match="request 0: output_toks: want a whole number of tokens from 1 to 2147483647, found a str"
    ):
        measured_run(path)


@pytest.mark.parametrize("name", BENCHMARK)
def test_lists_of_unequal_length_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({**BENCHMARK, name: BENCHMARK[name][:-1]}), encoding="utf-8")
    with pytest.raises(WorkloadError, match=f"lists of unequal length .*{name} 19"):
        measured_run(path)


@pytest.mark.parametrize(
    ("meta", "capacity"),
    [
        ({"kv_cache": {"num_gpu_blocks": 375, "block_size": 16, "num_kv_tokens": 6001}}, 6001),
        ({"kv_cache": {"num_gpu_blocks": 375, "block_size": 32}}, 12000),
        ({"cache_config": {"num_gpu_blocks": 375}}, 6000),
        ({"engine_kwargs": {"num_gpu_blocks_override": 9}, "num_gpu_blocks": 375}, 6000),
        ({"engine_kwargs": {"num_gpu_blocks_override": 9, "block_size": None}}, 144),
        ({"engine_kwargs": {}}, None),
    ],
)
def test_the_cache_is_what_the_engine_said(tmp_path: Path, meta: dict[str, Any], capacity: int | None) -> None:
    meta.setdefault("kv_cache", {})["enable_prefix_caching"] = False
    run = measured_run(folder(tmp_path, ROW, meta={"model": "x", **meta}))
    assert run.engine is not None
    assert (run.engine.kv_capacity_tokens, run.engine.keeps_blocks, run.doubts) == (capacity, False, ())


def test_no_key_is_dropped_unseen(tmp_path: Path) -> None:
    """What is not used is named; settings at a neutral value change nothing."""
    kwargs = {
        "pipeline_parallel_size": 2,
        "num_lookahead_slots": 2,
        "speculative_config": None,
        "cpu_offload_gb": 0,
        "quantization": "fp8",
    }
    run = measured_run(folder(tmp_path, ROW | {"num_cached_tokens": 4}, meta={"engine_kwargs": kwargs, "seed": 3}))
    names = [words.partition(": ")[2].partition(":")[0] for words in run.doubts]
    assert names == ["num_cached_tokens", "num_lookahead_slots, quantization"]
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({**BENCHMARK, "burstiness": 1.0, "p99_itl_ms": 3, "lora": "x"}), encoding="utf-8")
    assert measured_run(path).doubts == ("bench.json: lora: not read, whatever that changes",)


def test_a_packed_file_is_read(tmp_path: Path) -> None:
    packed = gzip.compress(json.dumps(ROW).encode("utf-8-sig"))
    (tmp_path / "one.jsonl.gz").write_bytes(packed)
    (tmp_path / "one.meta.json").write_text('{"engine_kwargs": {"max_num_seqs": 3}}', encoding="utf-8")
    run = measured_run(tmp_path / "one.jsonl.gz")
    assert run.engine is not None
    assert (run.taken, run.engine.max_batch_size) == ("1 requests over 0 s, times in seconds", 3)
    (tmp_path / "requests.jsonl.gz").write_bytes(packed)
    (tmp_path / "meta.json").write_text('{"engine_kwargs": {"max_num_seqs": 5}}', encoding="utf-8")
    for path in (tmp_path, tmp_path / "requests.jsonl.gz"):
        beside = measured_run(path).engine
        assert beside is not None
        assert beside.max_batch_size == 5
    (tmp_path / "one.jsonl.gz").write_bytes(packed[:-9])
    with pytest.raises(WorkloadError, match="cannot be read: is damaged"):
        measured_run(tmp_path / "one.jsonl.gz")
