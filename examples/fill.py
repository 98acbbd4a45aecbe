"""A model folder and a text with [MASK] in, the likeliest words for each blank out.

python examples/fill.py filbert-demo "今天天[MASK]很好"
"""

from __future__ import annotations

import sys

import filbert as fb
from filbert.engine.blanks import filled


def main(folder: str, text: str = "今天天[MASK]很好，我们去[MASK]园散步。") -> None:
    """Prints every blank with its candidates, then the text with the best ones put in."""
    blanks = fb.load(folder).fill(text, top=5)
    for blank in blanks:
        words = ", ".join(f"{candidate.text} {candidate.score:.1%}" for candidate in blank.candidates)
        print(f"character {blank.start}: {words}")
    print(filled(text, blanks))


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except fb.FilbertError as error:
        sys.exit(str(error))
