"""No key of a file that planning reads is dropped unseen: it is used, known to be without effect, or named."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.errors import NpubenchError
from pytest_npubench.extensions.planning.cli.seen_iterations import logged_iterations, stated_engine
from pytest_npubench.extensions.planning.measured_run import measured_run
from pytest_npubench.extensions.planning.stated_engine import EngineArguments
from pytest_npubench.extensions.planning.virtual.cost_file import CostFile, Seen, read_cost_file
from pytest_npubench.extensions.planning.virtual.table import read_table
from pytest_npubench.workloads import load

ROW = {
    "request_id": "cmpl-1",
    "input_toks": 7,
    "output_toks": 5,
    "queued_ts": 10.0,
    "scheduled_ts": 10.1,
    "first_token_ts": 10.2,
    "last_token_ts": 10.6,
    "num_preemptions": 1,
    "finish_reason": "length",
    "error": "",
}
META: dict[str, Any] = {
    "schema_version": 1,
    "model": "org/name",
    "vllm_version": "0.19.0",
    "seed": 7,
    "dataset_path": "sharegpt.jsonl",
    "dataset_hash": "05e48b32",
    "num_requests": 1,
    "started_at": "2026-01-01T00:00:00Z",
    "finished_at": "2026-01-01T00:01:00Z",
    "tick_seconds": 0.5,
    "engine_kwargs": {
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 2,
        "data_parallel_size": 2,
        "enable_expert_parallel": True,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 512,
        "dtype": "bfloat16",
        "kv_cache_dtype": "fp8",
        "gpu_memory_utilization": 0.8,
        "max_model_len": 4096,
        "async_scheduling": False,
        "enable_chunked_prefill": True,
        "speculative_config": None,
        "cpu_offload_gb": 0,
    },
    "kv_cache": {"num_gpu_blocks": 375, "block_size": 32, "enable_prefix_caching": False, "num_kv_tokens": 12000},
}
LISTS = {
    "input_lens": [7],
    "output_lens": [2],
    "ttfts": [0.2],
    "itls": [[0.1]],
    "start_times": [3.0],
    "generated_texts": ["a"],
    "errors": [""],
}
VLLM = {
    "date": "20260101-000000",
    "endpoint_type": "openai",
    "backend": "openai",
    "label": "x",
    "model_id": "org/name",
    "tokenizer_id": "org/name",
    "num_prompts": 1,
    "request_rate": "inf",
    "burstiness": 1.5,
    "max_concurrency": 8,
    "duration": 3.5,
    "completed": 1,
    "failed": 0,
    "total_input_tokens": 7,
    "total_output_tokens": 2,
    "request_throughput": 0.3,
    "request_goodput": 0.2,
    "output_throughput": 0.6,
    "total_token_throughput": 2.6,
    "latencies": [0.3],
    "queue_times": [0.5],
    "max_output_tokens_per_s": 10.0,
    "max_concurrent_requests": 4,
    "rtfx": 3.5,
    **{f"{part}_{of}_ms": 2.5 for part in ("mean", "median", "std", "p99") for of in ("ttft", "tpot", "itl", "e2el")},
    **LISTS,
}
SGLANG = {
    "tag": "x",
    "backend": "sglang",
    "dataset_name": "random",
    "request_rate": 1.5,
    "max_concurrency": 8,
    "sharegpt_output_len": None,
    "random_input_len": 1024,
    "random_output_len": 512,
    "random_range_ratio": 0.5,
    "server_info": None,
    "duration": 3.5,
    "completed": 1,
    "total_input_tokens": 7,
    "total_input_text_tokens": 7,
    "total_input_vision_tokens": 0,
    "total_output_tokens": 2,
    "total_output_tokens_retokenized": 2,
    "request_throughput": 0.3,
    "input_throughput": 2.5,
    "output_throughput": 0.6,
    "total_throughput": 3.5,
    "concurrency": 2.5,
    "accept_length": 1,
    "max_itl_ms": 2.5,
    "max_output_tokens_per_s": 10.0,
    "max_concurrent_requests": 4,
    **{f"{part}_{of}_ms": 2.5 for part in ("mean", "median", "std", "p99") for of in ("ttft", "tpot", "e2e_latency")},
    **LISTS,
}
COST = asdict(
    CostFile(
        model="m",
        num_layers=2,
        has_experts=False,
        hardware="h",
        tensor_parallel=1,
        dtype="bf16",
        asynchronous=True,
        kv_capacity_tokens=100,
        terms=("fixed_s",),
        unit_s=(1.0,),
        logs=((0.0,),),
        seen=Seen(prefill_tokens=1, decode_rows=1, context_tokens=1),
        source="s",
        num_seen=1,
        errors={},
    )
)
TABLE = {"prefill_tokens": 0, "decode_rows": 1, "mean_context_tokens": 5, "seconds": 0.1}


def json_file(name: str, wrap: Callable[[Any], Any] = lambda value: value) -> Callable[[Path, Mapping[str, Any]], Path]:
    def write(folder: Path, keys: Mapping[str, Any]) -> Path:
        path = folder / name
        path.write_text(json.dumps(wrap(keys)), encoding="utf-8")
        return path

    return write


def csv_file(folder: Path, keys: Mapping[str, Any]) -> Path:
    path = folder / "rows.csv"
    path.write_text("\n".join(",".join(map(str, line)) for line in (keys, keys.values())) + "\n", encoding="utf-8")
    return path


def beside_requests(wrap: Callable[[Any], Any]) -> Callable[[Path, Mapping[str, Any]], Path]:
    """A meta.json, with the requests that it is beside."""

    def write(folder: Path, keys: Mapping[str, Any]) -> Path:
        json_file("requests.jsonl")(folder, ROW)
        return json_file("meta.json", wrap)(folder, keys).parent

    return write


def said_of_run(path: Path) -> str:
    return " ".join(measured_run(path).doubts)


def said_of_trace(path: Path) -> str:
    return load(path).note


FORMS: dict[str, tuple[Mapping[str, Any], Callable[[Path, Mapping[str, Any]], Path], Callable[[Path], str]]] = {
    "requests": (ROW, json_file("requests.jsonl"), said_of_run),
    "meta": (META, beside_requests(lambda keys: keys), said_of_run),
    "engine": (META["engine_kwargs"], beside_requests(lambda keys: META | {"engine_kwargs": keys}), said_of_run),
    "cache": (META["kv_cache"], beside_requests(lambda keys: META | {"kv_cache": keys}), said_of_run),
    "vllm": (VLLM, json_file("bench.json"), said_of_run),
    "sglang": (SGLANG, json_file("bench.jsonl"), said_of_run),
    "cost": (COST, json_file("cost.json"), lambda path: read_cost_file(path).source[:0]),
    "table": (TABLE, csv_file, lambda path: str(read_table(path, 2))[:0]),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_key_of_a_real_file_is_known(form: str, tmp_path: Path) -> None:
    keys, write, said = FORMS[form]
    assert "not read" not in said(write(tmp_path, keys))


@pytest.mark.parametrize("value", [5, 0.25, "fp9", True, [1], {"a": 1}])
@pytest.mark.parametrize("form", FORMS)
def test_a_key_that_nobody_knows_is_named(form: str, value: object, tmp_path: Path) -> None:
    keys, write, said = FORMS[form]
    with_commas = write is csv_file and not isinstance(value, (int, float, str))
    try:
        words = said(write(tmp_path, {**keys, "surprising_key": 5 if with_commas else value}))
    except NpubenchError as error:
        words = str(error)
    assert "surprising_key" in words


CHANGED: dict[str, object] = {
    "tensor_parallel_size": 4,
    "pipeline_parallel_size": 3,
    "data_parallel_size": 1,
    "enable_expert_parallel": False,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 64,
    "dtype": "half",
    "kv_cache_dtype": "int8",
    "gpu_memory_utilization": 0.5,
    "async_scheduling": True,
    "enable_chunked_prefill": False,
    "speculative_config": {"method": "eagle"},
    "cpu_offload_gb": 4,
    "enforce_eager": True,
    "max_model_len": 5,
}


@pytest.mark.parametrize("key", CHANGED)
def test_a_setting_of_the_engine_is_used_or_named(key: str, tmp_path: Path) -> None:
    write = FORMS["engine"][1]
    before = measured_run(write(tmp_path, META["engine_kwargs"]))
    after = measured_run(write(tmp_path, META["engine_kwargs"] | {key: CHANGED[key]}))
    assert after.engine != before.engine or any(key in words for words in after.doubts)


def test_a_key_of_one_line_of_many_is_named(tmp_path: Path) -> None:
    lines = [ROW | {"num_cached_tokens": number} for number in (0, 4, 0)]
    (tmp_path / "requests.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert "num_cached_tokens" in said_of_run(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_prompts": 2}, r"1 of 2 requests were not measured \(1 not in its lists\)"),
        ({"failed": 1}, r"1 of 2 requests were not measured \(1 not in its lists\)"),
        ({"start_times": None, "request_rate": 3.0}, "no list 'start_times'; .* SGLang's says nothing of when"),
    ],
)
def test_requests_that_a_benchmark_has_no_row_of_are_counted(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    path = json_file("bench.json")(tmp_path, VLLM | change)
    with pytest.raises(NpubenchError, match=words):
        measured_run(path)


def test_runs_of_a_benchmark_one_after_another_are_refused(tmp_path: Path) -> None:
    path = json_file("bench.jsonl")(tmp_path, SGLANG)
    path.write_text(path.read_text(encoding="utf-8") + "\n" + json.dumps(SGLANG), encoding="utf-8")
    with pytest.raises(NpubenchError, match="has 2 runs of a benchmark, one a line"):
        measured_run(path)


def test_a_meta_that_is_no_object_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NpubenchError, match=r"meta\.json holds a list; want an object"):
        measured_run(beside_requests(list)(tmp_path, META))


def test_messages_of_others_are_named(tmp_path: Path) -> None:
    turns = [{"from": who, "value": "Be brief."} for who in ("system", "human", "gpt")]
    path = json_file("trace.json")(tmp_path, {})
    path.write_text(json.dumps([{"conversations": turns, "system": "Be kind."}]), encoding="utf-8")
    assert said_of_trace(path).endswith("not read: system, messages of system")


ITERATION = (
    "INFO 11-27 20:00:00 [loggers.py:199] Engine 000: Iteration({}): 1 context requests, 64 context tokens, 0 "
    "generation requests, 0 generation tokens, iteration elapsed time: 5.00 ms, GPU KV cache usage: 1.0%"
)
ENGINE = (
    "INFO 11-27 20:00:00 [core.py:134] Initializing a V1 LLM engine (v0.19.0) with config: model='org/name', "
    "speculative_config=None, tokenizer='org/name', dtype=torch.float16, max_seq_len=4096, tensor_parallel_size=2, "
    "pipeline_parallel_size=1, data_parallel_size=1, quantization={}, kv_cache_dtype=fp8_e4m3, seed=0, "
    "enable_prefix_caching=False, enable_chunked_prefill=True, compilation_config={{'mode': 3, 'dtype': 'no'}}"
)


def test_a_step_log_says_what_its_engine_was(tmp_path: Path) -> None:
    path = tmp_path / "steps.log"
    path.write_text(f"{ENGINE.format('fp8')}\n{ITERATION.format(1)}, encoder inputs: 3, and more\n", encoding="utf-8")
    engine, doubts = stated_engine(path)
    assert engine == EngineArguments(
        tensor_parallel=2,
        torch_dtype="float16",
        torch_kv_dtype="fp8_e4m3",
        keeps_blocks=False,
        context_tokens=4096,
        version="0.19.0",
    )
    assert doubts == (
        "steps.log: quantization: not read, whatever that changes",
        "steps.log: encoder inputs: not read, whatever they take",
    )
    path.write_text(ENGINE.format("None"), encoding="utf-8")
    assert stated_engine(path)[1] == ()


def test_lines_of_another_form_are_no_iterations_left_out(tmp_path: Path) -> None:
    path = tmp_path / "steps.log"
    path.write_text(f"{ITERATION.format(1)}\n{ITERATION.format(2).replace('tokens', 'words')}\n", encoding="utf-8")
    with pytest.raises(NpubenchError, match="1 of 2 lines of iterations are of another form"):
        logged_iterations(path, decoder_shape("qwen3-8b"), kv_token_bytes=1.0, kv_capacity_tokens=100)
