"""The experiments on a real pair: numbers against numpy, whatever the order; units that die; nothing left behind."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engines.shadow_product import shadow_product
from forked_python import STEM

from pytest_npubench.engines.quantization import (
    ActivationCalibration,
    calibrate,
    int8_product,
    max_min_scale,
)
from pytest_npubench.errors import DeviceUnavailableError, RegistryError, UnitLostError
from pytest_npubench.extensions.pairs.offload.chunk_graphs import ChunkSettings
from pytest_npubench.extensions.pairs.offload.decoder import (
    DecoderSize,
    attention,
    make_layers,
    make_prompt,
    norm,
    reference,
    trace,
)
from pytest_npubench.extensions.pairs.offload.dispatch import LIMIT_S
from pytest_npubench.extensions.pairs.offload.experiments import experiment, name_of
from pytest_npubench.extensions.pairs.offload.factorial import FactorialSettings
from pytest_npubench.extensions.pairs.offload.pair import OffloadPair
from pytest_npubench.extensions.pairs.offload.replay import ReplaySettings
from pytest_npubench.extensions.pairs.offload.shadow import ShadowSettings
from pytest_npubench.extensions.pairs.offload.summaries import (
    contribution_over_fifo,
    replay_rows,
    summarize_chunks,
    summarize_factorial,
    summarize_shadow,
)

from .oracles import layer_elements

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="a pair of units needs 2 cores"
)

SIZE = DecoderSize(num_layers=2, width=32, num_heads=2, ffn_width=64, num_outliers=2)
FACTORIAL = FactorialSettings(size=SIZE, chunk_tokens=8, num_chunks=2)
REPLAY = ReplaySettings(
    size=SIZE, chunk_tokens=8, num_chunks=2, policies=("in_order", "fifo", "contribution"), stall_s=0.001
)


def sampled(pair: OffloadPair, names: list[str], num_rounds: int) -> dict[str, list[Any]]:
    """By point, the records of its visits."""
    pair.load()
    found: dict[str, list[Any]] = {name: [] for name in names}
    for _, name in product(range(num_rounds), names):
        figures = pair.measure(name)
        assert all(map(math.isfinite, asdict(figures).values())), figures
        found[name].append(figures)
    return found


def expected_error(shadow: bool) -> float:
    """The pipeline in numpy, one product after another: chunks and order do not matter to the numbers."""
    prompt = make_prompt(SIZE, FACTORIAL.chunk_tokens * FACTORIAL.num_chunks)
    _, profile = trace(SIZE, make_prompt(SIZE, len(prompt), batch=1))
    hidden = prompt
    for layer, inputs in zip(make_layers(SIZE), profile, strict=True):

        def multiplied(x: np.ndarray, name: str) -> np.ndarray:
            scale = max_min_scale(inputs[name])  # noqa: B023 (called in this round alone)
            if not shadow or name not in ("w_qkv", "w_up"):
                return int8_product(x, layer[name], scale)  # noqa: B023
            known: ActivationCalibration = calibrate(inputs[name], SIZE.num_outliers)  # noqa: B023
            return shadow_product(x, layer[name], known)  # noqa: B023

        q, k, v = np.split(multiplied(norm(hidden, layer["gain"]), "w_qkv"), 3, axis=1)
        hidden = hidden + multiplied(attention(q, k, v, SIZE.num_heads).astype(np.float32), "w_out")
        inner = multiplied(norm(hidden, layer["ffn_gain"]), "w_up")
        hidden = hidden + multiplied(inner / (1 + np.exp(-inner)), "w_down")
    exact = reference(SIZE, prompt)
    return float(np.linalg.norm(hidden - exact) / np.linalg.norm(exact))


def test_the_factorial_computes_the_same_in_every_order() -> None:
    names = [point.name for point in FactorialSettings.points()]
    with OffloadPair(FACTORIAL) as pair:
        visits_by_name = sampled(pair, names, 2)
    plain, shadowed = expected_error(shadow=False), expected_error(shadow=True)
    assert shadowed < plain / 3
    for name, visits in visits_by_name.items():
        expected = shadowed if "shadow" in name else plain
        assert [visit.relative_error for visit in visits] == pytest.approx([expected] * 2, rel=0.05), name
        copies = 1 if "sharing" in name else 2
        assert {visit.weight_bytes for visit in visits} == {copies * 2 * layer_elements(SIZE)}
        assert {visit.num_graphs for visit in visits} == {copies * 8}
        assert all(0 <= visit.bubble_fraction < 1 for visit in visits)
    rows, summary = summarize_factorial(visits_by_name)
    effects = {one.name: one for one in summary.weight_bytes}
    assert effects["sharing"].ratio == pytest.approx(0.5)
    assert effects["shadow"].ratio == pytest.approx(1)
    assert next(one for one in summary.error if one.name == "shadow").ratio < 1 / 3
    assert len(rows) == 8


def test_replays_keep_the_result_under_contention() -> None:
    names = [point.name for point in REPLAY.points()]
    with OffloadPair(REPLAY) as pair:
        visits_by_name = sampled(pair, names, 2)
    expected = expected_error(shadow=False)
    for name, visits in visits_by_name.items():
        assert [visit.relative_error for visit in visits] == pytest.approx([expected] * 2, rel=0.05), name
        assert all(visit.total_s > 0 for visit in visits)
        assert all(visit.stalled_s == 0 for visit in visits) or name.endswith("/stalls")
    rows = replay_rows(REPLAY.points(), visits_by_name)
    assert set(contribution_over_fifo(rows)) == {"calm", "stalls", "hog"}


@pytest.fixture(scope="module")
def shadow_pair() -> Iterator[OffloadPair]:
    with OffloadPair(SHADOW) as pair:
        yield pair


SHADOW = ShadowSettings(num_tokens=16, num_channels=256, num_rows=64, num_outliers=(0, 4))


def test_shadow_on_a_pair(shadow_pair: OffloadPair) -> None:
    visits_by_name = sampled(shadow_pair, [point.name for point in SHADOW.points()], 2)
    summary = summarize_shadow(SHADOW, visits_by_name)
    assert summary.error_gain[4] > 5
    assert summary.error_gain[0] == pytest.approx(1, rel=0.5)
    rows = {(one.arm, one.setting): one for one in summary.rows}
    assert rows["fp32", "4 outliers"].over is None
    assert rows["clip", "4 outliers"].over is not None
    assert rows["serial", "4 outliers"].sync_fraction < 1
    assert rows["fp32", "4 outliers"].relative_error < 1e-5


def test_an_unknown_point_is_named_and_the_pair_goes_on(shadow_pair: OffloadPair) -> None:
    with pytest.raises(RegistryError, match="no point 'shadow/x'"):
        shadow_pair.measure("shadow/x")
    assert shadow_pair.measure("shadow/fp32/0 outliers").total_s > 0


def test_chunk_graphs_on_a_pair() -> None:
    settings = ChunkSettings(size=SIZE, chunk_tokens=8, prompt_tokens=(12,))
    with OffloadPair(settings) as pair:
        visits_by_name = sampled(pair, [point.name for point in settings.points()], 1)
    summary = summarize_chunks(settings, visits_by_name)
    assert summary.saved_fraction == {12: 0.5}
    assert summary.shared_subgraphs == {12: (10, 12)}
    assert all(one.relative_error < 1e-5 for one in summary.rows)


def children(pid: int) -> list[int]:
    """Of a process, each below its guard."""
    return [child for guard in started_by(pid) for child in started_by(guard)]


def started_by(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found if Path(f"/proc/{child}/comm").read_text().strip() != STEM]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_closed_pair_leaves_no_process() -> None:
    before = set(children(os.getpid()))
    pair = OffloadPair(REPLAY)
    pair.load()
    (host,) = set(children(os.getpid())) - before
    below = children(host)
    assert len(below) == 2  # the static unit and the hog
    pair.close()
    pair.close()
    until_s = time.monotonic() + 10
    while any(map(is_alive, (host, *below))) and time.monotonic() < until_s:
        time.sleep(0.05)
    assert not any(map(is_alive, (host, *below)))


@pytest.mark.parametrize("which", ["host", "static"])
def test_a_unit_that_dies_is_named(which: str) -> None:
    before = set(children(os.getpid()))
    with OffloadPair(SHADOW) as pair:
        pair.load()
        (host,) = set(children(os.getpid())) - before
        os.kill(host if which == "host" else children(host)[0], signal.SIGKILL)
        with pytest.raises(UnitLostError, match="dynamic unit" if which == "host" else "static unit"):
            pair.measure(SHADOW.points()[0].name)


STALLED = ReplaySettings(
    size=SIZE, chunk_tokens=8, num_chunks=2, policies=("in_order", "fifo"), stall_fraction=1.0, stall_s=0.4
)


@pytest.mark.parametrize("policy", STALLED.policies)
def test_a_static_unit_that_dies_in_a_prefill_is_noticed_at_once(policy: str) -> None:
    """The prefill sleeps for seconds, so the unit dies in the midst of it."""
    before = set(children(os.getpid()))
    with OffloadPair(STALLED) as pair:
        pair.load()
        (host,) = set(children(os.getpid())) - before
        static = children(host)[0]
        killed_at_s = []

        def kill() -> None:
            killed_at_s.append(time.monotonic())
            os.kill(static, signal.SIGKILL)

        timer = threading.Timer(0.5, kill)
        timer.start()
        with pytest.raises(UnitLostError, match=r"static unit on core .* was lost: killed by signal 9"):
            pair.measure(f"replay/{policy}/stalls")
        assert time.monotonic() - killed_at_s[0] < LIMIT_S / 2, "not by the limit of a silent unit"
        timer.join()


def test_one_core_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    with pytest.raises(DeviceUnavailableError, match="needs 2 cores; this process may use 1"):
        OffloadPair(SHADOW)


def test_experiments_are_found_by_their_settings() -> None:
    for name in ("shadow", "chunk_graphs", "replay", "factorial"):
        found = experiment(name)
        assert name_of(found.settings()) == name
        assert found.kernels.startswith("pytest_npubench.extensions.pairs.offload.")
    with pytest.raises(RegistryError, match="no offload experiment 'x'; known: shadow, chunk_graphs"):
        experiment("x")
    with pytest.raises(RegistryError, match="are no experiment's settings"):
        name_of(3)
