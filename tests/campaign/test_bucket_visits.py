"""Visits of the bucket suite, on engines and on graphs: what a round holds of them is what journals have always held,
and they come back from it as they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.measurement import Phase
from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.compilers.suites.graphs.phone_plan import GraphPoint, GraphVisit
from pytest_npubench.suites.buckets.points import BucketVisit, declared_in, seconds_in

seconds = st.floats(1e-6, 1e3)
units = st.sampled_from(("npu", "gpu", "cpu"))
graphs = st.builds(
    GraphVisit,
    times_s=st.lists(seconds, min_size=1).map(tuple),
    first_load=st.none() | seconds,
    warm_load=st.none() | seconds,
    peak_bytes=st.none() | st.integers(1, 2**40),
    layers=st.dictionaries(units, st.integers(0, 500)),
    layer_s=st.dictionaries(units, seconds),
    stand_in=st.booleans(),
)
GRAPH = GraphPoint(phase=Phase.PREFILL, bucket=8, unit="npu").name


def in_a_round(name: str, visits: list[BucketVisit] | list[GraphVisit]) -> dict[str, tuple[float, ...]]:
    """As campaign.rounds puts visits together: column after column, visit after visit."""
    found: dict[str, tuple[float, ...]] = {}
    for visit in visits:
        for column, values in visit.columns().items():
            key = f"{name}/{column}" if column else name
            found[key] = (*found.get(key, ()), *values)
    return found


@given(st.lists(seconds, min_size=1, max_size=6), st.lists(st.integers(1, 2**20), max_size=4).map(tuple))
def test_what_an_engine_declares_comes_back_with_each_visit(times_s: list[float], declared: tuple[int, ...]) -> None:
    visits = [BucketVisit(seconds=value, declared=declared) for value in times_s]
    row = in_a_round("batch/a/1", visits)
    assert Measured(rounds=[row]).visits("batch/a/1", BucketVisit) == (tuple(visits),)
    assert declared_in([row]) == tuple(sorted(set(declared)))
    assert seconds_in(row) == {"batch/a/1": tuple(times_s)}


@given(st.lists(st.tuples(seconds, st.floats(0, 1e6)), min_size=1, max_size=6))
def test_joules_come_back_with_each_visit_and_are_no_seconds(told: list[tuple[float, float]]) -> None:
    visits = [BucketVisit(seconds=value, declared=(8,), energy_j=joules, peak_bytes=3e9) for value, joules in told]
    row = in_a_round("profile/16/1", visits)
    assert Measured(rounds=[row]).visits("profile/16/1", BucketVisit) == (tuple(visits),)
    assert seconds_in(row) == {"profile/16/1": tuple(value for value, _ in told)}
    assert declared_in([row]) == (8,)
    less = in_a_round("profile/16/1", [*visits, BucketVisit(seconds=1.0, declared=(8,))])
    assert {one.energy_j for one in Measured(rounds=[less]).visits("profile/16/1", BucketVisit)[0]} == {None}


@given(graphs)
def test_what_a_graphs_report_told_comes_back(visit: GraphVisit) -> None:
    assert Measured(rounds=[in_a_round(GRAPH, [visit])]).visits(GRAPH, GraphVisit) == ((visit,),)


def test_the_columns_are_those_of_todays_journals() -> None:
    assert in_a_round("step/16", [BucketVisit(seconds=0.5, declared=(16, 32))]) == {
        "step/16": (0.5,),
        "step/16/declared": (16.0, 32.0),
    }
    visit = GraphVisit(
        times_s=(0.1, 0.2), first_load=3.0, peak_bytes=7, layers={"npu": 9}, layer_s={"npu": 0.05}, stand_in=True
    )
    assert in_a_round(GRAPH, [visit]) == {
        "graph/prefill/8/npu": (0.1, 0.2),
        "graph/prefill/8/npu/first_load": (3.0,),
        "graph/prefill/8/npu/peak_bytes": (7,),
        "graph/prefill/8/npu/layers/npu": (9,),
        "graph/prefill/8/npu/layer_s/npu": (0.05,),
        "graph/prefill/8/npu/stand_in": (1.0,),
    }


def test_a_graph_that_an_earlier_round_holds_leaves_nothing() -> None:
    assert GraphVisit(times_s=()).columns() == {}
    with pytest.raises(MeasurementError, match="no round has samples of it"):
        Measured(rounds=[{}]).visits(GRAPH, GraphVisit)


def test_lengths_that_do_not_belong_to_the_visits_are_refused() -> None:
    row = {"step/16": (0.5, 0.6), "step/16/declared": (16.0, 32.0, 64.0)}
    with pytest.raises(MeasurementError, match="3 declared lengths of 2 visits"):
        Measured(rounds=[row]).visits("step/16", BucketVisit)
