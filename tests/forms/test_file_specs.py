"""What tasks say of their labelled files: consistent, and enough for a task that the package does not know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from filbert.core import registry
from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.doctor import checks
from filbert.doctor.findings import Notebook
from filbert.doctor.labelled import examine_labelled
from filbert.forms import objects
from filbert.forms.datasets import examples, file_examples
from filbert.forms.formats import shape
from filbert.forms.markup import text_of
from filbert.forms.spec import Entry, FileSpec, Remark, Roles, Rows, specs, task_names
from filbert.text.streams import Reading

BORROWED = {"blank": "classify", "nsp": "pair", "summarize": "translate", "chat": "translate"}


@pytest.mark.parametrize("spec", specs(), ids=task_names())
def test_roles_names_and_places_fit_each_other(spec: FileSpec) -> None:
    roles = set(spec.roles)
    for some in (spec.optional, spec.required, spec.shown, spec.names, spec.second_names, spec.text_roles):
        assert roles >= set(some)
    assert roles >= {*spec.aliases.values(), *spec.tuple_roles}
    assert spec.needed
    assert roles >= set(spec.needed)
    assert all(len(places) == width and roles >= set(places) for width, places in spec.places.items())
    counts = Counter(name for names in spec.names.values() for name in set(names))
    assert max(counts.values()) == 1, "a name that is usual for two roles would be told by their order"
    assert all(name == name.lower() for name in counts)


def test_the_tasks_are_listed_in_one_order_and_ranks_are_their_own() -> None:
    assert task_names() == ("classify", "pair", "tag", "relation", "answer", "choose", "embed", "translate")
    assert len({spec.rank for spec in specs()}) == len(specs())
    kinds = [kind for spec in specs() for kind in spec.forms]
    assert len(kinds) == len(set(kinds))


def test_tasks_without_files_of_their_own_have_those_of_another() -> None:
    assert {*registry.tasks()} == {*task_names(), *BORROWED}
    for task, other in BORROWED.items():
        assert registry.files(task) is registry.files(other)


def test_the_files_of_an_unknown_task_are_refused() -> None:
    with pytest.raises(InputError, match=r"the task name is 'tagg', but must be one of: .*Did you mean 'tag'\?"):
        registry.files("tagg")
    with pytest.raises(InputError, match=r"the task is 'blank', but must be one of: classify, pair, tag, relation, "):
        examples("a.csv", "blank")


# -- a task that the package does not know -----------------------------------------------------------------------


def lengths(source: str, rows: Rows, roles: Roles, reading: Reading) -> Iterator[Entry]:
    """Texts and how long they are said to be."""
    for line, row in rows(reading):
        text = text_of(source, line, row, roles["text"], reading)
        if text is not None:
            yield line, (text,), row.get(roles.get("length", ""))


def check(example: Example) -> Iterator[Remark]:
    """Lengths that are others."""
    if str(example.gold) != str(len(example.texts[0])):
        yield Remark(f"the length is {example.gold}, but the text has {len(example.texts[0])}.", "a wrong length")


MEASURE = FileSpec(
    task="measure",
    roles=("text", "length"),
    optional=frozenset({"length"}),
    names={"text": ("text",), "length": ("length", "size")},
    places={2: ("text", "length")},
    rows=lengths,
    check=check,
    gold_role="length",
)


def test_another_task_reads_files_and_rows_and_has_them_examined(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one", "size": 3}\n{"text": "three", "size": 4}\n', encoding="utf-8")
    found = list(file_examples(path, MEASURE, None, Reading()))
    assert [(example.texts, example.gold, example.line) for example in found] == [(("one",), 3, 1), (("three",), 4, 2)]
    rows = list(objects.examples([("one", 3)], MEASURE, {"text": 1, "length": 2}, Reading()))
    assert rows == [Example(("one",), 3, 0)]
    with pytest.raises(InputError, match=r"text of measure among body; name it: columns=\{'text': …, 'length': …\}"):
        list(objects.examples([{"body": "x"}], MEASURE, {}, Reading()))

    notebook, reading = Notebook(str(path)), Reading()
    texts = checks.Texts(notebook, checks.Seen(), MEASURE)
    examine_labelled(str(path), MEASURE, None, shape(str(path), reading), texts, reading)
    warnings = [(each.line, each.message) for each in notebook.findings() if each.severity == "warning"]
    assert warnings == [(2, "the length is 4, but the text has 5.")]
