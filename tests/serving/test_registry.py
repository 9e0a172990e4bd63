"""Every policy that the registry knows keeps the contract; a policy of one's own is one call away."""

from __future__ import annotations

import sys

import pytest

from pytest_npubench.errors import ConfigError, RegistryError
from pytest_npubench.serving import schedulers
from pytest_npubench.serving.batch import Batch
from pytest_npubench.serving.iteration import IterationPlan, LayerPass
from pytest_npubench.serving.prompts import whole_prompts
from pytest_npubench.serving.schedulers import make_scheduler, scheduler_names, setting_names

from .fake_executor import greedy
from .runs import requests, run

ENGINE = {"num_layers": 4, "kv_blocks": 250, "block_size_tokens": 4}


@pytest.fixture
def add(monkeypatch):
    """add(name, factory): a policy until the test ends, as if a distribution had it."""

    def add(name, factory):
        monkeypatch.setitem(schedulers.SCHEDULERS.added, name, factory)

    return add


@pytest.mark.parametrize("name", scheduler_names())
def test_contract(name):
    scheduler = make_scheduler(name, **ENGINE)
    assert scheduler.name == name
    assert tuple(scheduler.settings) == setting_names(name)
    assert scheduler.plan() is None
    again = make_scheduler(name, **ENGINE, **scheduler.settings)
    assert again.settings == scheduler.settings
    arriving = requests((0, 40, 5), (0.1, 3, 1), (2.0, 17, 8))
    outcome = run(name, arriving, kv_blocks=14)
    assert outcome.tokens == {r.id: greedy(r.id, r.prompt_tokens, r.output_tokens) for r in arriving}
    assert outcome.result.policy == name
    assert outcome.result.settings == scheduler.settings
    first = run(name, arriving, kv_blocks=14).result
    assert first == outcome.result, "the virtual clock is deterministic"


def test_shipped_names():
    assert scheduler_names() == ("chunked", "continuous", "disaggregated", "hybrid", "layered", "static")


class PrefillFirst:
    """Stops decoding while prompts wait, as early engines did."""

    name = "prefill-first"
    num_devices = 1

    def __init__(self, *, num_layers, kv_blocks, block_size_tokens, max_batch_size=8):
        self.settings = {"max_batch_size": max_batch_size}
        self.batch = Batch(
            num_layers=num_layers,
            kv_blocks=kv_blocks,
            block_size_tokens=block_size_tokens,
            max_batch_size=max_batch_size,
        )

    def plan(self):
        batch = self.batch
        rows = whole_prompts(batch)
        if not rows:
            return batch.plan()
        finishing = tuple(row.request for row in rows)
        return IterationPlan(passes=(LayerPass(batch.all_layers, rows),), finishing=finishing)


def test_a_policy_of_ones_own_that_pauses_decoding(add):
    add("prefill-first", PrefillFirst)
    assert scheduler_names()[-1] == "prefill-first"
    arriving = requests((0, 4, 4), (1.5, 5, 3), (2.0, 6, 2), (5.0, 9, 3))
    for kv_blocks in (3, 4, 5, 100):
        outcome = run("prefill-first", arriving, kv_blocks=kv_blocks)
        assert outcome.tokens == {r.id: greedy(r.id, r.prompt_tokens, r.output_tokens) for r in arriving}
    first, second, *_ = outcome.result.records
    # request 0's prompt ends at 1.4; 1 joins in a decode pause at 1.4 + 1.01 (it came at 1.5), and so does 2
    assert first.token_times_s[:2] == pytest.approx((1.4, 2.41))
    assert second.token_times_s[0] == pytest.approx(2.41 + 1 + 1.1)
    assert first.token_times_s[2] == pytest.approx(second.token_times_s[0] + 1.03)


def test_a_plan_that_decodes_only_some_is_refused(add):
    class Unfair(PrefillFirst):
        def plan(self):
            plan = super().plan()
            if plan is not None and len(plan.decode) > 1:
                return IterationPlan(decode=plan.decode[:1], passes=plan.passes)
            return plan

    add("unfair", Unfair)
    with pytest.raises(ConfigError, match=r"a plan decodes requests \(0,\); want all that run, \(0, 1\), or none"):
        run("unfair", requests((0, 4, 4), (0, 5, 3)))


def test_settings_of_a_registered_policy_are_checked_by_its_signature(add):
    add("prefill-first", PrefillFirst)
    with pytest.raises(ConfigError, match="policy prefill-first has no setting 'chunk'; settings: max_batch_size"):
        make_scheduler("prefill-first", **ENGINE, chunk=1)
    add("anything", lambda **arguments: PrefillFirst(**ENGINE, max_batch_size=arguments["size"]))
    assert make_scheduler("anything", **ENGINE, size=3).settings == {"max_batch_size": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SCHEDULER = None", "does not define SCHEDULER of name 'broken'"),
        ("", "does not define SCHEDULER of name 'broken'"),
        ("class SCHEDULER:\n    name = 'other'", "does not define SCHEDULER of name 'broken'"),
        ("import nothing_of_that_name", "broken.py cannot be imported: ModuleNotFoundError"),
        ("1 / 0", "broken.py cannot be imported: ZeroDivisionError"),
    ],
)
def test_a_broken_file_is_named(tmp_path, monkeypatch, text, message):
    (tmp_path / "broken.py").write_text(text)
    monkeypatch.setattr(schedulers, "__path__", [*schedulers.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, f"{schedulers.__name__}.broken", raising=False)
    assert "broken" in scheduler_names()
    with pytest.raises(RegistryError, match=message):
        make_scheduler("broken", **ENGINE)
    sys.modules.pop(f"{schedulers.__name__}.broken", None)
