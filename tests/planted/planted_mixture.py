"""The torch engine with a fault of campaign/serving/test_answers.py in it, whose name $PLANTED is."""

from __future__ import annotations

import os

import pytest
from campaign.serving.test_answers import FAULTS, MIXTURE


def install() -> None:
    if plant := FAULTS.get(os.environ.get("PLANTED", "")):
        plant(pytest.MonkeyPatch())


def pytest_npubench_shapes():
    return [MIXTURE]
