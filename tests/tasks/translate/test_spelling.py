"""Words that come back from a source are spelt as it spells them, and no others."""

from __future__ import annotations

import pytest

from filbert.core import registry
from filbert.core.records import Example
from filbert.tasks.translate.spelling import spellings, spelt
from filbert.text.joining import joined
from filbert.text.tokenizer import Tokenizer

PIECES = (
    "gp",
    "##rs",
    "dna",
    "cafe",
    "the",
    "river",
    "apple",
    "rod",
    "##rigues",
    "he",
    "基",
    "于",
    "的",
    "系",
    "统",
    ".",
    ",",
    "##s",
)
TOKENIZER = Tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES])


def written(source: str, said: str) -> str:
    """What `said` looks like beside that source."""
    own, continues = TOKENIZER.pieces([source])[0], TOKENIZER.continues
    known = spellings(source, (own.ids, own.starts, own.ends), continues, TOKENIZER.vocabulary)
    ids = [TOKENIZER.id_of(token) for token in said.split()]
    return joined(spelt(ids, known, continues, TOKENIZER.vocabulary))


@pytest.mark.parametrize(
    ("source", "said", "wanted"),
    [
        ("基于GPRS的系统", "基 于 gp ##rs 的 系 统", "基于GPRS的系统"),
        ("基于gprs的系统", "gp ##rs 系 统", "gprs系统"),
        ("GPRS的系统", "gp 的", "gp的"),  # another word of the same first piece
        ("DNA的dna，DNA", "dna", "DNA"),  # as it mostly is
        ("Café的系统", "cafe 的", "Café的"),
        ("The river. The apple, the river.", "river the apple", "river the apple"),  # a sentence's first letter
        ("He the Apple.", "he apple", "he Apple"),
        ("Rodrigues的系统", "的 rod ##rigues", "的Rodrigues"),  # of a Chinese sentence: it is the word's own
        ("the Rodrigues, the river", "rod ##rigues", "Rodrigues"),
        ("", "gp ##rs", "gprs"),
        ("GPRS", "##rs gp", "rs gp"),
    ],
)
def test_a_word_is_spelt_as_its_source_has_it(source: str, said: str, wanted: str) -> None:
    assert written(source, said) == wanted


def test_summaries_are_spelt_so_and_translations_are_not() -> None:
    ids = tuple(TOKENIZER.id_of(token) for token in ("基", "于", "gp", "##rs"))
    for name, wanted in (("summarize", "基于GPRS"), ("translate", "基于gprs")):
        spec = registry.task(name)
        task = spec.items([Example(("的GPRS系统",), None, 0)], (), TOKENIZER, spec.config(max_length=32))
        (said,) = task.predictions([[(ids, -0.1, True)]])
        assert said.text == wanted
