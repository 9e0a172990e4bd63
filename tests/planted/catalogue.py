"""The faults that the gate has to find and the changes that it has to pass, as data: a row of docs/trust.md each.

What is planted is named by `plant`: a function of planted_device.py, or a word that own_cases.py or play.py knows. It
is planted on night number `first_night`: on the first night there is no baseline, and on the fourth three nights were
accepted. `python tests/planted/catalogue.py` writes the page anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PROFILE, PREDICTION, STEPS, OWN = "test_profile.py", "test_prediction.py", "test_steps.py", "test_own.py"
ANSWERS = "test_answers.py"
SERVING, PAIR = "serving", "pair"
REFERENCE = "the float64 reference"
PAIRS = "pairs of answers, and the float64 reference"
PROFILES = "buckets/profile/"
BUCKET = PROFILES + ".*bucket{}$"
PREDICTIONS = "buckets/(prediction|mean_error)/"
CALL = "test_call$"
REFUSED = "refused"
"""The run ends before anything is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: `title`, `kind` and `found_by` are a row's words.

    `cases`: a regular expression of the cases that end as `verdict` says; no other is red, but those of `also_red`.
    None of them may be accepted. `metric`: the one of theirs that has that verdict itself. `reason`: a regular
    expression of what is said, of each case or of the run. `files`: those of the project that are run, with `options`.
    `project`: of play.py, the one that it is planted in. `waits_for`: why it is not found yet.
    """

    title: str
    kind: str
    plant: str
    found_by: str
    verdict: str
    cases: str
    also_red: str = "$^"
    metric: str = ""
    reason: str = ""
    first_night: int = 4
    files: tuple[str, ...] = (PROFILE,)
    options: tuple[str, ...] = ()
    play: str = "night"
    project: str = "first_night"
    is_soak: bool = False
    waits_for: str = ""


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
    waits_for: str = ""


TIMING = (
    Fault(
        title="decode of one bucket takes 20 % longer",
        kind="timing",
        plant="decode_of_one_bucket",
        found_by="`tbt_s` of its profile case",
        verdict="regressed",
        cases=BUCKET.format(32),
        metric="tbt_s",
    ),
    Fault(
        title="decode of one bucket takes 3 % longer",
        kind="timing",
        plant="decode_of_one_bucket_a_little",
        found_by="`tbt_s` of its profile case",
        verdict="regressed",
        cases=BUCKET.format(32),
        metric="tbt_s",
        first_night=7,
    ),
    Fault(
        title="prefill of one bucket takes 10 % longer",
        kind="timing",
        plant="prefill_of_one_bucket",
        found_by="`ttft_s` of its profile case",
        verdict="regressed",
        cases=BUCKET.format(64),
        metric="ttft_s",
    ),
    Fault(
        title="everything takes 20 % longer",
        kind="timing",
        plant="everything",
        found_by="every time of every case",
        verdict="regressed",
        cases=PROFILES,
        metric="ttft_s",
    ),
    Fault(
        title="everything takes 3 % longer",
        kind="timing",
        plant="everything_a_little",
        found_by="every time of every case",
        verdict="regressed",
        cases=PROFILES,
        metric="ttft_s",
    ),
    Fault(
        title="the first decode step of a batch takes three times as long",
        kind="timing",
        plant="first_step",
        found_by="`tbt_s` of the profile cases",
        verdict="regressed",
        cases=PROFILES,
        metric="tbt_s",
    ),
    Fault(
        title="one batch in six takes three times as long",
        kind="timing",
        plant="a_tail",
        found_by="the tail of its times",
        verdict="regressed",
        cases=PROFILES,
    ),
    Fault(
        title="two calls of three take three times as long",
        kind="timing",
        plant="most_calls_slower",
        found_by="the median of `call_s`",
        verdict="regressed",
        cases=CALL,
        files=(OWN,),
    ),
    Fault(
        title="one call in eight takes five times as long",
        kind="timing",
        plant="slow_tail",
        found_by="the tail of `call_s`",
        verdict="regressed",
        cases=CALL,
        files=(OWN,),
    ),
    Fault(
        title="a user's own callable takes 10 % longer",
        kind="timing",
        plant="slower_call",
        found_by="`call_s`",
        verdict="regressed",
        cases=CALL,
        metric="call_s",
        files=(OWN,),
    ),
    Fault(
        title="moves of the KV cache take five times as long",
        kind="timing",
        plant="moves_of_the_cache",
        found_by="`move_s` of the larger bucket's profile case",
        verdict="regressed",
        cases=PROFILES + ".*bucket(32|64)$",
        metric="move_s",
        files=(PROFILE, PREDICTION),
    ),
    Fault(
        title="binaries take 50 % longer to compile",
        kind="timing",
        plant="compiling",
        found_by="`compile_s`",
        verdict="regressed",
        cases=PROFILES,
        metric="compile_s",
    ),
    Fault(
        title="something compiles while samples are taken",
        kind="timing",
        plant="compiling_while_measured",
        found_by="the count of compiles",
        verdict="failed",
        cases=PROFILES,
        reason="1 compiles after warm-up",
        first_night=1,
    ),
    Fault(
        title="a stair inside a bucket",
        kind="timing",
        plant="a_stair_inside_a_bucket",
        found_by="the steps case of the bucket",
        verdict="failed",
        cases="steps/.*bucket32$",
        reason="jumps inside bucket 32",
        first_night=1,
        files=(STEPS,),
    ),
)
SUITES = (
    Fault(
        title="iterations under one policy take half as long again",
        kind="timing",
        plant="one_policy",
        found_by="the times of its policy case",
        verdict="regressed",
        cases="scheduling/policy/.*layered-layered-",
        also_red="scheduling/expert_loads/",
        files=(SERVING,),
    ),
    Fault(
        title="experts load 0.45 % more bytes (int8 weights and their scales)",
        kind="counters",
        plant="more_bytes_of_experts",
        found_by="the exact counter",
        verdict="regressed",
        cases="scheduling/chunk_sweep/",
        reason="expert_load",
        files=(SERVING,),
    ),
    Fault(
        title="the static unit of a pair takes 5 % longer",
        kind="timing",
        plant="static_unit_slower",
        found_by="`largest_s` of that unit alone",
        verdict="regressed",
        cases="partition/npu_stage/",
        files=(PAIR,),
    ),
    Fault(
        title="the dynamic unit of a pair takes 5 % longer",
        kind="timing",
        plant="dynamic_unit_slower",
        found_by="the times of that unit alone",
        verdict="regressed",
        cases="partition/gpu_linear/",
        files=(PAIR,),
    ),
    Fault(
        title="one unit of a pair computes something else",
        kind="answers",
        plant="static_unit_wrong",
        found_by="its output against the other unit's",
        verdict="invalid",
        cases="partition/npu_stage/",
        reason="its output is off",
        first_night=1,
        files=(PAIR,),
    ),
)
WORK = (
    Fault(
        title="half of the decode steps are left out",
        kind="work left out",
        plant="half_of_the_decode_steps",
        found_by="an improvement that nobody explained",
        verdict="improved",
        cases=PROFILES,
        reason="tbt_s",
    ),
    Fault(
        title="half of the batch is left out",
        kind="work left out",
        plant="half_of_the_batch",
        found_by="an improvement that nobody explained",
        verdict="improved",
        cases=PROFILES,
    ),
    Fault(
        title="a layer is skipped",
        kind="work left out",
        plant="a_skipped_layer",
        found_by="an improvement that nobody explained",
        verdict="improved",
        cases=PROFILES,
    ),
    Fault(
        title="a user's own callable does half of its work",
        kind="work left out",
        plant="half_the_work",
        found_by="an improvement that nobody explained",
        verdict="improved",
        cases=CALL,
        files=(OWN,),
    ),
    Fault(
        title="a callable returns a generator, which has done nothing",
        kind="work left out",
        plant="nothing_is_run",
        found_by="what was returned",
        verdict="invalid",
        cases=CALL,
        reason="a generator, which does nothing",
        first_night=1,
        files=(OWN,),
    ),
    Fault(
        title="launches alone, in a hundredth of the time",
        kind="work left out",
        plant="nothing_computed",
        found_by="the device's peaks",
        verdict="invalid",
        cases=PROFILES,
        reason="faster than the device can be",
        first_night=1,
    ),
)
PREDICTOR = (
    Fault(
        title="LENS counts 10 % more decode steps",
        kind="LENS's arithmetic",
        plant="a_tenth_more_steps",
        found_by="the steps that the engine ran",
        verdict="failed",
        cases="buckets/(prediction|mean_error)/",
        reason="that LENS counts and the engine does not run",
        first_night=1,
        files=(PREDICTION,),
    ),
    Fault(
        title="LENS counts one decode step too many (T = l_out)",
        kind="LENS's arithmetic",
        plant="one_step_too_many",
        found_by="the steps that the engine ran",
        verdict="failed",
        cases="buckets/(prediction|mean_error)/",
        reason="that LENS counts and the engine does not run",
        first_night=1,
        files=(PREDICTION,),
    ),
    Fault(
        title="LENS counts one decode step too few",
        kind="LENS's arithmetic",
        plant="one_step_too_few",
        found_by="the steps that the engine ran",
        verdict="failed",
        cases="buckets/(prediction|mean_error)/",
        reason="that LENS counts and the engine does not run",
        first_night=1,
        files=(PREDICTION,),
    ),
    Fault(
        title="LENS counts one prefill for the whole batch",
        kind="LENS's arithmetic",
        plant="a_prefill_forgotten",
        found_by="the prediction error's limit",
        verdict="failed",
        cases=PREDICTIONS,
        reason="prediction error",
        first_night=1,
        files=(PREDICTION,),
    ),
)
GROUND = (
    Fault(
        title="decode steps run in the bucket above their own",
        kind="wrong bucket",
        plant="a_larger_bucket",
        found_by="the purity of profile points",
        verdict="invalid",
        cases=PROFILES,
        reason="ran in bucket",
        first_night=1,
    ),
    Fault(
        title="the engine pads to other buckets than the hardware file's",
        kind="wrong bucket",
        plant="other_buckets_than_declared",
        found_by="the buckets that it declares",
        verdict="invalid",
        cases=PROFILES,
        reason="declares the buckets",
        first_night=1,
    ),
    Fault(
        title="a bucket does not compile",
        kind="wrong bucket",
        plant="a_bucket_that_does_not_compile",
        found_by="the engine's own error",
        verdict="invalid",
        cases=BUCKET.format(32),
        reason="the compiler gave up on bucket 32",
        first_night=1,
    ),
    Fault(
        title="a clock in milliseconds",
        kind="wrong clock",
        plant="a_clock_in_milliseconds",
        found_by="every time of every case",
        verdict="regressed",
        cases=PROFILES,
        metric="ttft_s",
    ),
    Fault(
        title="a clock that is a thousand times too slow",
        kind="wrong clock",
        plant="a_clock_too_slow",
        found_by="the device's peaks",
        verdict="invalid",
        cases=PROFILES,
        reason="faster than the device can be",
        first_night=1,
    ),
    Fault(
        title="a clock that stands still",
        kind="wrong clock",
        plant="a_clock_that_stands",
        found_by="a time of 0",
        verdict="invalid",
        cases=PROFILES,
        first_night=1,
    ),
    Fault(
        title="a clock that goes backwards",
        kind="wrong clock",
        plant="a_clock_that_goes_back",
        found_by="a time below 0",
        verdict="invalid",
        cases=PROFILES,
        first_night=1,
    ),
    Fault(
        title="a clock that tells no number",
        kind="wrong clock",
        plant="a_clock_that_tells_no_number",
        found_by="a time that is not finite",
        verdict="invalid",
        cases=PROFILES,
        reason="nan",
        first_night=1,
    ),
    Fault(
        title="a call of a user's own takes no time at all",
        kind="wrong clock",
        plant="no_time_at_all",
        found_by="a time of 0",
        verdict="invalid",
        cases=CALL,
        files=(OWN,),
    ),
    Fault(
        title="milliseconds where seconds were accepted",
        kind="wrong unit",
        plant="milliseconds_for_seconds",
        found_by="the metric's unit",
        verdict="incomparable",
        cases=PROFILES,
        reason="ms",
    ),
    Fault(
        title="another unit whose numbers are those of every night",
        kind="wrong unit",
        plant="a_unit_that_hides_a_slowdown",
        found_by="the metric's unit",
        verdict="incomparable",
        cases=PROFILES,
        reason="ks",
    ),
    Fault(
        title="a metric whose better direction was turned around",
        kind="wrong unit",
        plant="the_other_direction",
        found_by="the metric's direction",
        verdict="incomparable",
        cases=PROFILES,
        reason="higher",
    ),
    Fault(
        title="another driver",
        kind="wrong device",
        plant="another_driver",
        found_by="the key of the baselines",
        verdict="incomparable",
        cases=PROFILES,
        reason="driver fake driver 1 -> fake driver 2",
    ),
    Fault(
        title="another device under the same marker",
        kind="wrong device",
        plant="another_device",
        found_by="the key of the baselines",
        verdict="incomparable",
        cases=PROFILES,
        reason="Fake accelerator -> Fake accelerator 2",
    ),
    Fault(
        title="a device that throttles",
        kind="wrong device",
        plant="a_throttled_device",
        found_by="the device's own state",
        verdict="invalid",
        cases=PROFILES,
        reason="throttled",
        first_night=1,
    ),
    Fault(
        title="a device that is lost half-way",
        kind="wrong device",
        plant="a_lost_device",
        found_by="the engine's own error",
        verdict="invalid",
        cases=PROFILES,
        reason="fell off the bus",
        first_night=1,
    ),
    Fault(
        title="a device without memory for the model",
        kind="memory",
        plant="no_memory",
        found_by="the engine's own error",
        verdict="invalid",
        cases=PROFILES,
        reason="no memory left",
        first_night=1,
    ),
    Fault(
        title="a slow case that no fresh process can measure again",
        kind="wrong device",
        plant="a_suspect_that_cannot_be_measured_again",
        found_by="the verdict before the second look, which stands",
        verdict="regressed",
        cases=BUCKET.format(32),
        reason="could not be measured again",
    ),
)
BASELINES = (
    Fault(
        title="everything 20 % longer, with a journal elsewhere whose path follows a blank",
        kind="stale baseline",
        plant="everything",
        found_by="the project's root, which no option's value moves",
        verdict="regressed",
        cases=PROFILES,
        play="with_a_journal_elsewhere",
    ),
    Fault(
        title="a run that `pytest.exit` ends half-way with status 0",
        kind="outcome of the test",
        plant="ended_half_way",
        found_by="the end of the run",
        verdict="unchanged",
        cases=PROFILES,
        reason="nothing accepted",
        play="ended_half_way",
    ),
    Fault(
        title="a test that fails after measuring, and passes when it is run again",
        kind="outcome of the test",
        plant="wrong_at_first",
        found_by="the worst try",
        verdict="unchanged",
        cases=CALL,
        files=(OWN,),
        play="run_again",
    ),
    Fault(
        title="the same cases on each of two workers (`--dist each`)",
        kind="double session",
        plant="on_each_worker",
        found_by="the run's name",
        verdict="unchanged",
        cases=PROFILES,
        options=("-n2", "--dist=each"),
        play="counted_twice",
    ),
    Fault(
        title="a call takes two and a half times as long, while Python's clocks stand still",
        kind="wrong clock",
        plant="standing_clock",
        found_by="the machine's own clock",
        verdict="regressed",
        cases="test_real.py::test_sleep$",
        files=("test_real.py",),
    ),
    Fault(
        title="a baseline of another definition of the case",
        kind="stale baseline",
        plant="another_definition",
        found_by="the case's digest",
        verdict="incomparable",
        cases=PROFILES,
        reason="case digest",
        play="with_longer_points",
    ),
    Fault(
        title="a baseline that was edited by hand",
        kind="stale baseline",
        plant="edited_baseline",
        found_by="the file's check",
        verdict=REFUSED,
        cases="",
        reason="check",
        play="with_an_edited_baseline",
    ),
    Fault(
        title="a folder of baselines that is not there",
        kind="stale baseline",
        plant="misspelt_baselines",
        found_by="the option",
        verdict=REFUSED,
        cases="",
        reason="No such file or directory",
        options=("--npubench-baselines=nights",),
        play="without_accepting",
    ),
    Fault(
        title="a run that took over what an earlier one measured",
        kind="stale resume",
        plant="resumed",
        found_by="the record's own word",
        verdict="unchanged",
        cases=PROFILES,
        reason="taken over from an earlier run",
        play="resumed",
    ),
    Fault(
        title="a run that is accepted twice",
        kind="double session",
        plant="accepted_twice",
        found_by="the session's name",
        verdict="unchanged",
        cases=PROFILES,
        play="accepted_twice",
    ),
)
OUTCOMES = tuple(
    Fault(
        title=title,
        kind="outcome of the test",
        plant=plant,
        found_by="the test's outcome",
        verdict="unchanged",
        cases=CALL,
        also_red="test_limited$",
        files=(OWN,),
    )
    for plant, title in (
        ("wrong_answer", "an assertion that fails after measuring"),
        ("teardown_error", "an error in the teardown"),
        ("strict_xpass", "a test that passes though it is expected to fail"),
        ("skipped_at_its_end", "a test that skips after measuring"),
        ("measured_twice", "a test that measures twice"),
    )
)
ANSWERED = tuple(
    Fault(
        title=title,
        kind="answers",
        plant=title,
        found_by=found_by,
        verdict=verdict,
        cases="buckets/answers/",
        reason="answers",
        first_night=1,
        files=(ANSWERS,),
        project="answering",
        is_soak=is_soak,
    )
    for title, found_by, verdict, is_soak in (
        ("all matrices zero", "logits that are all alike", "invalid", False),
        ("a layer skipped", REFERENCE, "failed", False),
        ("the last layer adds no attention", REFERENCE, "failed", True),
        ("weights of int8, per channel", REFERENCE, "failed", False),
        ("weights of fp16", REFERENCE, "failed", True),
        ("gate and up swapped", REFERENCE, "failed", True),
        ("another key-value head", REFERENCE, "failed", True),
        ("a lost shard of the vocabulary", REFERENCE, "failed", True),
        ("rotation of twice the base", REFERENCE, "failed", True),
        ("no causal mask", PAIRS, "failed", False),
        ("a mask that shows the next token", PAIRS, "failed", True),
        ("a window of 8 tokens in prefill", PAIRS, "failed", True),
        ("a step does not see its own key", PAIRS, "failed", True),
        ("keys written one place late", PAIRS, "failed", False),
        ("a step at the wrong position", PAIRS, "failed", True),
        ("rows swapped in a step", PAIRS, "failed", False),
        ("a move that forgets the values", PAIRS, "failed", False),
    )
)
FAULTS = (*TIMING, *SUITES, *WORK, *ANSWERED, *PREDICTOR, *GROUND, *BASELINES, *OUTCOMES)
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
        )
        for title, plant, environ in (
            ("a night like the others", "", ()),
            ("sums in another order", "sums in another order", ()),
            ("another optimisation of the compiler", "", (("XLA_FLAGS", "--xla_backend_optimization_level=2"),)),
            ("one thread", "", (("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false"),)),
        )
    ),
)


PAGE = Path(__file__).parents[2] / "docs" / "trust.md"
BEGIN, END = "<!-- catalogue: begin -->", "<!-- catalogue: end -->"


def table() -> str:
    """The catalogue as Markdown: what is found, what passes, and what waits to be found."""
    found = [row for row in FAULTS if not row.waits_for]
    kinds = dict.fromkeys(row.kind for row in found)
    lines = ["| fault | found by | verdict | first night |", "|---|---|---|---|"]
    for kind in kinds:
        lines.append(f"| **{kind}** | | | |")
        lines += [_line(row) for row in found if row.kind == kind]
    lines += ["", f"{len(found)} faults. These changes are passed and accepted:", ""]
    lines += [f"- {row.title}" for row in HARMLESS if not row.waits_for]
    if missed := [row for row in (*FAULTS, *HARMLESS) if row.waits_for]:
        lines += [
            "",
            "These do not end as they should yet:",
            "",
            *(f"- {one.title}: {one.waits_for}" for one in missed),
        ]
    return "\n".join(lines)


def _line(row: Fault) -> str:
    return f"| {row.title} | {row.found_by} | `{row.verdict}` | {row.first_night} |"


def page() -> str:
    """docs/trust.md with the table of now."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
