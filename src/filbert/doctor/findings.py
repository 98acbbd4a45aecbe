"""Faults and remarks on a file come in one by one; findings go out, the gravest first, so many of a kind at most."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from filbert.core.errors import InputError

SEVERITIES = ("error", "warning", "note")
MAX_OF_A_KIND = 20  # findings of one kind in one file that are listed; the rest is counted

# Readers say what is wrong and what they made of it; a doctor also says what to do.
_ADVICE = (
    (re.compile(r"goes on with an entity that has not begun\.$"), "begin it with B- (--fix does)."),
    (re.compile(r"the text is empty; skipped\.$"), "remove the row (--fix does)."),
    (re.compile(r"empty; skipped\.$"), "remove it (--fix does)."),
    (re.compile(r"does not stand in the context\.$"), "quote the context, or say that there is no answer."),
    (re.compile(r"does not stand at .*; the nearest place is \d+\.$"), "correct answer_start (--fix does if safe)."),
    (re.compile(r"leaves the text, which has \d+ characters\.$"), "correct start and end."),
    (re.compile(r"the file ends in the middle of a JSON object"), "or let --fix remove the line."),
    (re.compile(r"is not exactly one of the \d+ choices, but two\.$"), "write each choice once."),
)
_HARMLESS = re.compile(
    r"the first place was taken\.$|the label '-' says that there is none; left out\.$|passed over\.$|; left out\.$"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know about a file; line 0 is the file as a whole."""

    severity: str
    file: str
    line: int
    message: str
    kind: str = ""  # what all findings of its sort have in common


def rendered(findings: Iterable[Finding]) -> list[str]:
    """One line of text for each finding: `train.csv:17: error: …`."""
    return [
        f"{finding.file}:{finding.line}: {finding.severity}: {finding.message}"
        if finding.line
        else f"{finding.file}: {finding.severity}: {finding.message}"
        for finding in findings
    ]


class Notebook:
    """The findings on one file, at most `most` of each kind (None: all), and how many more there were."""

    def __init__(self, file: str, most: int | None = MAX_OF_A_KIND) -> None:
        self.file, self.most = file, most
        self.kept: list[Finding] = []
        self.counts: Counter[tuple[str, str]] = Counter()

    def add(self, severity: str, line: int, message: str, kind: str = "") -> None:
        """One finding; those of one kind are counted together."""
        key = (severity, kind or message)
        self.counts[key] += 1
        if self._is_listed(key):
            self.kept.append(Finding(severity, self.file, line, message, kind))

    def _is_listed(self, key: tuple[str, str]) -> bool:
        return self.most is None or self.counts[key] <= self._most(key[0])

    def _most(self, severity: str) -> int:
        return 1 if severity == "note" else self.most or 0  # one example of what is harmless is enough

    def fault(self, _source: str, line: int, message: str) -> None:
        """What a reader would refuse the file for."""
        self.add("error", line, advised(message), _pattern(message))

    def mended(self, _source: str, line: int, message: str) -> None:
        """What a reader skips or mends."""
        self.add("note" if _HARMLESS.search(message) else "warning", line, advised(message), _pattern(message))

    def add_error(self, error: InputError) -> None:
        """What ended the reading of the file."""
        message = str(error).removeprefix(self.file)
        place = re.match(r" line (\d+): ", message)
        line = int(place.group(1)) if place else 0
        self.add("error", line, message[place.end() :] if place else message.removeprefix(": "))

    def findings(self) -> list[Finding]:
        """Errors, warnings, notes; each by line, what was only counted after what is listed."""
        more = [
            Finding(severity, self.file, 0, f"{count - self._most(severity):,} more like: {kind}", kind)
            for (severity, kind), count in self.counts.items()
            if self.most is not None and count > self._most(severity)
        ]
        return [
            *sorted(
                [finding for finding in self.kept if finding.severity != "note"],
                key=lambda finding: (SEVERITIES.index(finding.severity), finding.line),
            ),
            *sorted(more, key=lambda finding: SEVERITIES.index(finding.severity)),
            *(finding for finding in self.kept if finding.severity == "note"),
        ]


def advised(message: str) -> str:
    """A reader's sentence with what to do about it, where it does not say so itself."""
    for pattern, advice in _ADVICE:
        if pattern.search(message):
            return f"{message.removesuffix('.')}; {advice}"
    return message


def _pattern(message: str) -> str:
    """The message without what differs between faults of one kind: quoted text, numbers, the name of a question."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|[\d,]+\d|\d|^question \S+:", "…", message)
