"""What keeps a secret from being shown, and what finds one in text that nobody parsed."""

from __future__ import annotations

import base64
import json
import os
import pickle
import string
import subprocess
import sys
from dataclasses import dataclass
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.core import secret as secrets
from pytest_npubench.core.secret import WINDOW, Secret, keep_out, masked, without_kept


@dataclass(frozen=True)
class Holder:
    name: str
    secret: Secret


def test_a_secret_shows_itself_nowhere() -> None:
    holder = Holder("db", Secret("s3cret"))
    for text in (repr(holder), str(holder.secret), f"{holder.secret}", f"{holder.secret!r}"):
        assert "s3cret" not in text
    with pytest.raises(TypeError):
        json.dumps({"secret": holder.secret})
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(holder)
    assert holder.secret.reveal() == "s3cret"
    assert holder == Holder("db", Secret("s3cret")) != Holder("db", Secret("other"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://ann:s3cret@db/bench?sslpassword=s3cret", "postgresql://ann:***@db/bench?sslpassword=***"),
        ("postgresql://ann@host:s3cret@db", "postgresql://***@db"),
        ("postgresql:/ann:s3cret@db", "postgresql:/ann:***@db"),
        ("host=db password=s3cret dbname=bench", "host=db password=***"),
        ("http://ann:s3c/r@et@db/", "http://ann:***@db/"),
        ("suites/test_a.py::test[b@0]", "suites/test_a.py::test[b@0]"),
        ("http://db:8000/v1", "http://db:8000/v1"),
        ("postgresql://ann@db/bench", "postgresql://ann@db/bench"),
    ],
)
def test_a_password_in_text_that_nobody_parsed_is_masked(text: str, shown: str) -> None:
    assert masked(text) == shown


ENCODINGS = {
    "as it is": lambda key: key,
    "for a URL": lambda key: quote(key, safe=""),
    "each sign for a URL": lambda key: "".join(f"%{ord(sign):02x}" for sign in key),
    "JSON": lambda key: "".join(f"\\u{ord(sign):04X}" for sign in key),
    "JSON in JSON": lambda key: json.dumps("".join(f"\\u{ord(sign):04x}" for sign in key)),
    "JSON of some signs": lambda key: json.dumps(key).replace("a", "\\u0061").replace("/", "\\/"),
    "Python": lambda key: "".join(f"\\x{ord(sign):02x}" for sign in key),
    "HTML": lambda key: "".join(f"&#{ord(sign)};" for sign in key),
    "HTML in hex": lambda key: "".join(f"&#x{ord(sign):X};" for sign in key),
    "hex": lambda key: key.encode().hex(),
    "HEX": lambda key: key.encode().hex().upper(),
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64 of a header": lambda key: base64.b64encode(f"Bearer {key}".encode()).decode(),
    "base64 of user and key": lambda key: base64.b64encode(f"user:{key}".encode()).decode(),
    "base64 for URLs": lambda key: base64.urlsafe_b64encode(f"x{key}".encode()).decode().rstrip("="),
}
KEYS = st.text(alphabet=string.ascii_letters + string.digits + "-_.~+/=", min_size=WINDOW, max_size=60)
TEXTS = st.text(alphabet=string.printable, max_size=60)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_kept", set())


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(key=KEYS, before=TEXTS, behind=TEXTS, data=st.data())
def test_no_piece_of_a_key_is_shown_however_it_is_encoded(
    encoding: str, key: str, before: str, behind: str, data: st.DataObject
) -> None:
    """A server may send the key back whole or cut short at any place."""
    secrets._kept.clear()
    keep_out(key)
    length = data.draw(st.integers(WINDOW, len(key)))
    start = data.draw(st.integers(0, len(key) - length))
    sent = ENCODINGS[encoding](key[start : start + length])
    shown = without_kept(f"{before} {sent} {behind}")
    assert sent not in shown
    assert "***" in shown


@given(text=TEXTS)
def test_text_without_a_key_stays(text: str) -> None:
    secrets._kept.clear()
    keep_out("")
    assert without_kept(text) == text
    keep_out("a key that no text holds")
    assert without_kept(text) == text


READS_ITSELF = """
import os
from pathlib import Path
from pytest_npubench.core.secret import take_from_environment
taken = take_from_environment(("TOKEN", "NONE", "EMPTY"))
assert taken == {"TOKEN": "s3cret", "EMPTY": ""}, taken
assert not {"TOKEN", "EMPTY"} & set(os.environ)
shown = Path("/proc/self/environ").read_bytes()
assert b"s3cret" not in shown and b"OTHER=public" in shown and b"TOKEN_TOO=public" in shown
"""


def test_what_is_taken_from_the_environment_is_in_no_process_s_sight() -> None:
    given = {**os.environ, "TOKEN": "s3cret", "EMPTY": "", "OTHER": "public", "TOKEN_TOO": "public"}
    given["NPUBENCH_TESTS_FRESH"] = "1"
    subprocess.run([sys.executable, "-c", READS_ITSELF], env=given, check=True)
