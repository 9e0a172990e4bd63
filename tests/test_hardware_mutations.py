"""Every entry of a hardware file, made wrong in every way: refused exactly where the reader before refused it, by key.

`hardware_mutations.json` was recorded from the hand-written reader that core/record_reader.py replaced. For each entry
it says which changes pass (`passes`), and where an error names another key than the entry's own (`named`).
"""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench import suites
from pytest_npubench.core import hardware
from pytest_npubench.core.record_reader import TomlTable
from pytest_npubench.errors import HardwareFileError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEVICE = """
title = "A device"
family = "cuda"
classes = ["gpu"]
probe = { match = ["Thing"], num_devices = 4, devices_per_chip = 2 }
peak.flops_per_s.bf16 = { value = 100, unit = "TFLOP/s", source = "a datasheet" }
peak.flops_per_s.int8 = { value = 200, unit = "TOP/s", source = "a datasheet" }
peak.memory_bandwidth_bytes_per_s = { value = 3.5, unit = "TB/s", source = "a datasheet" }
peak.memory_bytes = { value = 80, unit = "GB", source = "a datasheet" }
peak.interconnect_bandwidth_bytes_per_s = { value = 450, unit = "GB/s", source = "a datasheet" }
buckets = { set = [128, 256, 512], source = "a paper" }
models = { default = ["one", "two"], dtype = "bf16", batch_sizes = [1, 2], max_batch_size = { two = 1 } }
group = [{ num_devices = 1, models = ["one"], max_batch_size = { one = 1 } }, { num_devices = 8 }]
slo = [
    { model = "one", workload = "chat", ttft_s = 1, tbt_s = 0.1, source = "a paper" },
    { model = "*", workload = "*", ttft_s = 2, tbt_s = 0.2, source = "a paper" },
]
limits = { case_error = 0.2, mean_error = 0.1 }

[profile.quick]
models = ["one"]
batch_sizes = [1]
buckets = [128, 256]
workloads = ["chat"]
num_draws = 1
min_rounds = 2
max_rounds = 3
budget_s = 10
profile_output_tokens = 65

[profile.nightly]
workloads = ["chat"]
num_draws = 1
min_rounds = 2
max_rounds = 3
budget_s = 10

[profile.full]
workloads = ["chat", "mail"]
num_draws = 1
min_rounds = 2
max_rounds = 3
budget_s = 10

[serving]
models = ["one", "two"]
dtype = "fp32"
max_batch_size = 32
kv_capacity_tokens = { one = 16384, two = 100 }
block_size_tokens = 8
tokens_per_iteration = 64
load = [
    { model = "one", workload = "chat", utilisation = 0.7, tokens_per_iteration = 512 },
    { model = "one", workload = "mail", rate_per_s = 2 },
    { model = "two", workload = "mail", rate_per_s = 2 },
]
[serving.profile.quick]
models = ["one"]
experiments = ["policy"]
policies = ["chunked", "layered"]
num_requests = 8
min_rounds = 3
max_rounds = 3
budget_s = 30

[partition]
pair = "host"
models = ["three", "four"]
standard_sizes = [32, 64]
tile = 32
decode_shares = [0.25, 0.5]
prefill_shares = [0.2]
[partition.profile.nightly]
models = ["four"]
experiments = ["bandwidth"]
lengths = [1, 40]
min_rounds = 5
max_rounds = 6
budget_s = 10

[offload]
pair = "host"
[offload.profile.full]
experiments = ["factorial"]
min_rounds = 5
max_rounds = 6
budget_s = 10
"""
SERVER = """
title = "A server"
family = "server"
probe = { match = [".*"] }
slo = [{ model = "*", workload = "*", ttft_s = 5, tbt_s = 0.125, source = "a paper" }]

[server]
api = "completions"
prompt = "words"
token_ids = [5, 9]
extra_body = { top_k = 1 }
max_total_tokens = 64
attainment = 1.0
connect_timeout_s = 1
idle_timeout_s = 2
answer_timeout_s = 3
load = [{ workload = "chat", rates_per_s = [1, 2.5] }, { workload = "mail", rates_per_s = [0.5] }]
[server.profile.quick]
workloads = ["chat"]
num_requests = 20
min_rounds = 2
max_rounds = 3
budget_s = 60
[server.profile.nightly]
num_requests = 100
min_rounds = 2
max_rounds = 3
budget_s = 600
[server.profile.full]
num_requests = 200
min_rounds = 2
max_rounds = 3
budget_s = 6000
"""
FILES = {"device": DEVICE, "server": SERVER}
RECORDED = json.loads((Path(__file__).parent / "hardware_mutations.json").read_text(encoding="utf-8"))
VALUES: dict[str, Any] = {
    "true": True,
    "text": "x",
    "blank": " ",
    "zero": 0,
    "minus": -1,
    "one": 1,
    "half": 0.5,
    "huge": 10**400,
    "nan": float("nan"),
    "inf": float("inf"),
    "date": date(2026, 1, 1),
    "empty": [],
    "twice": ["a", "a"],
    "mixed": [1, "a"],
    "falling": [3, 2],
    "shares": [0.1, 0.2],
    "bools": [True, 2],
    "ones": [1],
}
Place = tuple[str | int, ...]


def places(table: Any, at: Place = ()) -> Iterator[Place]:
    for key, value in table.items() if isinstance(table, dict) else enumerate(table):
        yield (*at, key)
        if isinstance(value, dict) or (isinstance(value, list) and isinstance(value[0], dict)):
            yield from places(value, (*at, key))


def dotted(place: Place) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)[1:]


def mutations(document: dict[str, Any], place: Place) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each change of an entry by name, the key that an error should name, and the document so changed."""
    key = place[-1]

    def changed(how: str) -> tuple[dict[str, Any], Any]:
        document_then = copy.deepcopy(document)
        table: Any = document_then
        for part in place[:-1]:
            table = table[part]
        if how != "extra":
            entry = table.pop(key)
            return document_then, (table, entry)
        return document_then, (table[key], None)

    if isinstance(key, str):
        yield "drop", dotted(place), changed("drop")[0]
        document_then, (table, entry) = changed("misspell")
        table[f"{key}x"] = entry
        yield "misspell", f"{dotted(place)}x", document_then
    document_then, (table, _) = changed("extra")
    if isinstance(table, dict):
        table["strange"] = 1
        yield "extra", f"{dotted(place)}.strange", document_then
    for how, value in VALUES.items():
        document_then, (table, _) = changed(how)
        if isinstance(table, dict):
            table[key] = value
        else:
            table.insert(key, value)
        yield how, dotted(place), document_then


def outcome(document: dict[str, Any]) -> str | None:
    """The key that the error names, or the error where it names none; None where the file is read."""
    try:
        hardware._spec(
            TomlTable(path=Path("x.toml"), entries=document, kind_of_error=HardwareFileError), suites.sections()
        )
    except HardwareFileError as error:
        named = re.match(r"x\.toml: ([\w.\[\]-]+): .", str(error))
        return named[1] if named else str(error)
    return None


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_read(name: str) -> None:
    assert outcome(tomllib.loads(FILES[name])) is None


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_entry_is_refused_where_it_was_before(name: str) -> None:
    document = tomllib.loads(FILES[name])
    found: dict[str, Any] = {}
    for place in places(document):
        passes, named = [], {}
        for how, key, mutated in mutations(document, place):
            result = outcome(mutated)
            if result is None:
                passes.append(how)
            elif result != key:
                named[how] = result
        found[dotted(place)] = {"passes": " ".join(passes), **({"named": named} if named else {})}
    assert found == RECORDED[name]
