"""Why nothing compiles for Intel's NPUs here; folders stand in for installed wheels of openvino."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from pytest_npubench.engines.compiled import ENGINE


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (None, r"openvino is not installed: pip install pytest-npubench\[openvino\]"),
        (["libopenvino_intel_npu_plugin.so"], "without its compiler for Intel's NPUs .* wheels for Linux do not carry"),
        (["openvino_intel_npu_compiler.dll"], r"is here \(openvino_intel_npu_compiler.dll\), but no case compiles"),
        (["libopenvino_intel_npu_compiler_loader.so"], "is here .* but no case compiles with it yet"),
    ],
)
def test_the_reason(files: list[str] | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "openvino", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    if files is not None:
        libs = tmp_path / "openvino" / "libs"
        libs.mkdir(parents=True)
        (tmp_path / "openvino" / "__init__.py").touch()
        for name in files:
            (libs / name).touch()
    assert re.search(why, ENGINE.why_not_here("openvino"))
