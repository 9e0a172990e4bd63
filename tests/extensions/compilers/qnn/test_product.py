"""A product with outliers: the graphs by ONNX Runtime's processor, a second engine, and by Qualcomm's emulated NPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="onnx is not installed: pip install pytest-npubench[qualcomm-compiler]")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed; it runs the graphs here")

import onnxruntime
from engines.shadow_product import shadow_product

from pytest_npubench.engines.outliers import OutlierCase, activation, weight
from pytest_npubench.engines.quantization import calibrate, int8_product, max_min_scale, relative_error
from pytest_npubench.extensions.compilers.qnn import product
from pytest_npubench.extensions.compilers.qnn.product import ProductErrors, product_case, product_errors

CASE = product_case(64, 512, 256)


def on_processor(name: str, model: Path) -> Callable[[Any], Any]:
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    return lambda x: session.run(["y"], {"x": x})[0]


def in_numpy(case: OutlierCase) -> ProductErrors:
    """What the numbers themselves cost: INT8 with exact sums, nothing rounded on the way out."""
    x, w = activation(case), weight(case)
    expected = (x.astype(np.float64) @ w.astype(np.float64)).astype(np.float32)
    known = calibrate(activation(case, batch=1), case.num_outliers)
    found = [int8_product(x, w, max_min_scale(x)), int8_product(x, w, known.scale), shadow_product(x, w, known)]
    max_min, clip, shadow = (relative_error(one, expected) for one in found)
    return ProductErrors(fp16=0.0, max_min=max_min, clip=clip, shadow=shadow, levels_off=0.0)


@pytest.fixture(params=["processor", "npu"])
def compiled(request: pytest.FixtureRequest) -> Callable[[str, Path], Callable[[Any], Any]]:
    if request.param == "processor":
        return on_processor
    pytest.importorskip("onnxruntime_qnn", reason="not installed: pip install pytest-npubench[qualcomm-compiler]")
    from pytest_npubench.extensions.compilers.qnn.sessions import HtpSessions

    sessions = HtpSessions("soc69-v79")

    def on_npu(name: str, model: Path) -> Callable[[Any], Any]:
        context = sessions.compile(model, name).path
        return lambda x: sessions.run(context, {"x": x})["y"]

    return on_npu


def test_the_shadow_path_makes_int8_as_good_as_without_outliers(compiled: Any, tmp_path: Path) -> None:
    found, wanted = product_errors(CASE, tmp_path, compiled), in_numpy(CASE)
    assert found.levels_off <= product.LEVELS_OFF
    assert found.max_min == pytest.approx(wanted.max_min, rel=0.1)
    assert found.clip == pytest.approx(wanted.clip, rel=0.02)
    assert wanted.shadow < found.shadow < 2.5 * wanted.shadow  # its output is rounded to 8 bits as well
    assert 10 * found.shadow < found.max_min
    assert found.fp16 < 0.001


@pytest.mark.parametrize("shift", [1, 16])
def test_an_npu_that_is_off_is_seen(shift: int, tmp_path: Path) -> None:
    """A stand-in that takes another zero point."""

    def off(name: str, model: Path) -> Callable[[Any], Any]:
        run = on_processor(name, model)
        return run if name == "fp16" else lambda x: run((x + shift).astype(np.uint8))

    assert product_errors(CASE, tmp_path, off).levels_off > product.LEVELS_OFF


def test_without_outliers_there_is_nothing_to_add(tmp_path: Path) -> None:
    found = product_errors(CASE.at(0), tmp_path, on_processor)
    assert found.shadow == pytest.approx(found.clip, rel=0.02)
