"""What a vLLM process says of itself: declared buckets and late compiles, out of its log and its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pytest_npubench.extensions.vllm import process
from pytest_npubench.extensions.vllm.answer import VllmAnswer, VllmRequest, VllmRun
from pytest_npubench.extensions.vllm.buckets import DeclaredBuckets, planned_buckets, prompt_buckets
from pytest_npubench.extensions.vllm.process import WARM_UP_ENDS, VllmProcess, num_late_compiles
from pytest_npubench.extensions.vllm.settings import EngineSettings

REQUEST = VllmRequest(id=0, arrival_s=0.0, prompt=(1, 2), output_tokens=1)
CONTEXT = DeclaredBuckets(kind="context_encoding", buckets=(128, 256), source="neuron_config")


class FakeChild:
    """Answers as the worker does, with a log that a test writes."""

    lines: ClassVar[list[str]] = []
    configured: ClassVar[tuple[DeclaredBuckets, ...]] = ()
    pid = 77
    is_open = True

    def __init__(
        self, module: str, arguments: object, *, name: str, python: str, environment: Mapping[str, str]
    ) -> None:
        assert environment["VLLM_LOGGING_LEVEL"] == "INFO"  # buckets and compiles are told at this level

    def call(self, name: str, *values: object, timeout_s: float) -> Any:
        answers = {
            "start": {},
            "declared": self.configured,
            "time_canary": 0.25,
            "serve": VllmRun(answers=(VllmAnswer(request=REQUEST),), iterations=(), ended_s=1.0),
        }
        return answers[name]

    def log(self) -> tuple[str, ...]:
        return tuple(self.lines)

    def close(self) -> None:
        pass


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> VllmProcess:
    monkeypatch.setattr(process, "python_child", FakeChild)
    monkeypatch.setattr(process, "_late_compiles", {})
    monkeypatch.setattr(FakeChild, "lines", [])
    return VllmProcess(EngineSettings(model=Path("m"), policy="continuous", policy_settings=()), python="another")


def test_buckets_of_the_log_and_of_the_configuration(started: VllmProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        FakeChild,
        "lines",
        [
            "INFO Prepared token paddings: [16, 32, 64, 128]",
            "INFO Prepared request paddings: [8, 16]",
            "INFO context_encoding_buckets=[64]",
            "INFO config: {'cudagraph_capture_sizes': [1, 2, 4]}",  # asked for, and switched off with graphs
        ],
    )
    monkeypatch.setattr(FakeChild, "configured", (CONTEXT,))
    found = {one.kind: one for one in started.declared()}
    assert found.keys() == {"tokens", "requests", "context_encoding"}
    assert found["tokens"].buckets == (16, 32, 64, 128)
    assert found["context_encoding"] == CONTEXT  # what is in force, before what was said


def test_a_cpu_says_nothing(started: VllmProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeChild, "lines", ["INFO config: {'cudagraph_capture_sizes': []}"])
    assert started.declared() == ()
    assert started.time_canary("copy") == 0.25


@pytest.mark.parametrize(("behind", "late"), [(False, 0), (True, 1)], ids=["in warm-up", "behind it"])
def test_a_compile_behind_warm_up_is_counted(
    started: VllmProcess, monkeypatch: pytest.MonkeyPatch, behind: bool, late: int
) -> None:
    lines = ["INFO Compilation of backbone finished in 3.20 [secs].", f"INFO {WARM_UP_ENDS} 5 s"]
    monkeypatch.setattr(FakeChild, "lines", lines[::-1] if behind else lines)
    started.serve([REQUEST])
    assert num_late_compiles() == late


def test_lengths_that_a_prompt_alone_is_padded_to() -> None:
    tokens = DeclaredBuckets(kind="tokens", buckets=(16, 32, 64, 128), source="log, line 1")
    requests = DeclaredBuckets(kind="requests", buckets=(8, 16), source="log, line 2")
    assert prompt_buckets((requests, tokens), 64) == (16, 32, 64)
    assert prompt_buckets((tokens, CONTEXT), 256) == (128, 256)
    assert prompt_buckets((requests,), 64) == prompt_buckets((), 64) == ()


def test_buckets_that_a_family_adds() -> None:
    assert planned_buckets("tpu", (128, 256)) == (16, 32, 64, 128, 256)
    assert planned_buckets("tpu", (16, 48)) == (16, 48)  # somebody named vLLM's own
    for family in ("cpu", "cuda", "neuron"):
        assert planned_buckets(family, (128, 256)) == (128, 256)
