"""Walks the probe prompts through static buckets and holds an engine's answers against each other.

The first walk gives the answers: prompts of one bucket in batches, each prefilled where it belongs and forced on token
by token, across a move where its cache outgrows the bucket. Rows that are left over repeat prompts of the batch, all of
them in the smallest bucket, and up to eight elsewhere; in larger buckets later walks have each prompt once, and those
with other neighbours leave out a prompt that has none. Pairs that mean the same and must agree:

    another row       a prompt that a batch repeats, beside itself
    every row         of large batches: that of the smallest bucket, moved to each other one
    other neighbours  batches made up anew, their rows turned by one
    junk              pads of another token than 0, and caches that other prompts filled to the end before
    another bucket    each batch from its first prompt on in the next larger bucket, so that it does not move
                      before it needs to; its steps in the middle of prompts run there too
    prefill           the last forced token's answer, by a prefill of all tokens before it

and, of each prompt, changes after which the prefill must answer something else: its first half, and its second half but
for the last token. A single token may change less than bf16 rounds.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import groupby

import numpy as np

from pytest_npubench.core.buckets import bucket_of
from pytest_npubench.engines.answers import Answers, Logits, check_finite, distances
from pytest_npubench.engines.probe import NUM_FIXED, NUM_PROMPTS, ProbePrompts
from pytest_npubench.engines.request_batch import Prompt
from pytest_npubench.engines.run_trace import RunTrace
from pytest_npubench.engines.static_buckets import StaticBuckets

Batch = tuple[int, ...]
"""The prompt of each row, by its index."""


class AnsweringBuckets(StaticBuckets):
    """Static buckets whose binaries give the logits of a few fixed tokens beside the greedy tokens."""

    def answers(self, prompts: ProbePrompts) -> Answers:
        """Asks the binaries that are timed, with probe weights in the place of the engine's own."""
        self.load(self.buckets)
        with self.probe_weights() as (weights_bits, made_bits):
            walked = _AnswerWalk(self, prompts).answers()
        timed = _AnswerWalk(self, prompts).shortest()
        return replace(walked, weights_bits=weights_bits, made_bits=made_bits, timed=timed)

    @abstractmethod
    def force(self, tokens: Prompt, lengths: Prompt | None = None) -> None:
        """Let these, int32 [batch_size], be the last tokens of all rows: what the next step takes. `lengths`, where
        they are given, are those of the rows in the cache: what stands behind is kept, and not seen."""

    @abstractmethod
    def fixed_logits(self) -> Logits:
        """Logits of probe.fixed_tokens() behind every row's last token [batch_size, NUM_FIXED]."""

    @abstractmethod
    def probe_weights(self) -> AbstractContextManager[tuple[int | None, int | None]]:
        """Within it the weights are those of probe.py, behind it the engine's own again. Gives the checksum of their
        bits where the device holds them and of what the host made, None where the engine cannot tell."""


class _AnswerWalk:
    """One engine on probe weights, all buckets loaded."""

    def __init__(self, engine: AnsweringBuckets, prompts: ProbePrompts) -> None:
        self._engine, self._prompts = engine, prompts
        self._tokens = np.zeros((len(prompts.lengths), prompts.num_positions), np.int64)
        """The greedy tokens of the batches so far."""

    def answers(self) -> Answers:
        """All walks. Nothing is timed."""
        indices = range(len(self._prompts.lengths))
        batches = self._batches(indices)
        logits, again = self._walk(batches, with_middles=True)
        tokens = self._tokens.copy()
        agree = {"another row": again} if np.isfinite(again).any() else {}
        if self._engine.batch_size > NUM_PROMPTS and len(self._engine.buckets) > 1:
            agree["every row"] = self._in_every_row(batches[0], logits)
        if self._engine.batch_size > 1:
            turned = [(*batch[1:], batch[0]) for batch in self._batches(indices[::-1]) if len(set(batch)) > 1]
            agree["other neighbours"] = _farthest(self._walk(turned)[0], logits)
        self._fill_with_junk()
        once = self._batches(indices, is_filled=False)
        self._engine.padding_token = self._prompts.junk
        try:
            agree["junk"] = _farthest(self._walk(once)[0], logits)
            agree["another bucket"] = _farthest(self._walk(once, from_next=True, with_middles=True)[0], logits)
            whole = [np.concatenate(asked) for asked in self._prompts.asked()]
            agree["prefill"] = distances(self._prefills(whole), logits[:, self._prompts.num_forced])
        finally:
            self._engine.padding_token = 0
        changed = self._prompts.changed()
        differ = {
            half: distances(self._prefills([asked.prompt for asked in edited]), logits[:, 0])
            for half, edited in changed.items()
        }
        return Answers(prompts=self._prompts, logits=logits, agree=agree, differ=differ, tokens=tokens)

    def shortest(self) -> Logits:
        """Answers [positions, NUM_FIXED] to the shortest prompt alone."""
        answers: Logits = self._batch((0,), self._bucket(self._prompts.lengths[0] + 1))[0]
        return answers

    def _in_every_row(self, batch: Batch, logits: Logits) -> Logits:
        """How far the answers of a batch of the smallest bucket lie from those of the first walk once it has moved to
        any other bucket [prompts]."""
        apart = np.full(len(logits), np.nan)
        smallest, *others = self._engine.buckets
        for bucket in others:
            rows = self._batch(batch, smallest, moved_to=bucket)
            for row, index in enumerate(batch):
                apart[index] = np.fmax(apart[index], _farthest(rows[row], logits[index]))
        return apart

    def _batches(self, indices: Sequence[int], *, is_filled: bool = True) -> list[Batch]:
        """Batches of prompts whose first step runs in one bucket: the smaller buckets' binaries decode as well. Not
        filled: in larger buckets than the smallest no prompt is repeated."""
        batches: list[Batch] = []
        for bucket, group in groupby(indices, lambda index: self._bucket(self._prompts.lengths[index] + 1)):
            in_bucket, size = tuple(group), self._num_rows(bucket)
            filled = size if is_filled or bucket == self._engine.buckets[0] else 0
            batches += [_filled(in_bucket[start : start + size], filled) for start in range(0, len(in_bucket), size)]
        return batches

    def _num_rows(self, bucket: int) -> int:
        """Returns the rows that are filled: all in the smallest bucket, where a prefill takes least."""
        size = self._engine.batch_size
        return size if bucket == self._engine.buckets[0] else min(size, NUM_PROMPTS)

    def _walk(
        self, batches: Iterable[Batch], *, from_next: bool = False, with_middles: bool = False
    ) -> tuple[Logits, Logits]:
        """Answers [prompts, positions, NUM_FIXED], and how far repeats of a prompt in its batch lie from it [prompts].
        from_next leaves out batches that begin in the largest bucket: not a number."""
        number = len(self._prompts.lengths)
        num_positions = self._prompts.num_positions if with_middles else self._prompts.num_forced + 1
        logits = np.full((number, num_positions, NUM_FIXED), np.nan)
        again = np.full(number, np.nan)
        for batch in batches:
            first = self._bucket(min(self._prompts.lengths[index] for index in batch))
            buckets = self._engine.buckets
            if from_next and first == buckets[-1]:
                continue
            begun = buckets[buckets.index(first) + 1] if from_next else first
            rows = self._batch(batch, begun, with_middles=with_middles)
            for row, index in enumerate(batch):
                if (earlier := batch.index(index)) == row:
                    logits[index] = rows[row]
                else:
                    again[index] = np.fmax(again[index], _farthest(rows[row], rows[earlier]))
        return logits, again

    def _batch(self, batch: Batch, bucket: int, *, moved_to: int = 0, with_middles: bool = False) -> Logits:
        """Answers [rows, positions, NUM_FIXED] of one batch that begins in a bucket; its steps begin in another. Those
        in the middle of prompts run behind the prefills, in the bucket that these left."""
        engine, prompts, trace = self._engine, self._prompts, RunTrace()
        rows = np.empty((len(batch), prompts.num_forced + 1, NUM_FIXED))
        engine.begin(bucket)
        for row in sorted(range(len(batch)), key=lambda row: prompts.lengths[batch[row]]):
            prompt = prompts.prompt(batch[row])
            bucket = engine.grow(bucket, len(prompt), trace)
            self._tokens[batch[row], 0] = engine.prefill_row(bucket, row, prompt)[row]
            rows[row, 0] = engine.fixed_logits()[row]
        middles = self._middles(batch, bucket) if with_middles else rows[:, :0]
        bucket = engine.grow(bucket, moved_to, trace)
        longest = max(prompts.lengths[index] for index in batch)
        behind = np.array([prompts.lengths[index] for index in batch]) if middles.size else None
        for step, tokens in enumerate(np.stack([prompts.forced(index) for index in batch], axis=1)):
            bucket = engine.grow(bucket, longest + step + 1, trace)
            rows[:, step + 1] = self._step(batch, bucket, step + 1, tokens, behind)
            behind = None
        engine.end(bucket)
        answers: Logits = np.concatenate([rows, middles], axis=1)
        check_finite(answers)
        return answers

    def _middles(self, batch: Batch, bucket: int) -> Logits:
        """Answers [rows, NUM_MIDDLE, NUM_FIXED] of steps inside of prompts that were prefilled: each writes what stands
        there already."""
        prompts, answers = self._prompts, []
        for number, places in enumerate(np.stack([prompts.middles[index] for index in batch], axis=1)):
            texts = [prompts.prompt(index) for index in batch]
            tokens = np.array([text[place] for text, place in zip(texts, places, strict=True)])
            answers.append(self._step(batch, bucket, prompts.num_forced + 1 + number, tokens, places))
        return np.stack(answers, axis=1)

    def _step(self, batch: Batch, bucket: int, position: int, tokens: Prompt, lengths: Prompt | None) -> Logits:
        """Answers [rows, NUM_FIXED] to one forced token of each row. Rows that are not filled take what they take."""
        engine = self._engine
        every = None if lengths is None else np.resize(lengths, engine.batch_size).astype(np.int32)
        engine.force(np.resize(tokens, engine.batch_size), every)
        self._tokens[list(batch), position] = engine.decode_step(bucket)[: len(batch)]
        answers: Logits = engine.fixed_logits()[: len(batch)]
        return answers

    def _prefills(self, asked: Sequence[Prompt]) -> Logits:
        """Returns the answer behind each of these prompts [prompts, NUM_FIXED], one batch each, in its last row."""
        engine, row = self._engine, self._engine.batch_size - 1
        logits = np.empty((len(asked), NUM_FIXED))
        for index, prompt in enumerate(asked):
            bucket = self._bucket(len(prompt))
            engine.begin(bucket)
            engine.prefill_row(bucket, row, prompt)
            logits[index] = engine.fixed_logits()[row]
            engine.end(bucket)
        check_finite(logits)
        return logits

    def _fill_with_junk(self) -> None:
        """The rows of every bucket's cache that are filled, to the end."""
        engine = self._engine
        for bucket in engine.buckets:
            engine.begin(bucket)
            for row in range(self._num_rows(bucket)):
                engine.prefill_row(bucket, row, self._prompts.texts[0][:bucket][::-1])
            engine.end(bucket)

    def _bucket(self, tokens: int) -> int:
        return bucket_of(self._engine.buckets, tokens)


def _filled(batch: Batch, size: int) -> Batch:
    return tuple(batch[row % len(batch)] for row in range(max(size, len(batch))))


def _farthest(answers: Logits, others: Logits) -> Logits:
    """Returns the farthest answer of each prompt [prompts], over these positions, which are the first of the
    others'."""
    farthest: Logits = distances(answers, others[..., : answers.shape[-2], :]).max(axis=-1)
    return farthest
