"""Every option of every command × the ways it can be given in: it does something, is refused, or is named in a note.

The commands are asked of click; an option without a line here fails. Each case is run twice on tiny models, with the
option and without: "does" means that what comes out differs; "refused" is exit code 2 and a sentence that names the
option; "told" a note that names it. "same" gives the reason why nothing may differ.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
import sweep_options as sweep
import sweep_runs

from filbert.cli.main import filbert as house
from filbert.engine.results import Results
from filbert.folder import folder as folders
from filbert.models import gpt, transformer
from filbert.run.finetune import finetune
from filbert.ship import export
from filbert.text.tokenizer import Tokenizer
from kit.folders import examples_of, task_file

pytestmark = pytest.mark.usefixtures("one_thread")
Command = Callable[..., Any]
ROWS = [("the train leaves the station", "rail"), ("a ship on the water", "sea"), ("clouds and the wind", "sky")]
STEPS = ["machine.threads=1", "train.steps=2", "train.batch_tokens=128"]
KINDS = (".jsonl", ".csv", ".npy", ".safetensors", ".txt", ".svg", ".html", ".json")
DATED = ("log.jsonl", "report.html", "report.json", "recipe.json", "manifest.json", "budget.json")
SHAPE = {"width": 16, "layers": 1, "heads": 2, "inner": 32, "max_length": 32}


class Came(NamedTuple):
    """What came of a command: how it ended, what it said, and what it left."""

    code: int
    out: str
    err: str
    files: dict[str, bytes]


@pytest.fixture(scope="module")
def lab(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of every kind and files of every form."""
    import torch

    torch.set_num_threads(1)
    lab = tmp_path_factory.mktemp("options")
    shutil.copytree(tiny_folder, lab / "tiny")
    _files(lab)
    for name, (task, data, more) in sweep.TUNED.items():
        examples = examples_of(ROWS * 4)
        source: Any = lab / data if data else examples
        finetune(task, source, lab / "tiny", lab / name, settings=[*STEPS, *more], quiet=True)
    tokenizer = Tokenizer.load(tiny_folder)
    torch.manual_seed(0)
    for task in ("translate", "summarize", "chat"):
        found = transformer.Transformer(
            transformer.Config(vocab_size=tokenizer.vocab_size, **SHAPE, writer_layers=1), ("writer",)
        )
        said = {"task": task, "max_length": 32, "beam": 2, "max_new": 4, "max_ratio": 0.0, "no_repeat": 0}
        folders.save(lab / task, found.eval(), tokenizer, files=task_file(said))
    folders.save(
        lab / "gpt",
        gpt.Gpt(gpt.Config(vocab_size=tokenizer.vocab_size, **SHAPE | {"max_length": 96}), ("lm",)),
        tokenizer,
    )
    export.export(lab / "cls", lab / "onnx", int8=True)
    return lab


def _files(lab: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [(f"{text} {number}", label) for number, (text, label) in enumerate(ROWS * 8)]
    texts = [text for text, _ in rows]
    (lab / "l.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    (lab / "m.csv").write_text("text,label\n" + "".join(f"{text} so,{label}\n" for text, label in rows))
    (lab / "n.csv").write_text(
        "first,second,label\n" + "".join(f"{t},the wind,{i / 7:.3f}\n" for i, t in enumerate(texts))
    )
    (lab / "pair.csv").write_text(
        "first,second,label\n" + "".join(f"{t},the wind,{'yn'[i % 2]}\n" for i, t in enumerate(texts))
    )
    (lab / "tag.conll").write_text("".join(f"Peter B-PER\nsees O\nthe O\nship B-OBJ\n{i} O\n\n" for i in range(24)))
    asked = {"context": "the ship leaves the station", "question": "what leaves", "answer": "ship", "answer_start": 4}
    (lab / "qa.jsonl").write_text("".join(json.dumps(asked | {"id": i}) + "\n" for i in range(16)))
    (lab / "mt.tsv").write_text("".join(f"the ship {i}\ta train {i}\n" for i in range(8)))
    (lab / "t.txt").write_text("".join(f"{text}\n" for text in texts[:6]))
    (lab / "long.txt").write_text(" ".join(texts[:3]) + "\n")
    (lab / "bad.txt").write_bytes(b"a ship \xff on the water\n")
    (lab / "gb.csv").write_bytes("text,label\n火车进站了,rail\n海上的船,sea\n".encode("gb18030"))
    (lab / "gb.txt").write_bytes("火车进站了。\n\n海上的船。\n".encode("gb18030"))
    lines = [f"{text}. the wind and the train {i}.\nclouds at sea." for i, text in enumerate(texts * 3)]
    (lab / "text.txt").write_text("\n\n".join(lines) + "\n")
    (lab / "apart.txt").write_text("\n\n".join(lines[:3]) + "\n")
    (lab / "some.txt").write_text("\n\n".join(texts[:3]) + "\n")
    pq.write_table(pa.table({"text": texts, "label": [label for _, label in rows]}), lab / "l.parquet")


def came(filbert: Command, lab: Path, out: Path, words: Sequence[str]) -> Came:
    """What comes of these words; times are taken out, and what only says when it was made."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    code, said, err = filbert(*(word.format(d=lab, o=out) for word in words))
    files = {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if _is_result(path)}
    return Came(code, *(_timeless(each.replace(str(out), "OUT")) for each in (said, err)), files)


def _is_result(path: Path) -> bool:
    """Whether a file tells what was made, and not when."""
    is_dated = path.name in DATED or "checkpoints" in path.parts
    return path.is_file() and path.suffix in KINDS and not is_dated


def _timeless(said: str) -> str:
    said = re.sub(r'"(seconds|took)": [\d.e-]+', "", said)
    return re.sub(r"[\d.,]+ (s\b|tokens/s)|\d+ s left", "", said)


SWEEP = sweep_runs.RUNS | sweep.ASKING
CASES = [
    pytest.param(command, option, case, id=f"{command} {option} {number}")
    for command, options in SWEEP.items()
    for option, cases in options.items()
    for number, case in enumerate(cases)
    if not isinstance(case, str)
]
BEFORE: dict[tuple[str, ...], Came] = {}


@pytest.mark.slow
@pytest.mark.parametrize(("command", "option", "case"), CASES)
def test_an_option_does_something_or_says_why_not(
    lab: Path, tmp_path: Path, filbert: Command, command: str, option: str, case: sweep.Case
) -> None:
    words = (command, *case.base.split())
    if words not in BEFORE:  # of a server nothing comes by itself
        is_server = command == "serve"
        BEFORE[words] = Came(0, "", "", {}) if is_server else came(filbert, lab, tmp_path / "o", words)
    before = BEFORE[words]
    after = came(filbert, lab, tmp_path / "o", (*words, *case.more.split()))
    assert before.code == case.before, before
    said = after.err + (after.out if command == "doctor" else "")
    named = re.search(rf"{case.named or option}\b", said)
    if case.how == "refused":
        assert after.code == 2, after
        assert named, after.err
        assert not after.files or option == "--field", after.files  # which is known when the corpus is read
        return
    assert after.code == (1 if case.how == "fails" else 0), after
    if case.how == "told":
        assert [line for line in said.splitlines() if "note" in line and re.search(case.named or option, line)], said
        return
    is_same = (before.out, before.files) == (after.out, after.files)
    assert is_same == (case.how == "same"), (before, after)


def test_every_option_of_every_command_has_a_line() -> None:
    context = click.Context(house)
    for name in house.list_commands(context):
        command = house.get_command(context, name)
        assert command is not None
        known = {max(parameter.opts, key=len) for parameter in command.params if isinstance(parameter, click.Option)}
        assert known == set(SWEEP.get(name, {})), name
        assert all(SWEEP[name].values()), name


@pytest.mark.parametrize("option", sweep_runs.SERVED)
def test_what_a_server_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    """By the command line, and by the environment: what it is to do differs."""
    from filbert.cli import serve

    (tmp_path / "keys").write_text(f"{'ab' * 32}\n")
    value = sweep_runs.SERVED[option].format(d=tmp_path)

    def plan(*words: str) -> Any:
        with serve.command.make_context("serve", ["builtin", *words]) as context:
            return serve._plan(serve.Options(**context.params))

    before = plan()
    assert plan(option, *([value] if value else [])) != before
    name = "FILBERT_KEYS_FILE" if option == "--keys" else f"FILBERT_{option.strip('-').upper().replace('-', '_')}"
    monkeypatch.setenv(name.replace("NO_LOOK", "LOOK"), value or "0")
    assert plan() != before


@pytest.mark.slow
@pytest.mark.parametrize(
    "word",
    ["--seed=9999999999999999999999", "--set=train.steps=9999999999999999999999", "--set=machine.threads=99999999999"],
)
@pytest.mark.parametrize("start", ["--model={d}/tiny", "--arch=bert"])
def test_a_number_that_no_machine_holds(lab: Path, tmp_path: Path, filbert: Command, word: str, start: str) -> None:
    words = ("classify", start.format(d=lab), "--train", lab / "l.csv", "--out", tmp_path / "r", word)
    code, _, err = filbert("finetune", *words)
    assert code == 2, err
    assert "must be a whole number" in err
    assert not (tmp_path / "r" / "model").exists()


OVER = {  # what would write over what it is made of
    "embed": "{d}/tiny -d {d}/l.csv -o {d}/l.csv",
    "embed in a folder": "{d}/tiny -d {d} -o {d}/l.csv --clusters 2",
    "prune": "{d}/cls --layers 1 -o {d}/cls/model",
    "export": "{d}/tiny -o {d}/tiny --format transformers",
    "import": "{d}/tiny -o {d}/tiny",
    "finetune": "classify --model {d}/tiny --train {d}/l.csv -o {d}/tiny",
    "pretrain": "{d}/text.txt --model {d}/tiny --set train.steps=1 --set task.max_length=64 -o {d}/tiny",
    "distill": "{d}/cls -d {d}/l.csv --layers 1 --set train.steps=1 -o {d}/tiny",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OVER)
def test_nothing_is_written_over_what_it_is_made_of(lab: Path, filbert: Command, name: str) -> None:
    def held() -> dict[Path, bytes]:
        places = (lab / "l.csv", *(lab / "tiny").rglob("*"), *(lab / "cls" / "model").rglob("*"))
        return {path: path.read_bytes() for path in places if path.is_file() and not path.name.startswith(".")}

    before = held()
    code, _, err = filbert(name.split()[0], *OVER[name].format(d=lab).split())
    assert code == 2, err
    assert "choose another --out" in err
    assert held() == before


def test_a_csv_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    cells = ["a\rb", "a\nb", "a\r\nb", '"', "=1+2", ",;\t", "\x1b[31m\x07", "\u2028\u202e", " x ", "<script>"]
    path = tmp_path / "r.csv"
    with Results(path) as results:
        results.write([{"text": cell, "label": "x"} for cell in cells])
    with path.open(encoding="utf-8", newline="") as file:
        assert [row[0] for row in csv.reader(file)][1:] == cells
    with Results(path, resume=True) as again:
        assert again.count == len(cells)
