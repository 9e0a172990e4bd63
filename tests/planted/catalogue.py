"""The faults that the gate has to find and the changes that it has to pass, as data: a row of docs/trust.md each.

What is planted is named by `plant`: a function of planted_device.py, or a word that own_cases.py or play.py knows. It
is planted on night number `first_night`: on the first night there is no baseline, and on the fourth three nights were
accepted. `python tests/planted/catalogue.py` writes the page anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROFILE, PREDICTION, STEPS, OWN = "test_profile.py", "test_prediction.py", "test_steps.py", "test_own.py"
ANSWERS = "test_answers.py"
SERVING, PAIR = "serving", "pair"
REFERENCE = "the float64 reference"
PAIRS = "pairs of answers, and the float64 reference"
PROFILES = "buckets/profile/"
BUCKET = PROFILES + ".*bucket{}$"
PREDICTIONS = "buckets/(prediction|mean_error)/"
CALL = "test_call$"
MISCOUNTED = "that LENS counts and the engine does not run"
REFUSED = "refused"
"""The run ends before anything is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: `title`, `kind` and `found_by` are a row's words.

    `cases`: a regular expression of the cases that end as `verdict` says; no other is red, but those of `also_red`.
    None of them may be accepted. `metric`: the one of theirs that has that verdict itself. `reason`: a regular
    expression of what is said, of each case or of the run. `files`: those of the project that are run, with `options`.
    `project`: of play.py, the one that it is planted in.
    """

    title: str
    kind: str
    plant: str
    found_by: str
    verdict: str
    cases: str = PROFILES
    also_red: str = "$^"
    metric: str = ""
    reason: str = ""
    first_night: int = 4
    files: tuple[str, ...] = (PROFILE,)
    options: tuple[str, ...] = ()
    play: str = "night"
    project: str = "first_night"
    is_soak: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Harmless:
    """A change on the fourth night that has to be passed and accepted; `verdicts` are those that its cases may have."""

    title: str
    plant: str = ""
    verdicts: tuple[str, ...] = ("unchanged", "inconclusive")
    files: tuple[str, ...] = (PROFILE,)
    options: tuple[str, ...] = ()
    play: str = "night"
    first_night: int = 4
    project: str = "first_night"
    environ: tuple[tuple[str, str], ...] = ()
    is_soak: bool = False


def of_kind(kind: str, verdict: str, **common: Any) -> Callable[..., Fault]:
    """A function of what differs between rows of one kind: title, what finds it, and what is planted where that is not
    named as the row is."""

    def fault(title: str, found_by: str, plant: str = "", **differences: Any) -> Fault:
        given = {"kind": kind, "verdict": verdict, **common, **differences}
        return Fault(title=title, found_by=found_by, plant=plant or title, **given)

    return fault


timing = of_kind("timing", "regressed")
own = of_kind("timing", "regressed", cases=CALL, files=(OWN,))
serving = of_kind("timing", "regressed", files=(SERVING,))
pair = of_kind("timing", "regressed", files=(PAIR,))
logits = of_kind(
    "answers",
    "failed",
    cases="buckets/answers/",
    reason="answers",
    files=(ANSWERS,),
    project="answering",
    first_night=1,
)
mixture = of_kind(
    "answers",
    "failed",
    cases="scheduling/answers/",
    reason="answers",
    files=(ANSWERS,),
    project="answering_mixture",
    first_night=1,
)
server = of_kind(
    "answers", "failed", cases="server/answers/", files=(ANSWERS,), project="answering_server", first_night=1
)
work = of_kind("work left out", "improved")
arithmetic = of_kind(
    "LENS's arithmetic", "failed", cases=PREDICTIONS, reason=MISCOUNTED, files=(PREDICTION,), first_night=1
)
bucket = of_kind("wrong bucket", "invalid", first_night=1)
clock = of_kind("wrong clock", "invalid", first_night=1)
unit = of_kind("wrong unit", "incomparable")
device = of_kind("wrong device", "invalid", first_night=1)
memory = of_kind("memory", "invalid", first_night=1)
meter = of_kind("counters", "invalid", first_night=1)
stale = of_kind("stale baseline", "unchanged")
outcome = of_kind("outcome of the test", "unchanged", cases=CALL, also_red="test_limited$", files=(OWN,))
session = of_kind("double session", "unchanged")
# fmt: off
FAULTS = (
    timing("decode of one bucket takes 20 % longer", "`tbt_s` of its profile case", "decode_of_one_bucket",
           cases=BUCKET.format(32), metric="tbt_s"),
    timing("decode of one bucket takes 3 % longer", "`tbt_s` of its profile case", "decode_of_one_bucket_a_little",
           cases=BUCKET.format(32), metric="tbt_s", first_night=7, is_soak=True),
    timing("prefill of one bucket takes 10 % longer", "`ttft_s` of its profile case", "prefill_of_one_bucket",
           cases=BUCKET.format(64), metric="ttft_s"),
    timing("everything takes 20 % longer", "every time of every case", "everything", metric="ttft_s"),
    timing("everything takes 3 % longer", "a time of every case; the others by the nights after",
           "everything_a_little"),
    timing("the first decode step of a batch takes three times as long", "`tbt_s` of the profile cases", "first_step",
           metric="tbt_s"),
    timing("one batch in six takes three times as long", "the tail of its times", "a_tail"),
    own("two calls of three take three times as long", "the median of `call_s`", "most_calls_slower"),
    own("one call in eight takes five times as long", "the tail of `call_s`", "slow_tail"),
    own("a user's own callable takes 10 % longer", "`call_s`", "slower_call", metric="call_s"),
    timing("moves of the KV cache take five times as long", "`move_s` of the larger bucket's profile case",
           "moves_of_the_cache", cases=BUCKET.format("(32|64)"), metric="move_s", files=(PROFILE, PREDICTION),
           also_red="prediction"),
    timing("binaries take 50 % longer to compile", "`compile_s`", "compiling", metric="compile_s"),
    timing("something compiles while samples are taken", "the count of compiles", "compiling_while_measured",
           verdict="failed", reason="1 compiles after warm-up", first_night=1),
    timing("a stair inside a bucket", "the steps case of the bucket", "a_stair_inside_a_bucket", verdict="failed",
           cases="steps/.*bucket32$", reason="jumps inside bucket 32", first_night=1, files=(STEPS,)),
    serving("iterations under one policy take half as long again", "the times of its policy case", "one_policy",
            cases="scheduling/policy/.*layered-layered-", also_red="scheduling/expert_loads/"),
    pair("the static unit of a pair takes 5 % longer", "`largest_s` of that unit alone", "static_unit_slower",
         cases="partition/npu_stage/"),
    pair("the dynamic unit of a pair takes 5 % longer",
         "the times of that unit alone, with which a case of both units begins", "dynamic_unit_slower",
         cases="partition/gpu_linear/"),
    serving("experts load 0.45 % more bytes (int8 weights and their scales)", "the exact counter",
            "more_bytes_of_experts", kind="counters", cases="scheduling/chunk_sweep/", reason="expert_load"),
    pair("one unit of a pair computes something else", "its output against float64, which names the unit",
         "static_unit_wrong", kind="answers", verdict="invalid", cases="partition/npu_stage/",
         reason="256 of the npu's 256 outputs are wrong", first_night=1),
    logits("all matrices zero", "logits that are all alike", verdict="invalid", is_soak=True),
    logits("a layer skipped", REFERENCE),
    logits("the last layer adds no attention", REFERENCE, is_soak=True),
    logits("weights of int8, per channel", REFERENCE, is_soak=True),
    logits("weights of fp16", REFERENCE, is_soak=True),
    logits("gate and up swapped", REFERENCE, is_soak=True),
    logits("another key-value head", REFERENCE, is_soak=True),
    logits("a lost shard of the vocabulary", REFERENCE, is_soak=True),
    logits("rotation of twice the base", REFERENCE, is_soak=True),
    logits("no causal mask", PAIRS),
    logits("a mask that shows the next token", PAIRS, is_soak=True),
    logits("a window of 8 tokens in prefill", PAIRS, is_soak=True),
    logits("a step does not see its own key", PAIRS, is_soak=True),
    logits("keys written one place late", PAIRS, is_soak=True),
    logits("a step at the wrong position", PAIRS, is_soak=True),
    logits("rows swapped in a step", PAIRS, is_soak=True),
    logits("a move that forgets the values", PAIRS, is_soak=True),
    logits("steps in the middle of a bucket", REFERENCE, reason="only steps inside of them", is_soak=True),
    server("a server that says the same to everybody", "answers to other prompts", "the_same_to_everybody",
           reason="the same whatever is asked"),
    server("a server that answers garbage, other each time", "the same prompts once more", "garbage",
           verdict="inconclusive", reason="does not repeat itself"),
    server("a server of another model", "the answers that were accepted", "another_model", verdict="regressed",
           first_night=2),
    mixture("a mixture of experts without a causal mask", PAIRS, "no mask"),
    mixture("a router that takes the least likely experts", REFERENCE, "the least likely experts"),
    work("half of the decode steps are left out", "the tokens that came back", "half_of_the_decode_steps",
         verdict="invalid", reason="work was left out", first_night=1),
    work("half of the batch is left out", "an improvement that nobody explained", "half_of_the_batch"),
    work("a layer is skipped", "an improvement that nobody explained", "a_skipped_layer"),
    work("a user's own callable does half of its work", "an improvement that nobody explained", "half_the_work",
         cases=CALL, files=(OWN,)),
    work("a callable returns a generator, which has done nothing", "what was returned", "nothing_is_run",
         verdict="invalid", cases=CALL, reason="generator., which does nothing", first_night=1, files=(OWN,)),
    work("launches alone, in a hundredth of the time", "the device's peaks", "nothing_computed", verdict="invalid",
         reason="faster than the device can be", first_night=1),
    arithmetic("LENS counts 10 % more decode steps", "the steps that the engine ran", "a_tenth_more_steps"),
    arithmetic("LENS counts one decode step too many (T = l_out)", "the steps that the engine ran",
               "one_step_too_many"),
    arithmetic("LENS counts one decode step too few", "the steps that the engine ran", "one_step_too_few"),
    arithmetic("LENS counts one prefill for the whole batch", "the prediction error's limit", "a_prefill_forgotten",
               reason="prediction error"),
    bucket("decode steps run in the bucket above their own", "the purity of profile points", "a_larger_bucket",
           reason="ran in bucket"),
    bucket("the engine pads to other buckets than the hardware file's", "the buckets that it declares",
           "other_buckets_than_declared", reason="declares the buckets"),
    bucket("a bucket does not compile", "the engine's own error", "a_bucket_that_does_not_compile",
           cases=BUCKET.format(32), reason="the compiler gave up on bucket 32"),
    clock("a clock in milliseconds", "every time of every case", "a_clock_in_milliseconds", verdict="regressed",
          metric="ttft_s", first_night=4),
    clock("a clock that is a thousand times too slow", "the device's peaks", "a_clock_too_slow",
          reason="faster than the device can be"),
    clock("a clock that stands still", "a time of 0", "a_clock_that_stands"),
    clock("a clock that goes backwards", "a time below 0", "a_clock_that_goes_back", is_soak=True),
    clock("a clock that tells no number", "a time that is not finite", "a_clock_that_tells_no_number", reason="nan",
          is_soak=True),
    clock("a call of a user's own takes no time at all", "a time of 0", "no_time_at_all", cases=CALL, first_night=4,
          files=(OWN,)),
    clock("a call takes two and a half times as long, while Python's clocks stand still", "the machine's own clock",
          "standing_clock", verdict="regressed", cases="test_real.py::test_sleep$", first_night=4,
          files=("test_real.py",)),
    clock("tracemalloc is on while samples are taken", "what the process traces", "tracing", kind="slowed process",
          cases="callable/", reason="tracemalloc traces each allocation", files=(OWN,)),
    unit("milliseconds where seconds were accepted", "the metric's unit", "milliseconds_for_seconds", reason="ms"),
    unit("another unit whose numbers are those of every night", "the metric's unit", "a_unit_that_hides_a_slowdown",
         reason="ks"),
    unit("a metric whose better direction was turned around", "the metric's direction", "the_other_direction",
         reason="higher"),
    device("another driver", "the key of the baselines", "another_driver", verdict="incomparable",
           reason="driver fake driver 1 -> fake driver 2", first_night=4),
    device("another device under the same marker", "the key of the baselines", "another_device", verdict="incomparable",
           reason="Fake accelerator -> Fake accelerator 2", first_night=4),
    device("a device that throttles", "the device's own state", "a_throttled_device", reason="throttled"),
    device("a device that is lost half-way", "the engine's own error", "a_lost_device", reason="fell off the bus"),
    device("a slow case that no fresh process can measure again", "the verdict before the second look, which stands",
           "a_suspect_that_cannot_be_measured_again", verdict="regressed", cases=BUCKET.format(32),
           reason="could not be measured again", first_night=4),
    memory("a device without memory for the model", "the engine's own error", "no_memory", reason="no memory left"),
    memory("memory that grows while batches run", "`peak_memory_bytes`", "memory_that_grows", verdict="regressed",
           cases=BUCKET.format(64), metric="peak_memory_bytes", reason="", first_night=4),
    meter("an energy counter that runs twice as fast", "joules a token", "a_meter_twice_as_fast", verdict="regressed",
          metric="output_token_j", first_night=4),
    meter("an energy counter that stands still", "no joules in seconds of work", "a_meter_that_stands",
          reason="energy counter stood still"),
    stale("everything 20 % longer, with a journal elsewhere whose path follows a blank",
          "the project's root, which no option's value moves", "everything", verdict="regressed",
          play="with_a_journal_elsewhere"),
    stale("a baseline of another definition of the case", "the case's digest", "another_definition",
          verdict="incomparable", reason="case digest", play="with_longer_points"),
    stale("a baseline that was edited by hand", "the file's check", "edited_baseline", verdict=REFUSED, cases="",
          reason="check", play="with_an_edited_baseline"),
    stale("a folder of baselines that is not there", "the option", "misspelt_baselines", verdict=REFUSED, cases="",
          reason="No such file or directory", options=("--npubench-baselines=nights",), play="without_accepting"),
    session("a run that `pytest.exit` ends half-way with status 0", "the end of the run", "ended_half_way",
            kind="outcome of the test", reason="nothing accepted", play="ended_half_way"),
    outcome("a test that fails after measuring, and passes when it is run again", "the worst try", "wrong_at_first",
            play="run_again"),
    outcome("an assertion that fails after measuring", "the test's outcome", "wrong_answer"),
    outcome("an error in the teardown", "the test's outcome", "teardown_error"),
    outcome("a test that passes though it is expected to fail", "the test's outcome", "strict_xpass"),
    outcome("a test that skips after measuring", "the test's outcome", "skipped_at_its_end"),
    outcome("a test that measures twice", "the test's outcome", "measured_twice"),
    session("the same cases on each of two workers (`--dist each`)", "the run's name", "on_each_worker",
            kind="double session", options=("-n2", "--dist=each"), play="counted_twice"),
    session("a run that is accepted twice", "the session's name", "accepted_twice", kind="double session",
            play="accepted_twice"),
    timing("everything takes 20 % longer since the commit whose run is resumed", "the commit", "everything",
           kind="stale resume", metric="ttft_s", play="resumed_at_another_commit"),
    session("a run that took over what an earlier one measured", "the record's own word", "resumed",
            kind="stale resume", reason="taken over from an earlier run", play="resumed"),
)
# fmt: on
HARMLESS = (
    Harmless(title="a night like the others"),
    Harmless(title="a night like the others, every suite", files=()),
    Harmless(title="a night three times as noisy", plant="a_noisier_night"),
    Harmless(title="everything 0.3 % faster", plant="a_little_faster"),
    Harmless(title="a cold first process, 4 % slower", plant="a_slow_first_process"),
    Harmless(title="one batch of a process interrupted, three times as long", plant="one_batch_interrupted"),
    Harmless(title="binaries compile 5 % slower", plant="compiling_a_little_longer"),
    Harmless(title="times added up in another order", plant="another_order_of_addition"),
    Harmless(title="another host of the same kind", plant="another_host_name"),
    Harmless(title="cases run on two workers", options=("-n2",)),
    Harmless(title="one case selected", options=("-k", "bucket32")),
    Harmless(title="cases in the opposite order", plant="backwards", play="backwards"),
    Harmless(title="twice as many rounds", play="with_more_rounds"),
    Harmless(title="a suite with one test more", play="with_another_test", files=(PROFILE, "test_new.py")),
    Harmless(title="a user's own callables", files=(OWN,)),
    Harmless(title="another release of jax and torch on a device that runs neither", plant="another_release"),
    Harmless(title="a night like the others, policies served", files=(SERVING,)),
    Harmless(title="a night like the others, pairs of units", files=(PAIR,)),
    *(
        Harmless(
            title=f"answers: {title}",
            plant=plant,
            files=(ANSWERS,),
            verdicts=("unchanged",),
            first_night=2,
            project="answering",
            environ=environ,
            is_soak=bool(environ),
        )
        for title, plant, environ in (
            ("a night like the others", "", ()),
            ("sums in another order", "sums in another order", ()),
            ("pads of another token", "pads of another token", ()),
            ("another optimisation of the compiler", "", (("XLA_FLAGS", "--xla_backend_optimization_level=2"),)),
            ("one thread", "", (("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false"),)),
        )
    ),
    Harmless(
        title="answers: another release of jax",
        verdicts=("unchanged",),
        files=(ANSWERS,),
        play="with_another_release",
        first_night=2,
        project="answering",
        is_soak=True,
    ),
    *(
        Harmless(
            title=f"answers of {whose}: a night like the others",
            files=(ANSWERS,),
            verdicts=("unchanged",),
            first_night=2,
            project=project,
        )
        for whose, project in (("a mixture of experts", "answering_mixture"), ("a server", "answering_server"))
    ),
)


PAGE = Path(__file__).parents[2] / "docs" / "trust.md"
BEGIN, END = "<!-- catalogue: begin -->", "<!-- catalogue: end -->"


def table() -> str:
    """The catalogue as Markdown: what is found, and what passes. Faults of a kind with one finding share a row."""
    kinds = dict.fromkeys(row.kind for row in FAULTS)
    lines = ["| faults | found by | verdict | first night |", "|---|---|---|---|"]
    for kind in kinds:
        lines.append(f"| **{kind}** | | | |")
        findings: dict[str, list[str]] = {}
        for row in FAULTS:
            if row.kind == kind:
                findings.setdefault(_finding(row), []).append(row.title)
        lines += [f"| {'; '.join(titles)} | {finding}" for finding, titles in findings.items()]
    lines += ["", f"{len(FAULTS)} faults. These changes are passed and accepted:", ""]
    lines += [f"- {row.title}" for row in HARMLESS]
    return "\n".join(lines)


def _finding(row: Fault) -> str:
    return f"{row.found_by} | `{row.verdict}` | {row.first_night} |"


def page() -> str:
    """docs/trust.md with the table of now."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
