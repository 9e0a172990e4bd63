"""Text that others wrote, such as ids, file names, journals and answers of servers, as a terminal may show it.

A terminal obeys what it is sent: an escape sequence retitles its window, moves its cursor or hides a line (ECMA-48), a
bidirectional override shows "tset" for "test" (Unicode TR 9), and a line break begins what looks like a line of ours.
So do CI services: GitHub takes "##[error]" for a command anywhere in a line and "::error::" at its start, which may be
where a table breaks the text; Azure Pipelines and TeamCity have "##vso[" and "##teamcity[". The signs that make it so
are shown as Python writes them instead, in a form that JSON has too:

    plain("tiny\\x1b[2J\\n\\u202e") == r"tiny\\x1b[2J\\n\\u202e"
    plain("##[error] ::error::x") == r"\\u0023#[error] \\u003a:error::x"
"""

from __future__ import annotations

import re
import unicodedata

# C0, DEL and C1; marks of format such as overrides and signs of no width; halves of a surrogate pair; line separators
UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}

COMMANDS = (
    "error|warning|notice|debug|group|endgroup|echo|add-mask|add-matcher|remove-matcher|stop-commands|add-path|"
    "set-env|set-output|save-state|internal-set-repo-path"
)  # of GitHub's runner, in any case (src/Runner.Worker/ActionCommandManager.cs)
OBEYED = re.compile(rf"(?i)#(?=#\w*\[)|:(?=:(?:{COMMANDS})\b)")


def plain(text: object, keep: str = "") -> str:
    """The text in one line that a terminal and a CI service show and do not obey; signs in `keep` stay, such as a line
    break."""
    raw = OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", str(text))
    if raw.isprintable():
        return raw
    return "".join(
        _escaped(sign) if unicodedata.category(sign) in UNSEEN and sign not in keep else sign for sign in raw
    )


def plain_lines(text: object) -> str:
    """Returns text that has lines of its own, each made plain."""
    return plain(text, keep="\n")


def workflow_command(level: str, text: str, **properties: str | None) -> str:
    """An annotation of GitHub Actions, which shows it beside the code; properties without a value are left out.

    https://docs.github.com/actions/reference/workflow-commands-for-github-actions: a property's value has %, line
    breaks, colons and commas escaped, the text the first two. Worked example:

        ::error file=suites/buckets/test_profile.py,title=profile/b1-bucket16::regressed: 5.1 %25 worse
    """

    def escaped(value: str) -> str:
        return plain_lines(value).replace("%", "%25").replace("\n", "%0A")

    named = {
        name: escaped(value).replace(":", "%3A").replace(",", "%2C") for name, value in properties.items() if value
    }
    return f"::{level} {','.join(f'{name}={value}' for name, value in named.items())}::{escaped(text)}"


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape", "surrogatepass").decode("ascii")


def last_line(text: str, otherwise: str = "no message") -> str:
    """Returns the last line that is not blank, without blanks around it; `otherwise` where there is none."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), otherwise)


def counted(number: float, noun: str, plural: str = "") -> str:
    """Such as "1 session" and "2 sessions"."""
    return f"{number:.0f} {noun if number == 1 else plural or f'{noun}s'}"
