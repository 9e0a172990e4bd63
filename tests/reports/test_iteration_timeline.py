"""Who ran in which layers: what a page draws from a log, against the plans that ran; and which stretch it shows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.campaign.served_block import ServedBlock
from pytest_npubench.errors import MeasurementError
from pytest_npubench.reports import svg
from pytest_npubench.reports.plot_parts import Shape
from pytest_npubench.serving.iteration import IterationPlan
from pytest_npubench.serving.metrics import Slo
from pytest_npubench.suites.scheduling.report.iterations import NUM_ITERATIONS, iterations_chart, iterations_of
from pytest_npubench.suites.scheduling.report.section import parts
from pytest_npubench.verdict.case_record import Cases
from tests.serving.runs import loads, policies, requests, run

from .page import check_svg
from .served import policy_record

NUM_LAYERS = 4
ARRIVING = requests((0, 8, 30), (3, 24, 12), (9, 24, 4))
SETTINGS: dict[str, dict[str, int]] = {
    "chunked": {"chunk_size_tokens": 8},
    "hybrid": {"chunk_size_tokens": 16, "tokens_per_iteration": 4},
    "layered": {"tokens_per_iteration": 8, "merge_cap_tokens": 64},
}


def served(policy: str, arriving: Any = ARRIVING, **settings: Any) -> tuple[ServedBlock, list[IterationPlan]]:
    """What a journal keeps of it, and the plans that ran."""
    done = run(policy, arriving, num_layers=NUM_LAYERS, kv_blocks=2000, **settings)
    whole = ServedBlock.of_result(done.result, rate_per_s=1.0, slo=Slo(ttft_s=1.0, tbt_s=1.0))
    (block,) = ServedBlock.of_columns(json.loads(json.dumps({k: list(v) for k, v in whole.columns().items()})))
    return block, done.plans


def planned(plan: IterationPlan) -> tuple[set[int], set[int]]:
    """The layers with prefill rows, and the requests that have them."""
    passes = [one for one in plan.passes if one.prefill]
    layers = {layer for one in passes for layer in range(one.group.first, one.group.stop)}
    return layers, {row.request for one in passes for row in one.prefill}


@given(arriving=loads(), chosen=policies(NUM_LAYERS))
def test_layers_and_requests_are_those_of_the_plans(arriving: Any, chosen: tuple[str, dict[str, Any]]) -> None:
    policy, settings = chosen
    block, plans = served(policy, arriving, **settings)
    drawn = iterations_of(block)
    assert [(set(range(one.first, one.stop)), set(one.requests)) for one in drawn] == list(map(planned, plans))
    assert [one.num_decode for one in drawn] == [len(plan.decode) for plan in plans]


def rounds_of(blocks: dict[str, ServedBlock]) -> list[dict[str, Any]]:
    points = {
        f"{point}/{name}": list(values) for point, block in blocks.items() for name, values in block.columns().items()
    }
    return [{"record": "round", "round": 0, "points": points, "failures": {}, "duration_s": 1.0}]


def point_of(policy: str) -> str:
    return f"{policy}({','.join(f'{name}={value}' for name, value in SETTINGS[policy].items())})/arxiv@u0.7"


@pytest.fixture
def blocks() -> dict[str, ServedBlock]:
    return {point_of(policy): served(policy, **settings)[0] for policy, settings in SETTINGS.items()}


def test_boxes_lie_where_the_plans_say_with_policies_one_under_another(blocks: dict[str, ServedBlock]) -> None:
    made = iterations_chart(rounds_of(blocks))
    assert made is not None
    check_svg(made.figure)
    assert made.figure.y.names == ("chunked: 4 layers", "hybrid: 4 layers", "layered: 4 layers")
    decode, prefill = made.figure.series
    assert {one.shape for one in (decode, prefill)} == {Shape.BOXES}
    assert set(decode.y_ends) == {(0.0, 1.0)}  # decode runs in all layers
    parts_of = {
        name.partition(":")[0]: [ends for own, ends in zip(prefill.y, prefill.y_ends, strict=True) if own == name]
        for name in made.figure.y.names
    }
    assert set(parts_of["chunked"]) == {(0.0, 1.0)}
    # request 1 has 24 tokens: 3 groups of 8 each, which are 2 + 1 + 1 of 4 layers
    assert parts_of["layered"][:3] == [(0.0, 0.5), (0.5, 0.75), (0.75, 1.0)]
    # in chunks of 16 at 4 an iteration: 4 groups, and again for the 8 tokens that are left with 8 of request 2
    assert parts_of["hybrid"][:8] == [(0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0)] * 2
    assert prefill.labels[0] == "1"
    row = next(row for row in made.table.rows if row[0] == "layered" and row[3] == "1")
    assert row[3:] == ("1", "24", "1 to 2", "1")


def test_every_policy_shows_the_same_stretch_from_the_first_shared_iteration(blocks: dict[str, ServedBlock]) -> None:
    made = iterations_chart(rounds_of(blocks))
    assert made is not None
    ends_ms = [ends[1] for one in made.figure.series for ends in one.x_ends if ends]
    shared = min(
        one.start_s for block in blocks.values() for one in iterations_of(block) if one.num_decode and one.stop
    )
    assert min(ends_ms) > shared * 1e3
    assert min(one.x[0] for one in made.figure.series) <= shared * 1e3
    counts = [sum(row[0] == policy for row in made.table.rows) for policy in SETTINGS]
    assert min(counts) >= 3
    assert min(counts) <= NUM_ITERATIONS


def test_the_numbers_of_the_svg_are_those_of_the_journal(blocks: dict[str, ServedBlock]) -> None:
    made = iterations_chart(rounds_of(blocks))
    assert made is not None
    drawn = ElementTree.fromstring(svg.draw(made.figure, label=made.summary))
    said = [title.text for title in drawn.iter("title")]
    for block in blocks.values():
        one = next(one for one in iterations_of(block) if one.num_decode and one.num_prefill_tokens)
        layers = f"layers {one.first + 1} to {one.stop}"
        assert any(
            f"({one.num_prefill_tokens} tokens) in {layers} and decode of {one.num_decode}" in text
            for text in said
            if text
        )


def test_the_settings_that_cases_are_about_come_before_others(blocks: dict[str, ServedBlock]) -> None:
    other, _ = served("chunked", chunk_size_tokens=4)
    rounds = rounds_of({"chunked(chunk_size_tokens=4)/arxiv@u0.7": other, **blocks})
    cases = Cases.read([policy_record("layered")])
    plain, asked = iterations_chart(rounds), iterations_chart(rounds, [point_of("chunked")])
    assert plain is not None
    assert asked is not None
    of_chunked = [[int(row[4]) for row in made.table.rows if row[0] == "chunked"] for made in (plain, asked)]
    assert max(of_chunked[0]) <= 4 < max(of_chunked[1])  # tokens of an iteration, with those of decode
    assert any(chart.title == asked.title for chart in parts(cases, rounds)[0])


@pytest.mark.parametrize("overlaps", [True, False])
def test_what_cannot_be_told_is_not_drawn(overlaps: bool) -> None:
    block, _ = served("layered", **SETTINGS["layered"])
    if overlaps:
        block.log.end_s[0] += 100.0
    else:
        block = replace(block, records=(replace(block.records[0], num_preemptions=1), *block.records[1:]))
    with pytest.raises(MeasurementError):
        iterations_of(block)
    assert iterations_chart(rounds_of({point_of("layered"): block})) is None


@given(st.integers(0, 10**6))
def test_a_block_without_iterations_has_no_picture(at: int) -> None:
    block, _ = served("layered", requests((at / 1e3, 4, 2)), **SETTINGS["layered"])
    points = {
        name: values
        for name, values in rounds_of({point_of("layered"): block})[0]["points"].items()
        if "iteration" not in name
    }
    assert iterations_chart([{"points": points}]) is None
