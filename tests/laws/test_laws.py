"""The five laws of the house, each with the list of what still breaks it: a list may only grow shorter.

A test fails where a file breaks a law more often than its list says, and where it breaks it less often: then the list
is to be shortened. `python tests/laws/measure.py --list names` (lookups, packs, twins) prints where.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import measure
import pytest
import running
from source_tree import Tree

# Law 1: nobody outside `tasks/NAME` spells NAME (commands named after a task apart).
NAMES: dict[str, int] = {
    "engine/model.py": 1,  # the method `classify`, in what it says of its argument
}

# Law 2: what is optional is a field with a default, never `hasattr` on a member.
LOOKUPS: dict[str, int] = {}

# Law 3: one module makes a `Packed`, and it keeps where each token came from.
PACKS = {
    "nn/decoder_attention.py",  # the same sequences as queries, moved
    "pack/lay.py",
    "train/recorded.py",  # the buffers of a recording
}

# Law 4: numerics that must run without torch are written once. A whole module has no name.
TWINS: set[tuple[str, str]] = set()

# Law 5: what is known when a folder is loaded is bound then, once. Calls of core.registry for the second text.
REGISTRY_CALLS: list[str] = []

# Beside the laws: `**` takes what has no list of names (fields of a log line, attributes of a drawing or of a graph's
# node, what a manifest states, settings to check), or hands on to click and to a wrapped function what they take.
OPEN_NAMES = {
    "cli/main.py", "cli/shared.py", "clock/budget.py", "core/keywords.py", "core/settings.py", "draw/svg.py",
    "folder/card.py", "folder/manifest.py", "nn/encoder.py", "serve/limits.py", "serve/logs.py", "ship/encoder.py",
    "train/journal.py", "train/listeners.py",
}  # fmt: skip

pytestmark = pytest.mark.slow  # the whole package is parsed


@pytest.fixture(scope="module")
def tree() -> Tree:
    return Tree(measure.HERE)


def _check(counted: Mapping[str, int], debts: Mapping[str, int]) -> None:
    """Nothing new, and nothing in the list that is paid."""
    assert len(debts) == 0 or min(debts.values()) > 0
    more = {path: (debts.get(path, 0), now) for path, now in counted.items() if now > debts.get(path, 0)}
    assert not more, f"breaks the law more often than before (listed, now): {more}"
    paid = {path: (before, counted.get(path, 0)) for path, before in debts.items() if counted.get(path, 0) < before}
    assert not paid, f"breaks it less often; shorten the list (listed, now): {paid}"


def test_law_1_no_task_is_named_outside_its_folder(tree: Tree) -> None:
    _check(Counter(place.path for place in measure.task_names(tree)), NAMES)


def test_law_1_knows_every_task(tree: Tree) -> None:
    lost = [task for task in measure.TASKS if not measure.own_files(tree, task)]
    assert not lost, f"no longer in tasks/: {lost}; take them from measure.TASKS"
    found = {file.path.split("/")[1].removesuffix(".py") for file in tree.files if file.room == "tasks"}
    strange = found - {"__init__", *measure.TASKS, *measure.NO_TASKS}
    assert not strange, f"new in tasks/: {strange}; add them to measure.TASKS (or NO_TASKS)"


def test_law_2_members_say_what_they_have(tree: Tree) -> None:
    _check(Counter(place.path for place in measure.lookups(tree)), LOOKUPS)


def test_law_3_one_module_makes_packs(tree: Tree) -> None:
    makers = {place.path for place in measure.pack_makers(tree)}
    assert makers - PACKS == set(), "makes a Packed; ask the module that lays packs"
    assert PACKS - makers == set(), "makes none any more; shorten the list"


def test_law_4_numerics_are_written_once(tree: Tree) -> None:
    found = {(place.path, place.what) for place in measure.twins(tree)}
    assert found - TWINS == set(), "is written a second time for NumPy"
    assert TWINS - found == set(), "is gone; shorten the list"


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that torch and onnxruntime both read."""
    pytest.importorskip("onnx")
    return running.exported(measure.HERE, tmp_path_factory.mktemp("law"))


@pytest.mark.parametrize("runtime", ["torch", "onnx"])
def test_law_5_nothing_is_looked_up_again(classifier: Path, runtime: str) -> None:
    seen = running.looked_up(measure.HERE, classifier, runtime)
    assert seen.opens == []
    assert seen.stats == []
    assert sorted(seen.calls) == REGISTRY_CALLS, "the calls of core.registry changed; the list may only grow shorter"


def test_options_have_names_and_types(tree: Tree) -> None:
    starred = {place.path for place in measure.parameters(tree).starred}
    assert starred == OPEN_NAMES, "options are parameters or fields of a record, not **options"
