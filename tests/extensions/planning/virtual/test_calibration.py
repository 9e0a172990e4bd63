"""Costs that are known, found again from what requests of a simulated server show; what cannot be calibrated on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_npubench.engines.shapes import DecoderShape, decoder_shape
from pytest_npubench.errors import ConfigError, StoreError
from pytest_npubench.extensions.planning.replicas import Replica, serve_replicas
from pytest_npubench.extensions.planning.virtual.calibrated import CalibratedCost
from pytest_npubench.extensions.planning.virtual.calibration import READ, Array, Calibration, calibrate, prior_of
from pytest_npubench.extensions.planning.virtual.cost_file import CostFile, Seen, read_cost_file, write_cost_file
from pytest_npubench.extensions.planning.virtual.executor import VirtualExecutor
from pytest_npubench.extensions.planning.virtual.step_cost import PassWork, StepWork
from pytest_npubench.serving.arrivals import load_of, poisson
from pytest_npubench.serving.iteration import PrefillRow
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.schedulers import make_scheduler
from pytest_npubench.suites.hardware_files import known_folders, load_all

H100 = load_all(known_folders())["nvidia-h100"]
NUM_REQUESTS, NUM_KNOWN = 60, 20
KV_TOKENS = 100_000
Served = Callable[[CalibratedCost], Array]


def server(
    shape: DecoderShape,
    *,
    rate_per_s: float,
    prompts: tuple[int, int] = (50, 1500),
    least: int = 2,
    num_requests: int = NUM_REQUESTS,
) -> Served:
    """A server on a virtual clock: TTFT, E2E and TPOT of each request under a cost. least: tokens of an answer."""
    random = np.random.default_rng(1)
    lengths = [(int(random.integers(*prompts)), max(1, int(random.integers(least, 200)))) for _ in range(num_requests)]
    load = load_of(poisson(rate_per_s, num_requests, 5), lengths)

    def served(cost: CalibratedCost) -> Array:
        executor = VirtualExecutor(
            shape, H100, tensor_parallel=1, dtype="bf16", kv_capacity_tokens=KV_TOKENS, cost=cost
        )
        scheduler = make_scheduler(
            "chunked",
            num_layers=shape.num_layers,
            kv_blocks=KV_TOKENS // 16,
            block_size_tokens=16,
            chunk_size_tokens=1024,
        )
        result = serve_replicas(load, [Replica(scheduler, executor)], is_asynchronous=True)
        rows = [
            (record.token_times_s[0], record.token_times_s[-1], record.arrival_s, len(record.token_times_s))
            for record in result.records
        ]
        first, last, arrival, number = np.array(rows).T
        return np.stack([first - arrival, last - arrival, (last - first) / np.maximum(1, number - 1)], axis=1)

    return served


def measured(real: Array) -> Array:
    """The first requests, with a hundredth of noise."""
    return (real * np.exp(np.random.default_rng(2).normal(0.0, 0.01, real.shape)))[:NUM_KNOWN]


@pytest.fixture(scope="module", params=["mistral-7b-v0.3", "qwen3-30b-a3b"])
def found(request: pytest.FixtureRequest) -> tuple[Calibration, Array, Array]:
    """Calibrated on a server whose factors are 30 % off what is believed beforehand, one up, the next down."""
    shape = decoder_shape(request.param)
    prior = prior_of(shape, H100, tensor_parallel=1, dtype="bf16")
    off = np.array([0.3, -0.3, 0.3, -0.3, 0.3, -0.3])[: len(prior.names)]
    served = server(shape, rate_per_s=8.0)
    real = served(prior.cost(shape, prior.mean + off))
    calibration = calibrate(shape, prior, served, measured(real))
    return calibration, served(calibration.best), real


def test_requests_that_were_not_seen_are_predicted(found: tuple[Calibration, Array, Array]) -> None:
    _, predicted, real = found
    ttft, e2e, tpot = (predicted[NUM_KNOWN:].mean(axis=0) / real[NUM_KNOWN:].mean(axis=0) - 1).tolist()
    assert abs(e2e) < 0.03
    assert abs(tpot) < 0.03
    assert abs(ttft) < 0.06


def test_what_is_believed_beforehand_is_further_off(found: tuple[Calibration, Array, Array]) -> None:
    """Or the test above says nothing."""
    calibration, predicted, real = found
    shape, prior = calibration.shape, calibration.prior
    believed = server(shape, rate_per_s=8.0)(prior.cost(shape, prior.mean))
    off = np.abs(believed[NUM_KNOWN:].mean(axis=0) / real[NUM_KNOWN:].mean(axis=0) - 1)
    left = np.abs(predicted[NUM_KNOWN:].mean(axis=0) / real[NUM_KNOWN:].mean(axis=0) - 1)
    assert off.max() > 0.04
    assert off.max() > 2 * left.max()


def test_what_another_device_showed_is_where_a_few_requests_start_from(found: tuple[Calibration, Array, Array]) -> None:
    """A device on which all that is read takes a fifth longer, and the rest as long: its first 15 requests take most
    of what the other's calibration is off. What is read moves together beforehand, and what is multiplied apart."""
    other, _, _ = found
    shape, plain = other.shape, other.prior
    moved = plain.moved_from(other)
    np.testing.assert_allclose(moved.mean, other.centre)
    weights, context = plain.names.index("weights_s"), plain.names.index("context_s")
    beside = moved.covariance - np.cov(other.logs, rowvar=False)
    assert beside[weights, context] == pytest.approx(0.25**2)
    assert beside[weights, plain.names.index("row_s")] == pytest.approx(0)
    slower = other.centre + np.log([1.2 if name in READ else 1.0 for name in plain.names])
    served = server(shape, rate_per_s=8.0)
    real = served(plain.cost(shape, slower))
    answer = calibrate(shape, moved, served, real[:15])
    e2e, before = (served(cost)[15:, 1].mean() / real[15:, 1].mean() - 1 for cost in (answer.best, other.best))
    assert abs(e2e) < min(0.04, abs(before) / 2)


def test_nothing_moves_between_models_with_and_without_experts(found: tuple[Calibration, Array, Array]) -> None:
    other = found[0]
    shape = decoder_shape("qwen3-30b-a3b" if other.shape.is_dense else "mistral-7b-v0.3")
    prior = prior_of(shape, H100, tensor_parallel=1, dtype="bf16")
    with pytest.raises(ConfigError, match="want one of a model with"):
        prior.moved_from(other)


def test_what_was_drawn_makes_no_difference(found: tuple[Calibration, Array, Array]) -> None:
    """Of the prediction, to a fiftieth, while single terms are known to a tenth and less: some only in sum."""
    one, predicted, real = found
    served = server(one.shape, rate_per_s=8.0)
    other = calibrate(one.shape, one.prior, served, measured(real), seed=1)
    again = served(other.best)
    np.testing.assert_allclose(again[NUM_KNOWN:].mean(axis=0), predicted[NUM_KNOWN:].mean(axis=0), rtol=0.02)
    assert one.logs.std(axis=0).max() > 0.1


@pytest.mark.parametrize("model", ["mistral-7b-v0.3", "qwen3-30b-a3b"])
def test_prompts_that_are_longer_than_any_that_was_seen_are_predicted(model: str) -> None:
    """Their own attention takes a third of a prompt of 8,000 tokens. A form that leaves it to rows is a tenth off."""
    shape = decoder_shape(model)
    prior = prior_of(shape, H100, tensor_parallel=1, dtype="bf16")
    real = prior.cost(shape, prior.mean + [0.2 if name in ("row_s", "pair_s") else 0.0 for name in prior.names])
    short = server(shape, rate_per_s=1.0, num_requests=NUM_KNOWN)
    long = server(shape, rate_per_s=1.0, prompts=(7000, 9000))
    whole, rows = (calibrate(shape, one, short, short(real)) for one in (prior, prior.without("pair_s")))
    off = [long(one.best)[:, 0].mean() / long(real)[:, 0].mean() - 1 for one in (whole, rows)]
    assert abs(off[0]) < 0.06
    assert off[1] < -0.08


def test_requests_of_one_token_say_what_they_can() -> None:
    """They have no time between tokens, which is no number on a scale of logarithms."""
    shape = decoder_shape("mistral-7b-v0.3")
    prior = prior_of(shape, H100, tensor_parallel=1, dtype="bf16")
    served = server(shape, rate_per_s=8.0, least=-150)
    real = served(prior.cost(shape, prior.mean + 0.3))
    assert 5 < (real[:NUM_KNOWN, 2] == 0).sum() < NUM_KNOWN - 2
    predicted = served(calibrate(shape, prior, served, real[:NUM_KNOWN]).best)
    assert predicted[NUM_KNOWN:, 1].mean() == pytest.approx(real[NUM_KNOWN:, 1].mean(), rel=0.03)


def test_attention_is_as_fast_as_products_and_has_its_own_besides() -> None:
    """Beforehand. A window leaves it, and what decode reads, to every other layer."""
    prior = prior_of(decoder_shape("qwen3-8b"), H100, tensor_parallel=1, dtype="bf16")
    row, pair = prior.names.index("row_s"), prior.names.index("pair_s")
    assert prior.covariance[row, row] == pytest.approx(0.35**2)
    assert prior.covariance[pair, pair] == pytest.approx(2 * 0.35**2)
    assert prior.covariance[row, pair] == pytest.approx(0.35**2)
    shape = decoder_shape("gpt-oss-20b")
    units = {}
    for window in (shape.sliding_window, None):
        one = prior_of(replace(shape, sliding_window=window), H100, tensor_parallel=1, dtype="bf16")
        units[window] = dict(zip(one.names, one.unit_s.tolist(), strict=True))
    windowed, whole = units.values()
    for name in ("pair_s", "context_s"):
        assert windowed[name] == pytest.approx(whole[name] / 2)
    assert windowed["row_s"] == whole["row_s"]


def test_what_another_cost_lacks_goes_with_what_it_has(found: tuple[Calibration, Array, Array]) -> None:
    """A cost from a log without pairs: where its rows took less, so is a prompt's attention believed to."""
    other = found[0]
    kept = [index for index, name in enumerate(other.prior.names) if name != "pair_s"]
    lacking = replace(
        other, prior=other.prior.without("pair_s"), logs=other.logs[:, kept], centre=other.centre[kept] - 0.5
    )
    moved = other.prior.with_waking().moved_from(lacking)
    row, pair, waking = (moved.names.index(name) for name in ("row_s", "pair_s", "waking_s"))
    lower = other.centre[row] - 0.5 - other.prior.mean[row]
    assert moved.mean[pair] == pytest.approx(other.prior.mean[pair] + lower)
    assert moved.covariance[pair, pair] == pytest.approx(moved.covariance[row, row] + 0.35**2)
    assert moved.mean[waking] == pytest.approx(np.log(5.0))


def test_seconds_of_a_step_by_hand() -> None:
    dense = CalibratedCost(num_layers=4, fixed_s=1.0, weights_s=10.0, row_s=2.0, context_s=0.5)
    prompt = (PrefillRow(request=7, first_token=0, num_tokens=6),)
    whole = StepWork([PassWork(0, 4, prompt, 0)], 2, 8.0, 0.0, 3)
    assert dense.seconds(whole) == 1 + max(10, 2 * 8) + 0.5 * 8
    halves = StepWork([PassWork(0, 2, (), 0), PassWork(2, 4, prompt, 0)], 2, 8.0, 0.0, 3)
    assert dense.seconds(halves) == 1 + max(10, 2 * (2 + 3)) + 0.5 * 8  # half of the layers see the prompt
    experts = replace(dense, activation_s=0.1, has_experts=True)
    assert experts.seconds(whole._replace(passes=[PassWork(0, 4, prompt, 30)])) == 1 + 10 + 0.1 * 30 + 2 * 8 + 0.5 * 8


def test_a_request_that_arrives_in_an_iteration_waits_for_the_next_but_one() -> None:
    """Iterations of 1 s each: planned when the one before starts, not when it ends."""
    shape = decoder_shape("mistral-7b-v0.3")
    cost = CalibratedCost(num_layers=shape.num_layers, fixed_s=1.0, weights_s=0.0, row_s=0.0, context_s=0.0)
    load = [
        ServingRequest(id=0, arrival_s=0.0, prompt_tokens=16, output_tokens=8),
        ServingRequest(id=1, arrival_s=1.5, prompt_tokens=16, output_tokens=1),
    ]
    first_s = {}
    for is_asynchronous in (False, True):
        executor = VirtualExecutor(shape, H100, tensor_parallel=1, dtype="bf16", kv_capacity_tokens=4096, cost=cost)
        scheduler = make_scheduler("chunked", num_layers=shape.num_layers, kv_blocks=256, block_size_tokens=16)
        result = serve_replicas(load, [Replica(scheduler, executor)], is_asynchronous=is_asynchronous)
        first_s[is_asynchronous] = result.records[1].token_times_s[0]
        assert result.records[0].token_times_s[0] == 1.0  # an engine that is idle plans at once
    assert first_s == {False: 3.0, True: 4.0}


def test_what_does_not_tell_the_cost_is_refused() -> None:
    shape = decoder_shape("mistral-7b-v0.3")
    prior = prior_of(shape, H100, tensor_parallel=1, dtype="bf16")
    with pytest.raises(ConfigError, match="4 requests to calibrate on; want at least 5"):
        calibrate(shape, prior, lambda _: np.ones((4, 3)), np.ones((4, 3)))
    with pytest.raises(ConfigError, match="no request had a token after its first"):
        calibrate(shape, prior, lambda _: np.ones((9, 3)), np.ones((9, 3)) * [1, 1, 0])
    bare = replace(H100, peak=replace(H100.peak, memory_bandwidth_bytes_per_s=None))
    with pytest.raises(ConfigError, match="memory_bandwidth"):
        prior_of(shape, bare, tensor_parallel=1, dtype="bf16")


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    content = CostFile(
        model="mistral-7b-v0.3",
        num_layers=32,
        has_experts=False,
        hardware="nvidia-h100",
        tensor_parallel=1,
        dtype="bf16",
        kv_capacity_tokens=1000,
        asynchronous=True,
        terms=("fixed_s", "weights_s", "row_s", "context_s"),
        unit_s=(1.0, 2.0, 3.0, 4.0),
        logs=((0.0, 0.1, 0.2, 0.3), (0.2, 0.1, 0.0, 0.1)),
        centre=(0.0, 0.2, 0.1, 0.2),
        curve=((0.0, 0.0), (100.0, 60.0), (300.0, 400.0)),
        seen=Seen(prefill_tokens=10, decode_rows=2, context_tokens=100),
        source="here",
        num_seen=9,
        errors={"e2e_mean": 0.01},
    )
    path = tmp_path / "cost.json"
    write_cost_file(path, content)
    assert read_cost_file(path) == content
    best = content.calibration(decoder_shape("mistral-7b-v0.3")).best
    assert best.weights_s == pytest.approx(2.0 * np.exp(0.2))
    assert best.curve == content.curve
    text = path.read_text(encoding="utf-8")
    for wrong in ("[[0.0, 0.0]]", "[[0.0, 1.0], [9.0, 2.0]]", "[[0.0, 0.0], [9.0, 5.0], [8.0, 6.0]]"):
        path.write_text(text.replace("[[0.0, 0.0], [100.0, 60.0], [300.0, 400.0]]", wrong), encoding="utf-8")
        with pytest.raises(StoreError, match=r"curve.*want two points or more that rise from 0, 0"):
            read_cost_file(path)
    path.write_text(text.replace('"centre": [0.0, ', '"centre": ['), encoding="utf-8")
    with pytest.raises(StoreError, match="3 numbers for 4 terms"):
        read_cost_file(path)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"is of mistral-7b-v0\.3"):
        content.calibration(decoder_shape("qwen3-8b"))
    path.write_text(path.read_text(encoding="utf-8").replace('"unit_s": [1.0, ', '"unit_s": ['), encoding="utf-8")
    with pytest.raises(StoreError, match="3 numbers for 4 terms"):
        read_cost_file(path)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(StoreError, match=r"cost\.json"):
        read_cost_file(path)
