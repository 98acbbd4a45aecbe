"""filbert: from raw text and a few labels to a fast, explained, served BERT of your own.

    import filbert as fb
    model = fb.load("path/to/folder")     # a model folder of ours, or a transformers BERT folder
    model.embed(["今天天气很好"])           # array [texts, width]
    model.fill("今天[MASK]气很好")          # ranked candidates
    run = fb.finetune("classify", train="train.csv", dev="10%", model=model, out="runs/news")
    run.model.predict(["…"])               # labels, scores, spans, coverage

Nothing heavy is imported before it is used: `import filbert` takes milliseconds.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from filbert.core import processor
from filbert.core.pause import collector_paused
from filbert.core.version import VERSION

__version__ = VERSION
processor.heed()  # before torch asks

if TYPE_CHECKING:
    from filbert.core.errors import FilbertError as FilbertError
    from filbert.core.errors import InputError as InputError
    from filbert.core.records import Example as Example
    from filbert.engine.model import Model as Model
    from filbert.engine.model import load as load
    from filbert.run.compare import Contest as Contest
    from filbert.run.compare import compare as compare
    from filbert.run.distill import Wish as Wish
    from filbert.run.distill import distill as distill
    from filbert.run.evaluate import evaluate as evaluate
    from filbert.run.finetune import finetune as finetune
    from filbert.run.pretrain import pretrain as pretrain
    from filbert.ship.export import export as export
    from filbert.text.tokenizer import Tokenizer as Tokenizer

_HOMES = {
    "Contest": "filbert.run.compare",
    "Example": "filbert.core.records",
    "FilbertError": "filbert.core.errors",
    "InputError": "filbert.core.errors",
    "Model": "filbert.engine.model",
    "Tokenizer": "filbert.text.tokenizer",
    "Wish": "filbert.run.distill",
    "compare": "filbert.run.compare",
    "distill": "filbert.run.distill",
    "evaluate": "filbert.run.evaluate",
    "export": "filbert.ship.export",
    "finetune": "filbert.run.finetune",
    "load": "filbert.engine.model",
    "pretrain": "filbert.run.pretrain",
}
__all__ = [
    "Contest", "Example", "FilbertError", "InputError", "Model", "Tokenizer", "Wish", "compare", "distill", "evaluate",
    "export", "finetune", "load", "pretrain",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Public names are fetched from their rooms on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'filbert' has no attribute {name!r}; it has: {', '.join(__all__)}")
    with collector_paused():
        return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
