"""What the laws count, on trees of a few lines."""

from __future__ import annotations

from pathlib import Path

import measure
import pytest
from source_tree import Place, Tree

PACKED = """
class Packed:
    ids: int
    lengths: int
    def moved(self):
        return Packed(self.ids, self.lengths)
"""


def planted(home: Path, **files: str) -> Tree:
    """A tree of these modules: `room__name` is room/name.py."""
    for name, text in files.items():
        path = home / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Tree(home)


@pytest.mark.parametrize(
    "text",
    [
        'x = "classify"',
        'if task == "answer": pass',
        'if task in ("pair", "answer"): pass',
        'COLUMNS = {"pair": 1, "tag": 2}["pair"]',
        'member("tasks", "embed")',
        'def f(task="blank"): pass',
        'f(task="blank")',
        'TASK = "pair"',
        'PRETRAINS = "nsp"',
        'name = task or "pair"',
        "from filbert.tasks import pair",
        "import filbert.tasks.pair",
        "from filbert.tasks.pair import Task",
    ],
)
def test_a_task_is_spelled(text: str, tmp_path: Path) -> None:
    assert measure.task_names(planted(tmp_path, data__x=text, cli__x="'tags'"))


@pytest.mark.parametrize(
    "text",
    [
        '"""classify"""',
        'x = "classify this"',
        'row["answer"]',
        'row.get("answer")',
        'PARTS = ("mlm", "nsp")',
        'unit = "blank"',
        "from filbert.tasks import base",
    ],
)
def test_a_word_is_no_task(text: str, tmp_path: Path) -> None:
    assert measure.task_names(planted(tmp_path, data__x=text)) == []


def test_a_task_may_spell_itself_and_a_command_its_name(tmp_path: Path) -> None:
    own, others = 'x = "translate"', 'x = ["translate", "classify"]'
    tree = planted(tmp_path, tasks__tag='x = "tag"', cli__translate=own, cli__main=others)
    assert measure.task_names(tree) == [Place("cli/main.py", 1, "classify")]


def test_lookups_of_members(tmp_path: Path) -> None:
    text = 'getattr(model, "mlm", None)\nhasattr(os, "sched_getaffinity")\ngetattr(config, name)\nmodel.mlm'
    tree = planted(tmp_path, data__x=text)
    assert measure.lookups(tree) == [Place("data/x.py", 1, "mlm")]
    assert len(measure.lookups(tree, everywhere=True)) == 2


def test_makers_of_packs(tmp_path: Path) -> None:
    makes = "Packed(ids=a, lengths=tuple(b))"
    moves = "Packed(a, packed.lengths)\nreplace(packed, ids=a)\nreplace(config, width=1)"
    tree = planted(tmp_path, core__records=PACKED, pack__lay=makes, nn__x=moves)
    found = [(place.path, place.what) for place in measure.pack_makers(tree)]
    assert found == [("nn/x.py", "moves"), ("nn/x.py", "moves"), ("pack/lay.py", "makes")]


def test_twins(tmp_path: Path) -> None:
    text = "class Task:\n def heard(self, host): ...\nclass Other:\n def heard(self): ..."
    tree = planted(tmp_path, tasks__tag=text, decode__plain="")
    assert [(place.path, place.what) for place in measure.twins(tree)] == [
        ("decode/plain.py", ""),
        ("tasks/tag.py", "Task.heard"),
    ]


def test_parameters(tmp_path: Path) -> None:
    text = "Array = Any\nEdit = tuple[int, int, str]\n"
    text += "def f(self, a: Any, b: Array, c: 'list[Any]', d: Edit, *e: Any, f: tuple[int, ...] = (), **g: Any): ..."
    held = measure.parameters(planted(tmp_path, data__x=text))
    counts = [held.total, len(held.hollow), len(held.aliased), len(held.tuples), len(held.starred)]
    assert counts == [5, 2, 3, 1, 1]


def test_files_to_read(tmp_path: Path) -> None:
    tree = planted(
        tmp_path,
        tasks__tag="from filbert.decode import tags\nfrom filbert.text import words",
        tasks__pair="from filbert.text import words",
        decode__tags="",
        text__words="",
        infer__views="def f():\n    from filbert.decode.tags import best",
        serve__hub='if task == "tag": pass',
        cli__probe='if task == "tag": pass',
    )
    read = measure.to_read(tree, "tag", measure.task_names(tree))
    assert sorted(read) == ["decode/tags.py", "infer/views.py", "serve/hub.py", "tasks/tag.py"]
    assert measure.to_read(tree, "pair", []) == {"tasks/pair.py"}


def test_cycles(tmp_path: Path) -> None:
    tree = planted(
        tmp_path,
        a__x="from filbert.b import y",
        b__y="from filbert.c.z import f",
        c__z="import filbert.a.x",
        d__w="def f():\n    from filbert.d import v",
        d__v="from filbert.d import w",
    )
    assert measure.largest_cycle(tree) == ["a/x.py", "b/y.py", "c/z.py"]


def test_lines_of_code(tmp_path: Path) -> None:
    text = '"""Doc."""\n\nimport os\n\n# why\nx = [\n    1,\n]\ndef f():\n    """Doc."""\n    return x\n'
    (file,) = planted(tmp_path, data__x=text).files
    assert sorted(file.code) == [1, 5, 6, 8, 12]


def test_the_spine(tmp_path: Path) -> None:
    spine = ("core/records.py", "models/bert.py", "tasks/classify/spec.py", "tasks/base.py", "nn/layers.py")
    others = ("models/gpt.py", "tasks/tag/spec.py", "nn/kernels/fused.py", "serve/asgi.py", "__init__.py")
    assert all(map(measure.is_spine, spine))
    assert not any(map(measure.is_spine, others))
