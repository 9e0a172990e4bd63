"""npubench search --ray on a local cluster of two nodes."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Answer

from .test_search import SEARCH, SETTINGS, _lines, _simulated

Run = Callable[..., Answer]
ON_RAY = [*SEARCH[:-2], *SETTINGS]  # without --processes


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Of a head and a further node, a processor each."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    found.add_node(num_cpus=1)
    yield found
    found.shutdown()


@pytest.fixture
def address(cluster: Any) -> str:
    return str(cluster.address)


def test_a_cluster_says_what_this_machine_says(call: Run, address: str, tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    here = call(*ON_RAY, "--json")
    there = call(*ON_RAY, "--ray", address, "--results", results, "--json")
    assert there.status == 0, there.err
    assert there.json == here.json
    again = call(*ON_RAY, "--results", results, "--json")
    assert f"{len(_lines(results))} simulations are in" in again.err
    assert again.json == here.json


def test_a_search_on_a_cluster_that_is_killed_goes_on(call: Run, address: str, tmp_path: Path) -> None:
    """Nothing that it has written is lost or simulated again, on the cluster or here."""
    results = tmp_path / "results.jsonl"
    words = [*map(str, ON_RAY), "--ray", address, "--results", str(results), "--json"]
    code = "import sys; from pytest_npubench.cli.main import main; sys.exit(main())"
    with subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.DEVNULL) as process:
        deadline_s = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline_s and not _lines(results):
            time.sleep(0.005)
        process.kill()
    kept = _lines(results)
    assert kept
    again = call(*words)
    assert f"{len(kept)} simulations are in" in again.err
    assert _lines(results)[: len(kept)] == kept
    assert len(_simulated(_lines(results))) == len(_lines(results))
    assert again.json == call(*ON_RAY, "--json").json


def test_a_node_that_dies_costs_no_result(call: Run, cluster: Any, tmp_path: Path) -> None:
    """What ran on it runs on another one."""
    results, extra = tmp_path / "results.jsonl", cluster.add_node(num_cpus=2)

    def end_it() -> None:
        deadline_s = time.monotonic() + 120
        while time.monotonic() < deadline_s and not _lines(results):
            time.sleep(0.005)
        cluster.remove_node(extra, allow_graceful=False)

    end = threading.Thread(target=end_it)
    end.start()
    there = call(*ON_RAY, "--ray", cluster.address, "--results", results, "--json")
    end.join()
    assert there.json == call(*ON_RAY, "--json").json


def test_where_there_is_no_cluster_it_says_so(call: Run) -> None:
    pytest.importorskip("ray")
    done = call(*ON_RAY, "--ray", "not an address")
    assert done.status == 2
    assert "npubench: error: the Ray cluster at not an address: " in done.err


def test_without_ray_it_says_how_to_have_it(call: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    done = call(*ON_RAY, "--ray", "auto")
    assert done.status == 2
    assert "ray is not installed: pip install pytest-npubench[ray]" in done.err
