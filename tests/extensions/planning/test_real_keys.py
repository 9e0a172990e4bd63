"""The keys of further real files, each used, known to be without effect, or named.

real_keys.json has results of benchmarks (vLLM, SGLang, llmperf, AIPerf, guidellm), the arguments of vLLM servers as
their logs have them, quantize_config.json, and tables that config.json and AutoRound's quantization_config.json have. A
row is how many files, where they are (of a log its stamp and model), and their keys; arguments with values, texts as x.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from .test_every_key import LISTS, SGLANG, VLLM
from .test_published_keys import NAMED_ARGUMENTS, named
from .test_real_files import FILES, PLAIN, read, write

ROWS = json.loads(Path(__file__).with_name("real_keys.json").read_text(encoding="utf-8"))
VALUES = SGLANG | VLLM | {"server_info": {"version": "0.5.6"}}
OF_LOGS = """lora_modules override_neuron_config rope_scaling task expert_offload expert_cache_size expert_unified_pool
    skip_mm_profiling"""
"""Arguments of other versions, and of a fork with offloaded experts, that change what is simulated."""
NAMED = {*NAMED_ARGUMENTS.split(), *OF_LOGS.split()} - {"enable_chunked_prefill"}  # which all of them leave on
FIELDS = {
    "max_num_seqs": "max_batch_size",
    "max_num_batched_tokens": "chunk_size_tokens",
    "tensor_parallel_size": "tensor_parallel",
    "pipeline_parallel_size": "pipeline_parallel",
    "data_parallel_size": "data_parallel",
    "enable_expert_parallel": "is_expert_parallel",
    "enable_prefix_caching": "keeps_blocks",
    "gpu_memory_utilization": "memory_fraction",
    "num_gpu_blocks_override": "kv_blocks_wanted",
    "block_size": "block_tokens",
    "async_scheduling": "is_asynchronous",
    "disable_hybrid_kv_cache_manager": "keeps_windows",
    "max_model_len": "context_tokens",
    "dtype": "torch_dtype",
    "kv_cache_dtype": "torch_kv_dtype",
}


def test_so_many_files_are_walked() -> None:
    """Of each format the files of both tables; a checkpoint may have two. Of results those of a repository count, not
    what vLLM writes in general. Traces and meta.json are fewer than 100: other stored ones repeat these keys, or are no
    traces but pages and pointers to large files."""
    numbers = {form: sum(number for number, *_ in rows) for form, rows in ROWS.items()}
    assert numbers == {"bench": 95, "log": 110, "quant": 10, "table": 22}
    others = {form: sum(len(origins) for origins, _ in entries) for form, entries in FILES.items()}
    in_configs = sum(len(origins) for origins, keys in FILES["config"] if "quantization_config" in json.dumps(keys))
    results = [origin for origins, _ in FILES["bench"] for origin in origins if "/" in origin]
    assert (others["config"], numbers["log"] + others["log"], numbers["bench"] + len(results)) == (122, 116, 105)
    assert numbers["quant"] + numbers["table"] + others["quant"] + in_configs == 108
    assert (others["meta"], sum(number for form, number in others.items() if form.startswith("trace"))) == (13, 21)


@pytest.mark.parametrize(("number", "origin", "keys", "changing"), ROWS["bench"])
def test_keys_of_benchmarks(number: int, origin: str, keys: str, changing: str | None, tmp_path: Path) -> None:
    """changing: what is named where the file has the lists that --save-detailed adds; None: those are another
    program's."""
    content = {key: VALUES.get(key, 7) for key in keys.split()}
    made, said = read("bench", write(tmp_path, "bench", content))
    assert made is None
    assert re.search(r"has no list '(input_lens|start_times)'", said), (origin, number)
    if changing is None:
        return
    made, said = read("bench", write(tmp_path, "bench", content | LISTS))
    assert made is not None, (origin, said)
    assert named(said) == set(changing.split()), origin
    engine = made[0]
    assert (engine and engine.max_batch_size) == content.get("max_num_seqs")


@pytest.mark.parametrize(("number", "origin", "arguments"), ROWS["log"])
def test_keys_of_servers(number: int, origin: str, arguments: str, tmp_path: Path) -> None:
    values: dict[str, str] = dict(each.split("=", 1) if "=" in each else (each, "'x'") for each in arguments.split(" "))
    line = ", ".join(f"'{key}': {value}" for key, value in values.items())
    engine, said = read("log", write(tmp_path, "log", f"INFO [utils.py:233] non-default args: {{{line}}}\n"))
    assert engine is not None, (origin, number, said)
    assert named(said) == values.keys() & NAMED, origin
    for key in values.keys() & FIELDS.keys():
        assert str(getattr(engine, FIELDS[key])) == values[key].strip("'").removeprefix("torch."), (origin, key)


def test_a_block_that_a_state_fills_is_as_large_as_the_log_says(tmp_path: Path) -> None:
    """As RedHatAI/Qwen3.6-35B-A3B-NVFP4 logs it on vLLM 0.19.2."""
    said = "Setting attention block size to 2096 tokens to ensure that attention page size is >= mamba page size."
    lines = f"INFO [utils.py:233] non-default args: {{'block_size': 16}}\nINFO [interface.py:606] {said}\n"
    engine: Any = read("log", write(tmp_path, "log", lines))[0]
    assert engine.block_tokens == 2096


def beside_config(folder: Path, content: object, name: str = "quantize_config.json") -> tuple[Any, str]:
    (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return read("config", write(folder, "config", PLAIN))


@pytest.mark.parametrize(("number", "origin", "keys"), ROWS["quant"])
def test_keys_of_quantised_checkpoints(number: int, origin: str, keys: dict[str, Any], tmp_path: Path) -> None:
    """A group of weights has a scale of 16 bits and a zero point of as many as a weight."""
    made, said = beside_config(tmp_path, keys)
    assert made is not None, (origin, number, said)
    size = keys["group_size"]
    assert made["weight_bits"].bits == keys["bits"] + ((16 + keys["bits"]) / size if size > 0 else 0)
    assert named(said) == set()
    assert named(beside_config(tmp_path, {**keys, "surprising_key": 5})[1]) == {"surprising_key"}


@pytest.mark.parametrize(("number", "origin", "keys", "bits", "compute", "doubted"), ROWS["table"])
def test_keys_of_tables_of_quantisation(
    number: int, origin: str, keys: dict[str, Any], bits: float, compute: str | None, doubted: str, tmp_path: Path
) -> None:
    """Bits by hand: groups of 128 have 16 bits of scale and a zero point, MXFP4's groups of 32 a scale of 8 bits."""
    made, said = read("config", write(tmp_path, "config", PLAIN | {"quantization_config": keys}))
    assert made is not None, (origin, number, said)
    assert (made["weight_bits"].bits, made["weight_bits"].compute) == (bits, compute)
    assert named(said) == set(doubted.split())
    other = PLAIN | {"quantization_config": keys | {"surprising_key": 5}}
    assert "surprising_key" in named(read("config", write(tmp_path, "config", other))[1])


def test_modules_with_bits_of_their_own_are_told_of(tmp_path: Path) -> None:
    """AutoRound's extra_config."""
    keys = {"quant_method": "auto-round", "bits": 4, "group_size": 128}
    modules = {"layers.0.mlp.up_proj": {"bits": 16}, "layers.1.mlp.up_proj": {"bits": 8}, "norm": {"bits": 16}}
    config = PLAIN | {"quantization_config": keys | {"extra_config": modules}}
    _, said = read("config", write(tmp_path, "config", config))
    assert "1 modules that stay unquantised are counted as quantised, layers.0.mlp.up_proj among them" in said
    assert "1 modules with other bits are counted as all others, layers.1.mlp.up_proj among them" in said
    assert "not read" not in said
    other = PLAIN | {"quantization_config": keys | {"extra_config": ["x"]}}
    assert "extra_config is ['x']; want an object" in read("config", write(tmp_path, "config", other))[1]


@pytest.mark.parametrize("encoder", ["model.visual.blocks.0.attn.qkv", "model.audio_tower.self_attn.q_proj"])
@pytest.mark.parametrize("key", ["extra_config", "modules_to_not_convert"])
def test_attention_of_an_encoder_is_not_the_decoder_s(key: str, encoder: str, tmp_path: Path) -> None:
    """Checkpoints of models with images or sound name the modules of their encoders, which stay unquantised."""
    keys = {"quant_method": "auto-round", "bits": 4, "group_size": 128}
    modules = {encoder: {"bits": 16}} if key == "extra_config" else [encoder]
    made, said = read("config", write(tmp_path, "config", PLAIN | {"quantization_config": {**keys, key: modules}}))
    assert made["weight_bits"].is_attention_quantised
    assert "modules" not in said


def test_files_of_those_names_by_other_programs_are_none_of_weights(tmp_path: Path) -> None:
    """AutoAWQ's own; and of huuquyet/PhoWhisper-tiny, which is of ONNX files, and Mungert69/NetworkMonitorLLM."""
    awq = {"zero_point": True, "q_group_size": 128, "w_bit": 4, "version": "GEMM"}
    made, _ = beside_config(tmp_path, awq, "quant_config.json")
    assert made["weight_bits"].bits == 4 + 20 / 128
    assert beside_config(tmp_path, [{"name": "f16", "type": "F16"}], "quant_config.json")[0]["weight_bits"] is None
    assert beside_config(tmp_path, {"per_channel": False, "per_model_config": {}})[0]["weight_bits"] is None
