"""Run by test_vllm.py with an interpreter that has vLLM: serves every scenario, as JSON.

One engine after another serves those that have its settings. Beside the runs it tells what vLLM says to configurations
that layered prefill refuses.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_npubench.extensions.vllm.engine import VllmEngine
from pytest_npubench.extensions.vllm.settings import EngineSettings, engine_arguments, environment
from pytest_npubench.extensions.vllm.worker import ExpertCounter

WRONG = {
    "prefix caching": {"enable_prefix_caching": True},
    "graphs": {"enforce_eager": False},
    "a stock worker": {"worker_cls": "auto"},
    "a stock scheduler": {"scheduler_cls": None},
    "chunking": {"enable_chunked_prefill": True},
}


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    runs: dict[EngineSettings, list[dict[str, Any]]] = {}
    for run in plan["runs"]:
        runs.setdefault(engine_settings(run, plan["models"]), []).append(run)
    answers = {name: answer for settings, served in runs.items() for name, answer in serve_all(settings, served)}
    base = engine_settings({"policy": "layered", "settings": []}, plan["models"])
    answers["refusals"] = {name: refusal(base, changes) for name, changes in WRONG.items()}
    Path(sys.argv[2]).write_text(json.dumps(answers), encoding="utf-8")


def engine_settings(run: dict[str, Any], models: dict[str, str]) -> EngineSettings:
    return EngineSettings(
        model=Path(models[run.get("model", "moe")]),
        policy=run["policy"],
        policy_settings=tuple(map(tuple, run["settings"])),
        kv_capacity_tokens=run.get("capacity", 2048),
        max_model_tokens=288,
        max_batch_size=8,
    )


def serve_all(settings: EngineSettings, runs: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    engine = VllmEngine(settings)
    counter = ExpertCounter(engine)
    if settings.policy != "chunked":
        engine._engine.collective_rpc("count_experts")
    for run in runs:
        yield run["name"], serve(run, engine, counter)
    close(engine._engine)


def serve(run: dict[str, Any], engine: VllmEngine, counter: ExpertCounter) -> dict[str, Any]:
    inner, scheduler = engine._engine, engine._scheduler
    before = counts_so_far(engine)
    waiting, step = list(run["requests"]), 0
    tokens: dict[int, list[int]] = {one["id"]: [] for one in waiting}
    preemptions: dict[str, int] = {}
    scores: dict[int, Any] = {}
    activations = 0
    while waiting or engine.has_unfinished:
        while waiting and waiting[0]["at_step"] <= step:
            add(inner, waiting.pop(0))
        if str(step) in run["aborts"]:
            inner.abort_request([str(run["aborts"][str(step)])])
        for output in inner.step():
            tokens[int(output.request_id)] += output.outputs[0].token_ids
            if output.prompt_logprobs:
                scores[int(output.request_id)] = prompt_scores(output.prompt_logprobs)
        activations += counter.take_sum()
        preemptions.update({name: one.num_preemptions for name, one in scheduler.requests.items()})
        step += 1
    inner.step()  # who ended last is taken off the worker in the step after
    counts = counts_so_far(engine)
    return {
        "tokens": tokens,
        "scores": scores,
        "num_steps": step,
        "expert_layers": counter.num_layers,
        "activations": activations,
        "preemptions": sum(preemptions.values()),
        "counts": {name: count - before[name] * name.startswith("num_") for name, count in counts.items()},
    }


def counts_so_far(engine: VllmEngine) -> dict[str, int]:
    """Of layered prefill's worker and scheduler, since the engine started; bytes are those held now, and at most."""
    if engine.settings.policy == "chunked":
        return {}
    call = engine._engine.collective_rpc
    counts = {**call("layered_counts")[0], "num_activations": call("expert_activations")[0]}
    return {**counts, "num_left_in_flight": engine._scheduler.num_left_in_flight}


def close(inner: Any) -> None:
    """Another engine follows in this process."""
    from vllm.distributed import cleanup_dist_env_and_memory

    inner.engine_core.shutdown()
    cleanup_dist_env_and_memory()


def add(inner: Any, request: dict[str, Any]) -> None:
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    parameters = SamplingParams(
        **{"temperature": 0.0, **request["sampling"]},
        max_tokens=request["output_tokens"],
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )
    inner.add_request(str(request["id"]), {"prompt_token_ids": request["prompt"]}, parameters)


def prompt_scores(prompt_logprobs: Any) -> list[float]:
    """Of each prompt token but the first."""
    return [max(entry.logprob for entry in position.values()) for position in prompt_logprobs if position]


def refusal(base: EngineSettings, changes: dict[str, Any]) -> str:
    os.environ.update(environment(base))
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    try:
        LLMEngine.from_engine_args(EngineArgs(**{**engine_arguments(base), **changes}))
    except Exception as error:  # noqa: BLE001 - whatever it is, the test reads it
        return f"{type(error).__name__}: {error}"
    return "started"


if __name__ == "__main__":
    main()
