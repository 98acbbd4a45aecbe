"""ELECTRA's folders (Clark et al. 2020): model_type electra. A BERT with narrower tables, whose pooler ends in GELU.

Discriminators are read without the head that tells replaced tokens from others, which no task here asks; generators
with theirs for masked words.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from filbert.folder.layouts import bert
from filbert.folder.layouts.layout import Evidence, Names, both, classes, of_tasks, task_heads

if TYPE_CHECKING:
    from filbert.models.bert import Config


def encoder(config: Config) -> Names:
    """Of an `ElectraModel`."""
    yield from bert.encoder(config)
    if config.embedding_width != config.width:
        yield from both("embeddings.project", "embeddings_project")


def heads(parts: tuple[str, ...]) -> Names:
    """Of the classes with heads; there is none for pairs of sentences (nsp)."""
    if "pooler" in parts:
        yield from both("pooler", "classifier.dense" if "choice" not in parts else "sequence_summary.summary")
    if "mlm" in parts:
        yield from both("mlm.dense", "generator_predictions.dense")
        yield from both("mlm.norm", "generator_predictions.LayerNorm")
    if "nsp" in parts:
        yield from both("nsp", "filbert.nsp")
    yield from _task_heads(parts)
    if "mlm" in parts:
        yield "mlm.bias", ("generator_lm_head.bias",)


def _task_heads(parts: tuple[str, ...]) -> Names:
    """A classifier of texts has its last layer under a name of its own."""
    for ours, theirs in task_heads(parts):
        if ours.startswith("heads.labels."):
            theirs = tuple(name.replace("classifier.", "classifier.out_proj.") for name in theirs)
        yield ours, theirs


def evidence() -> Evidence:
    """How the names of its heads' tensors begin."""
    return {
        **of_tasks(), "pooler": ("classifier.dense.", "sequence_summary."), "mlm": "generator_", "nsp": "filbert.nsp.",
    }  # fmt: skip


LAYOUT = replace(
    bert.LAYOUT,
    kind="electra",
    classes={**classes("Electra"), "ElectraForPreTraining": ()},
    prefix="electra.",
    shape={"positions": "learned", "norm": "post", "pooler": "gelu", "task_types": 0, "feedforward": "gelu"},
    usual={**bert.LAYOUT.usual, "width": 256, "heads": 4, "inner": 1_024, "embedding": 128},
    numbers={**bert.LAYOUT.numbers, "embedding_size": "embedding"},
    activation="",
    fixed={
        **bert.LAYOUT.fixed, "hidden_act": "gelu", "summary_type": "first", "summary_use_proj": True,
        "summary_activation": "gelu",
    },
    encoder=encoder,
    heads=heads,
    beside=("generator_", "discriminator_", "sequence_summary.", "classifier.", "qa_outputs.", "filbert."),
    evidence=evidence,
    classifiers=("classifier.out_proj.", "classifier.weight", "classifier.bias"),
    tied={"generator_lm_head.weight": "embeddings.word_embeddings.weight"},
    left={"discriminator_predictions.": "the head that tells replaced tokens from others, which no task here asks"},
    renamed={},
)  # fmt: skip
