"""The documentation is run: its commands and Python are executed, its links, paths, options and defaults checked."""

from __future__ import annotations

import dataclasses
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import click
import pytest
import torch
from click.testing import CliRunner

from filbert.cli.main import filbert
from filbert.nn.encoder import ModelSpec
from filbert.tasks.task import TaskSpec

ROOT = Path(__file__).resolve().parents[2]
READMES = ("README.md", "README.zh.md")
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
ALL = [*READMES, "CONTRIBUTING.md", "CHANGELOG.md", *PAGES]
NEEDS_A_NETWORK = ("make", "python3", ".venv/bin/pip")  # set-up: `make test` itself is what proves it
DEMO = "filbert-demo"
# What a page does with many rows is done with fewer here: (page, what stands there, what is run instead).
FEWER = (("docs/walk.md", "document.sentences[::3]", "document.sentences[::12]"),)


class Block(NamedTuple):
    language: str
    line: int
    text: str


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    """The fenced code blocks of a page, and the line that each begins on."""
    found, inside, start, language = [], list[str](), 0, ""
    for number, line in enumerate(read(page).split("\n"), 1):
        if line.startswith("```") and not start:
            start, language, inside = number, line[3:].strip(), []
        elif line == "```":
            found.append(Block(language, start + 1, "\n".join(inside) + "\n"))
            start = 0
        elif start:
            inside.append(line)
    assert not start, f"{page}: the block that begins in line {start} has no end"
    return found


def prose(page: str) -> str:
    return re.sub(r"^```.*?^```$", "", read(page), flags=re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What `filbert demo` leaves, after five steps instead of the usual number."""
    out = tmp_path_factory.mktemp("docs") / DEMO
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for so small a model, threads that wait for each other cost more than they bring
    ran = CliRunner().invoke(filbert, ["demo", "--steps", "5", "--out", str(out)], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    yield out
    torch.set_num_threads(threads)


@pytest.fixture
def place(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, where the demo has been run."""
    shutil.copytree(demo, tmp_path / DEMO)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_line(line: str, where: str, running: list[subprocess.Popen[bytes]]) -> None:
    """One line of a sh block: a filbert command in this process, anything else by the shell."""
    words = shlex.split(line)
    if not words or words[0] in NEEDS_A_NETWORK or line.startswith("#"):
        return
    if words[-1] == "&":  # goes on beside what follows, until the page ends
        running.append(subprocess.Popen([sys.executable, "-m", *words[:-1]]))
        return
    if words[0] != "filbert":
        subprocess.run(["bash", "-euc", line], check=True)
        return
    if words[1] == "demo":  # the fixture's; its options must exist all the same
        assert set(re.findall(r"--[a-z-]+", line)) <= options("demo"), where
        return
    ran = CliRunner().invoke(filbert, words[1:], catch_exceptions=False)
    allowed = (0, 2) if words[1] == "doctor" else (0,)  # the doctor says 2 where it found an error
    assert ran.exit_code in allowed, f"{where}: {line}\n{ran.output}"
    assert ran.stdout or ran.stderr, f"{where}: {line} said nothing"


def run_blocks(page: str) -> list[Block]:
    """Those that are executed."""
    return [block for block in blocks(page) if block.language in ("sh", "python")]


def shortened(page: str, text: str) -> str:
    """What is run of a block of Python: the same with fewer rows, where FEWER says so."""
    for _, many, few in (each for each in FEWER if each[0] == page and each[1] in text):
        text = text.replace(many, few)
    return text


def test_what_is_shortened_stands_there() -> None:
    assert all(sum(many in block.text for block in blocks(page)) == 1 for page, many, _ in FEWER)


def bare(page: str) -> list[tuple[str, str]]:
    """What a page executes, without its comments, which are in the page's own language."""
    return [(block.language, re.sub(r"\s*# .*", "", block.text)) for block in run_blocks(page)]


def is_run_elsewhere(page: str) -> bool:
    """Whether a Chinese page executes what the English one does, to the letter: once is enough."""
    english = page.replace("docs/zh/", "docs/").replace(".zh.md", ".md")
    return english != page and (ROOT / english).exists() and bare(english) == bare(page)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in (*READMES, *PAGES) if run_blocks(page) and not is_run_elsewhere(page)]
)
def test_commands_and_python_run(page: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> None:
    """In order, top to bottom, the Python of one page in one namespace."""
    found = run_blocks(page)
    request.getfixturevalue("place")
    names: dict[str, object] = {"__name__": "docs"}
    running: list[subprocess.Popen[bytes]] = []
    try:
        for block in found:
            where = f"{page} line {block.line}"
            if block.language == "sh":
                for line in block.text.splitlines():
                    run_line(line, where, running)
            else:
                exec(compile(shortened(page, block.text), where, "exec", dont_inherit=True), names)
    finally:
        for process in running:
            process.terminate()
            process.wait(30)
    capsys.readouterr()


def test_the_walk_has_the_same_commands_in_both_languages() -> None:
    """The Chinese page shows what the English one runs."""
    one, two = ([b.text for b in blocks(page)] for page in ("docs/walk.md", "docs/zh/walk.md"))
    assert one == two
    assert sum(b.language == "sh" for b in blocks("docs/walk.md")) == 5


def test_every_block_has_a_known_language() -> None:
    strange = [(page, b.line) for page in ALL for b in blocks(page) if b.language not in ("sh", "python", "text")]
    assert not strange


def test_the_readmes_have_one_structure() -> None:
    """The same headings, tables and code; comments in the code may be in the page's own language."""

    def code(page: str) -> list[tuple[str, str]]:
        return [(b.language, re.sub(r"\s*# .*", "", b.text) if b.language != "text" else b.text) for b in blocks(page)]

    english, chinese = READMES
    assert code(english) == code(chinese)
    for pattern in (r"^#+ ", r"^\|", r"^\*\*", r"MEASURE"):
        counts = [len(re.findall(pattern, prose(page), flags=re.MULTILINE)) for page in READMES]
        assert counts[0] == counts[1], (pattern, counts)
    # A link may lead to the page in one's own language.
    links = [{link.replace("docs/zh/", "docs/") for link in relative_links(page)} for page in READMES]
    assert links[1] - links[0] <= {"docs/start.md", english}
    assert links[0] - links[1] <= {chinese}


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/story/")])
def test_a_chapter_is_the_same_in_both_languages_and_names_tests_that_exist(page: str) -> None:
    """Comments in the code may be in the page's own language; so may formulas, which are text."""
    both = page, page.replace("docs/", "docs/zh/", 1)
    english, chinese = ([re.sub(r" +# .*", "", b.text) for b in blocks(p) if b.language == "python"] for p in both)
    assert english == chinese
    for pattern in (r"^#+ ", r"^\|", r"^- ", r"^\d+\. "):
        counts = [len(re.findall(pattern, prose(p), flags=re.MULTILINE)) for p in both]
        assert counts[0] == counts[1], (pattern, counts)
    files, tests = ([sorted(re.findall(form, prose(p))) for p in both] for form in (r"`([\w/]+\.py)`", r"`(test_\w+)`"))
    assert (files[0], tests[0]) == (files[1], tests[1])
    errata = set(re.findall(r"^def (test_\w+)", read("tests/models/test_errata.py"), re.MULTILINE))
    assert set(tests[0]) <= errata


def test_the_readme_has_two_set_up_commands() -> None:
    for page in READMES:
        made = re.findall(r"^make .*", "\n".join(b.text for b in blocks(page) if b.language == "sh"), re.MULTILINE)
        assert made == ["make demo", "make test"]


def relative_links(page: str) -> list[str]:
    found = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    return [unquote(link.partition("#")[0]) for link in found if "://" not in link and not link.startswith("#")]


@pytest.mark.parametrize("page", ALL)
def test_links_and_paths_exist(page: str) -> None:
    """Links from where the page lies; paths in code font from the root, or from the package for a room's file."""
    text = prose(page)
    for link in relative_links(page):
        assert ((ROOT / page).parent / link).exists(), f"{page}: {link}"
        assert not page.startswith("docs/") or (ROOT / page).parent.joinpath(link).resolve().is_relative_to(
            ROOT / "docs"
        ), f"{page}: {link} leaves docs/, and the built site has only that"
    named = re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md))`", text)
    for path in named:
        assert (ROOT / path).exists() or (ROOT / "src/filbert" / path).exists(), f"{page}: {path}"


def options(name: str) -> set[str]:
    """The options that a command really has."""
    command = filbert.get_command(click.Context(filbert), name)
    assert command is not None, name
    return {flag for p in command.params if isinstance(p, click.Option) for flag in (*p.opts, *p.secondary_opts)}


def command_sections() -> list[tuple[str, str]]:
    return re.findall(r"^## filbert (\S+)\n(.*?)(?=^## |\Z)", read("docs/commands.md"), re.MULTILINE | re.DOTALL)


def test_the_commands_page_is_the_command_tree() -> None:
    sections = dict(command_sections())
    assert list(sections) == filbert.list_commands(click.Context(filbert))
    for name, body in sections.items():
        cells = re.findall(r"^\| (`-.*?) \|", body, re.MULTILINE)
        told = {flag for cell in cells for flag in re.findall(r"`(--?[a-z0-9-]+)`", cell)}
        assert told == options(name), name
        assert set(re.findall(r"`(--[a-z0-9-]+)", body)) <= options(name), name


def test_documented_defaults_are_the_defaults() -> None:
    for name, body in command_sections():
        command = filbert.get_command(click.Context(filbert), name)
        assert command is not None
        for option in command.params:
            if isinstance(option, click.Option) and option.show_default and not option.is_flag:
                row = next(line for line in body.split("\n") if line.startswith(f"| `{option.opts[0]}`"))
                assert str(option.default) in row or "as for" in row, row


@pytest.mark.parametrize("folder", ["docs", "docs/zh"])
@pytest.mark.parametrize(("page", "record"), [("own-task.md", TaskSpec), ("own-model.md", ModelSpec)])
def test_every_field_of_a_record_is_explained(folder: str, page: str, record: type) -> None:
    """The last table of a page has all of them and no others, the obligatory ones first."""
    rows = re.findall(r"^\| (`.*?) \|", prose(f"{folder}/{page}").rpartition("## ")[2], re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(field.name for field in dataclasses.fields(record))
    obligatory = {field.name for field in dataclasses.fields(record) if not has_default(field)}
    assert {name for row in rows[: len(obligatory)] for name in re.findall(r"`(\w+)`", row)} == obligatory


def has_default(field: dataclasses.Field[object]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_examples_run(
    script: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [script, DEMO])
    runpy.run_path(str(ROOT / "examples" / script), run_name="__main__")
    assert capsys.readouterr().out.count("\n") >= 3


@pytest.mark.slow
def test_the_word2vec_of_the_design_learns(place: Path) -> None:
    """The protocols' second user goes through the same loop, and its loss falls."""
    names: dict[str, object] = {"__name__": "docs"}
    torch.manual_seed(0)
    exec(next(b.text for b in blocks("docs/design.md") if b.language == "python"), names)
    losses = names["losses"]
    assert isinstance(losses, list)
    assert sum(losses[-10:]) < sum(losses[:10])
