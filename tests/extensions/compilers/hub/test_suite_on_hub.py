"""The suite of graphs as a user runs it, against the stand-in: from the probe to the refusal of made-up figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.core import hardware_reader

pytest.importorskip("onnx", reason="onnx is not installed: pip install pytest-npubench[qaihub]")

ROOT = Path(__file__).resolve().parents[4]


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """pytest on the phone's cases, in a process of its own."""
    text = (hardware_reader.default_directory() / "snapdragon-8-gen3.toml").read_text(encoding="utf-8")
    for old, new in (
        ('"llama-3.2-1b"', '"tiny-llama"'),
        ("set = [128, 256, 512, 1024, 2048]", "set = [128, 256]"),
        ("buckets = [128, 256, 512, 1024]", "buckets = [128, 256]"),
    ):
        assert old in text
        text = text.replace(old, new)
    (folder / "hardware").mkdir(exist_ok=True)
    (folder / "hardware" / "phone.toml").write_text(text, encoding="utf-8")
    suite = ROOT / "suites" / "graphs" / "test_phone.py"
    command = [sys.executable, "-m", "pytest", str(suite), "-k", "phone-tiny", "-q", "-rs"]
    places = {"hardware": "hardware", "journal": "out/journal.jsonl", "baselines": "baselines"}
    for name, place in places.items():
        command += [f"--npubench-{name}", str(folder / place)]
    command += ["-p", "no:cacheprovider", "-n", "0", "--benchmark-disable", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


def test_the_whole_suite(hub: Any, tmp_path: Path) -> None:
    from .stand_in import TOKEN

    hub.script.polls = 0
    (tmp_path / "baselines").mkdir()
    answer = run(tmp_path, "--npubench-accept")
    assert answer.returncode == 0, answer.stdout
    assert "verdicts: 4 passed, 2 inconclusive" in answer.stdout
    assert "nothing accepted:" in answer.stdout
    assert answer.stdout.count(" has no metric to judge by") == 6
    assert not any((tmp_path / "baselines").iterdir())
    assert Counter(job.kind for job in hub.jobs.values()) == {"compile_job": 4, "inference_job": 12}
    kept = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(kept) == 14  # journal, ledger, a report each profile job
    assert not any(TOKEN in path.read_text(encoding="utf-8") for path in kept)
    assert TOKEN not in answer.stdout + answer.stderr
    records = [json.loads(line) for line in (tmp_path / "out" / "journal.jsonl").read_text().splitlines()]
    device = next(record for record in records if record["record"] == "device")
    assert "stand-in" in json.dumps(device)


def test_an_expired_token_skips_the_suite(hub: Any, tmp_path: Path) -> None:
    hub.script.expired = True
    answer = run(tmp_path)
    assert "6 skipped" in answer.stdout, answer.stdout
    assert "Qualcomm AI Hub refused the token: it is wrong or has expired" in answer.stdout
    assert not hub.jobs
