"""What engines there are, whom they serve, and what is said of one that cannot be had."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from pytest_npubench import engines
from pytest_npubench.core import entry_points
from pytest_npubench.core.hardware import FAMILIES
from pytest_npubench.engines.descriptor import EngineDescriptor
from pytest_npubench.errors import RegistryError
from pytest_npubench.suites.buckets.service import BucketService
from pytest_npubench.suites.protocol import Suite
from pytest_npubench.suites.scheduling.service import ServingService

SERVICES = {"buckets": BucketService, "scheduling": ServingService}


class Outside(EngineDescriptor):
    name = "outside"
    title = "Outside"
    about = "the test's own"
    families = ("cpu",)
    parts = {"buckets": f"{__name__}:Gone"}  # noqa: RUF012 - of the class


OUTSIDE = Outside()


@pytest.fixture
def offered(monkeypatch):
    """offered(name=value): entry points of other distributions, until the test ends."""

    def install(**points):
        found = [EntryPoint(name=name, value=value, group=engines.ENGINES.group) for name, value in points.items()]
        monkeypatch.setattr(entry_points.metadata, "entry_points", lambda: EntryPoints(found))
        entry_points._by_group.cache_clear()

    yield install
    monkeypatch.undo()
    entry_points._by_group.cache_clear()


@pytest.mark.parametrize("name", engines.ours())
def test_each_is_what_its_name_says_and_has_what_the_suites_need(name):
    found = engines.engine(name)
    assert found.name == name
    assert set(found.families) <= set(FAMILIES)
    assert all((found.title, found.about, found.families, found.parts))
    for suite in found.parts:
        assert isinstance(found.part(suite), SERVICES.get(suite, Suite))


@pytest.mark.parametrize(
    ("name", "suite", "family", "reason"),
    [
        ("vllm", "buckets", "openvino", "vllm does not serve openvino; it serves cpu, cuda, tpu, neuron"),
        ("reference", "buckets", "neuron", "reference does not serve neuron; it serves cpu, cuda, tpu, openvino"),
        ("reference", "buckets", "a family of another distribution", ""),
        ("reference", "buckets", "qualcomm", "reference does not serve qualcomm; it serves cpu, cuda, tpu, openvino"),
        ("aihub", "buckets", "qualcomm", "aihub does not serve the suite buckets; it serves graphs"),
        ("aihub", "graphs", "qualcomm", ""),
    ],
)
def test_whom_it_does_not_serve(name, suite, family, reason):
    found = engines.engine(name).why_not_served(suite, family)
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


def test_descriptors_import_nothing_heavy():
    code = (
        "import sys\nfrom pytest_npubench import engines\n"
        "[engines.engine(name) for name in engines.ours()]\n"
        "print(*sorted({'jax', 'torch', 'numpy', 'pytest', 'openvino', 'vllm'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []


def test_one_of_another_distribution(offered):
    offered(outside=f"{__name__}:OUTSIDE")
    assert engines.names() == (*engines.ours(), "outside")
    assert engines.engine("outside") is OUTSIDE
    assert engines.title_of("outside") == "Outside"
    with pytest.raises(RegistryError, match=rf"engine outside: {__name__}:Gone cannot be had: AttributeError"):
        OUTSIDE.part("buckets")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("nowhere_at_all:ENGINE", "engine 'outside' of nowhere_at_all:ENGINE cannot be imported: ModuleNotFoundError"),
        (f"{__name__}:SERVICES", "is no EngineDescriptor of that name"),
    ],
)
def test_one_that_cannot_be_had_is_named_when_it_is_asked_for(offered, value, words):
    offered(outside=value)
    assert engines.engine("reference").name == "reference"
    assert engines.title_of("outside") == "outside"
    with pytest.raises(RegistryError, match=words):
        engines.engine("outside")


def test_a_name_that_is_taken(offered):
    offered(vllm=f"{__name__}:OUTSIDE")
    assert engines.names() == engines.ours()
    (said,) = engines.taken()
    assert said.startswith("a second engine is called 'vllm': that of ")
    assert engines.engine("vllm").title == "vLLM"


def test_an_unknown_name(offered):
    offered(outside=f"{__name__}:OUTSIDE")
    with pytest.raises(
        RegistryError,
        match="no engine 'sglang'; known: reference, jax_moe, aihub, compiled, maxtext, nxd, vllm, outside",
    ):
        engines.engine("sglang")
