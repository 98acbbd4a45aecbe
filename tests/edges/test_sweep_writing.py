"""Every command that writes × a full disk, a place without rights, an output that takes nothing, SIGKILL, a second one.

Of each: one sentence, nothing torn, nothing twice, and no leftover that the next run does not remove. Files of numbers
and pages are made beside their place; what a run of training keeps by itself (checkpoints, its log) may stay for
--resume.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from forking import Ended, Server

from filbert.models import transformer
from filbert.run.finetune import finetune
from filbert.text.tokenizer import Tokenizer
from kit.folders import examples_of, task_file

pytestmark = pytest.mark.usefixtures("one_thread")
ROWS = [("the train leaves the station", "rail"), ("a ship on the water", "sea"), ("clouds and the wind", "sky")]
STEPS = ("--set", "train.steps=2", "--set", "train.batch_tokens=128", "--set", "machine.threads=1")


class Writes(NamedTuple):
    """A command that writes: its words, where {out} is its target, and what else is to be known of it."""

    words: tuple[str, ...]
    target: str  # a file, or a folder
    resumes: bool = False  # may say that its target holds something, and go on from it with --resume
    slow: bool = False  # a training: only what ends before or soon after it begins is tried of it
    keeps: bool = False  # leaves what was finished, and a second run of the same words is refused for it


COMMANDS = {
    "vocab": Writes(("vocab", "{data}/text.txt", "--size", "60", "--min-count", "1", "--out", "{out}"), "out"),
    "doctor": Writes(("doctor", "{data}/dirty.tsv", "--task", "classify", "--fix", "{out}"), "out", keeps=True),
    "predict": Writes(("predict", "{data}/run", "-d", "{data}/t.txt", "-o", "{out}"), "o.jsonl", keeps=True),
    "predict.csv": Writes(("predict", "{data}/run", "-d", "{data}/t.txt", "-o", "{out}"), "o.csv", keeps=True),
    "translate": Writes(("translate", "{data}/mt", "-d", "{data}/t.txt", "-o", "{out}"), "o.txt", keeps=True),
    "embed": Writes(("embed", "{data}/tiny", "-d", "{data}/t.txt", "-o", "{out}"), "o.npy"),
    "embed.jsonl": Writes(("embed", "{data}/tiny", "-d", "{data}/t.txt", "-o", "{out}"), "o.jsonl"),
    "embed.csv": Writes(("embed", "{data}/tiny", "-d", "{data}/t.txt", "--clusters", "1", "-o", "{out}"), "o.csv"),
    "explain": Writes(
        ("explain", "{data}/run", "-d", "{data}/few.txt", "--method", "occlusion", "--no-certificate", "-o", "{out}"),
        "o.jsonl", keeps=True,
    ),
    "explain.html": Writes(
        ("explain", "{data}/run", "-t", "a ship", "--method", "occlusion", "--no-certificate", "-o", "{out}"), "o.html"
    ),
    "attend": Writes(("attend", "{data}/tiny", "-t", "a ship", "-o", "{out}"), "o.html"),
    "attend.svg": Writes(("attend", "{data}/tiny", "-t", "a ship", "--picture", "head", "-o", "{out}"), "o.svg"),
    "probe": Writes(("probe", "{data}/tiny", "-d", "{data}/l.tsv", "-o", "{out}"), "o.html"),
    "evaluate": Writes(("evaluate", "{data}/run", "-d", "{data}/l.tsv", "-o", "{out}"), "out"),
    "prune": Writes(("prune", "{data}/run", "--layers", "1", "-o", "{out}"), "out"),
    "import": Writes(("import", "{data}/tiny", "--out", "{out}"), "out"),
    "export": Writes(("export", "{data}/run", "--out", "{out}"), "out"),
    "finetune": Writes(
        ("finetune", "classify", "--model", "{data}/tiny", "--train", "{data}/l.tsv", "--out", "{out}", *STEPS),
        "out", resumes=True, slow=True,
    ),
    "pretrain": Writes(
        ("pretrain", "{data}/text.txt", "--preset", "tiny", "--vocab-size", "60", "--out", "{out}", *STEPS), "out",
        resumes=True, slow=True,
    ),
    "distill": Writes(
        ("distill", "{data}/run", "--layers", "1", "-d", "{data}/l.tsv", "--out", "{out}", *STEPS), "out",
        resumes=True, slow=True,
    ),
    "compare": Writes(
        ("compare", "--models", "{data}/tiny", "--train", "{data}/l.tsv", "--test", "{data}/l.tsv", "--out", "{out}",
         *STEPS), "out", slow=True,
    ),
    "demo": Writes(("demo", "--steps", "2", "--out", "{out}"), "out", slow=True),
}  # fmt: skip
LARGER = ("vocab", "predict", "embed.jsonl", "evaluate", "import")  # tried on a disk that fills up later, too
MAIN = [name for name in COMMANDS if "." not in name]  # what does not hang on the form that is written
QUICK = [name for name in MAIN if not COMMANDS[name].slow]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """What runs the commands."""
    made = Server()
    yield made
    made.close()


@pytest.fixture(scope="module")
def data(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts, labels, a classifier and a translator."""
    import torch

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("writing")
    texts = [f"ship {number} on the water" for number in range(30)]
    (folder / "t.txt").write_text("\n".join(texts) + "\n")
    (folder / "few.txt").write_text("a ship\nthe wind\n")
    (folder / "text.txt").write_text("\n\n".join(f"{text}. the wind and the train." for text in texts) + "\n")
    lines = [f"{text} {number}\t{label}" for number, (text, label) in enumerate(ROWS * 8)]
    (folder / "l.tsv").write_text("\n".join(lines) + "\n")
    (folder / "dirty.tsv").write_text("\n".join([*lines, lines[0], lines[0]]) + "\n")
    shutil.copytree(tiny_folder, folder / "tiny")
    examples = examples_of(ROWS * 4)
    how = {"settings": ["machine.threads=1", "task.max_length=16", "task.overlap=4", "train.steps=2"], "quiet": True}
    finetune("classify", examples, tiny_folder, folder / "run", **how)
    _translator(folder / "mt", tiny_folder)
    return folder


def _translator(out: Path, tiny_folder: Path) -> None:
    """A translator that nobody has taught."""
    from filbert.folder import folder as folders

    tokenizer = Tokenizer.load(tiny_folder)
    shape = {"width": 16, "layers": 1, "heads": 2, "inner": 32, "max_length": 32, "writer_layers": 1}
    model = transformer.Transformer(transformer.Config(vocab_size=tokenizer.vocab_size, **shape), ("writer",)).eval()
    task = {"task": "translate", "max_length": 32, "beam": 1, "max_new": 2, "max_ratio": 0.0}
    folders.save(out, model, tokenizer, files=task_file(task))


def words_of(name: str, data: Path, out: Path) -> list[str]:
    return [word.format(data=data, out=out) for word in COMMANDS[name].words]


def leftovers(folder: Path) -> list[str]:
    """What is there that no run means to leave: parts, and what was moved aside."""
    return [str(path) for path in folder.rglob("*") if re.search(r"\.(part|old|gone)$", path.name)]


def is_one_sentence(ended: Ended) -> bool:
    """Whether what it refused is told in one line that begins as all refusals do, and no traceback came."""
    lines = [line for line in ended.err.splitlines() if line.startswith(("filbert: ", "Error: "))]
    return "Traceback" not in ended.err + ended.out and "Exception ignored" not in ended.err and len(lines) == 1


def is_whole(path: Path) -> bool:
    """Whether every file of it can be read to its end: JSON is JSON, lines are lines, weights are weights."""
    for file in [path] if path.is_file() else [found for found in path.rglob("*") if found.is_file()]:
        raw = file.read_bytes()
        if file.suffix == ".json":
            json.loads(raw)
        elif file.suffix == ".jsonl":
            assert raw.endswith(b"\n"), file
            for line in raw.splitlines():
                json.loads(line)
        elif file.suffix in (".txt", ".csv", ".tsv"):
            assert raw.endswith(b"\n"), file
        elif file.suffix == ".html":
            assert raw.rstrip().endswith(b"</html>"), file
    return True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size"), [(name, 0) for name in COMMANDS] + [(name, 4096) for name in COMMANDS if name in LARGER]
)
def test_a_full_disk(server: Server, data: Path, tmp_path: Path, name: str, size: int) -> None:
    out = tmp_path / COMMANDS[name].target
    ended = server.ran(*words_of(name, data, out), fault="full disk", number=size)
    if size and ended.code == 0:  # all of it was small enough
        assert is_whole(out)
        return
    assert ended.code in (1, 2), ended.err
    assert is_one_sentence(ended), ended.err
    assert "File too large" in ended.err
    assert not leftovers(tmp_path)
    assert not out.is_file() or is_whole(out)


@pytest.mark.slow
@pytest.mark.parametrize("name", MAIN)
@pytest.mark.parametrize("how", ["read only", "below a file"])
def test_a_place_where_nothing_may_be_written(server: Server, data: Path, tmp_path: Path, name: str, how: str) -> None:
    place = tmp_path / "place"
    if how == "below a file":
        place.write_text("a file")
    else:
        place.mkdir()
        place.chmod(0o555)
    try:
        ended = server.ran(*words_of(name, data, place / COMMANDS[name].target), fault="no rights")
    finally:
        place.chmod(0o755)
    assert ended.code in (1, 2), ended.err
    assert is_one_sentence(ended), ended.err
    assert str(place) in ended.err
    assert place.is_file() or not list(place.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("fault", ["full output", "closed output", "reader gone"])
def test_an_output_that_takes_nothing(server: Server, data: Path, tmp_path: Path, name: str, fault: str) -> None:
    out = tmp_path / COMMANDS[name].target
    ended = server.ran(*words_of(name, data, out), "--json", fault=fault)
    if fault == "reader gone":
        assert ended.code == 141
        assert "filbert:" not in ended.err
        assert "Traceback" not in ended.err
        assert "Exception ignored" not in ended.err
    else:
        assert ended.code == 1
        assert is_one_sentence(ended), ended.err
        assert "standard output: could not be written" in ended.err
    assert not leftovers(tmp_path)
    assert is_whole(out)


def again(server: Server, words: Sequence[str], command: Writes, out: Path) -> Ended:
    """The next run: the same words, with --resume where the target holds what was finished."""
    ended = server.ran(*words)
    if ended.code and (command.resumes or command.keeps) and "--resume" in ended.err:
        return server.ran(*words, "--resume")
    return ended


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_killed_and_begun_again(server: Server, data: Path, tmp_path: Path, name: str) -> None:
    command, out = COMMANDS[name], tmp_path / COMMANDS[name].target
    if name == "demo":
        pytest.skip("half a minute; its parts are pretrain's and compare's")
    words = words_of(name, data, out)
    killed = server.ran(*words, fault="killed")
    assert killed.code == -9, killed
    assert not out.is_file() or is_whole(out)
    ended = again(server, words, command, out)
    assert ended.code == 0, ended.err
    assert not leftovers(tmp_path)
    assert is_whole(out)
    if name.startswith(("predict", "translate")):  # nothing twice
        assert len(out.read_text().splitlines()) == 30 + name.endswith("csv")


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_second_one_at_the_same_target(server: Server, data: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / COMMANDS[name].target
    second, first = server.two(*words_of(name, data, out), only=name == "demo")
    assert second is not None
    assert second.code in (1, 2), second
    assert is_one_sentence(second), second.err
    assert re.search("another (process|run|.*) is|is there already|holds a run", second.err), second.err
    if name == "demo":  # half a minute to its end: it was interrupted
        assert first.code == 130
        return
    assert first.code == 0, first.err
    assert not leftovers(tmp_path)
    assert is_whole(out)
    if name.startswith(("predict", "translate")):
        assert len(out.read_text().splitlines()) == 30 + name.endswith("csv")


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["torch", "onnx"])
def test_I9_a_file_that_may_not_be_read(server: Server, data: Path, tmp_path: Path, runtime: str) -> None:
    """Each file of a model folder, the folder itself, and the texts: one sentence that names it."""
    folder = tmp_path / "model"
    made = server.ran("export", data / "run", "--out", folder)
    assert made.code == 0, made.err
    (tmp_path / "t.txt").write_text("a ship\n")
    words = ("predict", folder, "--data", tmp_path / "t.txt", "--runtime", runtime)
    whole = server.ran(*words, fault="no rights")
    assert whole.code == 0, whole.err
    refused = set()
    weights = {"torch": {"config.json", "model.safetensors"}, "onnx": {"runtime.json", "model.onnx"}}[runtime]
    read = weights | {"tokenizer.json", "task.json", "manifest.json"}
    others = {"vocab.txt", "golden.jsonl"} if runtime == "torch" else set()
    for path in (*(folder / name for name in sorted(read | others)), folder, tmp_path / "t.txt"):
        mode = path.stat().st_mode
        path.chmod(0)
        try:
            ended = server.ran(*words, fault="no rights")
        finally:
            path.chmod(mode)
        if ended.code == 0:  # a file that is not read: nothing is missing
            assert ended.out == whole.out
            continue
        assert ended.code in (1, 2), (path, ended)
        assert is_one_sentence(ended), ended.err
        assert str(path) in ended.err
        refused.add(path.name)
    assert refused == read | {"model", "t.txt"}


def test_every_command_that_writes_is_here() -> None:
    """A command with --out or --fix that this sweep does not know fails here."""
    import click

    from filbert.cli.main import filbert

    known = {command.words[0] for command in COMMANDS.values()} | {"summarize", "chat"}  # made as translate is
    context = click.Context(filbert)
    for name in filbert.list_commands(context):
        found = filbert.get_command(context, name)
        assert found is not None
        options = {word for parameter in found.params for word in parameter.opts}
        assert (name in known) == bool(options & {"--out", "--fix"}), name
    assert os.path.exists("/dev/full")
