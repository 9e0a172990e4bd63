"""A metric is the same thing in a journal, in the baselines accepted from it and in the history it was uploaded to: its
gate and margin stand beside its samples, and the same nights get the same verdicts from any pair of sources."""

from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from pytest_npubench.comparison.side_sources import load_side
from pytest_npubench.comparison.upgrade import compare_sides
from pytest_npubench.store.accept_run import accept_run
from pytest_npubench.store.history import upload_journal
from pytest_npubench.store.journal import read_journal
from pytest_npubench.verdict import VerdictKind

from .made_nights import CASES, metric, write_session

SOURCES = ("journal", "baselines", "history")
NUM_NIGHTS = 4
# name -> what it is, its level, and what the upgrade makes of it; the verdict must be the gate's and the margin's
METRICS = {
    "tbt_s": ({"gate": "ratio"}, 0.001, 1.0),
    "ttft_s": ({}, 0.1, 1.05),  # the default gate, of a record from before metrics had gates
    "compile_s": ({"gate": "ratio", "margin": 0.10}, 30.0, 1.02),
    "throughput": ({"gate": "ratio", "better": "higher", "unit": "1/s"}, 80.0, 0.9),
    "error": ({"gate": "difference", "margin": 0.02, "unit": ""}, 0.05, 2.0),
    "attainment": ({"gate": "difference", "margin": 0.02, "unit": "", "better": "higher"}, 0.97, 0.99),
    "expert_coverage": ({"gate": "exact", "unit": ""}, 0.6865234375123, 1.000001),
    "bytes_loaded": ({"gate": "exact", "unit": "B"}, 4096.0, 1.0),
    "never_judged_s": ({"gate": "none"}, 0.5, 1.5),
}
EXPECTED = {
    "tbt_s": VerdictKind.UNCHANGED,
    "ttft_s": VerdictKind.REGRESSED,
    "compile_s": VerdictKind.UNCHANGED,
    "throughput": VerdictKind.REGRESSED,
    "error": VerdictKind.REGRESSED,
    "attainment": VerdictKind.UNCHANGED,
    "expert_coverage": VerdictKind.REGRESSED,
    "bytes_loaded": VerdictKind.UNCHANGED,
}


@dataclass(frozen=True)
class Stacks:
    """The same nights before ("old") and after an upgrade ("new"), in each kind of source."""

    root: Path

    def side(self, stack: str, source: str):
        named = {"journal": f"{stack}.jsonl", "baselines": stack, "history": f"{stack}.db"}[source]
        return load_side(f"{'history:' if source == 'history' else ''}{self.root / named}")

    def verdicts(self, old: str, new: str):
        found = compare_sides(self.side("old", old), self.side("new", new))
        assert (found.only_old, found.only_new) == ((), ())
        return {
            row.name: (row.kind, *figures(row.verdict), row.definition.gate, row.definition.margin)
            for row in found.rows
        }, found.exit_status(0.5)


def figures(verdict):
    """To 9 digits: sources list the sessions of one second in orders of their own, and sums differ in the last one."""
    return [
        None if value is None else float(f"{value:.9g}")
        for value in (verdict.ratio, *(verdict.interval or (None, None)))
    ]


def one_metric(rng, about, level, factor, is_exact):
    noise = 0.0 if is_exact else rng.normal(0, 0.001)
    samples = level * factor * (1 + noise + (0.0 if is_exact else rng.normal(0, 0.001, 5)))
    processes = [list(np.atleast_1d(samples * np.ones(5)))]
    if not is_exact:  # a suspect, measured again in a fresh process
        processes.append([float(value) for value in processes[0] * np.array(1.0005)])
    return metric(processes[0], **about, processes=processes)


@pytest.fixture(scope="module")
def stacks(tmp_path_factory):
    root = tmp_path_factory.mktemp("stacks")
    rng = np.random.default_rng(7)
    for stack in ("old", "new"):
        path = root / f"{stack}.jsonl"
        for _ in range(NUM_NIGHTS):
            found = {
                case: {
                    name: one_metric(rng, about, level, factor if stack == "new" else 1.0, about.get("gate") == "exact")
                    for name, (about, level, factor) in METRICS.items()
                }
                for case in CASES[:3]
            }
            write_session(path, found)
        journal = read_journal(path)
        for session in journal.sessions:
            accept_run(journal, [session], root / stack)
        upload_journal(str(root / f"{stack}.db"), journal)
    return Stacks(root)


def test_every_gate_is_judged_as_it_says(stacks):
    found, status = stacks.verdicts("journal", "journal")
    assert {name.split()[1]: kind for name, (kind, *_) in found.items()} == EXPECTED
    assert len(found) == 3 * len(EXPECTED)
    assert status == 1


@pytest.mark.parametrize(("old", "new"), list(product(SOURCES, SOURCES)))
def test_every_pair_of_sources_gives_the_same_verdicts(stacks, old, new):
    assert stacks.verdicts(old, new) == stacks.verdicts("journal", "journal")
