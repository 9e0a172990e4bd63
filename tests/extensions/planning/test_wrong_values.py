"""Wrong and huge values in real files of every form: each is read, or refused by an error of ours, and planned with."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.engines.hf_config import read_shape, stated_context_tokens
from pytest_npubench.engines.kv_capacity import default_kv_capacity_tokens
from pytest_npubench.errors import NpubenchError
from pytest_npubench.extensions.planning.cli.seen_iterations import logged_iterations
from pytest_npubench.extensions.planning.measured_run import measured_run
from pytest_npubench.extensions.planning.virtual.cost import cost_model
from pytest_npubench.suites.hardware_files import load_hardware

from .test_every_key import ENGINE, ITERATION, LISTS
from .test_real_files import EACH, PLAIN, ROW, changed, read, write

H100 = load_hardware(default_directory() / "nvidia-h100.toml")
NUMBERS = (math.nan, math.inf, -math.inf, -1, 0, 0.5, 10**9, 10**30, 10**400)
VALUES = (None, True, "", "x", [], [1], [[1]], ["x"], {}, {"x": 1}, *NUMBERS, *([each] for each in NUMBERS))
LOG = f"{ENGINE.format('fp8')}\nGPU KV cache size: 12,000 tokens\n{ITERATION.format(1)}\n"
FILES = [*EACH, ("requests.jsonl", ["a run"], ROW | {"prompt_token_ids": [1] * 7, "arrival_time": 1.5})]
FILES += [("bench", ["lists alone"], LISTS), ("log", ["iterations"], LOG)]


def places(content: Any) -> Iterator[tuple[Any, ...]]:
    """The paths of all values; of a list's entries those of the first two."""
    entries = content.items() if isinstance(content, dict) else enumerate(content[:2]) if content else ()
    for key, value in entries:
        yield (key,)
        if isinstance(value, dict | list):
            yield from ((key, *inner) for inner in places(value))


def plan(form: str, path: Path) -> None:
    """Raises nothing but an error of ours."""
    read(form, path)
    try:
        if form in ("config", "quant"):
            shape = read_shape(path)
            stated_context_tokens(str(path))
            cost_model(shape, H100, tensor_parallel=1, dtype="bf16")
            default_kv_capacity_tokens(shape, H100, tensor_parallel=1, dtype="bf16")
        elif form == "log":
            logged_iterations(
                path, read_shape(write(path.parent, "config", PLAIN)), kv_token_bytes=1.0, kv_capacity_tokens=9
            )
        elif not form.startswith("trace"):
            measured_run(path).load()
    except NpubenchError:
        pass


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_no_value_of_a_real_file_is_an_error_of_python(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    form, _origins, content = data.draw(st.sampled_from(FILES))
    folder = tmp_path_factory.getbasetemp() / form
    folder.mkdir(exist_ok=True)
    value = data.draw(st.sampled_from(VALUES))
    if form == "log":
        number = data.draw(st.sampled_from(list(re.finditer(r"[\d.,]*\d", content))))
        other = f"{content[: number.start()]}{value}{content[number.end() :]}"
    else:
        other = changed(content, data.draw(st.sampled_from(list(places(content)))), value)
    plan(form, write(folder, form, other))
