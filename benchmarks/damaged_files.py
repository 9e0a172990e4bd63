"""What damage to journals and baselines goes unnoticed: bits flipped, lines deleted, doubled, swapped and cut, values
of other types, and what each leaves to be used.

    python benchmarks/damaged_files.py [TIMES]

TIMES multiplies the number of tries. Each damage is one of

named      reading says what is damaged, and every session that stays usable has exactly the records it had
as killed  the last lines of a session are gone with its end record: it counts as one that was killed, which nobody
           accepts
harmless   what is used is exactly what was written
wrong      records that were changed or lost are used without a word, or something ended in a traceback
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pytest_npubench.campaign.sharding import known_durations
from pytest_npubench.campaign.watch import Watched
from pytest_npubench.comparison.earlier_nights import EarlierNights
from pytest_npubench.comparison.journal_sessions import journal_sessions
from pytest_npubench.errors import NpubenchError
from pytest_npubench.reports.html import render_html
from pytest_npubench.store.accept_run import accept_run
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.fingerprint import DeviceFacts, Fingerprint, HostFacts
from pytest_npubench.store.history import upload_journal
from pytest_npubench.store.journal import JournalWriter, read_journal
from pytest_npubench.store.journal_format import sealed, unsealed
from pytest_npubench.store.journal_runs import chosen_sessions
from pytest_npubench.store.json_text import decode
from pytest_npubench.suites import shown
from pytest_npubench.suites.buckets.profile_source import profile_from_journal
from pytest_npubench.verdict.case_record import judgement_of

SEED = 14
Used = Mapping[str, list[Mapping[str, Any]]]
HOST = HostFacts(
    name="bench-1",
    cpu_model="A CPU",
    num_cores=8,
    system="Linux",
    python="CPython 3.11.9",
    libraries=(("jax", "0.10.2"),),
    plugin_version="0.1.0",
    git_revision="0123456789ab",
)
STACK = Fingerprint(
    device=DeviceFacts(
        family="cuda",
        name="NVIDIA H200",
        device_class="H200 SXM 141 GB",
        driver="570.86",
        runtime="jax 0.10.2",
        compiler=None,
    ),
    host=HOST,
)


def make_journal(path: Path, *, num_sessions: int = 4, num_cases: int = 5) -> None:
    """Sessions one after the other, the last but one killed."""
    for number in range(num_sessions):
        with JournalWriter.open(path, host=HOST, settings={"profile": "quick"}) as journal:
            digest = journal.device(STACK)
            for record in _records(digest, num_cases):
                journal.append(record)
            if number != num_sessions - 2:
                journal.append({"record": "end", "exit_status": 0, "counts": {"passed": num_cases}})


def _records(digest: str, num_cases: int) -> list[Mapping[str, Any]]:
    of_campaign = {"fingerprint": digest, "campaign": "h200-tiny-b4", "campaign_digest": "9b74c9897bac"}
    compiled = {"record": "compile", **of_campaign, "name": "decode", "compile_s": 3.25, "cache": "cold"}
    rounds = [
        {
            "record": "round",
            **of_campaign,
            "round": index,
            "points": {
                f"profile/{bucket}/{out}": [0.001 * bucket, 0.0011 * bucket + out]
                for bucket in (128, 256)
                for out in (1, 33)
            },
            "duration_s": 0.012,
            "complete": index == 2,
        }
        for index in range(3)
    ]
    cases = [_case(digest, number) for number in range(num_cases)]
    return [compiled, *rounds, *cases, *map(_outcome, range(num_cases))]


def _outcome(number: int) -> Mapping[str, Any]:
    case = f"buckets/profile/h200-tiny-b4-bucket{number}"
    return {"record": "outcome", "case": case, "device": "cuda:0", "outcome": "passed"}


def _case(digest: str, number: int) -> Mapping[str, Any]:
    return {
        "record": "case",
        "case": f"buckets/profile/h200-tiny-b4-bucket{number}",
        "id": f"h200-tiny-b4-bucket{number}",
        "node": f"suites/test_profile.py::test_profile[h200-tiny-b4-bucket{number}]",
        "hardware": "h200",
        "model": "tiny",
        "batch_size": 4,
        "axes": {"bucket": number},
        "digest": "5d41402abc4b",
        "device": "cuda:0",
        "fingerprint": digest,
        "duration_s": 8.5,
        "resumed": False,
        "campaign": "h200-tiny-b4",
        "limits": {"case_error": 0.1},
        "verdict": {"kind": "unchanged", "reason": "within 1 %", "ratio": 1.001, "interval": [0.99, 1.01], "mde": 0.02},
        "what": "a decode step",
        "measured_s": 0.5,
        "predicted_s": 0.49,
        "error": -0.02,
        "error_interval": [-0.03, -0.01],
        "repeat_error": 0.01,
        "metrics": {
            "tbt_s": {
                "unit": "s",
                "value": 0.0021,
                "better": "lower",
                "samples": [0.0021, 0.0022, 0.0020],
                "gate": "ratio",
            }
        },
        "detail": {"bucket": number},
    }


# damage to lines


def flip_bit(raw: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(raw))
    return raw[:place] + bytes([raw[place] ^ 1 << chance.randrange(8)]) + raw[place + 1 :]


def flip_bit_in_case(raw: bytes, chance: random.Random) -> bytes:
    lines = raw.splitlines(keepends=True)
    place = chance.choice([index for index, line in enumerate(lines) if b'"record":"case"' in line])
    lines[place] = flip_bit(lines[place][:-1], chance) + b"\n"
    return b"".join(lines)


def delete_line(raw: bytes, chance: random.Random) -> bytes:
    lines = raw.splitlines(keepends=True)
    del lines[chance.randrange(len(lines))]
    return b"".join(lines)


def double_line(raw: bytes, chance: random.Random) -> bytes:
    lines = raw.splitlines(keepends=True)
    place = chance.randrange(len(lines))
    lines.insert(chance.randrange(place, len(lines)) + 1, lines[place])
    return b"".join(lines)


def swap_lines(raw: bytes, chance: random.Random) -> bytes:
    lines = raw.splitlines(keepends=True)
    one, other = sorted(chance.sample(range(len(lines)), 2))
    lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def cut(raw: bytes, chance: random.Random) -> bytes:
    return raw[: chance.randrange(len(raw))]


def zero_block(raw: bytes, chance: random.Random) -> bytes:
    """What a power cut may leave of a block of the disk."""
    begin = chance.randrange(len(raw))
    end = min(len(raw), begin + 512)
    return raw[:begin] + bytes(end - begin) + raw[end:]


LINE_DAMAGE: Mapping[str, tuple[int, Callable[[bytes, random.Random], bytes]]] = {
    "a bit flipped anywhere": (200, flip_bit),
    "a bit flipped in a case record": (500, flip_bit_in_case),
    "a line deleted": (30, delete_line),
    "a line doubled": (30, double_line),
    "two lines swapped": (30, swap_lines),
    "512 bytes of zeros": (30, zero_block),
    "cut at a byte": (30, cut),
}


def used(path: Path) -> tuple[Used, bool]:
    """The records of each usable session, and whether reading named damage. Raises StoreError where it says no more."""
    journal = read_journal(path)
    own = ("sequence", "crc32")
    found = {
        session.id: [
            {name: value for name, value in record.items() if name not in own}
            for record in (session.header, *session.records)
        ]
        for session in journal.sessions
    }
    return found, bool(getattr(journal, "damage", ()))


def outcome(path: Path, written: Used) -> str:
    """What damage to the file at `path` comes to, whose sessions were `written`."""
    try:
        found, is_named = used(path)
    except NpubenchError:
        return "named"
    except Exception as error:  # noqa: BLE001 - a traceback is what is looked for
        return f"wrong ({type(error).__name__})"
    changed = [name for name, records in found.items() if records != written.get(name)]
    if any(not _is_cut(found[name], written.get(name, [])) for name in changed):
        return "wrong"
    if is_named:
        return "named"
    if changed or len(found) < len(written):
        return "as killed" if found == dict(list(found.items())) and _lost_are_last(found, written) else "wrong"
    return "harmless"


def _is_cut(found: list[Mapping[str, Any]], written: list[Mapping[str, Any]]) -> bool:
    """Whether the session lacks its last records and its end, as one that was killed."""
    return found == written[: len(found)] and all(record["record"] != "end" for record in found)


def _lost_are_last(found: Used, written: Used) -> bool:
    return list(found) == list(written)[: len(found)]


def damage_lines(times: float, folder: Path) -> dict[str, Counter[str]]:
    path = folder / "journal.jsonl"
    make_journal(path)
    raw = path.read_bytes()
    written, _ = used(path)
    table: dict[str, Counter[str]] = {}
    for kind, (number, damaged) in LINE_DAMAGE.items():
        chance = random.Random(f"{SEED}/{kind}")
        counts: Counter[str] = Counter()
        for _ in range(max(1, round(number * times))):
            path.write_bytes(damaged(raw, chance))
            counts[outcome(path, written)] += 1
        table[kind] = counts
    return table


# damage to values: the seals fit, as of a writer that errs

VALUES: tuple[Any, ...] = (
    None,
    "x",
    "\ud800",
    -1,
    0,
    1.5,
    True,
    10**400,
    1e308,
    "9999-12-31T23:59:59-14:00",
    [],
    {},
    [["x"]],
    {"x": 1},
    json.loads("[" * 100 + "]" * 100),
)


def alter_value(records: list[Any], chance: random.Random) -> None:
    """Put a value of another type, or no value, somewhere inside of a record."""
    place = chance.choice(records)
    while True:
        name = chance.choice([*range(len(place))] if isinstance(place, list) else [*place])
        if name in ("record", "session", "format", "version") and place in records:
            continue
        inner = place[name]
        if isinstance(inner, (dict, list)) and inner and chance.random() < 0.8:
            place = inner
            continue
        if isinstance(place, dict) and chance.random() < 0.2:
            del place[name]
        else:
            place[name] = chance.choice(VALUES)
        return


def used_by_all(path: Path, folder: Path) -> None:
    """Whatever uses a journal. Raises what that raises, but for the project's own errors of single consumers."""
    journal = read_journal(path)
    cases = [record for record in journal.records if record["record"] == "case"]
    for use in (
        lambda: accept_run(journal, chosen_sessions(journal, None), folder / "baselines"),
        lambda: journal_sessions("side", journal),
        lambda: profile_from_journal(journal, "h200-tiny-b4"),
        lambda: [judgement_of(record) for record in journal.cases(STACK.digest()).values()],
        lambda: [Watched.from_json(record) for record in journal.records if record["record"] == "round"],
        lambda: known_durations(journal),
        lambda: EarlierNights.read(journal, "another"),
        lambda: render_html(cases, journal, shown),
        lambda: upload_journal(str(folder / "history.db"), journal),
    ):
        with suppress(NpubenchError):
            use()


def damage_values(times: float, folder: Path) -> dict[str, Counter[str]]:
    path = folder / "values.jsonl"
    make_journal(path, num_sessions=2, num_cases=2)
    raw = [decode(body) for line in path.read_bytes().splitlines() if (seal := unsealed(line)) for body in seal[:1]]
    chance = random.Random(f"{SEED}/values")
    counts: Counter[str] = Counter()
    for number in range(max(1, round(300 * times))):
        records = json.loads(json.dumps(raw))
        alter_value(records, chance)
        path.write_bytes(_sealed_lines(records))
        own = folder / f"values-{number}"
        own.mkdir()
        try:
            is_named = bool(read_journal(path).damage)
            used_by_all(path, own)
        except NpubenchError:
            is_named = True
        except Exception as error:  # noqa: BLE001 - a traceback is what is looked for
            counts[f"wrong ({type(error).__name__}: {error})"[:200]] += 1
            continue
        counts["named" if is_named else "harmless"] += 1
    return {"a value of another type, in all that uses it": counts}


def _sealed_lines(records: Sequence[Mapping[str, Any]]) -> bytes:
    numbers: Counter[str] = Counter()
    lines = []
    for record in records:
        lines.append(sealed(json.dumps(record, separators=(",", ":")).encode(), numbers[record["session"]]))
        numbers[record["session"]] += 1
    return b"".join(lines)


# baselines


def damage_baselines(times: float, folder: Path) -> dict[str, Counter[str]]:
    """Everything that is damaged must be named: a baseline is never read as fewer sessions than it has."""
    journal = folder / "accepted.jsonl"
    make_journal(journal, num_sessions=1)
    read = read_journal(journal)
    (path,) = accept_run(read, read.sessions, folder / "accepted").paths
    raw, content = path.read_bytes(), json.loads(path.read_bytes())
    table = {}
    for kind, number in (("a bit flipped", 250), ("cut at a byte", 100), ("a value of another type", 200)):
        chance = random.Random(f"{SEED}/baselines/{kind}")
        counts: Counter[str] = Counter()
        for _ in range(max(1, round(number * times))):
            if kind == "a value of another type":
                path.write_text(json.dumps(_altered(content, chance)))
            else:
                path.write_bytes(
                    flip_bit(raw, chance) if kind == "a bit flipped" else raw[: chance.randrange(len(raw) - 1)]
                )
            counts[_of_baselines(folder / "accepted", content, path)] += 1
        table[f"baseline: {kind}"] = counts
    return table


def _altered(content: Any, chance: random.Random) -> Any:
    """Not a whole case that is gone: that shows in git's diff alone (docs/formats.md)."""
    while True:
        altered = [json.loads(json.dumps(content))]
        alter_value(altered, chance)
        cases = altered[0].get("cases")
        if not isinstance(cases, dict) or cases.keys() == content["cases"].keys():
            return altered[0]


def _of_baselines(directory: Path, content: Any, path: Path) -> str:
    try:
        Baselines.load(directory)
    except NpubenchError:
        return "named"
    except Exception as error:  # noqa: BLE001 - as above
        return f"wrong ({type(error).__name__}: {error})"[:200]
    return "harmless" if json.loads(path.read_bytes()) == content else "wrong"


def print_table(table: Mapping[str, Counter[str]]) -> None:
    columns = ("named", "as killed", "harmless")
    print("| damage | tried |", " | ".join(columns), "| wrong |")
    print("|---|---|---|---|---|---|")
    for kind, counts in table.items():
        wrong = {name: count for name, count in counts.items() if name not in columns}
        cells = [str(counts[name]) for name in columns]
        told = ", ".join(f"{count} {name}" for name, count in wrong.items()) or "0"
        print(f"| {kind} | {counts.total()} |", " | ".join(cells), f"| {told} |")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        factor, folder = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0, Path(name)
        print_table(damage_lines(factor, folder) | damage_values(factor, folder) | damage_baselines(factor, folder))
