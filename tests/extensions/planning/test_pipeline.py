"""A pipeline on the virtual clock: one request in closed form, loads against a loop by hand, one stage as a device."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving.runs import loads, requests

from pytest_npubench.core.figures import Figure, Network
from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.engines.kv_capacity import default_kv_capacity_tokens, stage_layers, stage_shapes, state_tokens
from pytest_npubench.engines.shapes import DecoderShape, decoder_shape
from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.planning.pipeline import Pipeline
from pytest_npubench.extensions.planning.replicas import Replica, SimulatedResult, serve_at_their_pace
from pytest_npubench.extensions.planning.virtual.mixed_layers import step_cost
from pytest_npubench.extensions.planning.virtual.stages import NOTHING, Stages
from pytest_npubench.extensions.planning.virtual.step_cost import PassWork, StepWork
from pytest_npubench.serving.clock import VirtualClock
from pytest_npubench.serving.iteration import PrefillRow
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.loop import serve
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.schedulers import make_scheduler
from pytest_npubench.suites.hardware_files import load_all

from .virtual.devices import device_of

SHAPE = decoder_shape("mistral-7b-v0.3")  # 32 layers
BLOCK, MANY_BLOCKS = 4, 10_000
H100 = load_all([default_directory()])["nvidia-h100"]


@dataclass(frozen=True)
class PerLayer:
    """A layer takes so long, and each row more in it; the host and the head are said beside."""

    host_s: float = 2.0
    layer_s: float = 0.25
    row_s: float = 0.0
    head_s: float = 0.0

    def seconds(self, work: StepWork) -> float:
        layers_s = sum(
            (one.stop - one.first)
            * (self.layer_s + self.row_s * (work.decode_rows + sum(row.num_tokens for row in one.prefill)))
            for one in work.passes
        )
        return self.host_s + layers_s + (self.head_s if work.sampled_rows else 0.0)


def stages_of(cost: PerLayer, number: int, link_row_s: float = 0.0) -> Stages:
    return Stages(
        host=cost,
        costs=[cost] * number,
        layers=stage_layers(SHAPE.num_layers, number),
        link_row_s=[link_row_s] * (number - 1),
        expert_layers=range(SHAPE.num_layers + 1),
    )


def served(
    load: Sequence[ServingRequest], stages: Stages, *, blocks: int = MANY_BLOCKS, name: str = "chunked", **settings: int
) -> SimulatedResult:
    replicas = [
        Replica(
            make_scheduler(name, num_layers=SHAPE.num_layers, kv_blocks=blocks, block_size_tokens=BLOCK, **settings),
            device_of(SHAPE, stages.host, kv_blocks=blocks, block_size_tokens=BLOCK),
        )
        for _ in stages.layers
    ]
    return serve_at_their_pace(load, [Pipeline(replicas, stages)])


@pytest.mark.parametrize("host_s", [0.5, 3.0])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_one_request_is_a_closed_form(number: int, host_s: float) -> None:
    """3 chunks of 8 tokens follow one another through the stages; each of 5 tokens waits for the one before."""
    cost = PerLayer(host_s=host_s, layer_s=0.01, row_s=0.005, head_s=0.1)
    chunk, link_row_s = 8, 0.02
    (record,) = served(requests((1.0, 24, 5)), stages_of(cost, number, link_row_s), chunk_size_tokens=chunk).records
    stage_s, row_stage_s = ((0.01 + 0.005 * rows) * 32 / number for rows in (chunk, 1))
    first_s = 1.0 + host_s + 2 * max(host_s, stage_s) + number * stage_s + (number - 1) * chunk * link_row_s + 0.1
    step_s = host_s + number * row_stage_s + (number - 1) * link_row_s + 0.1
    if host_s > stage_s:  # the last chunk waits for the host alone
        first_s = 1.0 + 3 * host_s + number * stage_s + (number - 1) * chunk * link_row_s + 0.1
    assert list(record.token_times_s) == pytest.approx([first_s + step * step_s for step in range(5)])


def test_micro_batches_run_between_one_another() -> None:
    """Two stages of 4 s and a host of 2 s: a token every 10 s each, that of the second request 4 s behind."""
    load = requests((0.0, 4, 3), (0.0, 4, 3))
    first, second = (list(record.token_times_s) for record in served(load, stages_of(PerLayer(), 2)).records)
    assert first == pytest.approx([10.0, 20.0, 30.0])
    assert second == pytest.approx([14.0, 24.0, 34.0])


@dataclass
class Lane:
    """A micro-batch by hand. prompts: [id, tokens left] in order; left: tokens to give of those who decode."""

    prompts: list[list[int]] = field(default_factory=list)
    left: dict[int, int] = field(default_factory=dict)
    admitted: set[int] = field(default_factory=set)
    sent: set[int] = field(default_factory=set)

    @property
    def load(self) -> int:
        return 4 * len(self.sent - self.admitted) + len(self.admitted)


def by_hand(load: Sequence[ServingRequest], stages: Stages, cost: PerLayer, chunk: int) -> dict[int, list[float]]:
    """Times of tokens: arrivals, and lanes that are free, in order of time; blocks and slots never run out."""
    number = len(stages.layers)
    lanes, busy = [Lane() for _ in range(number)], [0.0] * (number + 1)
    times: dict[int, list[float]] = {request.id: [] for request in load}
    asleep, under_way = set(range(number)), dict[int, tuple[set[int], float]]()
    events = [(request.arrival_s, 0, index) for index, request in enumerate(load)]
    heapq.heapify(events)
    while events:
        now, is_lane, index = heapq.heappop(events)
        if not is_lane:
            chosen = min(lanes, key=lambda lane: lane.load)
            chosen.prompts.append([load[index].id, load[index].prompt_tokens])
            chosen.sent.add(load[index].id)
            for other in asleep:
                heapq.heappush(events, (now, 1, other))
            asleep = set()
            continue
        lane = lanes[index]
        given, end = under_way.pop(index, (set(), 0.0))
        for request in given:
            times[request].append(end)
            lane.left[request] = lane.left.get(request, next(r for r in load if r.id == request).output_tokens) - 1
        for request in [request for request, left in lane.left.items() if not left]:
            del lane.left[request]
            lane.sent.remove(request)
            lane.admitted.remove(request)
        rows, gives = len(lane.left), set(lane.left)
        for prompt in list(lane.prompts):
            if (taken := min(chunk - rows, prompt[1])) <= 0:
                break
            lane.admitted.add(prompt[0])
            rows, prompt[1] = rows + taken, prompt[1] - taken
            if not prompt[1]:
                lane.prompts.remove(prompt)
                gives.add(prompt[0])
        if not rows:
            asleep.add(index)
            continue
        there, entered = now, 0.0
        for machine in range(number + 1):
            layers = 32 / number if machine else 0
            took = layers * (cost.layer_s + cost.row_s * rows) if machine else cost.host_s
            took += cost.head_s if machine == number and gives else 0.0
            busy[machine] = max(there, busy[machine]) + took
            entered = busy[machine] - took if machine == 1 else entered
            there = busy[machine] + (rows * stages.link_row_s[machine - 1] if 0 < machine < number else 0.0)
        under_way[index] = gives, there
        heapq.heappush(events, (there if gives else entered, 1, index))
    return times


@given(load=loads(), number=st.sampled_from((1, 2, 4, 8)), chunk=st.integers(3, 20))
def test_any_load_is_as_by_hand(load: Sequence[ServingRequest], number: int, chunk: int) -> None:
    cost = PerLayer(host_s=0.11, layer_s=0.0127, row_s=0.00171, head_s=0.013)
    stages = stages_of(cost, number, link_row_s=0.0019)
    result = served(load, stages, chunk_size_tokens=chunk)
    times = {record.id: list(record.token_times_s) for record in result.records}
    wanted = by_hand(load, stages, cost, chunk)
    assert times.keys() == wanted.keys()
    for request, ends_s in wanted.items():
        assert times[request] == pytest.approx(ends_s, rel=0, abs=1e-9)


@pytest.mark.parametrize("name", ["static", "continuous", "chunked", "layered", "hybrid"])
@given(load=loads())
def test_one_stage_without_a_host_is_the_plain_loop(name: str, load: Sequence[ServingRequest]) -> None:
    """With a cache so short that requests are preempted."""
    cost, blocks = PerLayer(host_s=0.0, row_s=0.001), 16
    alone = serve(
        OpenLoad(load),
        make_scheduler(name, num_layers=SHAPE.num_layers, kv_blocks=blocks, block_size_tokens=BLOCK),
        device_of(SHAPE, cost, kv_blocks=blocks, block_size_tokens=BLOCK),
        VirtualClock(),
    )
    result = served(load, stages_of(cost, 1), blocks=blocks, name=name)
    for record, wanted in zip(result.records, alone.records, strict=True):
        assert list(record.token_times_s) == pytest.approx(list(wanted.token_times_s))


@given(load=loads(), number=st.integers(2, 4))
def test_a_short_cache_is_shared_and_everybody_is_served(load: Sequence[ServingRequest], number: int) -> None:
    result = served(load, stages_of(PerLayer(row_s=0.01), number), blocks=16, max_batch_size=3)
    assert [len(record.token_times_s) for record in result.records] == [request.output_tokens for request in load]
    ends_s = [end_s for record in result.records for end_s in record.token_times_s]
    assert set(ends_s) <= set(result.log.end_s)


@pytest.mark.parametrize(("number", "sizes"), [(1, [62]), (4, [15, 16, 16, 15]), (5, [12, 12, 13, 13, 12])])
def test_layers_are_dealt_out_as_vllm_does(number: int, sizes: list[int]) -> None:
    """distributed/utils.py of vLLM 0.32 gives these for 62 layers."""
    layers = stage_layers(62, number)
    assert [stop - first for first, stop in layers] == sizes
    assert (layers[0][0], layers[-1][1]) == (0, 62)
    with pytest.raises(ConfigError, match="63: the model has 62 layers"):
        stage_layers(62, 63)


def hardware(**network: float) -> HardwareSpec:
    """An H100 with a network of its own, or with none."""
    if not network:
        return replace(H100, network=None)
    per_s = Figure(value=network["per_s"], unit="B/s", source="a test")
    return replace(H100, network=Network(devices_per_node=int(network["each"]), bandwidth_bytes_per_s=per_s))


def test_the_stages_of_a_model_are_its_whole_cost_and_the_links() -> None:
    """Four stages of two devices, four devices a node: the second link leaves it. 7 rows of 2,048 values in bf16 and
    their residual are 28,672 bytes for each of the two."""
    shape = decoder_shape("qwen3-30b-a3b")
    spec = hardware(each=4, per_s=50e9)
    cost = step_cost(shape, spec, tensor_parallel=2, dtype="bf16")
    stages = Stages.of(cost, shape, spec, number=4, tensor_parallel=2, dtype="bf16")
    work = StepWork([PassWork(0, 48, (PrefillRow(0, 0, 4),), 1001)], 3, 900, 0, 4)
    host_s, of_stages = stages.seconds(work)
    assert host_s == cost.seconds(NOTHING) == cost.iteration_s  # type: ignore[union-attr]
    assert host_s + sum(busy_s for busy_s, _ in of_stages) == pytest.approx(cost.seconds(work), rel=1e-3)
    near_s, far_s = (28_672 / (0.84 * per_s) for per_s in (450e9, 50e9))
    assert [link_s for _, link_s in of_stages] == pytest.approx([near_s, far_s, near_s, 0.0])


def test_a_group_of_several_nodes_is_as_fast_as_the_network() -> None:
    """The all-reduces of 8 devices: 4 x 7 / 8 of the hidden values of a row."""
    shape = decoder_shape("llama-3.2-1b")
    near, far, alone = (
        step_cost(shape, spec, tensor_parallel=8, dtype="bf16").link_row_s  # type: ignore[union-attr]
        for spec in (hardware(each=8, per_s=50e9), hardware(each=4, per_s=50e9), hardware())
    )
    assert (near, far) == pytest.approx(tuple(3.5 * 2048 * 2 / (0.84 * per_s) for per_s in (450e9, 50e9)))
    assert alone == near


def test_the_fullest_stage_says_how_much_the_cache_holds() -> None:
    """qwen3-8b on two devices of 80 GB: 18 layers each, and a table of 151,936 x 4,096 on either."""
    shape = decoder_shape("qwen3-8b")
    room = default_kv_capacity_tokens(shape, H100, tensor_parallel=1, dtype="bf16", num_stages=2)
    table = 151_936 * 4_096
    layers = (shape.num_parameters - 2 * table - shape.hidden) / 2
    assert room == int((0.9 * 80e9 - 2 * (layers + table + shape.hidden)) / (2 * 18 * 2 * 8 * 128))
    # three stages hold less of the tables, and the first is not the fullest
    assert default_kv_capacity_tokens(shape, H100, tensor_parallel=1, dtype="bf16", num_stages=3) > 1.5 * room
    tied = decoder_shape("llama-3.2-1b")
    both = [default_kv_capacity_tokens(tied, H100, tensor_parallel=1, dtype="bf16", num_stages=n) for n in (1, 2)]
    assert both[1] < 2 * both[0] + tied.num_parameters  # the table lies twice


def hybrid(number: int, *, every: int, state: int = 6_000_000) -> DecoderShape:
    """Layers of qwen3-8b, of which one in so many has attention, and the others have states."""
    shape = decoder_shape("qwen3-8b")
    full = shape.all_layers[0]
    states = replace(full, kv_values=0, state_values=state)
    layers = tuple(full if index % every == 0 else states for index in range(number))
    return replace(shape, num_layers=number, layers=layers, other_parameters=7, draft_parameters=11)


@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_every_weight_is_on_one_stage(number: int) -> None:
    shape = hybrid(23, every=4)
    stages = [stage for stage, _ in stage_shapes(shape, number)]
    assert [layer for stage in stages for layer in stage.all_layers] == list(shape.layers)
    tables = sum(tables for _, tables in stage_shapes(shape, number))
    both = 2 * shape.vocab_size * shape.hidden
    assert (
        sum(stage.num_parameters - both - shape.hidden for stage in stages)
        == shape.num_parameters - both - shape.hidden
    )
    assert sum(stage.draft_parameters for stage in stages) == 11
    assert tables == 2


@pytest.mark.parametrize("number", [1, 2, 3, 5])
@pytest.mark.parametrize("every", [2, 4])
def test_what_is_admitted_fits_every_stage(number: int, every: int) -> None:
    """Layer by layer: the fullest stage says how many tokens each has blocks for, and as many requests are admitted as
    fit the stage with the most states beside its tokens."""
    shape, num_tokens, free_tokens, fits = hybrid(20, every=every), 4000, [], []
    capacity = default_kv_capacity_tokens(shape, H100, tensor_parallel=1, dtype="bf16", num_stages=number)
    for index, (first, stop) in enumerate(stage_layers(20, number)):
        free = 0.9 * 80e9 - 2 * shape.hidden - (2 * 7 if not index else 0) - (2 * 11 if index == number - 1 else 0)
        free -= 2 * shape.vocab_size * shape.hidden * ((not index) + (index == number - 1))
        token = state = 0
        for layer in shape.layers[first:stop]:
            free -= 2 * (layer.shared_parameters + layer.small_parameters)
            token, state = token + 2 * layer.kv_values, state + 2 * layer.state_values
        free_tokens.append(int(free / token))
        fits.append(capacity * token // (-(-state // token) * token + num_tokens * token))
    assert capacity == min(free_tokens)
    of_states = state_tokens(shape, tensor_parallel=1, dtype="bf16", num_stages=number)
    assert capacity // (num_tokens + of_states) == min(fits)


def test_weights_that_do_not_fit_a_stage_of_states_are_refused() -> None:
    shape = hybrid(4, every=4)
    heavy = tuple(replace(layer, dense_parameters=0 if layer.kv_values else 10**11) for layer in shape.layers)
    with pytest.raises(ConfigError, match="GB of weights"):
        default_kv_capacity_tokens(replace(shape, layers=heavy), H100, tensor_parallel=1, dtype="bf16", num_stages=4)
