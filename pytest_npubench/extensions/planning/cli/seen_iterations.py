"""Iterations that were seen: those of a journal's served blocks, or of what vLLM logged of each.

vLLM writes a line an iteration with --enable-logging-iteration-details, and how many tokens its KV cache holds when it
starts. Which experts ran it does not say: those count that as many rows activate under the synthetic router.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_npubench.errors import ConfigError

if TYPE_CHECKING:
    from pytest_npubench.engines.shapes import DecoderShape
    from pytest_npubench.extensions.planning.stated_engine import EngineArguments
    from pytest_npubench.serving.log import IterationLog


class SeenIterations(NamedTuple):
    """A log, and when the requests arrived, where that is known."""

    log: IterationLog
    arrivals_s: Sequence[float] = ()


STEP = re.compile(
    r"Iteration\((?P<index>\d{1,12})\): \d+ context requests, (?P<prompt>\d{1,9}) context tokens, (?P<rows>\d{1,9}) "
    r"generation requests, \d+ generation tokens, iteration elapsed time: (?P<ms>\d{1,12}(?:\.\d+)?) ms"
    r"(?P<dummy> \(dummy\))?(?:, .*?KV cache usage: (?P<held>\d{1,3}(?:\.\d+)?)%)?"
)
CAPACITY = re.compile(r"KV cache size: (\d[\d,]{0,15}) tokens")
BEGUN = "Iteration("
ENGINE = re.compile(r"Initializing a V1 LLM engine \(v(?P<version>[^)]*)\) with config: (?P<config>.+)")
ARGUMENTS = re.compile(r"non-default args: \{(?P<config>.+)\}")
CHUNKS = re.compile(r"Chunked prefill is enabled with (max_num_batched_tokens=\d+)")
BLOCK = re.compile(r"Setting attention block size to (\d{1,9}) tokens")
"""Of a model with states, whatever size was asked for: a block takes as much memory as a state."""
ASYNCHRONOUS = re.compile(r"Asynchronous scheduling is (enabled|disabled)")
INNER = re.compile(r"[\[({<][^\[\](){}<>]*[\])}>]")
"""Brackets without any in them."""
SETTING = re.compile(r"(?:^|[,{ ])'?(\w+)'?(?:=|: )'?([^',]+)")
WORDS = {"True": True, "False": False, "None": None}
MOST_LOG_BYTES = 256 * 2**20


def is_journal(path: Path) -> bool:
    """Whether its first line is a journal's; False for what cannot be read."""
    try:
        with path.open("rb") as stream:
            return b'"record":"session"' in stream.readline(4096)
    except OSError:
        return False


def rounds_of(path: Path, shape: DecoderShape) -> Sequence[Mapping[str, SeenIterations]]:
    """Of each round, by their points, the iterations of the blocks that were served on the wall clock by a model of
    these layers, with experts or without. Raises JournalError for a journal that cannot be read, ConfigError where
    there is none."""
    from pytest_npubench.campaign.served_block import RUN, ServedBlock
    from pytest_npubench.campaign.visits import columns_of
    from pytest_npubench.errors import MeasurementError
    from pytest_npubench.store.journal_reader import read_journal

    seen: list[dict[str, SeenIterations]] = []
    others: set[str] = set()
    behind = f"/{RUN}"
    for record in read_journal(path).records:
        points = record.get("points", {}) if record["record"] == "round" else {}
        of_round: dict[str, SeenIterations] = {}
        for name in (column.removesuffix(behind) for column in points if column.endswith(behind)):
            try:
                (block,) = ServedBlock.of_columns(columns_of(points, name))
            except MeasurementError:
                continue
            is_dense = not any(block.log.expert_activations)
            if not len(block.log):
                continue
            if (block.num_layers, is_dense) == (shape.num_layers, shape.is_dense):
                of_round[name] = SeenIterations(block.log, [record.arrival_s for record in block.records])
            else:
                others.add(f"{block.num_layers} layers {'without' if is_dense else 'with'} experts")
        if of_round:
            seen.append(of_round)
    if not seen:
        there = f"; it has some of {', '.join(sorted(others))}" if others else ""
        kind = "without" if shape.is_dense else "with"
        raise ConfigError(f"{path} has no iterations of a model of {shape.num_layers} layers {kind} experts{there}")
    return seen


def is_step_log(path: Path) -> bool:
    """A text that is neither of the forms of a run."""
    return path.is_file() and path.suffix not in (".json", ".jsonl", ".csv")


def stated_engine(path: Path) -> tuple[EngineArguments, tuple[str, ...]]:
    """What a step log says of its engine, as far as it does, and the doubts of it. Raises WorkloadError."""
    from pytest_npubench.extensions.planning.stated_engine import engine_of

    text = _text(path)
    given: dict[str, object] = {}
    for pattern in (ARGUMENTS, ENGINE):
        given |= _settings(line["config"]) if (line := pattern.search(text)) else {}
    given |= {"vllm_version": line["version"]} if line else {}
    given |= {"num_kv_tokens": int(size[1].replace(",", ""))} if (size := CAPACITY.search(text)) else {}
    given |= {"block_size": int(size[1])} if (size := BLOCK.search(text)) else {}
    given |= _settings(chunks[1]) if (chunks := CHUNKS.search(text)) else {}
    given |= {"async_scheduling": words[1] == "enabled"} if (words := ASYNCHRONOUS.search(text)) else {}
    engine, unread = engine_of(path, {"engine_kwargs": given})
    with_images = "encoder inputs: " in text
    return engine, (*unread, *([f"{path.name}: encoder inputs: not read, whatever they take"] if with_images else []))


def _settings(text: str) -> dict[str, object]:
    """Settings as Python writes them; those that are records or lists of several as the text of that."""
    while (flat := INNER.sub("...", text)) != text:
        text = flat
    settings: dict[str, object] = {}
    for name, value in SETTING.findall(text):
        word = value.strip().removeprefix("torch.")
        try:
            settings[name] = WORDS[word] if word in WORDS else float(word) if "." in word else int(word)
        except ValueError:
            settings[name] = word
    return settings


def logged_iterations(
    path: Path, shape: DecoderShape, *, kv_token_bytes: float, kv_capacity_tokens: int
) -> IterationLog:
    """Those of a step log in order, without the dummies of data-parallel replicas. Raises WorkloadError for a file that
    cannot be read or has none."""
    from pytest_npubench.errors import WorkloadError
    from pytest_npubench.extensions.planning.virtual.router import sampled_router
    from pytest_npubench.serving.iteration import PrefillRow
    from pytest_npubench.serving.log import IterationLog

    text = _text(path)
    num_lines, matches = text.count(BEGUN), list(STEP.finditer(text))
    if len(matches) < num_lines:
        raise WorkloadError(
            f"{path}: {num_lines - len(matches)} of {num_lines} lines of iterations are of another form than that of "
            "vllm serve --enable-logging-iteration-details"
        )
    router = None if shape.is_dense else sampled_router(shape, 0)
    layers = shape.expert_layers(0, shape.num_layers)
    log, now_s = IterationLog(), 0.0
    columns: dict[str, list[float]] = {name: [] for name in log.columns()}
    for match in matches:
        if match["dummy"]:
            continue
        index, prompt, rows = int(match["index"]), int(match["prompt"]), int(match["rows"])
        prefill = [PrefillRow(index, 0, prompt)] if prompt else []
        activated = 0 if router is None else router.activations(index, *layers, rows, prefill)
        row = {
            "start_s": now_s,
            "end_s": now_s + float(match["ms"]) / 1e3,
            "num_decode": rows,
            "num_prefill_tokens": prompt,
            "num_prefill_layers": shape.num_layers if prompt else 0,
            "kv_bytes": float(match["held"] or 0) / 100 * kv_capacity_tokens * kv_token_bytes,
            "expert_activations": activated,
        }
        now_s = row["end_s"]
        for name, column in columns.items():
            column.append(row.get(name, 0))
    if not columns["end_s"]:
        raise WorkloadError(
            f"{path} has no line of an iteration; want the log of vllm serve --enable-logging-iteration-details, a "
            "journal, or a run's requests"
        )
    log.extend({name: column for name, column in columns.items() if name != "energy_j"})
    return log


def _text(path: Path) -> str:
    from pytest_npubench.core.regular_file import read_text
    from pytest_npubench.errors import WorkloadError

    try:
        return read_text(path, MOST_LOG_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise WorkloadError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
