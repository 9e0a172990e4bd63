"""The serving loop: take arrivals, plan, run, postprocess. One engine, one policy, one load, one clock.

Requests are noticed between iterations: one that arrives at 1.000 s while an iteration runs until 1.030 s is dispatched
at 1.030 s, and waits from 1.000 s on all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.serving.batch import Batch
from pytest_npubench.serving.clock import Clock
from pytest_npubench.serving.iteration import Executor
from pytest_npubench.serving.load import Load
from pytest_npubench.serving.log import IterationLog
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.result import ServingResult, records_of
from pytest_npubench.serving.schedulers.protocol import Scheduler


def serve(
    load: Load,
    scheduler: Scheduler,
    executor: Executor,
    clock: Clock,
    *,
    until_s: float | None = None,
    on_iteration: Callable[[int], None] | None = None,
) -> ServingResult:
    """Serve the load to its end, or start no iteration at or after `until_s`: what is unfinished then stays so.

    `on_iteration` is called after each iteration with how many have run. Raises WorkloadError before anything runs for
    a request that cannot be served, ConfigError for a scheduler that has served, needs two devices or does not fit the
    executor. The executor's MeasurementError and DeviceError pass through.
    """
    batch, log = scheduler.batch, IterationLog()
    check_scheduler(scheduler, executor, load.requests())
    clock.start()
    started_s = now_s = clock.now_s()
    while until_s is None or now_s < until_s:
        for request in load.take(now_s):
            batch.add(request, now_s)
            executor.begin(request.id, request.prompt_tokens, request.output_tokens)
        next_arrival_s = load.next_arrival_s
        batch.expects_more = next_arrival_s is not None
        batch.make_room()
        plan = scheduler.plan()
        if plan is None:
            if next_arrival_s is None:
                check_all_served(scheduler)
                break
            clock.wait_until(next_arrival_s if until_s is None else min(next_arrival_s, until_s))
            now_s = clock.now_s()
            continue
        num_running, num_waiting = len(batch.admitted), len(batch.waiting)
        start_s = clock.now_s()
        outcome = executor.run(plan)
        now_s = clock.advance(outcome.duration_s)
        log.append(start_s, now_s, plan, outcome, num_running=num_running, num_waiting=num_waiting)
        for request_id, token in outcome.tokens.items():
            batch.members[request_id].tokens.append(token)
        batch.complete(plan)
        if on_iteration is not None:
            on_iteration(len(log))
        for member in batch.take_ended():
            executor.end(member.id)
            load.ended(member.id, now_s)
    end_unfinished(batch, executor)
    return ServingResult(
        records=records_of(batch.members.values(), log),
        log=log,
        clock=clock.name,
        policy=scheduler.name,
        settings=scheduler.settings,
        started_s=started_s,
        ended_s=clock.now_s(),
        num_layers=batch.num_layers,
    )


def check_executor(batch: Batch, executor: Executor) -> None:
    """Raises ConfigError where the batch counts on other layers, blocks or more memory than the executor has."""
    pairs = (
        ("layers", batch.num_layers, executor.num_layers),
        ("tokens a KV block", batch.blocks.block_size_tokens, executor.block_size_tokens),
    )
    for what, planned, there in pairs:
        if planned != there:
            raise ConfigError(f"the scheduler plans {planned} {what}, the executor has {there}; want the same")
    if batch.blocks.capacity_tokens > executor.kv_capacity_tokens:
        raise ConfigError(
            f"the scheduler plans a KV cache of {batch.blocks.capacity_tokens} tokens, the executor's holds "
            f"{executor.kv_capacity_tokens}; want at most that"
        )


def check_scheduler(scheduler: Scheduler, executor: Executor, requests: Sequence[ServingRequest]) -> None:
    """Raises ConfigError, WorkloadError as `serve`."""
    if scheduler.num_devices != 1:
        raise ConfigError(f"policy {scheduler.name} needs {scheduler.num_devices} devices; see serve_disaggregated")
    if scheduler.batch.members:
        raise ConfigError(f"this {scheduler.name} scheduler has served a load already; want a new one for each run")
    check_executor(scheduler.batch, executor)
    for request in requests:
        scheduler.batch.check(request)


def check_all_served(scheduler: Scheduler) -> None:
    """Raises MeasurementError where a policy that plans nothing more has left some."""
    left = len(scheduler.batch.waiting) + len(scheduler.batch.admitted)
    if left:
        raise MeasurementError(f"policy {scheduler.name} plans nothing more, but {left} requests have not ended")


def end_unfinished(batch: Batch, executor: Executor) -> None:
    """Stopped early: their tokens so far count, and the executor may free what they hold."""
    for member in batch.members.values():
        if member.gives_from is not None:
            member.close_segment(batch.iteration)
    for member in (*batch.in_flight.values(), *batch.running.values(), *batch.waiting):
        executor.end(member.id)
