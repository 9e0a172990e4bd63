"""The step that makes accepted sessions last: onto a baselines branch, onto a topic branch with a pull request, or into
the state folder.

The branch may have moved since it was restored, because another runner promoted. So nothing is merged as text: the
journal's sessions are accepted again, onto the branch as it is now, and where the push is refused because it moved once
more, the whole is repeated. A topic branch belongs to this state folder alone and is made anew each night: the base
branch plus every session that the base does not hold yet.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_npubench.errors import JournalError, NightlyError
from pytest_npubench.nightly.accepting import AcceptedNight, accept_waiting
from pytest_npubench.nightly.branch import FOLDER, Branch
from pytest_npubench.nightly.night import Night, Step
from pytest_npubench.nightly.publish import code_block
from pytest_npubench.nightly.pull_request import open_pull_request
from pytest_npubench.nightly.restore import seed_baselines
from pytest_npubench.plain_text import plain
from pytest_npubench.store.journal_reader import Journal, read_journal

ATTEMPTS = 8
REFUSALS = 2  # of a branch that did not move: then it is not the race that keeps us out
WAIT_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """How to promote: one of MODES, the branch (None for local), and options for git push."""

    mode: str
    branch: Branch | None
    push_options: Sequence[str] = ()


def promote(night: Night, promotion: Promotion, environment: Mapping[str, str]) -> Step:
    """Promote what the journal holds and no night has settled. What fails is the step's outcome, and is tried again
    next night. Raises NightlyError where the state cannot be read, OSError where it cannot be written."""
    night.steps()
    state = night.state.read()
    if not night.state.journal.exists():
        return night.record(Step(name="promote", outcome="done", lines=("nothing to accept: there is no journal",)))
    try:
        journal = read_journal(night.state.journal)
        if promotion.branch is None:
            done, where = _accept_locally(night, journal, state.settled), str(night.state.baselines)
        else:
            done, where = _promote(night, promotion, promotion.branch, journal, state.settled, state.owner)
    except (NightlyError, JournalError) as error:
        lines = (f"not promoted, to be tried again next night: {error}",)
        return night.record(Step(name="promote", outcome="failed", lines=lines))
    in_journal = {session.id for session in journal.sessions} | {session.id for session in journal.damaged}
    settled = {name: end for name, end in state.settled.items() if name in in_journal}
    waits_for_review = promotion.mode == "pull-request"
    for night_done in done:
        if night_done.is_settled and not (waits_for_review and night_done.is_new):
            settled |= dict.fromkeys(night_done.sessions, night_done.said)
    night.state.write(replace(state, settled=settled))
    return night.record(_step(night, promotion, done, where, environment, state.owner))


def _accept_locally(night: Night, journal: Journal, settled: Mapping[str, str]) -> list[AcceptedNight]:
    night.state.baselines.mkdir(parents=True, exist_ok=True)
    return accept_waiting(journal, settled, night.state.baselines)


def _promote(
    night: Night, promotion: Promotion, branch: Branch, journal: Journal, settled: Mapping[str, str], owner: str
) -> tuple[list[AcceptedNight], str]:
    """Returns what was accepted, and where it is. Raises NightlyError where the remote refuses it."""
    onto = topic(night, owner) if promotion.mode == "pull-request" else branch.name
    refused: list[str | None] = []
    for attempt in range(ATTEMPTS):
        tip = branch.tip()
        with night.state.scratch() as directory:
            if tip is None:
                seed_baselines(night.work, directory / FOLDER)
            else:
                branch.extract(tip, directory)
            (directory / FOLDER).mkdir(exist_ok=True)
            done = accept_waiting(journal, settled, directory / FOLDER)
            if not any(one.is_new for one in done):
                return done, f"branch {branch.name}{'' if tip else ', which is not there yet'}"
            commit = branch.commit(tip, directory, _message(night, done))
            try:
                branch.push(commit, onto=onto, force=onto != branch.name, options=promotion.push_options)
            except NightlyError:
                refused.append(tip)
                if refused.count(tip) >= REFUSALS or attempt + 1 == ATTEMPTS:
                    raise
                time.sleep(WAIT_S * random.random() * (attempt + 1))
                continue
            night.state.keep_baselines(directory / FOLDER)
            return done, f"branch {onto} at {commit[:12]}"
    raise AssertionError("the last attempt raises")


def topic(night: Night, owner: str) -> str:
    return f"npubench/nightly-{night.name}-{owner}"


def _message(night: Night, done: Sequence[AcceptedNight]) -> str:
    new = [one for one in done if one.is_new]
    cases = sum(one.num_accepted for one in new)
    body = "\n".join(f"{', '.join(one.sessions)}: {plain(one.said)}" for one in new)
    return f"Nightly {night.name}: {cases} cases accepted\n\n{body}\n"


def _step(
    night: Night,
    promotion: Promotion,
    done: Sequence[AcceptedNight],
    where: str,
    environment: Mapping[str, str],
    owner: str,
) -> Step:
    lost = [name for one in done for name in one.lost]
    waiting = [text for one in done for text in one.waiting]
    lines = [*_counted(waiting), *(f"{', '.join(one.sessions)}: {one.said}" for one in done)] or [
        "every session was settled before"
    ]
    is_new = any(one.is_new for one in done)
    facts: dict[str, object] = {
        "num_accepted": sum(one.num_accepted for one in done if one.is_new),
        "num_judgeable": sum(one.num_judgeable for one in done),
        "where": where,
        "waiting": waiting,
    }
    lines.append(f"baselines are in {where}")
    outcome = "failed" if lost else "warning" if waiting else "done"
    if promotion.mode == "pull-request" and promotion.branch is not None and is_new:
        opened = open_pull_request(
            head=topic(night, owner),
            base=promotion.branch.name,
            title=f"Nightly baselines: {night.name}",
            body=code_block(lines),
            environment=environment,
        )
        lines.append(opened.said)
        facts["pull_request"] = opened.url
        if opened.url is None and outcome == "done":
            outcome = "warning"
    return Step(name="promote", outcome=outcome, lines=tuple(lines), facts=facts)


def _counted(waiting: Sequence[str]) -> list[str]:
    """The summary has them one by one."""
    number = len(waiting)
    return [f"{number} case{'s wait' if number > 1 else ' waits'} for a person"] if waiting else []
