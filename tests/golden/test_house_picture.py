"""The picture of docs/architecture.md is that of the code, and its folders import each other in no circle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DRAWER = Path(__file__).parents[2] / "docs" / "house.py"


def test_the_picture_is_true() -> None:
    done = subprocess.run([sys.executable, str(DRAWER), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
