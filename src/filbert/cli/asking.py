"""What the commands that run a model on texts share: texts in, in order; records, notes and a progress bar out.

Texts come from options, or from files and folders, which are read one after another.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filbert.cli.shared import say
from filbert.core.records import Example, Prediction
from filbert.text.streams import CorpusReport, Reading

if TYPE_CHECKING:
    from filbert.engine.model import Model
    from filbert.engine.results import Record, Results
    from filbert.forms.sources import ReadOptions
    from filbert.text.tokenizer import Tokenizer

COUNTED_BYTES = 256 * 2**20  # files of so much in all are read once more beforehand, to know how many texts they have
NAMED = 5  # places that are named of each kind of note


@dataclass(frozen=True)
class Texts:
    """Where the texts of a command come from, and as what they are read."""

    here: Sequence[tuple[str, ...]]  # given as options
    sources: Sequence[str]  # files, folders and -
    task: str  # whose data they are
    options: ReadOptions  # of the files
    files: tuple[str, ...] = field(default=(), init=False)  # the sources, with the files of folders in order
    walk: CorpusReport = field(default_factory=CorpusReport, init=False)  # what of the folders is not read

    def __post_init__(self) -> None:
        from filbert.core.errors import InputError
        from filbert.text.corpus import files

        paths = tuple(files(self.sources, self.walk)) if self.sources else ()
        if paths.count("-") > 1:
            raise InputError("-: standard input can be read once; name it once.")
        if not self.sources and not any(text.strip() for texts in self.here for text in texts):
            raise InputError("nothing stands in any text that was given; give one that is not empty.")
        object.__setattr__(self, "files", paths)

    def read(self, reading: Reading) -> Iterator[Example]:
        """The examples, in order; what is skipped or mended is counted in reading.report."""
        from filbert.forms.sources import file_examples

        if not self.sources:
            yield from (Example(texts, id=number) for number, texts in enumerate(self.here))
        reading.report.num_other_files += self.walk.num_other_files
        reading.report.others.update(self.walk.others)
        for file in self.files:
            yield from file_examples(self.task, file, self.options, reading)

    def place(self, example: Example) -> dict[str, str]:
        """The field of a result that says which file its text is of, where there are several."""
        return {"file": example.source} if len(self.files) > 1 else {}

    def total(self, reading: Reading) -> int | None:
        """How many they are, where that is known at little cost."""
        if not self.sources:
            return len(self.here)
        try:
            if sum(Path(file).stat().st_size for file in self.files) > COUNTED_BYTES:
                return None
            return sum(1 for _ in self.read(Reading(reading.encoding, reading.errors, CorpusReport())))
        except Exception:  # a file that cannot be read is told when it is its turn; standard input cannot be counted
            return None


class Bar:
    """A bar of texts answered on standard error, where that is a terminal: with their number and the time left."""

    def __init__(self, texts: Texts, reading: Reading, done: int = 0, quiet: bool = False) -> None:
        self.bar: Any = None
        if not quiet and sys.stderr.isatty():
            from tqdm import tqdm

            self.bar = tqdm(total=texts.total(reading), initial=done, unit="texts", file=sys.stderr)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def follow(self, loaded: Model) -> None:
        """Shows the progress within a chunk too, which may be one text for minutes."""
        if self.bar is not None:
            loaded.engine.on_progress = self.within

    def within(self, share: float) -> None:
        """Shows the share of the chunk that is read."""
        self.bar.set_postfix_str(f"the next: {share:.0%} read", refresh=False)
        self.bar.update(0)

    def add(self, count: int) -> None:
        """So many more are answered."""
        if self.bar is not None:
            self.bar.set_postfix_str("", refresh=False)
            self.bar.update(count)


class Notes:
    """Texts in which nothing could be read: the first few are named at once, the others counted at the end."""

    def __init__(self, tokenizer: Tokenizer, writes: bool) -> None:
        self.tokenizer, self.counts = tokenizer, Counter[str]()
        self.ending = "so nothing is written" if writes else "so the answer is what the model says of nothing"

    def take(self, example: Example, prediction: Prediction | None) -> None:
        """Counts a text in which nothing could be read."""
        why = self._why(example.texts[0], prediction)
        if not why:
            return
        self.counts[why] += 1
        if self.counts[why] <= NAMED:
            where = f"{example.source} line {example.line}" if example.source else f"text {example.id + 1}"
            say(f"note: {where}: {why}, {self.ending}.")

    def _why(self, text: str, prediction: Prediction | None) -> str:
        if not text or text.isspace():
            return "the text is empty"
        if prediction is not None and prediction.text == "" and prediction.scores.get("unknown") == 1.0:
            return "not one character of it is in the model's vocabulary"
        if any(map(str.isalnum, text[:200])) or len(self.tokenizer.pieces([text]).ids):
            return ""
        return "no character of it is one that is read"

    def end(self) -> None:
        """Prints how many there were where not all were named."""
        for why, count in self.counts.items():
            if count > NAMED:
                say(f"note: of {count:,} texts in all: {why}, {self.ending}.")


@dataclass(frozen=True)
class Asking:
    """A model, its task and texts, and where records go: to a results file, or to `show`."""

    loaded: Model
    task: str
    texts: Texts
    results: Results | None
    show: Callable[[list[Record]], None]
    top: int | None = None

    def all(self, examples: Iterator[Example], reading: Reading) -> int:
        """Predicts all, writing records soon and then every few seconds; returns their number."""
        from filbert.core import registry
        from filbert.engine.answers import answered
        from filbert.tasks.task import Trait

        results, count = self.results, 0
        notes = Notes(self.loaded.tokenizer, writes=Trait.WRITES in registry.task(self.task).traits)
        rest = examples if results is None else results.rest(examples)
        try:
            with Bar(self.texts, reading, results.count if results else 0, quiet=results is None) as bar:
                bar.follow(self.loaded)
                for some in answered(self.loaded, rest, self.task, registry.task(self.task).unasked):
                    (self.show if results is None else results.write)(self._records(some))
                    count += len(some)
                    bar.add(len(some))
                    for example, prediction in some:
                        notes.take(example, prediction)
        except BaseException as error:
            self._tell_kept(error)
            raise
        for note in (*reading.report.remarks(), *(results.remarks() if results else ())):
            say(f"note: {note}")
        notes.end()
        return count

    def _records(self, some: Sequence[tuple[Example, Prediction]]) -> list[Record]:
        reader = self.loaded.reader(self.task)
        return [{**self.texts.place(each), **reader.record(each, prediction, self.top)} for each, prediction in some]

    def _tell_kept(self, error: BaseException) -> None:
        """Prints how many results are written where a run was stopped."""
        if self.results is None:
            return
        path, count = self.results.path, self.results.count
        if count:
            say(f"{path}: holds {count:,} results, all of what was finished; go on with --resume.")
        elif isinstance(error, KeyboardInterrupt):
            say(f"{path}: was not begun, since no text was answered yet.")


def results_file(out: str, resume: bool, task: str, texts: Texts, otherwise: str = "") -> Results:
    """The file of results, with what an earlier run left in it."""
    from filbert.core import registry
    from filbert.engine.results import Results

    more = ["gold"] if len(texts.files) > 1 else []
    results = Results(out, resume, (*registry.task(task).later, *more), otherwise)
    if results.torn:
        say(f"note: {out}: its last line was not finished and is written anew.")
    if results.count:
        say(f"{out}: {results.count:,} results are there already.")
    elif resume:
        say(f"note: {out}: holds no result to go on from with --resume, so it is begun.")
    return results
