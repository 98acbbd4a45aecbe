"""A `src/filbert` tree in; what it promises about its own shape, as a table of numbers, out.

python tests/laws/measure.py                      this checkout beside what was promised
python tests/laws/measure.py ../old/src/filbert   another checkout, its rooms old or new
python tests/laws/measure.py --list names         the places that a measure counts

Nothing of the tree is imported but where it must run (see `running`). Paths in results are relative to the tree, with
`/`. A room is the first folder of such a path.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import running
from source_tree import File, Function, Place, Tree, imported

HERE = Path(__file__).resolve().parent.parent.parent / "src" / "filbert"

TASKS = (
    "answer", "blank", "causal_lm", "chat", "choose", "classify", "cooccurrence", "embed", "mlm_nsp", "nsp", "pair",
    "relation", "summarize", "tag", "translate", "word_vectors",
)  # fmt: skip
NO_TASKS = (  # files and folders there that stand for several tasks, or for none
    *("base", "writing", "raw", "task", "windowed", "written", "question", "view", "probing", "wire"),
)
# Names that are also a column, a part of a model, a request or a plain word: counted where they stand as a task's.
AMBIGUOUS = {"answer", "blank", "chat", "embed", "nsp", "pair", "relation"}
ABOUT_TASKS = re.compile(r"task|trains|asked_as|TASKS|HEADED", re.IGNORECASE)
# What is asked of modules of the standard library, of functions, errors, arrays, tables and records: no member of ours.
NOT_OF_MEMBERS = {
    *("sched_getaffinity", "memfd_create", "malloc_trim", "register_at_fork", "O_BINARY", "O_CLOEXEC", "SIGHUP"),
    *("__name__", "__qualname__", "__getitem__", "name", "digest", "strerror", "lineno", "encoding", "peek", "stop"),
    *("item", "tolist", "to_local", "full_tensor", "dtype", "schema", "features", "feature", "names", "_fields"),
    *("label", "report", "pad_id"),
}
SPINE_ROOMS = {"core", "text", "pack", "corpus", "forms", "nn", "metrics", "folder", "engine", "train", "run"}
SPINE_FILES = ("models/bert.py", "tasks/base.py", "tasks/classify.py", "tasks/classify/")
NOT_SPINE = ("nn/kernels/", "nn/kernels.py")


# Law 1: task names ----------------------------------------------------------------------------------------------------


def task_names(tree: Tree, everywhere: bool = False) -> list[Place]:
    """Task names spelled outside `tasks/`: string literals equal to one, and imports of a task's module.

    Docstrings and longer strings do not count, nor a command's own name in `cli/` (in the file that is named after it,
    and in the list of all commands in `cli/main.py`). A name that is also a column, a head or a plain word (AMBIGUOUS)
    counts only where it stands as a task's: beside another task's name in a tuple, list, set, dict or comparison, or
    compared with, given to, returned for or held by something whose name speaks of tasks. everywhere: those as well.
    """
    commands = {file.path.removeprefix("cli/").removesuffix(".py") for file in tree.files if file.room == "cli"}
    found = []
    for file in tree.files:
        if file.room == "tasks":
            continue
        for node in file.nodes:
            if isinstance(node, ast.Constant) and node.value in TASKS and node not in file.docstrings:
                is_own = file.path in (f"cli/{node.value}.py", "cli/main.py") and node.value in commands
                if not is_own and (everywhere or node.value not in AMBIGUOUS or _as_task(file, node)):
                    found.append(Place(file.path, node.lineno, node.value))
            elif isinstance(node, ast.Import | ast.ImportFrom):
                parts = [name.split(".") for name in imported(file, node) if name.startswith("filbert.tasks.")]
                found += [Place(file.path, node.lineno, each) for part in parts for each in part[2:] if each in TASKS]
    return sorted(found)


def _as_task(file: File, node: ast.Constant) -> bool:
    """Whether a literal stands as a task's name: by its neighbours, or by what it is compared with or given to."""
    inner: ast.AST = node
    while (outer := file.parents.get(inner)) is not None and not isinstance(outer, ast.stmt):
        if isinstance(outer, ast.Tuple | ast.List | ast.Set) and _names(outer.elts) - {node.value}:
            return True
        if isinstance(outer, ast.Dict) and _names_of(outer) - {node.value}:
            return True
        if isinstance(outer, ast.Compare):
            return _speaks(node, outer.left, *outer.comparators)
        if isinstance(outer, ast.keyword):
            return bool(outer.arg and ABOUT_TASKS.search(outer.arg))
        if isinstance(outer, ast.BoolOp) and _speaks(node, *outer.values):
            return True
        if isinstance(outer, ast.Call) and inner is not outer.func and "fromkeys" not in ast.unparse(outer.func):
            return _is_member_call(outer)
        if isinstance(outer, ast.arguments):
            return _default_of(outer, inner)
        inner = outer
    if isinstance(outer, ast.Return):
        return _is_task_maker(file, outer)
    targets: list[ast.expr] = (
        outer.targets if isinstance(outer, ast.Assign) else [outer.target] if isinstance(outer, ast.AnnAssign) else []
    )
    return any(ABOUT_TASKS.search(ast.unparse(target)) or "PRETRAINS" in ast.unparse(target) for target in targets)


def _names(nodes: Iterable[ast.expr | None]) -> set[object]:
    leaves = [
        leaf for node in nodes if node for leaf in ([node, *node.elts] if isinstance(node, ast.Tuple) else [node])
    ]
    return {leaf.value for leaf in leaves if isinstance(leaf, ast.Constant) and leaf.value in TASKS}


def _names_of(table: ast.Dict) -> set[object]:
    """Those of its keys and values, and of `**dict.fromkeys(…, name)` in it."""
    made = [
        each.args[-1] for each in table.values if isinstance(each, ast.Call) and "fromkeys" in ast.unparse(each.func)
    ]
    return _names([*table.keys, *table.values, *made])


def _speaks(own: ast.Constant, *sides: ast.expr) -> bool:
    """Whether a comparison is with what is called a task, or a task's `name`."""
    others = [side for side in sides if own not in ast.walk(side)]
    words = " ".join(map(ast.unparse, others))
    return bool(ABOUT_TASKS.search(words)) or words == "name"


def _is_member_call(call: ast.Call) -> bool:
    called = ast.unparse(call.func).rpartition(".")[2]
    return called in {"member", "reading", "naming", "spec", "task"} or bool(
        _names(call.args[1:]) and "answer" in called
    )


def _default_of(arguments: ast.arguments, default: ast.AST) -> bool:
    named = [*arguments.posonlyargs, *arguments.args]
    pairs = [*zip(named[len(named) - len(arguments.defaults) :], arguments.defaults, strict=True)]
    also = [*zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return any(given is default and ABOUT_TASKS.search(name.arg) for name, given in [*pairs, *also])


def _is_task_maker(file: File, node: ast.AST) -> bool:
    """Whether the function around it returns the names of several tasks."""
    while not isinstance(node, Function):
        if (parent := file.parents.get(node)) is None:
            return False
        node = parent
    values = [
        leaf for each in ast.walk(node) if isinstance(each, ast.Return) and each.value for leaf in ast.walk(each.value)
    ]
    return len(_names(leaf for leaf in values if isinstance(leaf, ast.expr))) > 1


# Law 2: optional things of members ------------------------------------------------------------------------------------


def lookups(tree: Tree, everywhere: bool = False) -> list[Place]:
    """`hasattr` and `getattr` with a literal name that a model, a task, an engine, a config or a head may lack.

    Not counted are names that belong to the standard library, to functions, errors, arrays, tables and records
    (NOT_OF_MEMBERS). everywhere: those too.
    """
    found = []
    for file in tree.files:
        for node in file.nodes:
            if not (isinstance(node, ast.Call) and ast.unparse(node.func) in ("hasattr", "getattr")):
                continue
            name = node.args[1]
            if isinstance(name, ast.Constant) and (everywhere or name.value not in NOT_OF_MEMBERS):
                found.append(Place(file.path, node.lineno, str(name.value)))
    return sorted(found)


# Law 3: makers of packs -----------------------------------------------------------------------------------------------


def pack_makers(tree: Tree) -> list[Place]:
    """Calls of `Packed(…)`, and of `replace(pack, …)` that name a field of it; a method of Packed itself may do both.

    A maker is a module with such a call. "moves": its lengths are those of another pack, so that it brings the same
    sequences to another device, or with other ids.
    """
    home = next(
        (file, node) for file in tree.files for node in file.nodes
        if isinstance(node, ast.ClassDef) and node.name == "Packed"
    )  # fmt: skip
    fields = [n.target.id for n in home[1].body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
    own = set(ast.walk(home[1]))
    found = []
    for file in tree.files:
        for node in file.nodes:
            if not isinstance(node, ast.Call) or node in own:
                continue
            called = ast.unparse(node.func).rpartition(".")[2]
            given = {word.arg: word.value for word in node.keywords if word.arg}
            if called == "Packed":
                given |= dict(zip(fields, node.args, strict=False))
                lengths = given.get("lengths")
                moves = isinstance(lengths, ast.Attribute) and lengths.attr == "lengths"
                found.append(Place(file.path, node.lineno, "moves" if moves else "makes"))
            elif called == "replace" and node.args and set(given) & set(fields):
                found.append(Place(file.path, node.lineno, "moves"))
    return sorted(found)


# Law 4: twins ---------------------------------------------------------------------------------------------------------

TWIN_MODULES = ("decode/plain.py", "decode/chains.py")  # NumPy's heads, pooling, activations and pointer; a CRF's


def twins(tree: Tree) -> list[Place]:
    """What is written a second time for NumPy: the modules of TWIN_MODULES, and methods `heard` that take a host."""
    found = [Place(file.path, 1, "") for file in tree.files if file.path in TWIN_MODULES]
    for file in tree.files:
        for node in file.functions:
            if node.name == "heard" and any(each.arg == "host" for each in node.args.args):
                parent = file.parents[node]
                owner = f"{parent.name}." if isinstance(parent, ast.ClassDef) else ""
                found.append(Place(file.path, node.lineno, f"{owner}{node.name}"))
    return sorted(found)


# Types ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parameters:
    """Counts of parameters, and where the doubtful ones are."""

    total: int
    hollow: list[Place]  # whose annotation holds Any
    aliased: list[Place]  # and those that do by an alias that is Any
    tuples: list[Place]  # annotated with an anonymous tuple of three things or more
    starred: list[Place]  # **more


def parameters(tree: Tree) -> Parameters:
    """All named parameters of functions and methods, without `self` and `cls`, `*args` and `**kwargs`.

    An anonymous tuple is `tuple[A, B, C]` of three elements or more, also behind a name that the same module gives to
    one (`Edit = tuple[…]`).
    """
    aliases = {"Any"} | {name for file in tree.files for name, value in _aliases(file) if value == "Any"}
    found = Parameters(0, [], [], [], [])
    total = 0
    for file in tree.files:
        tuples = {name for name, value in _aliases(file) if _is_anonymous(ast.parse(value, mode="eval").body, set())}
        for node in file.functions:
            found.starred.extend([Place(file.path, node.lineno, node.name)] if node.args.kwarg else [])
            for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                if each.arg in ("self", "cls"):
                    continue
                total += 1
                if each.annotation is None:
                    continue
                place = Place(file.path, each.lineno, f"{node.name}({each.arg}: {ast.unparse(each.annotation)})")
                words = _words(each.annotation)
                if "Any" in words:
                    found.hollow.append(place)
                if words & aliases:
                    found.aliased.append(place)
                if any(_is_anonymous(part, tuples) for part in ast.walk(each.annotation)):
                    found.tuples.append(place)
    return Parameters(total, found.hollow, found.aliased, found.tuples, found.starred)


def _aliases(file: File) -> Iterator[tuple[str, str]]:
    """The names that a module gives to types at its top, and what they stand for."""
    for node in file.tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, ast.unparse(node.value)
        elif isinstance(node, ast.AnnAssign) and node.value and isinstance(node.target, ast.Name):
            yield node.target.id, ast.unparse(node.value)


def _words(annotation: ast.expr) -> set[str]:
    names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    texts = [node.value for node in ast.walk(annotation) if isinstance(node, ast.Constant)]
    return names.union(*(re.findall(r"\w+", text) for text in texts if isinstance(text, str)))


def _is_anonymous(node: ast.AST, aliases: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in aliases
    if not (isinstance(node, ast.Subscript) and ast.unparse(node.value) == "tuple"):
        return False
    inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
    return len(inner) >= 3 and "..." not in map(ast.unparse, inner)


# Files to read --------------------------------------------------------------------------------------------------------


def own_files(tree: Tree, task: str) -> set[str]:
    """A task's file or folder in `tasks/`; where it has neither, the files there that spell its name."""
    inside = [file for file in tree.files if file.room == "tasks" and not file.path.endswith("__init__.py")]
    named = {file.path for file in inside if task in file.path.removesuffix(".py").split("/")[1:]}
    return named or {file.path for file in inside if _names_in(file) & {task}}


def _names_in(file: File) -> set[object]:
    return _names(node for node in file.nodes if isinstance(node, ast.expr))


def to_read(tree: Tree, task: str, spelled: Sequence[Place]) -> set[str]:
    """The files that one reads to know all of a task, beyond what is common to all.

    Its own; those outside `cli` that only its own reach and no other task's (its private modules); and those outside
    `cli` that spell its name (Law 1) or import its own or private modules at the top.
    """
    own = own_files(tree, task)
    others = {path for name in TASKS if name != task for path in own_files(tree, name)} - own
    shared = _reached(tree, others, without=own)
    private = {path for path in _reached(tree, own, without=set()) - shared if not path.startswith("tasks/")}
    kept = own | {path for path in private if not _is_general(tree, path)}
    users = {path for path, edges in tree.edges.items() if edges & kept and path not in others}
    named = {place.path for place in spelled if place.what == task}
    return {path for path in kept | users | named if not path.startswith("cli/") and "/" in path}


def _reached(tree: Tree, start: set[str], without: set[str]) -> set[str]:
    seen, waiting = set(start), list(start)
    while waiting:
        for path in tree.edges[waiting.pop()] - seen - without:
            seen.add(path)
            waiting.append(path)
    return seen


def _is_general(tree: Tree, path: str) -> bool:
    """Whether it is reached for other reasons than this task: at least four modules outside `tasks` import it."""
    return sum(path in edges and not each.startswith("tasks/") for each, edges in tree.edges.items()) >= 4


# Sizes ----------------------------------------------------------------------------------------------------------------


def is_spine(path: str) -> bool:
    """Whether a file of the rebuilt tree is on the way of every text."""
    if path.startswith(NOT_SPINE):
        return False
    return path.partition("/")[0] in SPINE_ROOMS or path.startswith(SPINE_FILES)


def largest_cycle(tree: Tree) -> list[str]:
    """The modules of the largest ring of imports at the tops of modules; empty where there is none."""
    edges = {file.path: {path for path, at_once in tree.imports(file) if at_once} for file in tree.files}
    before = -1
    while before != len(edges):  # what imports nothing, or is imported by nothing, is in no ring
        before = len(edges)
        imported = set[str]().union(*edges.values())
        edges = {
            path: below & edges.keys() for path, below in edges.items() if below & edges.keys() and path in imported
        }
    below = {path: _below(edges, path) for path in edges}
    rings = [sorted(each for each in below[path] if path in below[each]) for path in edges if path in below[path]]
    return max(rings, key=len, default=[])


def _below(edges: dict[str, set[str]], path: str) -> set[str]:
    seen, waiting = set[str](), list(edges[path])
    while waiting:
        if (at := waiting.pop()) not in seen:
            seen.add(at)
            waiting += edges.get(at, ())
    return seen


def _share(values: Sequence[int], share: float) -> int:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


# The table ------------------------------------------------------------------------------------------------------------

Row = tuple[str, str, str]  # what, measured, promised


def rows(tree: Tree) -> Iterator[Row]:
    """Each measure that needs no more than to read the tree."""
    names, all_names = task_names(tree), task_names(tree, everywhere=True)
    yield "task names spelled outside tasks/", f"{len(names)} in {_files(names)} files", "0"
    yield "  every literal that equals one", f"{len(all_names)} in {_files(all_names)} files", ""
    calls = lookups(tree)
    yield "hasattr/getattr on members", f"{len(calls)} over {len({each.what for each in calls})} names", "< 15"
    yield "  every one with a literal name", str(len(lookups(tree, everywhere=True))), ""
    held = parameters(tree)
    yield "parameters that contain Any", f"{len(held.hollow) / held.total:.1%} of {held.total}", "< 4 %"
    yield "  by an alias too (Array = Any)", f"{len(held.aliased) / held.total:.1%}", ""
    yield "parameters in anonymous tuples", str(len(held.tuples)), ""
    yield "functions with **more", str(len(held.starred)), ""
    makers = pack_makers(tree)
    moving = _files(makers) - _files([each for each in makers if each.what == "makes"])
    yield "makers of a Packed", f"{_files(makers)} modules, {moving} of them only move one", "1"
    yield "twins for NumPy", f"{len(twins(tree))} places", "0"
    reads = {task: to_read(tree, task, names) for task in TASKS}
    yield "files to read for tag", _rooms(reads["tag"]), "<= 7 in one folder"
    yield "  median over tasks", f"{statistics.median(map(len, reads.values())):g}", ""
    yield "a task from outside the package", "is found" if _has_entry_points(tree) else "impossible", "is found"
    yield from _sizes(tree)


def _sizes(tree: Tree) -> Iterator[Row]:
    lines = {file.path: file.text.count("\n") for file in tree.files}
    code = [length for file in tree.files for length in file.code]
    spine = [path for path in lines if is_spine(path)] if tree.is_rebuilt else []
    yield "lines of src", f"{sum(lines.values()):,} in {len(lines)} files", "<= 41,000"
    yield "  of code", f"{len(code):,}", ""
    yield (
        "  of the spine",
        f"{sum(map(lines.__getitem__, spine)):,} in {len(spine)} files" if spine else "-",
        "<= 17,000",
    )
    filled = [len(line) for file in tree.files for line in file.text.splitlines() if line.strip()]
    yield "line length p90", str(_share(filled, 0.9)), "<= 100"
    yield "  of lines of code", str(_share(code, 0.9)), ""
    sizes = [(each.end_lineno or 0) - each.lineno + 1 for file in tree.files for each in file.functions]
    made = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    held = sum(isinstance(node, made) for file in tree.files for node in file.nodes)
    yield "comprehensions a function", f"{held / len(sizes):.2f}", "<= 0.45"
    yield (
        "function length, median / p90 / max",
        f"{_share(sizes, 0.5)} / {_share(sizes, 0.9)} / {max(sizes)}",
        "7 / 19 / 60",
    )
    largest = max(lines, key=lines.__getitem__)
    yield "largest file", f"{lines[largest]} ({largest})", "<= 600"
    yield "largest cycle of imports", f"{len(largest_cycle(tree))} modules", "0"


def _files(places: Sequence[Place]) -> int:
    return len({place.path for place in places})


def _rooms(paths: set[str]) -> str:
    return f"{len(paths)} in {len({path.partition('/')[0] for path in paths})} rooms"


def _has_entry_points(tree: Tree) -> bool:
    return any("entry_points" in file.text and "filbert.tasks" in file.text for file in tree.files)


LISTS: dict[str, Callable[[Tree], list[Place]]] = {
    "names": task_names,
    "literals": lambda tree: task_names(tree, everywhere=True),
    "lookups": lookups,
    "all-lookups": lambda tree: lookups(tree, everywhere=True),
    "any": lambda tree: parameters(tree).hollow,
    "tuples": lambda tree: parameters(tree).tuples,
    "more": lambda tree: parameters(tree).starred,
    "packs": pack_makers,
    "twins": twins,
    "read": lambda tree: [Place(p, 1, t) for t in TASKS for p in sorted(to_read(tree, t, task_names(tree)))],
    "cycle": lambda tree: [Place(path, 1, "") for path in largest_cycle(tree)],
}


def main() -> None:
    """Prints the table, or one of its lists."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", nargs="?", type=Path, default=HERE, help="a src/filbert folder; this checkout's")
    parser.add_argument(
        "--list", choices=sorted(LISTS), help="the places that a measure counts, and how many a file has"
    )
    parser.add_argument("--quick", action="store_true", help="only what is read, nothing that must run")
    parser.add_argument("--json", action="store_true", help="one JSON object: what -> measured")
    wish = parser.parse_args()
    tree = Tree(wish.tree)
    if wish.list:
        places = LISTS[wish.list](tree)
        for place in places:
            print(f"{place.path}:{place.line}: {place.what}")
        counts = Counter(place.path for place in places)
        print("\n" + "\n".join(f"{number:4} {path}" for path, number in counts.most_common()))
        return
    table = list(rows(tree)) + ([] if wish.quick else list(running.rows(tree.root)))
    if wish.json:
        json.dump({what.strip(): measured for what, measured, _ in table}, sys.stdout, indent=1)
        return
    for what, measured, promised in [("measure", "measured", "promised"), *table]:
        print(f"{what:38}{measured:42}{promised}".rstrip())


if __name__ == "__main__":
    main()
