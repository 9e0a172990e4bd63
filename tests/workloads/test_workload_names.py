"""Workloads by name: what is shipped, what is registered, and how little it costs to ask."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pytest_npubench.workloads as package
from pytest_npubench import workloads
from pytest_npubench.errors import RegistryError, WorkloadError
from pytest_npubench.workloads import TraceWorkload, load, names, register, workload

SHIPPED = (
    "lens-sharegpt",
    "lens-cnn-dailymail",
    "lens-cnn-dailymail-1k",
    "lens-arxiv",
    "lens-arxiv-8k",
    "lens-writing-prompts",
    "layered-sharegpt",
    "layered-arxiv",
    "azure-conv-sample",
)
DATA = Path(package.__file__).parent / "data"


@pytest.fixture(autouse=True)
def _own_registrations(monkeypatch):
    monkeypatch.setattr(workloads, "_registered", {})


def test_the_shipped_names():
    assert names() == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_workload_says_what_it_is(name):
    found = workload(name)
    assert (found.name, found.kind) == (name, "trace sample" if name == "azure-conv-sample" else "rebuilt")
    assert found.source
    assert found.note
    assert len(found.sample(10, seed=0).requests) == 10


def test_names_cost_no_numpy():
    code = "import sys, pytest_npubench.workloads as w; w.names(); print(int('numpy' in sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "0"


def test_every_public_name_exists():
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'wrokload'"):
        _ = package.wrokload


def test_a_registered_workload_is_found_by_its_name():
    mine = replace(workload("lens-arxiv"), name="mine")
    register(mine)
    assert workload("mine") is mine
    assert names() == (*SHIPPED, "mine")


@pytest.mark.parametrize("name", ["lens-arxiv", "mine", ""])
def test_a_taken_or_empty_name_is_refused(name):
    register(replace(workload("lens-arxiv"), name="mine"))
    with pytest.raises(RegistryError, match=r"already exists|needs a name"):
        register(replace(workload("lens-arxiv"), name=name))


def test_an_unknown_name_is_refused_with_the_nearest_and_all():
    with pytest.raises(WorkloadError, match=r"'lens-sharegp' and no such file .*did you mean 'lens-sharegpt'") as info:
        workload("lens-sharegp")
    assert "azure-conv-sample" in str(info.value)


@pytest.mark.parametrize("name", ["", "x" * 5000, "a\0b", "no/such/file.csv"])
def test_odd_names_are_refused_in_words(name):
    with pytest.raises(WorkloadError):
        workload(name)


def test_a_path_that_does_not_exist_is_said_so(tmp_path):
    with pytest.raises(WorkloadError, match="does not exist"):
        workload(tmp_path / "lens-sharegpt")


def test_the_azure_sample_resembles_the_whole_trace():
    """Whole trace (19,366 rows): in 1155/1020/2734, out 211/129/424 (mean/median/p90), std 1109 and 163.

    A mean of 1,000 rows lies within 3 standard errors; quantiles within 15 %.
    """
    found = workload("azure-conv-sample")
    assert isinstance(found, TraceWorkload)
    inputs, outputs = np.array(found.input_tokens), np.array(found.output_tokens)
    assert len(inputs) == 1000
    assert inputs.mean() == pytest.approx(1155, abs=3 * 1109 / np.sqrt(1000))
    assert outputs.mean() == pytest.approx(211, abs=3 * 163 / np.sqrt(1000))
    assert [np.median(inputs), np.quantile(inputs, 0.9)] == pytest.approx([1020, 2734], rel=0.15)
    assert [np.median(outputs), np.quantile(outputs, 0.9)] == pytest.approx([129, 424], rel=0.15)
    assert found.arrival_s is not None
    assert found.arrival_s[0] == 0.0
    assert list(found.arrival_s) == sorted(found.arrival_s)
    assert found.arrival_s[-1] == pytest.approx(3502, abs=60)  # the whole trace spans 3,501.7 s


def test_the_azure_sample_carries_its_licence_and_is_small():
    licence = (DATA / "azure_conv_sample.LICENSE.txt").read_text(encoding="utf-8")
    assert "CC-BY-4.0" in licence
    assert "Splitwise" in licence
    assert (DATA / "azure_conv_sample.csv").stat().st_size < 60_000
    assert load(DATA / "azure_conv_sample.csv").source.endswith("(azure)")
