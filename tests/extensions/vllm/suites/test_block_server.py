"""VllmServer with engines that are stand-ins: what they are asked, what becomes of their answers and of their death."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from types import SimpleNamespace

import pytest
from campaign.serving.conftest import kept
from small_decoders import small_mixture

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_block import ServedBlock, failures_of, pooled
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.engines.model_directory import ORIGIN_FILE, WEIGHTS_FILE
from pytest_npubench.engines.shapes import SHAPES
from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.extensions.vllm import block_server
from pytest_npubench.extensions.vllm.answer import Iteration, VllmAnswer, VllmRequest, VllmRun
from pytest_npubench.extensions.vllm.block_server import VllmServer
from pytest_npubench.extensions.vllm.policies import mapping_lines, why_unsupported
from pytest_npubench.extensions.vllm.settings import EngineSettings
from pytest_npubench.serving.metrics import RequestRecord, Slo
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.suites.hardware_files import load_all
from pytest_npubench.suites.scheduling.asking import asked_of_server
from pytest_npubench.suites.scheduling.bench import ServingBench, whole
from pytest_npubench.suites.scheduling.figures import blocks, metrics_of
from pytest_npubench.suites.scheduling.plan import serving_plans
from pytest_npubench.suites.scheduling.points import DecodePoint, PromptPoint, ServedPoint
from pytest_npubench.suites.scheduling.policies import served
from pytest_npubench.suites.scheduling.spec import LoadSpec, ServingSpec

SHAPE = small_mixture("test-served-moe", 4, 2, vocab_size=64, hidden=32, head_dim=8, intermediate=16)
REQUESTS = [
    ServingRequest(id=70_001, arrival_s=0.0, prompt_tokens=5, output_tokens=3),
    ServingRequest(id=70_002, arrival_s=0.5, prompt_tokens=7, output_tokens=2),
]
SLO = Slo(ttft_s=1.0, tbt_s=1.0)


class StandInEngine:
    """Gives every request a token an iteration once all are there; iterations take 0.1 s, the first has the prompts."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.asked: list[tuple[Sequence[VllmRequest], bool, int | None]] = []
        self.dies = False

    def serve(self, requests, *, count_experts=False, chunk_size_tokens=None) -> VllmRun:
        self.asked.append((tuple(requests), count_experts, chunk_size_tokens))
        if self.dies:
            answers = tuple(VllmAnswer(request=request, failed="the engine died") for request in requests)
            return VllmRun(answers=answers, iterations=(), ended_s=0.0, lost="the engine died")
        start_s = requests[-1].arrival_s
        longest = max(request.output_tokens for request in requests)
        prompts = sum(len(request.prompt) for request in requests)
        ends_s = [start_s + 0.1 * (index + 1) for index in range(longest)]
        return VllmRun(
            answers=tuple(
                VllmAnswer(
                    request=request,
                    dispatched_s=request.arrival_s,
                    scheduled_s=start_s,
                    token_times_s=tuple(ends_s[: request.output_tokens]),
                    tokens=tuple(range(request.output_tokens)),
                )
                for request in requests
            ),
            iterations=tuple(
                Iteration(
                    start_s=end_s - 0.1,
                    end_s=end_s,
                    num_decode=0 if index == 0 else sum(one.output_tokens > index for one in requests),
                    num_prefill_tokens=0 if index else prompts,
                    num_prefill_layers=2 if self.settings.policy == "layered" and not index else None,
                    num_prefill_pairs=0 if index else 7 * prompts,
                    num_running=len(requests),
                    num_waiting=0,
                    kv_fraction=0.25,
                    expert_activations=10,
                )
                for index, end_s in enumerate(ends_s)
            ),
            ended_s=ends_s[-1],
        )


class StandInEngines:
    """In the place of VllmProcesses."""

    made: dict[EngineSettings, StandInEngine]

    def __init__(self, *, most: int) -> None:
        self.most, self.made, self.closed = most, {}, False

    def get(self, settings: EngineSettings) -> StandInEngine:
        return self.made.setdefault(settings, StandInEngine(settings))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def plan(monkeypatch):
    monkeypatch.setitem(SHAPES, SHAPE.name, SHAPE)
    (found,) = serving_plans(replace(_spec(), family="cpu"), "quick", "vllm")
    return found


def _spec():
    spec = load_all([default_directory()])["cpu"]
    serving = spec.section(ServingSpec)
    size = replace(serving.size("quick"), models=(SHAPE.name,), policies=("chunked", "layered", "hybrid"))
    load = LoadSpec(model=SHAPE.name, workload="layered-arxiv-div64", rate_per_s=5.0)
    serving = replace(
        serving,
        models=(SHAPE.name,),
        max_batch_size=4,
        kv_capacity=2048,
        loads=(load,),
        profiles=(size,),
    )
    return replace(spec, sections=(serving,))


@pytest.fixture
def server(plan, monkeypatch, tmp_path):
    monkeypatch.setattr(block_server, "VllmProcesses", StandInEngines)
    return VllmServer(plan, tmp_path)


def point(plan, policy: str) -> ServedPoint:
    return served(policy, plan, plan.loads[0])


def test_a_plan_on_vllm_is_another_plan(plan):
    (reference,) = serving_plans(_spec(), "quick")
    assert (plan.key, reference.key) == (f"cpu-{SHAPE.name}-serving-vllm", f"cpu-{SHAPE.name}-serving")
    assert (plan.framework, reference.framework) == ("vllm", "torch")
    assert plan.settings == {**reference.settings, "engine": "vllm", "block_size_tokens": 32}
    assert "engine" not in reference.settings  # its digest is that of journals written before there was a choice


def test_prompts_are_those_of_the_reference_engine(plan, server):
    pytest.importorskip("torch", reason="the reference engine needs torch")
    from pytest_npubench.engines.sequences import Sequences

    server.serve(point(plan, "chunked"), REQUESTS)
    ((asked, count_experts, chunk),) = _engine(server, "chunked").asked
    theirs = Sequences(0, SHAPE.vocab_size)
    assert [list(one.prompt) for one in asked] == [theirs.prompt(one.id, one.prompt_tokens) for one in REQUESTS]
    assert (count_experts, chunk) == (True, 64)


@pytest.mark.parametrize("fault", [None, "layered", "alone"])
def test_answers_are_asked_under_each_policy_and_alone(plan, server, monkeypatch, tmp_path, fault):
    """Log-probabilities hang on the text before them, and on what the fault hangs on."""

    def serve(self, requests, *, chunk_size_tokens, **_) -> VllmRun:
        is_wrong = fault == self.settings.policy or (fault == "alone" and len(requests) == 1)
        texts = {one.id: (*one.prompt, *[one.forced] * (one.output_tokens - 1)) for one in requests}
        answers = tuple(
            VllmAnswer(
                request=one,
                logprobs=tuple(
                    tuple(Random(str((texts[one.id][:end], is_wrong, token))).random() for token in one.scored)
                    for end in range(len(one.prompt), len(texts[one.id]) + 1)
                ),
            )
            for one in requests
        )
        self.asked.append((requests, False, chunk_size_tokens))
        return VllmRun(answers=answers, iterations=(), ended_s=1.0)

    monkeypatch.setattr(StandInEngine, "serve", serve)
    visit = asked_of_server(plan, server, tmp_path)
    wrong = {name for name, apart in visit.agree.items() if max(apart) > 0.1}
    assert (set(visit.agree), wrong) == ({"odd chunks", "layered", "hybrid", "alone"}, {fault} - {None})
    assert all(max(apart) > 0.1 for apart in visit.differ.values())
    assert len(visit.errors) == len(visit.lengths) * visit.num_positions, "the reference is of the weights it reads"
    odd = sum(visit.lengths) * 2 // 3 + 1
    assert [chunk for _, _, chunk in _engine(server, "chunked").asked] == [64, odd, *[2048] * 3]


def _engine(server, policy: str) -> StandInEngine:
    (found,) = [engine for settings, engine in server._engines.made.items() if settings.policy == policy]
    return found


def test_a_block_comes_back_with_every_time_and_count(plan, server):
    result = server.serve(point(plan, "layered"), REQUESTS)
    assert [record.token_times_s for record in result.records] == [
        pytest.approx((0.6, 0.7, 0.8)),
        pytest.approx((0.6, 0.7)),
    ]
    assert [record.ttft_s for record in result.records] == pytest.approx([0.6, 0.1])
    assert list(result.log.num_prefill_tokens) == [12, 0, 0]
    assert list(result.log.num_prefill_layers) == [2, 0, 0]
    assert list(result.log.num_prefill_pairs) == [7 * result.log.num_prefill_tokens[0], 0, 0]
    assert list(result.log.expert_load_bytes) == [10 * 3 * 32 * 16 * 4] * 3  # gate, up and down in fp32
    assert set(result.log.kv_bytes) == {2048 // 4 * 2 * 4 * 2 * 8 * 4}  # a quarter; keys and values of 4 layers
    assert (result.started_s, result.ended_s, result.num_layers) == (0.0, pytest.approx(0.8), 4)


def test_chunks_of_all_sizes_and_decode_steps_have_one_engine(plan, server):
    bench = _bench(plan, server)
    for size in (32, 256):
        bench.sample(PromptPoint(prompt_tokens=300, chunk_size_tokens=size), 0)
    found = bench.sample(DecodePoint(batch_size=4, context_tokens=16), 0)
    server.serve(point(plan, "chunked"), REQUESTS)
    engine = _engine(server, "chunked")
    assert [chunk for _, _, chunk in engine.asked] == [32, 256, 2048, 64]
    assert engine.settings.room_tokens == 2048
    assert found.step_s == pytest.approx([0.1] * 4)
    assert found.expert_activations == (10,) * 4


def _bench(plan, server) -> ServingBench:
    bench = ServingBench(SimpleNamespace(devices=["cpu"]), plan)
    bench._own_server = server
    return bench


def test_the_engines_of_a_campaign_are_started_beforehand_and_ended(plan, server):
    server.start([point(plan, policy) for policy in ("chunked", "layered", "hybrid", "static")])
    assert sorted(settings.policy for settings in server._engines.made) == ["chunked", "hybrid", "layered"]
    bench = _bench(plan, server)
    bench.close()
    assert server._engines.closed


def test_on_a_gpu_one_engine_at_a_time_on_its_own_devices(plan, monkeypatch, tmp_path):
    monkeypatch.setattr(block_server, "VllmProcesses", StandInEngines)
    made = VllmServer(replace(plan, spec=replace(plan.spec, family="cuda")), tmp_path, visible_devices="2")
    made.start([point(plan, "layered")])
    assert made._engines.made == {}
    assert made._engines.most == 1
    made.serve(point(plan, "layered"), REQUESTS)
    assert [settings.visible_devices for settings in made._engines.made] == ["2"]


def test_an_engine_that_does_not_start_is_tried_once(plan, server):
    """Each try takes half a minute; the reason is that of all its points, and the others go on."""
    tries = []

    def get(settings):
        tries.append(settings.policy)
        if settings.policy == "layered":
            raise MeasurementError("no memory for it")
        return StandInEngine(settings)

    server._engines.get = get
    server.start([point(plan, "layered")])
    for _ in range(2):
        with pytest.raises(MeasurementError, match="no memory for it"):
            server.serve(point(plan, "layered"), REQUESTS)
        server.serve(point(plan, "chunked"), REQUESTS)
    assert tries.count("layered") == 1


@pytest.mark.parametrize(
    ("policy", "settings", "reason"),
    [
        ("static", (("batch_size", 4),), "vLLM: policy static: vLLM lets requests join a running batch"),
        ("disaggregated", (), "vLLM: policy disaggregated: two vLLM servers"),
        ("continuous", (("max_prefill_tokens", 64),), "vLLM: continuous with max_prefill_tokens"),
        ("chunked", (("chunk_size_tokens", 64), ("decode_counts", False)), "vLLM: chunked with decode_counts=False"),
        ("five-groups", (), "vLLM: policy 'five-groups': vLLM has no such policy; it serves chunked"),
        ("chunked", (("chunk_size_tokens", 0), ("decode_counts", True)), ""),
        ("layered", (("tokens_per_iteration", 64),), ""),
    ],
)
def test_what_vllm_has_no_policy_for(plan, policy, settings, reason):
    """A chunk of 0 is a mistake under any engine: its case is invalid, not skipped."""
    found = why_unsupported(plan, [ServedPoint(policy=policy, load=plan.loads[0], settings=settings)])
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


def test_a_policy_s_settings_in_a_line(plan):
    lines = mapping_lines(
        plan,
        [
            point(plan, "chunked"),
            point(plan, "layered"),
            PromptPoint(prompt_tokens=300, chunk_size_tokens=32),
            point(plan, "chunked"),
        ],
    )
    chunked, layered = lines
    assert chunked == (
        "chunked: max_num_batched_tokens=2048, max_num_scheduled_tokens=64, enable_chunked_prefill=True, "
        "max_num_seqs=4 (decode tokens count inside the chunk); also max_num_scheduled_tokens=32"
    )
    assert layered.startswith(
        "layered: scheduler_cls=pytest_npubench.extensions.vllm.layered.scheduler.LayeredScheduler"
    )


def test_an_engine_that_dies_leaves_a_block_of_failed_requests(plan, server):
    """They arrived, so they count; the journal keeps why, and what they lack is not made up."""
    one = point(plan, "chunked")
    server.serve(one, REQUESTS)
    _engine(server, "chunked").dies = True
    result = server.serve(one, REQUESTS)
    row = kept(one, ServedBlock.of_result(result, rate_per_s=5.0, slo=SLO))
    assert row[f"{one.name}/aborted/the engine died"] == (0, 1)
    assert all(row.values())  # the rounds of a campaign take no empty column
    (found,) = blocks(Measured(rounds=[json.loads(json.dumps(row))]), one)
    assert [record.aborted for record in found.records] == ["the engine died"] * 2
    assert [record.dispatched_s for record in found.records] == [None, None]
    assert [record.token_times_s for record in found.records] == [(), ()]
    metrics = {metric.name: metric.value for metric in metrics_of([found], SHAPE)[0]}
    assert (metrics["slo_attainment"], metrics["num_aborted"], metrics["num_arrived"]) == (0.0, 2, 2)
    assert len(pooled([found, found]).records) == 4


def test_a_request_that_failed_among_others_keeps_what_it_has(plan):
    """The first gave one token of three, the second all of its two, the third was never scheduled."""
    common = {"prompt_tokens": 4, "arrival_s": 0.1, "dispatched_s": 0.2}
    records = (
        RequestRecord(**common, id=0, output_tokens=3, scheduled_s=0.3, token_times_s=(0.4,), aborted="ended: length"),
        RequestRecord(**common, id=1, output_tokens=2, scheduled_s=0.3, token_times_s=(0.5, 0.6)),
        RequestRecord(**common, id=2, output_tokens=5, token_times_s=(), aborted="too\nlong"),
    )
    result = SimpleNamespace(
        records=records, log=block_server.IterationLog(), started_s=0.0, ended_s=1.0, num_layers=4, handover_s=()
    )
    one = ServedPoint(policy="chunked", load=LoadSpec(model=SHAPE.name, workload="w", rate_per_s=1.0))
    row = json.loads(json.dumps(kept(one, ServedBlock.of_result(result, rate_per_s=1.0, slo=SLO))))
    assert row[f"{one.name}/request.num_times"] == [3, 4, 1]
    (found,) = blocks(Measured(rounds=[row]), one)
    assert found.records == (records[0], records[1], replace(records[2], aborted="too long"))
    assert failures_of(found.records) == "2 of 3 requests failed: ended: length (and 1 other reason)"
    with pytest.raises(MeasurementError, match="2 of 3 requests failed"):
        whole(result)


@pytest.mark.parametrize("damage", ["missing", "half", "no origin", "another shape", "a file", "broken json"])
def test_a_model_directory_that_is_not_whole_is_written_anew(plan, monkeypatch, tmp_path, damage):
    monkeypatch.setattr(block_server, "VllmProcesses", StandInEngines)
    VllmServer(plan, tmp_path)
    folder = tmp_path / f"{SHAPE.name}-fp32"
    good = {path.name: path.read_bytes() for path in folder.iterdir()}
    if damage == "missing":
        (folder / WEIGHTS_FILE).unlink()
    elif damage == "half":
        (folder / WEIGHTS_FILE).write_bytes(good[WEIGHTS_FILE][: len(good[WEIGHTS_FILE]) // 2])
    elif damage == "no origin":
        (folder / ORIGIN_FILE).unlink()
    elif damage == "another shape":
        (folder / ORIGIN_FILE).write_text('{"format": 0}', encoding="utf-8")
    elif damage == "broken json":
        (folder / "config.json").write_text("{", encoding="utf-8")
    else:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        folder.write_bytes(b"in the way")
    VllmServer(plan, tmp_path)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == good


def test_a_whole_model_directory_is_left_alone(plan, monkeypatch, tmp_path):
    monkeypatch.setattr(block_server, "VllmProcesses", StandInEngines)
    VllmServer(plan, tmp_path)
    weights = tmp_path / f"{SHAPE.name}-fp32" / WEIGHTS_FILE
    before = weights.stat()
    VllmServer(plan, tmp_path)
    assert (weights.stat().st_ino, weights.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_disk_without_room_for_the_weights(plan, monkeypatch, tmp_path):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=10))
    with pytest.raises(ConfigError, match=r"the disk has 0\.0 GB free"):
        VllmServer(plan, tmp_path)
