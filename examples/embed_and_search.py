"""A model folder and a question in, its nearest neighbours among the built-in sentences out.

python examples/embed_and_search.py filbert-demo "火车什么时候开？"
"""

from __future__ import annotations

import sys

import numpy as np

import filbert as fb
from filbert.builtin.texts import sample


def main(folder: str, question: str = "火车什么时候开？", top: int = 5) -> None:
    """Prints the sentences whose vectors have the largest cosine with the question's."""
    found = [(sentence, document.topic) for document in sample() for sentence in document.sentences]
    model = fb.load(folder)
    vectors = model.embed([sentence for sentence, _ in found], normalize=True)
    cosines = vectors @ model.embed([question], normalize=True)[0]
    for place in np.argsort(-cosines)[:top]:
        sentence, topic = found[place]
        print(f"{cosines[place]:.3f}  {topic:<10}  {sentence}")


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except fb.FilbertError as error:
        sys.exit(str(error))
