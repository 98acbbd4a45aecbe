"""An exported folder with eight bits, and dev data if there are any, in; what eight bits cost, measured, out. No torch.

Legend: N texts, D width.

The cost is what the folder promises: it stands in the card and, for machines, in the manifest under `stated.int8`;
`ship.verify` holds the folder to it. With dev data it is a score in float32 and in int8 with an interval of the
difference, and the decisions that changed; for vectors, cosines and nearest neighbours. Without them only the golden
cases can be compared, which have no right answers: that is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from filbert.core.errors import InputError
from filbert.core.files import sha256
from filbert.core.records import Floats, Prediction
from filbert.engine.model import Model, load
from filbert.folder import card
from filbert.forms import sources
from filbert.forms.sources import AS_EACH_SAYS, ReadOptions
from filbert.ship import verify
from filbert.text.corpus import documents
from filbert.text.streams import Reading

INT8 = "int8"  # the name of the promise
MOST_TEXTS = 5_000  # whose nearest neighbours are looked for
THREE = 3  # what never happened among n happens with 95 % certainty less often than 3/n (Hanley 1983)

Cost = dict[str, Any]


def write(folder: Path, dev: sources.Source | None = None, options: ReadOptions = AS_EACH_SAYS) -> Cost:
    """Measures what eight bits cost a folder that has them, and writes it into its card and manifest."""
    cost = measured(folder, dev, options)
    card.renew(folder, {card.EIGHT: "\n\n".join(sentences(cost))}, **{INT8: cost})
    return cost


def measured(folder: Path, dev: sources.Source | None = None, options: ReadOptions = AS_EACH_SAYS) -> Cost:
    """The cost on dev data, where they are given, and on the golden cases."""
    exact, small = load(folder, runtime="onnx"), load(folder, dtype=INT8)
    cases = list(verify.read(folder))
    again = verify.replayed(INT8, small, cases)
    golden = {"of": len(cases), "changed": len(again.changed), "difference": round(again.difference, 6)}
    cost: Cost = {"golden": golden}
    if dev is not None:
        return {"data": _named_files(dev), **_on(exact, small, dev, options), **cost}
    texts = [case["text"] for case in cases if "text" in case]
    return {**(_vectors(exact, small, texts) if texts else {}), **cost}


def _named_files(source: sources.Source) -> list[dict[str, str]]:
    """The files' names and hashes; data from Python have neither."""
    files = sources.files(source)
    return [{"name": path.name, "sha256": sha256(path)} for path in files if path.is_file()]


def _on(exact: Model, small: Model, dev: sources.Source, options: ReadOptions) -> Cost:
    task = verify.task_of(exact)
    if task is None:
        if not isinstance(dev, str | Path):
            raise InputError("this model has no task: give its dev data as a file of texts, one in each line.")
        texts = [each.text for each in documents([str(dev)], unit="line", encoding=options.encoding or "utf-8")]
        return _vectors(exact, small, texts)
    reading = Reading()
    examples = sources.read(task, dev, replace(options, trained_on=exact.trained_on), reading)
    sources.tell(dev, reading)
    reader = exact.reader()
    items = reader.items(examples)
    if not len(items) or items.has_unknown:
        raise InputError(f"{sources.called(dev, 'the dev data')}: has no labels, so it cannot say what int8 costs.")
    raws = [model.engine.answers(items) for model in (exact, small)]
    tables = [items.evaluated(raw) for raw in raws]
    one, two = (reader.spec.view(items, raw, table) for raw, table in zip(raws, tables, strict=True))
    apart = one.beside(two)
    measure = apart.measure if apart is not None else next(iter(tables[0]["intervals"]))
    scores = [float(table[measure]) for table in tables]
    drop = scores[0] - scores[1]
    most = max(drop, apart.high if apart is not None else 0.0, THREE / len(examples))
    cost: Cost = {"rows": len(examples), "measure": measure, "float32": scores[0], INT8: scores[1], "drop": drop,
                   "most": most}  # fmt: skip
    if not reader.spec.part:
        return cost | _vectors(exact, small, list(dict.fromkeys(text for one in examples for text in one.texts)))
    predictions = [items.predictions(raw) for raw in raws]
    changed = sum(decision(a) != decision(b) for a, b in zip(*predictions, strict=True))
    return cost | {"changed": changed, "of": len(examples)}


def decision(prediction: Prediction) -> tuple[Any, ...]:
    """A prediction without its scores: label, labels, text, and spans where there is no label."""
    spans: tuple[tuple[int, int, str], ...] = ()
    if prediction.label is None:
        spans = tuple((span.start, span.end, span.label) for span in prediction.spans)
    return prediction.label, prediction.labels, prediction.text, spans


def _vectors(exact: Model, small: Model, texts: Sequence[str]) -> Cost:
    """How alike the vectors are, and how many texts have another neighbour."""
    some = list(texts)[:MOST_TEXTS]
    one_ND, two_ND = (model.embed(some, normalize=True) for model in (exact, small))
    if len(some) < 2:
        raise InputError("two texts or more are needed to say what int8 costs; give more dev data.")
    alike = (one_ND * two_ND).sum(axis=1)
    changed = int((_nearest(one_ND) != _nearest(two_ND)).sum())
    return {
        "cosine": {"median": float(np.median(alike)), "least": float(alike.min())},
        "neighbours": {"changed": changed, "of": len(some)},
    }


def _nearest(vectors_ND: Floats) -> Any:
    near = vectors_ND @ vectors_ND.T
    np.fill_diagonal(near, -2)
    return near.argmax(axis=1)


# In words, and as a promise -------------------------------------------------------------------------------------------


def sentences(cost: Cost) -> list[str]:
    """The cost as sentences of a card."""
    lines = []
    names = card.listed([each["name"] for each in cost.get("data", ())]) or "dev data given in Python"
    if "measure" in cost:
        points, most = cost["drop"] * 100, cost["most"] * 100
        lines.append(
            f"On {names} ({cost['rows']:,} rows) {cost['measure']} is {cost['float32']:.4f} in float32 and "
            f"{cost[INT8]:.4f} in int8: {abs(points):.2f} points {'less' if points >= 0 else 'more'}, and with 95 % "
            f"certainty at most {most:.2f} points less."
        )
    if "of" in cost:
        lines.append(f"{cost['changed']:,} of {cost['of']:,} decisions changed.")
    if "cosine" in cost:
        cosine, near = cost["cosine"], cost["neighbours"]
        where = names if "data" in cost else "the golden cases"
        lines.append(
            f"On {where} the vectors have a cosine of {cosine['median']:.4f} (median; least {cosine['least']:.4f}) "
            f"with those in float32, and {near['changed']:,} of {near['of']:,} texts have another nearest neighbour."
        )
    golden = cost["golden"]
    if "data" not in cost:
        lines.append("It was not measured on dev data (`filbert export --int8 --dev FILE` does): no score is known.")
    lines.append(
        f"Of the {golden['of']:,} golden cases {golden['changed']:,} changed; no number of them by more than "
        f"{golden['difference']:.4f}. `filbert verify` holds int8 to this."
    )
    return lines


def kept(stated: Cost, now: Cost) -> list[str]:
    """The stated costs that the measurement `now`, on the user's own data, exceeds, as sentences."""
    if "measure" in stated and "measure" in now:
        most = stated["most"] + THREE / now["rows"]
        if now["drop"] > most:
            return [f"int8 loses {now['drop'] * 100:.2f} points of {now['measure']} on these data, "
                    f"but its card states at most {stated['most'] * 100:.2f}"]  # fmt: skip
    if "cosine" in stated and "cosine" in now and now["cosine"]["median"] < stated["cosine"]["median"] - 0.005:
        cosines = f"{now['cosine']['median']:.4f} on these data, but its card states {stated['cosine']['median']:.4f}"
        return [f"int8's vectors have a median cosine of {cosines}"]
    return []
