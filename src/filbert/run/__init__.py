"""The hall: a recipe and data in, a run folder with its model, recipe, log, checkpoints and report out."""

from filbert.run.distill import Wish, distill, distill_general
from filbert.run.evaluate import evaluate
from filbert.run.finetune import FineRecipe, Finetuned, finetune
from filbert.run.folders import CHECKPOINTS, LOG, MODEL, RECIPE, SHARDS, VOCAB, Finished, is_first
from filbert.run.pretrain import (
    Corpus,
    Recipe,
    check_length,
    check_unbegun,
    measure,
    prepared,
    pretrain,
    recipe_of,
    vocabulary,
)

__all__ = [
    "CHECKPOINTS", "LOG", "MODEL", "RECIPE", "SHARDS", "VOCAB", "Corpus", "FineRecipe", "Finetuned", "Finished",
    "Recipe", "Wish", "check_length", "check_unbegun", "distill", "distill_general", "evaluate", "finetune", "is_first",
    "measure", "prepared", "pretrain", "recipe_of", "vocabulary",
]  # fmt: skip
