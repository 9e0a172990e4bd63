"""The gate on real sessions of twelve small kernels, measured one after another on a machine whose load changes.

    python benchmarks/real_sessions.py measure sessions.jsonl    # 42 sessions, 45 s each or more, one line a session
    python benchmarks/real_sessions.py judge                     # real_sessions.jsonl, night by night through the gate

A session is three fresh processes of one thread. Each times every kernel for a tenth of a second or more and asks the
CPU's telemetry around it whether something disturbed it, as a test of one's own does. In a quarter of the sessions up
to three busy processes of this script run beside them.

A line holds of each kernel and process [log of the better quartile in s, share of all cores that others used, steal,
whether that counts as disturbed], and the load average and the number of busy processes beside.

`judge` feeds the gate one session after another. "Left out" has the case-nights of which a process was disturbed
missing, as a run has them. Permuted sessions are exchangeable: whatever alarms there is false.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gate import RED, Runner

MEASURED = Path(__file__).with_suffix(".jsonl")
NUM_PROCESSES = 3
PERIOD_S = 45.0
ROUNDS = 10
SHORTEST_WATCH_S = 0.1
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
BUSY_PROCESSES = {6: 1, 7: 2, 8: 1, 14: 1, 15: 2, 22: 1, 23: 3, 24: 2, 29: 1, 35: 2, 36: 2}
"""Session -> busy processes beside it: 11 of 42, in stretches."""
NUM_ACCEPTED = 5
NUM_PERMUTATIONS = 10
PLANTED_AT = 12
PLANTED = (0.10, 0.20)


def kernels() -> dict[str, tuple[Callable[[], object], int]]:
    """Kernel -> what to call, and how many calls are a sample of some 10 ms."""
    import jax
    import jax.numpy as jnp
    import torch

    rng = np.random.default_rng(0)

    def square(size: int) -> np.ndarray:
        return rng.normal(size=(size, size)).astype(np.float32)

    small, large = (np.zeros(size << 18, dtype=np.float32) for size in (1, 64))
    into_small, into_large = np.empty_like(small), np.empty_like(large)
    wide, medium, narrow = square(768), square(512), square(192)
    in_jax, in_torch = jnp.asarray(medium), torch.from_numpy(medium)
    heads = jnp.asarray(rng.normal(size=(8, 256, 64)).astype(np.float32))
    unsorted, numbers = rng.normal(size=200_000), list(range(2000))
    jax_matmul = jax.jit(lambda a: a @ a)
    jax_mlp = jax.jit(lambda a: jax.nn.gelu(a[:64] @ a) @ a)
    jax_attention = jax.jit(lambda a: jax.nn.softmax(a @ a.transpose(0, 2, 1) / 8) @ a)
    return {
        "numpy_copy_1m": (lambda: np.copyto(into_small, small), 300),
        "numpy_copy_64m": (lambda: np.copyto(into_large, large), 1),
        "numpy_sum_64m": (lambda: large.sum(), 3),
        "numpy_matmul_192": (lambda: narrow @ narrow, 40),
        "numpy_matmul_768": (lambda: wide @ wide, 1),
        "numpy_sort": (lambda: np.sort(unsorted), 3),
        "jax_matmul_512": (lambda: jax_matmul(in_jax), 8),
        "jax_mlp": (lambda: jax_mlp(in_jax), 20),
        "jax_attention": (lambda: jax_attention(heads), 3),
        "torch_matmul_512": (lambda: in_torch @ in_torch, 3),
        "torch_softmax": (lambda: torch.softmax(in_torch, dim=1), 20),
        "python_loop": (lambda: sum(number % 7 for number in numbers), 100),
    }


def measure_process() -> dict[str, list[float]]:
    """Of each kernel what a line holds of a process."""
    from pytest_npubench.backends import backend
    from pytest_npubench.backends.telemetry.disturbance import DisturbanceLimits
    from pytest_npubench.campaign.callable_timing import time_callable
    from pytest_npubench.campaign.watch import Watch

    host = backend("cpu")
    runtime = host.open(host.probe(1).devices, None)
    measured = {}
    with Watch(runtime, DisturbanceLimits(min_window_s=SHORTEST_WATCH_S)) as watch:
        for name, (call, num_calls) in kernels().items():
            watch.begin()
            timing = time_callable(
                call,
                (),
                {},
                runtime.synchronize,
                rounds=ROUNDS,
                max_warmup=5,
                count_compiles=lambda: runtime.num_process_compiles,
                iterations=num_calls,
            )
            seen = watch.end()
            entry = float(np.log(np.quantile(timing.samples_s, 0.25)))
            shares = [round(getattr(seen.state, share) or 0.0, 3) for share in ("other_load", "steal")]
            measured[name] = [round(entry, 4), *shares, int(seen.disturbed is not None)]
    return measured


def measure(file: Path, num_sessions: int) -> None:
    for number in range(num_sessions):
        started_s = time.monotonic()
        num_busy = BUSY_PROCESSES.get(number % 42, 0)
        busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(num_busy)]
        load = os.getloadavg()[0]
        try:
            command = [sys.executable, __file__, "process"]
            processes = [_process(command) for _ in range(NUM_PROCESSES)]
        finally:
            for process in busy:
                process.kill()
                process.wait()
        by_kernel = {name: [process[name] for process in processes] for name in processes[0]}
        line = {"load": round(load, 1), "busy": num_busy, "kernels": by_kernel}
        with file.open("a", encoding="utf-8") as lines:
            lines.write(f"{json.dumps(line, separators=(',', ':'))}\n")
        took_s = time.monotonic() - started_s
        print(f"session {number}: {took_s:.0f} s, load average {load:.1f}, {num_busy} busy beside", flush=True)
        time.sleep(max(PERIOD_S - took_s, 1.0))


def _process(command: list[str]) -> dict[str, list[float]]:
    environment = {**os.environ, **ONE_THREAD}
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment).stdout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """entries [kernel, session, process]; disturbed [kernel, session]: in one of its processes."""

    kernels: tuple[str, ...]
    entries: np.ndarray
    disturbed: np.ndarray

    @classmethod
    def read(cls, file: Path, other_load: float | None) -> "Sessions":
        """other_load: the share of all cores from which on others disturb; None: as it was said when measured."""
        lines = [json.loads(line)["kernels"] for line in file.read_text(encoding="utf-8").splitlines()]
        names = tuple(lines[0])
        measured = np.array([[line[name] for line in lines] for name in names])
        disturbed = measured[..., 3] > 0 if other_load is None else measured[..., 1] > other_load
        return cls(kernels=names, entries=measured[..., 0], disturbed=disturbed.any(axis=2))

    def permuted(self, seed: int) -> "Sessions":
        order = np.random.default_rng(seed).permutation(self.entries.shape[1])
        return Sessions(kernels=self.kernels, entries=self.entries[:, order], disturbed=self.disturbed[:, order])

    def slowed(self, rows: Sequence[int], size: float) -> "Sessions":
        entries = self.entries.copy()
        entries[rows, PLANTED_AT:] += np.log1p(size)
        return Sessions(kernels=self.kernels, entries=entries, disturbed=self.disturbed)

    def undisturbed(self) -> "Sessions":
        """As if nothing were known of the device's state."""
        return Sessions(kernels=self.kernels, entries=self.entries, disturbed=np.zeros_like(self.disturbed))


def replay(sessions: Sessions) -> tuple[np.ndarray, list[str]]:
    """[kernel, session]: 1 where it is red, 0 where not, NaN where it is missing; and each new alarm in words."""
    runner = Runner(sessions.entries, num_accepted=NUM_ACCEPTED)
    for row, case in enumerate(runner.accepted):
        runner.accepted[case] = [night for night in range(NUM_ACCEPTED) if not sessions.disturbed[row, night]]
    red, alarms = np.full(sessions.disturbed.shape, np.nan), []
    was_red: set[str] = set()
    for night in range(NUM_ACCEPTED, red.shape[1]):
        missing = frozenset(f"case-{row}" for row in np.flatnonzero(sessions.disturbed[:, night]))
        for case, verdict in runner.night(night, missing).items() if len(missing) < len(red) else ():
            row = int(case.removeprefix("case-"))
            red[row, night] = verdict.kind in RED
            if verdict.kind not in RED:
                was_red.discard(case)
            elif case not in was_red:
                was_red.add(case)
                alarms.append(f"session {night}: {sessions.kernels[row]}: {verdict.reason}")
    return red, alarms


def judge(file: Path, other_load: float | None) -> None:
    measured = Sessions.read(file, other_load)
    marked = measured.disturbed.mean()
    print(f"{measured.entries.shape[1]} sessions; {marked:.0%} of the case-nights were disturbed\n")
    print("| sessions | disturbed ones | case-nights judged | alarms | nights with a red case |")
    print("|-|-|-|-|-|")
    told: list[str] = []
    for part, kept in (("kept", measured.undisturbed()), ("left out", measured)):
        shuffled = [replay(kept.permuted(seed)) for seed in range(NUM_PERMUTATIONS)]
        print(_row(f"permuted {NUM_PERMUTATIONS} times", part, shuffled))
        as_measured = replay(kept)
        print(_row("as measured", part, [as_measured]))
        told += [f"- disturbed ones {part}: {alarm}" for alarm in as_measured[1]]
    print("\n" + "\n".join(told))
    print(f"\n| planted from session {PLANTED_AT} on | disturbed ones | within 3 | within 7 | ever | red later |")
    print("|-|-|-|-|-|-|")
    for size in PLANTED:
        for part, kept in (("kept", measured.undisturbed()), ("left out", measured)):
            print(f"| +{size:.0%} | {part} | {_found(kept, size)} |")


def _row(name: str, part: str, replays: Sequence[tuple[np.ndarray, list[str]]]) -> str:
    judged = sum(int(np.isfinite(red).sum()) for red, _ in replays)
    alarms = sum(len(alarms) for _, alarms in replays)
    nights = sum(int((red == 1).any(axis=0).sum()) for red, _ in replays)
    return f"| {name} | {part} | {judged} | {alarms} | {nights} |"


def _found(sessions: Sessions, size: float) -> str:
    """Of each kernel slowed alone: the share found within so many nights on which it was measured, and the share of
    these nights that are red after the first red one."""
    delays, later = [], []
    for row in range(len(sessions.kernels)):
        red, _ = replay(sessions.slowed([row], size))
        seen = red[row, PLANTED_AT:]
        seen = seen[np.isfinite(seen)]
        delays.append(int(seen.argmax()) if seen.any() else np.inf)
        if seen.any():
            later.append(seen[delays[-1] :].mean())
    within = " | ".join(f"{np.mean(np.array(delays) < nights):.2f}" for nights in (3, 7, np.inf))
    return f"{within} | {np.mean(later):.2f}" if later else f"{within} | -"


def main() -> None:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("measure", "judge", "process"))
    parser.add_argument("file", type=Path, nargs="?", default=MEASURED)
    parser.add_argument("--sessions", type=int, default=42)
    parser.add_argument("--other-load", type=float, help="another limit than when it was measured, such as 0.8")
    options = parser.parse_args()
    if options.command == "process":
        print(json.dumps(measure_process()))
    elif options.command == "measure":
        measure(options.file, options.sessions)
    else:
        judge(options.file, options.other_load)


if __name__ == "__main__":
    main()
