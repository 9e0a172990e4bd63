"""Running the command line in this process, and journals of the made-up device of the report tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from reports.journals import make_plan, measure, write_run

from pytest_npubench.cli.main import main
from pytest_npubench.engines.shapes import DecoderShape


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long the names of temporary folders are breaks no line that a test reads."""
    monkeypatch.setenv("COLUMNS", "200")


SMALL = """title = "small"
[peak]
memory_bandwidth_bytes_per_s = {{ value = 3350, unit = "GB/s", source = "made up" }}
memory_bytes = {{ value = {memory}, unit = "B", source = "made up" }}
flops_per_s.bf16 = {{ value = 989, unit = "TFLOP/s", source = "made up" }}
"""


def small_device(folder: Path, shape: DecoderShape, kv_tokens: int) -> Path:
    """The hardware file of a device whose memory leaves so many tokens beside the weights in bf16."""
    path = folder / "small.toml"
    memory = 2 * shape.num_parameters + kv_tokens * shape.kv_bytes_per_token(2)
    path.write_text(SMALL.format(memory=memory / 0.9), encoding="utf-8")
    return path


@dataclass(frozen=True)
class Answer:
    """What one call of npubench left: its exit status and both streams."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.status == 0, self.err
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line of an error of ours."""
        assert self.status == 1, self.out + self.err
        assert self.err.startswith("npubench: error: ")
        assert self.err.count("\n") == 1
        return self.err


def lengths(inputs: object, outputs: object) -> tuple[object, ...]:
    return ("--input-tokens", inputs, "--output-tokens", outputs)


REQUEST = lengths(100, 60)
"""That of docs/lens.md."""


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """call("predict", path, "--input-tokens", 100, ...) runs npubench; a usage error is status 2."""

    def run(*arguments: object) -> Answer:
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as stop:
            status = int(stop.code or 0)
        captured = capsys.readouterr()
        return Answer(status=status, out=captured.out, err=captured.err)

    return run


@pytest.fixture(scope="session")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run of campaigns cpu-tiny-llama-b1 and -b4, one session each."""
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    for batch_size in (1, 4):
        write_run(path, measure(make_plan(batch_size)))
    return path
