"""What a policy is: a name, its settings, and the plan of the next iteration over a shared batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Protocol

from pytest_npubench.serving.batch import Batch
from pytest_npubench.serving.iteration import IterationPlan
from pytest_npubench.serving.settings import Setting, check_count, check_layer_groups, check_yes_or_no

ENGINE_ARGUMENTS = ("num_layers", "kv_blocks", "block_size_tokens")


class Scheduler(Protocol):
    """One policy over one device's requests; serves one run. `settings` are all of its own, as they are in force.

    num_devices is 1, or 2 where prefill and decode have a device each (serving/disaggregated.py runs those).
    """

    @property
    def name(self) -> str: ...

    @property
    def num_devices(self) -> int: ...

    @property
    def settings(self) -> Mapping[str, Setting]: ...

    @property
    def batch(self) -> Batch: ...

    def plan(self) -> IterationPlan | None:
        """The next iteration, None while there is nothing to run. It takes requests from `batch.admit_next`, and
        decodes all running requests or none; `batch.plan` writes it down. The loop calls it once an iteration, after
        `batch.make_room`, runs what it returns, and tells `batch.complete`."""
        ...

    # is_steady: bool, of the class: whether a plan that only decodes is planned again as long as nobody arrives, ends
    # or is preempted, so that a simulator may take such iterations at once. A policy may do without.
    # keeps_slo: bool, of the class: whether the policy is meant to keep latency limits, so that its cases are held to
    # them. A policy without it is shown and not held.
    # iteration_work(tokens, *, decode_counts) -> Work, of the class: see schedulers.iteration_work. A
    # policy may do without.


@dataclass(kw_only=True, eq=False)
class Policy:
    """A policy of ours: each of its fields is a setting, with what it is where nobody sets it. Every one of them ends
    with `max_batch_size`. Raises ConfigError for a setting that is no value of its type, and for sizes below 1."""

    name: ClassVar[str]
    num_devices: ClassVar[int] = 1
    is_steady: ClassVar[bool] = True
    keeps_slo: ClassVar[bool] = False

    num_layers: int
    kv_blocks: int
    block_size_tokens: int
    settings: dict[str, Setting] = field(init=False)
    batch: Batch = field(init=False)

    def __post_init__(self) -> None:
        types = {each.name: str(each.type) for each in fields(self) if each.init and each.name not in ENGINE_ARGUMENTS}
        self.settings = {name: getattr(self, name) for name in types}
        for name, value in self.settings.items():
            if name == "num_layer_groups":
                check_layer_groups(self.name, value, self.num_layers)
            elif types[name] == "bool":
                check_yes_or_no(self.name, name, value)
            else:
                check_count(self.name, name, value, none_allowed="None" in types[name])
        self.batch = Batch(**self._sizes())

    def _sizes(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*ENGINE_ARGUMENTS, "max_batch_size")}
