"""The house speaks the field's words (docs/words.md): retired ones name no variable, parameter, function or class.

RETIRED says what to write instead. KEPT are the few places where such a word is the right one. A file that still has
some stands in LEFT with their number, which may only grow smaller.
"""

from __future__ import annotations

import ast
from collections import Counter

import measure
import pytest
from source_tree import Tree

RETIRED = {
    "told": "listener, result, sentence", "heard": "scores, signalled", "found": "what it is: model, path",
    "own": "what it is: config, rows", "given": "what it is: fields, argument", "said": "answer, prediction",
    "begun": "prepared, started_at", "asked": "requested, examples, question", "known": "allowed, names",
    "strange": "control, unexpected", "lesson": "teacher", "lessons": "distillation losses", "hollow": "meta shapes",
    "portable": "runtime metadata", "chains": "crf marginals", "strip": "cuda graph", "playback": "cuda graph",
    "slim": "shrink", "across": "decoder attention", "lexicon": "word vocabulary", "scene": "view model",
    "subject": "perturbation", "grouping": "word groups", "flow": "text layout", "honest": "evaluation report",
    "foreign": "from transformers", "goes": "batches", "Told": "Listener", "Deaf": "Silent",
}  # fmt: skip
# (file, name): the field's own word there.
KEPT = {
    ("explain/map_sums.py", "flow"): "attention flow (Abnar and Zuidema 2020)",
    ("tasks/task.py", "asked"): "a field of the record: what `predict` is asked",
    ("run/recipe.py", "given"): "a field of recipe.json",
}
LEFT: dict[str, int] = {}
pytestmark = pytest.mark.slow  # the whole package is parsed


def bound_names(tree: Tree) -> list[tuple[str, int, str]]:
    """(file, line, name) of every variable, parameter, attribute, function, class and import alias that is bound."""
    names = []
    for file in tree.files:
        for node in file.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.append((file.path, node.lineno, node.id))
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.append((file.path, node.lineno, node.attr.lstrip("_")))
            elif isinstance(node, ast.arg):
                names.append((file.path, node.lineno, node.arg))
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.append((file.path, node.lineno, node.name.lstrip("_")))
            elif isinstance(node, ast.alias) and node.asname:
                names.append((file.path, node.lineno, node.asname))
    return names


def retired(tree: Tree) -> list[tuple[str, int, str]]:
    return [each for each in bound_names(tree) if each[2] in RETIRED and (each[0], each[2]) not in KEPT]


@pytest.fixture(scope="module")
def tree() -> Tree:
    return Tree(measure.HERE)


def test_no_name_is_a_retired_word(tree: Tree) -> None:
    places = retired(tree)
    counts = Counter(path for path, _, _ in places)
    worse = {path for path, count in counts.items() if count > LEFT.get(path, 0)}
    more = [f"{path}:{line}: {name}; write {RETIRED[name]}" for path, line, name in places if path in worse]
    assert not more, "\n".join(more[:40])
    fewer = {path: (left, counts.get(path, 0)) for path, left in LEFT.items() if counts.get(path, 0) < left}
    assert not fewer, f"some are gone; lower these in LEFT (listed, now): {fewer}"


def test_what_is_kept_is_there(tree: Tree) -> None:
    names = {(path, name) for path, _, name in bound_names(tree)}
    assert set(KEPT) - names == set(), "is gone; take it from KEPT"
