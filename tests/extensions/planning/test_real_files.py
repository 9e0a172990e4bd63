"""The keys of real files: each is used, known to be without effect, or named in a refusal or a doubt.

real_files.json has the keys of 122 config.json, 29 hf_quant_config.json and the files of other formats that could be
had, once for each set of keys: where they stand, and a small file of those keys. Lists of modules are cut short, tables
of encoders left out; {"runs": [[value, times]]} and {"repeated": [...], "length": number} are long lists.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from copy import copy
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.engines import config_keys, hf_config, layered_config, weight_bits
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import NpubenchError
from pytest_npubench.extensions.planning import measured_run, stated_engine
from pytest_npubench.extensions.planning.cli import seen_iterations
from pytest_npubench.workloads import csv_traces, load, mooncake

ROW = {"input_toks": 7, "output_toks": 5, "queued_ts": 10.0, "first_token_ts": 10.2, "last_token_ts": 10.6}
PLAIN = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 100}
PLAIN |= {"num_attention_heads": 8, "head_dim": 8}


def whole(value: Any) -> Any:
    """A value of the table with its lists in full."""
    if isinstance(value, dict) and value.keys() == {"runs"}:
        return [whole(item) for item, times in value["runs"] for _ in range(times)]
    if isinstance(value, dict) and value.keys() == {"repeated", "length"}:
        return list(islice(cycle(whole(value["repeated"])), value["length"]))
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    return [whole(item) for item in value] if isinstance(value, list) else value


FILES = whole(json.loads(Path(__file__).with_name("real_files.json").read_text(encoding="utf-8")))
EACH = [(form, *entry) for form, entries in FILES.items() for entry in entries]


def write(folder: Path, form: str, content: Any) -> Path:
    """A file of that form, with what stands beside it."""
    name = {"quant": "hf_quant_config.json", "meta": "meta.json", "bench": "bench.json"}.get(form, form)
    path = folder / {"config": "config.json", "log": "steps.log"}.get(name, name)
    if form == "trace.csv":
        path.write_text("\n".join(",".join(map(str, line)) for line in (content, content.values())), encoding="utf-8")
    else:
        text = content if form == "log" else json.dumps([content] if form == "trace.json" else content)
        path.write_text(text, encoding="utf-8")
    if form == "quant":
        return write(folder, "config", PLAIN)
    if form == "meta":
        (folder / "requests.jsonl").write_text(json.dumps(ROW), encoding="utf-8")
        return folder
    return path


def read(form: str, path: Path) -> tuple[Any, str]:
    """What is made of a file, and what is said of it."""
    try:
        if form in ("config", "quant"):
            shape = hf_config.read_shape(path)
            return {name: getattr(shape, name) for name in DecoderShape.__slots__ if name != "doubts"}, " ".join(
                shape.doubts
            )
        if form == "log":
            engine, doubts = seen_iterations.stated_engine(path)
            return engine, " ".join(doubts)
        if form.startswith("trace"):
            trace = load(path)
            return None, trace.note
        run = measured_run.measured_run(path)
        return (run.engine, run.requests), " ".join(run.doubts)
    except NpubenchError as error:
        return None, str(error)


def keys_of(content: Any) -> Iterator[tuple[str, ...]]:
    """The paths of the keys, from outside inwards."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield (key,)
            yield from ((key, *inner) for inner in keys_of(value))


def tables(content: Any) -> Iterator[tuple[Any, ...]]:
    """The paths of the objects; of a list's entries those of the first two."""
    if isinstance(content, dict):
        yield ()
    entries = content.items() if isinstance(content, dict) else enumerate(content[:2])
    for key, value in entries:
        if isinstance(value, dict | list):
            yield from ((key, *inner) for inner in tables(value))


def changed(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    entries = copy(content)
    entries[path[0]] = value if len(path) == 1 else changed(content[path[0]], path[1:], value)
    return entries


def at(content: Any, path: tuple[Any, ...]) -> Any:
    return at(content[path[0]], path[1:]) if path else content


def others(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [2 * value + 3, 2 * value, 0]
    return ["x", None, 3] if value else ["x", 3, True, [0], {"x": 1}]


KNOWN: Mapping[str, frozenset[str]] = {
    "config": config_keys.WITHOUT_EFFECT | frozenset(f"{layered_config.OF_VALUES} {weight_bits.OF_VALUES}".split()),
    "quant": frozenset(weight_bits.OF_VALUES.split()),
    "bench": measured_run.WITHOUT_EFFECT,
    "meta": stated_engine.WITHOUT_EFFECT,
}
WHOLE = frozenset((*config_keys.ENCODERS, *hf_config.ROPE_OBJECTS, "auto_map", "weights", "quantized_layers"))
"""Tables that are known, or read, as a whole."""
TELLS: Mapping[str, Mapping[str, Any]] = {
    "full_attention_interval": {"layer_types": None},
    "sliding_window_size": {"sliding_window": None},
    "index_topk_pattern": {"indexer_types": None},
    "index_topk_freq": {"indexer_types": None},
    "index_skip_topk_offset": {"indexer_types": None},
    "expand": {"mamba_num_heads": None},
    "use_double_wide_mlp": {"num_kv_shared_layers": 4},
    "vocab_size_per_layer_input": {"hidden_size_per_layer_input": 8},
}
"""Keys that tell something where another key does not, or where it is so."""


@pytest.mark.parametrize("form", KNOWN)
def test_every_key_of_real_files_is_used_known_or_named(form: str, tmp_path: Path) -> None:
    """A key is used where another value of it in one of the files makes another answer of that."""
    unseen, used = defaultdict(list), set[str]()
    for origins, content in FILES[form]:
        made, said = read(form, write(tmp_path, form, content))
        if made is None:
            assert any(path[-1] in said for path in keys_of(content)) or "has no list" in said, (origins, said)
            continue
        for path in keys_of(content):
            key = path[-1]
            if key in used or KNOWN[form] & {*path} or WHOLE & {*path} or any(each in said for each in path):
                continue
            if key.endswith(config_keys.MARKERS) or key.startswith(
                (*measured_run.SUMMARIES, *stated_engine.BEGINNINGS)
            ):
                continue
            told = content
            for name, value in TELLS.get(key, {}).items():
                told = changed(told, (*path[:-1], name), value)
            before = read(form, write(tmp_path, form, told))
            answers = (
                read(form, write(tmp_path, form, changed(told, path, value))) for value in others(at(told, path))
            )
            if any(answer != before for answer in answers):
                used.add(key)
            else:
                unseen[key].append(origins[0])
    assert {key: files for key, files in unseen.items() if key not in used} == {}


@pytest.mark.parametrize("form", KNOWN)
def test_a_key_that_nobody_knows_is_named_in_every_table_of_real_files(form: str, tmp_path: Path) -> None:
    read_files = [entry for entry in FILES[form] if read(form, write(tmp_path, form, entry[1]))[0] is not None]
    for origins, content in read_files:
        for path in tables(content):
            if not (WHOLE | KNOWN[form]) & {*path}:
                _, said = read(form, write(tmp_path, form, changed(content, (*path, "surprising_key"), 5)))
                outer = [key for key in path if isinstance(key, str)]
                assert any(key in said for key in ("surprising_key", *outer[-1:])), (origins, path)


STATED = {
    "0.7.3": (None, None, False, None, "enable_chunked_prefill"),
    "0.11.1": (8192, None, False, None, ""),
    "0.11.0": (2048, None, None, None, ""),
    "0.19.2": (None, True, None, None, "quantization"),
    "0.19.1": (None, True, None, None, "quantization"),
    "0.29.0": (8192, None, True, 0.85, ""),
}


@pytest.mark.parametrize(("origins", "content"), FILES["log"])
def test_what_vllm_logs_of_its_engine_is_read(origins: list[str], content: str, tmp_path: Path) -> None:
    engine, said = read("log", write(tmp_path, "log", content))
    chunk, is_asynchronous, keeps_blocks, fraction, named = STATED[origins[0].split()[2]]
    assert (engine.chunk_size_tokens, engine.is_asynchronous) == (chunk, is_asynchronous)
    assert (engine.keeps_blocks, engine.memory_fraction) == (keeps_blocks, fraction)
    assert said == (named and f"steps.log: {named}: not read, whatever that changes")
    other = content.replace("dtype=", "surprising_key=Record(x=[3]), dtype=").replace(
        "'model_tag'", "'surprising_key': [3], 'x'"
    )
    assert "surprising_key" in read("log", write(tmp_path, "log", other))[1]


TRACE_FORMS = [entry for entry in EACH if entry[0].startswith("trace")]
OF_TRACES = {*mooncake.USED, *csv_traces.ARRIVALS, "id", "conversations"}
OF_TRACES |= {name for each in csv_traces.CSV_FORMATS for name in each.required}


@pytest.mark.parametrize(("form", "origins", "content"), TRACE_FORMS)
def test_columns_of_traces_are_read_or_named(form: str, origins: list[str], content: Any, tmp_path: Path) -> None:
    _, said = read(form, write(tmp_path, form, content))
    is_refused = "want" in said
    assert all(key in said for key in content.keys() - OF_TRACES) or is_refused, origins
    assert not is_refused or any(key in said for key in content) or "timestamp" in said
    for path in tables(content):
        other = read(form, write(tmp_path, form, changed(content, (*path, "surprising_key"), 5)))[1]
        assert is_refused or "surprising_key" in other, path


def test_a_resolved_setting_counts_before_what_was_asked_for(tmp_path: Path) -> None:
    engine, _ = read("meta", write(tmp_path, "meta", FILES["meta"][2][1]))[0]
    assert (engine.kv_capacity_tokens, engine.tensor_parallel, engine.is_asynchronous) == (462_144, 2, True)
    asked = {"engine_kwargs": {"max_num_seqs": 64}, "resolved_config": {"scheduler_config": {"max_num_seqs": 32}}}
    assert read("meta", write(tmp_path, "meta", asked))[0][0].max_batch_size == 32


def test_requests_without_times_came_at_once_where_the_rate_says_so(tmp_path: Path) -> None:
    content = next(content for origins, content in FILES["bench"] if "LambdaLabs" in origins[0])
    (_, requests), said = read("bench", write(tmp_path, "bench", content))
    assert [request.arrival_s for request in requests] == [0, 0]
    assert "all came at once" in said
    limited = read("bench", write(tmp_path, "bench", content | {"max_concurrency": 1}))
    assert limited[0] is None
    assert "no list 'start_times'" in limited[1]
    waited = content | {"max_concurrency": 1, "start_times": [3.0, 3.5]}
    assert "max_concurrency is 1: requests waited" in read("bench", write(tmp_path, "bench", waited))[1]


def test_gemma_ties_its_tables(tmp_path: Path) -> None:
    """transformers counts 2,506,172,416 parameters of google/gemma-2b, whose file leaves `tie_word_embeddings` out."""
    content = next(content for origins, content in FILES["config"] if "ananddhanabal/gemma" in origins)
    assert hf_config.read_shape(write(tmp_path, "config", content)).num_parameters == 2_506_172_416
