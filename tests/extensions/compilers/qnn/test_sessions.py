"""Qualcomm's compiler itself: what it makes, what it refuses, and whose contexts it takes. Without it these skip."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("onnxruntime_qnn", reason="not installed: pip install pytest-npubench[qualcomm-compiler]")

import onnx

from extensions.compilers.qnn.test_graphs import one_more
from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines.shapes import dense_shape
from pytest_npubench.errors import CompileRefusedError, ConfigError
from pytest_npubench.extensions.compilers.hub import decoder, layers
from pytest_npubench.extensions.compilers.qnn.answers import LIMIT, answer_error, small
from pytest_npubench.extensions.compilers.qnn.facts import GraphRequest, Part
from pytest_npubench.extensions.compilers.qnn.graphs import export_part, weight_bytes
from pytest_npubench.extensions.compilers.qnn.sessions import HtpSessions

TINY = small(dense_shape("llama-3.2-1b"))


@pytest.fixture(scope="module")
def sessions() -> HtpSessions:
    return HtpSessions("soc57-v75")


def exported(phase: Phase, folder: Path) -> Path:
    request = GraphRequest(shape=TINY, dtype="fp16", batch_size=1, phase=phase, bucket=16, part=Part.LAYER)
    return export_part(request, folder)


@pytest.mark.parametrize("phase", Phase)
def test_a_layer_is_one_context_binary(sessions: HtpSessions, phase: Phase, tmp_path: Path) -> None:
    first, second = (sessions.compile(exported(phase, tmp_path / name), "a layer") for name in ("a", "b"))
    assert first.num_binaries == 1
    assert first.num_bytes > 0
    assert abs(first.num_bytes - second.num_bytes) <= 2**16  # it repeats to a page
    assert set(first.phases_s) == {"optimize_s", "sequence_s", "vtcm_s"}


@pytest.mark.parametrize("phase", Phase)
def test_a_layer_tells_its_memory(sessions: HtpSessions, phase: Phase, tmp_path: Path) -> None:
    """Inputs and outputs by counting: hidden states in and out, keys and values; of a step the caches and a length."""
    shape, bucket = dense_shape("llama-3.2-1b"), 128
    request = GraphRequest(shape=shape, dtype="fp16", batch_size=1, phase=phase, bucket=bucket)
    found = sessions.compile(export_part(request, tmp_path), "a layer")
    assert found.memory is not None
    rows = bucket if phase is Phase.PREFILL else 1
    kept = 2 * 2 * shape.num_kv_heads * shape.head_dim
    read = 0 if phase is Phase.PREFILL else (bucket - 1) * kept
    expected = 2 * 2 * rows * shape.hidden + rows * kept + read
    assert expected <= found.memory.io_bytes <= 1.25 * expected  # a row alone takes a tile
    assert weight_bytes(request) <= found.memory.constant_bytes <= found.num_bytes
    assert found.memory.vtcm_bytes > 0
    assert found.memory.vtcm_bytes % 2**20 == 0
    assert (found.memory.spill_bytes > 0) == (phase is Phase.PREFILL)


@pytest.mark.parametrize("is_wrong", [False, True])
def test_the_emulated_npu_answers_as_the_reference_does(
    sessions: HtpSessions, is_wrong: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(path: Path, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        return sessions.run(sessions.compile(path, "a small decoder").path, inputs)

    if is_wrong:
        monkeypatch.setattr(decoder, "_visible", one_more)
    assert (answer_error(dense_shape("llama-3.2-1b"), 32, "fp16", tmp_path, run) > LIMIT) is is_wrong


def test_an_operator_that_would_run_on_the_cpu_is_named(sessions: HtpSessions, tmp_path: Path) -> None:
    plain = layers.DecoderNodes.rms_norm

    def with_sinh(nodes: layers.DecoderNodes, value: str, weight: str) -> str:
        return nodes.file.node("Sinh", plain(nodes, value, weight))

    with patch.object(layers.DecoderNodes, "rms_norm", with_sinh):
        model = exported(Phase.DECODE, tmp_path)
    with pytest.raises(CompileRefusedError, match=r"a layer does not compile .* the NPU does not take Sinh \(Sinh_"):
        sessions.compile(model, "a layer")


def test_a_context_of_another_qairt_is_refused_by_both_versions(sessions: HtpSessions, tmp_path: Path) -> None:
    path = sessions.compile(exported(Phase.DECODE, tmp_path), "a layer").path
    model = onnx.load(path, load_external_data=False)
    (version,) = [one for one in model.graph.node[0].attribute if one.name == "ep_sdk_version"]
    version.s = b"v2.40.0.250101"
    onnx.save(model, path)
    with pytest.raises(CompileRefusedError, match=r"QAIRT 2\.40\.0\.250101; QAIRT 2\.\d+\.\d+ is installed"):
        sessions.run(path, {})


def test_a_topology_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match="want soc<number>-v<Hexagon version>"):
        HtpSessions("SM8650")
