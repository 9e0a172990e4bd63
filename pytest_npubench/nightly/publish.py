"""The last step: the night in Markdown, annotations at the cases that are red, and outputs for the steps that follow.

On GitHub the summary goes to $GITHUB_STEP_SUMMARY, outputs to $GITHUB_OUTPUT, annotations are lines on stdout
(https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands); elsewhere the same is said in
plain lines, and OUT/summary.md is always written.

Text of others is neither formatted in our Markdown, nor a link, an image or a mention, nor HTML. A backslash before a
sign of ASCII punctuation makes it a plain sign, and a code span or block ends only at as many backticks as began it
(https://spec.commonmark.org/0.31.2/, 2.4, 4.5 and 6.1); in a table `|` is escaped even there
(https://github.github.com/gfm/, 4.10).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_npubench.core.regular_file import replace_text
from pytest_npubench.errors import StoreError
from pytest_npubench.nightly.night import STEPS, Night, Step
from pytest_npubench.plain_text import plain, workflow_command
from pytest_npubench.store.accept_run import GREEN
from pytest_npubench.store.journal_reader import Record, read_journal
from pytest_npubench.store.journal_runs import counted_cases

NUM_ANNOTATED = 10  # GitHub drops what is more than ten of a kind in a step
NUM_ROWS = 50
SIGNS = {"done": "ok", "warning": "warning", "failed": "**failed**"}
ARTIFACTS = ("report.html", "site/index.html", "journal.jsonl", "junit.xml", "pytest.log", "summary.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """One line for people: `level` is error or warning; `file` relative to the repository, None for the night's."""

    level: str
    title: str
    text: str
    file: str | None = None

    def command(self) -> str:
        return workflow_command(self.level, self.text, file=self.file, title=self.title)

    def __str__(self) -> str:
        return plain(f"{self.level}: {self.title}: {self.text}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Whether the night was green, and the annotations that say why not."""

    is_green: bool
    annotations: tuple[Annotation, ...]


def publish(night: Night, environment: Mapping[str, str]) -> Published:
    """Raises NightlyError where no night was begun, OSError."""
    steps = night.steps()
    records, damage = _records(night)
    red = [record for record in records if record["verdict"]["kind"] not in GREEN]
    missing = [name for name in STEPS if name not in steps]
    is_green = not missing and not red and not damage and all(step.outcome != "failed" for step in steps.values())
    damaged = [Annotation(level="error", title="nightly journal", text=damage)] if damage else []
    annotations = (*_of_steps(steps, missing), *damaged, *map(_of_case, red))
    text = _summary(night, steps, missing, red, is_green)
    replace_text(night.out / "summary.md", text)
    _append(environment.get("GITHUB_STEP_SUMMARY"), text)
    _append(environment.get("GITHUB_OUTPUT"), _outputs(night, steps, is_green))
    return Published(is_green=is_green, annotations=tuple(_limited(annotations)))


def _records(night: Night) -> tuple[list[Record], str]:
    """The night's cases, and in words what of its journal is damaged."""
    try:
        journal = read_journal(night.out / "journal.jsonl")
    except StoreError:  # the night did not get so far, as the missing step says
        return [], ""
    return counted_cases(journal.sessions), journal.left_out if journal.damage else ""


def _of_steps(steps: Mapping[str, Step], missing: Sequence[str]) -> list[Annotation]:
    annotations = [
        Annotation(
            level="error" if step.outcome == "failed" else "warning", title=f"nightly {name}", text=step.lines[0]
        )
        for name, step in steps.items()
        if step.outcome != "done"
    ]
    return annotations + [
        Annotation(level="error", title=f"nightly {name}", text="did not run, or was killed") for name in missing
    ]


def _of_case(record: Record) -> Annotation:
    verdict = record["verdict"]
    file = str(record["node"]).partition("::")[0]
    return Annotation(level="error", title=str(record["id"]), text=f"{verdict['kind']}: {verdict['reason']}", file=file)


def _limited(annotations: Sequence[Annotation]) -> list[Annotation]:
    """At most ten annotations of a level; the last of them says how many more there are, and where."""
    annotated: list[Annotation] = []
    for level in ("error", "warning"):
        of_level = [annotation for annotation in annotations if annotation.level == level]
        if len(of_level) > NUM_ANNOTATED:
            rest = len(of_level) - NUM_ANNOTATED + 1
            more = Annotation(level=level, title="nightly", text=f"{rest} more, see the summary")
            of_level = [*of_level[: NUM_ANNOTATED - 1], more]
        annotated += of_level
    return annotated


def _summary(
    night: Night, steps: Mapping[str, Step], missing: Sequence[str], red: Sequence[Record], is_green: bool
) -> str:
    rows = [f"| {name} | {SIGNS[step.outcome]} | {cell('; '.join(step.lines))} |" for name, step in steps.items()]
    rows += [f"| {name} | **failed** | did not run, or was killed |" for name in missing]
    lines = [f"## Nightly {night.name}: {'green' if is_green else 'red'}", "", "| step | | |", "|---|---|---|", *rows]
    if red:
        lines += ["", "| red case | verdict | why |", "|---|---|---|"]
        lines += [
            f"| {code_cell(record['id'])} | {cell(record['verdict']['kind'])} | {cell(record['verdict']['reason'])} |"
            for record in red[:NUM_ROWS]
        ]
        if len(red) > NUM_ROWS:
            lines.append(f"| {len(red) - NUM_ROWS} more | | see the report |")
    if waiting := steps["promote"].facts.get("waiting") if "promote" in steps else ():
        lines += ["", "Waiting for a person:", "", *(f"- {cell(text)}" for text in waiting)]
    there = [f"`{name}`" for name in ARTIFACTS if name == "summary.md" or (night.out / name).exists()]
    return "\n".join([*lines, "", f"In `{night.out.name}/`: {', '.join(there)}.", ""])


def _outputs(night: Night, steps: Mapping[str, Step], is_green: bool) -> str:
    facts = steps["promote"].facts if "promote" in steps else {}
    outputs = {"green": str(is_green).lower(), "out": str(night.out)}
    outputs |= {
        name: str(facts[name]) for name in ("where", "num_accepted", "pull_request") if facts.get(name) is not None
    }
    return "".join(f"{name}={plain(' '.join(value.split()))}\n" for name, value in outputs.items())


def _append(path: str | None, text: str) -> None:
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)


def cell(text: object) -> str:
    """A text as the content of a table's cell."""
    return re.sub(r"[\\`*_~\[\]<>&|#!]", r"\\\g<0>", _one_line(text))


def code_cell(text: object) -> str:
    line = _one_line(text)
    marks = "`" * (_longest_run(line) + 1)
    space = " " if "`" in line else ""
    return f"{marks}{space}{line.replace('|', chr(92) + '|')}{space}{marks}"


def code_block(lines: Iterable[object]) -> str:
    """The lines as they are, in a block in which no @name notifies a person."""
    shown = list(map(_one_line, lines))
    marks = "`" * max(3, *(_longest_run(line) + 1 for line in shown))
    return "\n".join([f"{marks}text", *shown, marks])


def _one_line(text: object) -> str:
    return plain(" ".join(str(text).split()))


def _longest_run(line: str) -> int:
    return max(map(len, re.findall("`+", line)), default=0)
