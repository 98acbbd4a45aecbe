"""A `src/filbert` folder in; its modules, parsed, and which imports which, out.

Nothing of it is imported. Paths are relative to the folder, with `/`; a room is the first folder of such a path.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where something stands, and what it is."""

    path: str
    line: int
    what: str


@dataclass(frozen=True)
class File:
    """One module of the tree."""

    path: str  # relative to the tree
    text: str
    tree: ast.Module = field(repr=False)

    @property
    def room(self) -> str:
        """Its folder in the tree; "" for what stands beside the rooms."""
        return self.path.partition("/")[0] if "/" in self.path else ""

    @property
    def module(self) -> str:
        """Its dotted name."""
        parts = ("filbert", *self.path.removesuffix(".py").split("/"))
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """What each node stands in."""
        return {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All that its tree holds."""
        return list(ast.walk(self.tree))

    @cached_property
    def functions(self) -> list[Function]:
        """All functions and methods, nested ones too."""
        return [node for node in self.nodes if isinstance(node, Function)]

    @cached_property
    def docstrings(self) -> list[ast.expr]:
        """Those of the module, of its classes and of its functions."""
        found = []
        for node in self.nodes:
            if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node) is not None:
                assert isinstance(node.body[0], ast.Expr)
                found.append(node.body[0].value)
        return found

    @cached_property
    def code(self) -> list[int]:
        """The lengths of the lines that hold code: no blank ones, comments, docstrings or imports."""
        layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
        lines = set[int]()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in layout:
                lines.update(range(token.start[0], token.end[0] + 1))
        imports = [node for node in self.nodes if isinstance(node, ast.Import | ast.ImportFrom)]
        for node in (*self.docstrings, *imports):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        whole = self.text.splitlines()
        return [len(whole[line - 1]) for line in lines]


class Tree:
    """All modules below a `src/filbert`."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        texts = {path: path.read_text(encoding="utf-8") for path in sorted(self.root.rglob("*.py"))}
        self.files = [
            File(path.relative_to(self.root).as_posix(), text, ast.parse(text)) for path, text in texts.items()
        ]
        self.by_module = {file.module: file for file in self.files}

    @property
    def is_rebuilt(self) -> bool:
        """Whether its rooms are those of the plan."""
        return (self.root / "pack").is_dir()

    @cached_property
    def edges(self) -> dict[str, set[str]]:
        """The modules of the tree that each one imports anywhere, inside functions and for types too."""
        return {file.path: {path for path, _ in self.imports(file)} for file in self.files}

    def imports(self, file: File) -> Iterator[tuple[str, bool]]:
        """(path, whether the module is imported with this one): for types alone or inside a function it is not."""
        for node in file.nodes:
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            at_once = _at_once(file, node)
            for name in imported(file, node):
                found = self.by_module.get(name) or self.by_module.get(name.rpartition(".")[0])
                if found is not None and found is not file:
                    yield found.path, at_once


def imported(file: File, node: ast.Import | ast.ImportFrom) -> list[str]:
    """The dotted names that a statement brings in; `from a import b` as `a.b`."""
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    base = node.module or ""
    if node.level:
        package = file.module.split(".")
        package = package[: len(package) - node.level + file.path.endswith("__init__.py")]
        base = ".".join([*package, *([node.module] if node.module else [])])
    return [f"{base}.{each.name}" for each in node.names]


def _at_once(file: File, node: ast.AST) -> bool:
    while (parent := file.parents.get(node)) is not None:
        if isinstance(parent, Function) or (isinstance(parent, ast.If) and "TYPE_CHECKING" in ast.unparse(parent.test)):
            return False
        node = parent
    return True
