"""What a prompt finds in the cache, and whether there is room for it: as vLLM's own KV cache manager has it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_npubench.extensions.vllm.process import PYTHON_VARIABLE

ROOT = Path(__file__).parents[3]


def test_prompts_find_what_they_find_in_vllm() -> None:
    """200 random lives of up to 40 requests, in caches of 4 to 24 blocks, with every block fought for."""
    python = os.environ.get(PYTHON_VARIABLE) or (sys.executable if find_spec("vllm") else None)
    if python is None:
        pytest.skip(f"vLLM is not installed here, and {PYTHON_VARIABLE} names no environment with it")
    done = subprocess.run(
        [python, str(Path(__file__).with_name("kv_block_pool.py")), "200"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "HTTPS_PROXY": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["different"] is None
    assert told["num_hits"] > 500
