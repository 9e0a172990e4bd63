"""The adapter on MaxText itself, with a tiny random model on the CPU, where MaxText is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PYTHON_VARIABLE = "NPUBENCH_MAXTEXT_PYTHON"
ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict:
    python = os.environ.get(PYTHON_VARIABLE) or sys.executable
    if python == sys.executable and find_spec("maxtext") is None:
        pytest.skip(f"MaxText is not installed here, and {PYTHON_VARIABLE} names no interpreter with it")
    done = subprocess.run(
        [python, str(Path(__file__).with_name("child_program.py"))],
        cwd=tmp_path_factory.mktemp("maxtext"),  # MaxText leaves things where it runs
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_it_declares_what_maxtext_was_told(found):
    assert found["buckets"] == [16, 32, 64, 96]
    assert found["batch_size"] == 3


def test_tokens_hang_on_the_prompt_alone(found):
    """Not on the slot, the neighbours, the padding or what the slots held before."""
    together, turned, alone = found["tokens"]
    assert together == turned == alone
    assert [len(tokens) for tokens in together] == [12, 33, 5]
    assert all(len(set(tokens)) > 1 for tokens in together)


def test_nothing_compiles_after_loading(found):
    assert found["compiled"] == ["generate-96", "prefill-16", "prefill-32", "prefill-64"]
    assert found["late_compiles"] == 0


def test_a_run_is_made_of_its_parts(found):
    assert found["segments"] == [["prefill", 16, 2], ["prefill", 64, 1], ["decode", 96, 32]]
    assert 0.5 < found["covered"] <= 1.0
