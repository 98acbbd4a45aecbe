"""A student, its teacher and the data that the run was measured on in; what both score, and how fast, out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any

from filbert.draw import html as page
from filbert.judge import report as evaluation_report
from filbert.nn.encoder import Encoder
from filbert.tasks.task import AnyItems, AnySpec, Json, Report
from filbert.teach.teacher import TOKENS, TaskTeacher, Teacher
from filbert.train import machine
from filbert.train.scores import asking, scored

SPEED_TEXTS, SPEED_ROUNDS, GENERATED_TEXTS = 64, 3, 4  # read by both models in turn, to tell how fast they are


def compared(
    teacher: Teacher,
    student: Encoder,
    measured: Mapping[str, evaluation_report.Measured],
    report: Report,
    config: machine.Config,
) -> list[str]:
    """Adds to a report what the teacher says of the same data; the sections of a page that show it."""
    if not isinstance(teacher, TaskTeacher):
        return []
    comparison: dict[str, Any] = {"teacher": teacher.folder, "evaluations": {}}
    for name, each in measured.items():
        items = teacher.reader.items(each.examples)
        raw = scored(deepcopy(teacher.model), items, TOKENS, asking(config))
        comparison["evaluations"][name] = row = _beside(teacher.reader.spec, each, items, raw)
        report["evaluations"][name]["sentences"].insert(0, row["sentence"])
    first = next(iter(measured.values()))
    some = list(first.examples)[: GENERATED_TEXTS if teacher.writes else SPEED_TEXTS]
    task = first.task
    comparison |= speeds(
        Timed(student, lambda: teacher.reader.spec.items(some, task.labels, task.tokenizer, task.config)),
        Timed(teacher.model, lambda: teacher.reader.items(some)),
    )
    rows = comparison["evaluations"].values()
    comparison["sentences"] = [_size_sentence(comparison), *(row["sentence"] for row in rows)]
    report["distilled"] = comparison
    head = ("data", "measure", "student", "teacher", "kept", "difference (95 %)", "p")
    table = page.table(head, _rows(comparison), (2, 3))
    return [page.section("Beside its teacher", _lines(comparison["sentences"]) + table)]


@dataclass(frozen=True)
class Timed:
    """A model, and what makes the texts that it reads into its task, tokens and all."""

    model: Encoder
    items: Callable[[], AnyItems]


def _beside(
    spec: AnySpec, measured: evaluation_report.Measured, items: AnyItems, raw: Sequence[object]
) -> dict[str, Any]:
    """What both score on the same examples, and how certain the difference is."""
    tables = [measured.task.evaluated(measured.raw), items.evaluated(raw)]
    student, teacher = (
        spec.view(each, scores, table)
        for each, scores, table in ((measured.task, measured.raw, tables[0]), (items, raw, tables[1]))
    )
    apart = student.beside(teacher)
    measure = apart.measure if apart is not None else next(iter(tables[0]["intervals"]))
    student_score, teacher_score = (float(table[measure]) for table in tables)
    kept = student_score / teacher_score if teacher_score > 0 else float(student_score >= teacher_score)
    sentence = f"{measure} {student_score:.4f}, {kept:.1%} of its teacher's {teacher_score:.4f}"
    if apart is not None:
        edges = f"{apart.value * 100:+.1f} points, 95 %: {apart.low * 100:+.1f} to {apart.high * 100:+.1f}"
        verdict = apart.sentence("its teacher")
        sentence += f"; {verdict}" if apart.is_certain else f"; these data do not tell the two apart ({edges})"
    difference = {"difference": asdict(apart)} if apart is not None else {}
    scores = {"student": student_score, "teacher": teacher_score}
    return {"measure": measure, **scores, "kept": kept, **difference, "sentence": sentence}


def speeds(student: Timed, teacher: Timed) -> dict[str, Any]:
    """Sizes, and seconds of CPU that both take for the same texts, in turn."""
    models = [(deepcopy(each.model).cpu().float().eval(), each.items) for each in (student, teacher)]
    sizes = [sum(weight.numel() for weight in model.parameters()) for model, _ in models]
    took: list[list[float]] = [[], []]
    for turn in range(SPEED_ROUNDS + 1):
        for side, (model, items) in enumerate(models):
            before = time.process_time()
            scored(model, items(), TOKENS, machine.Config(device="cpu"))
            if turn:  # the first round warms up
                took[side].append(time.process_time() - before)
    ratios = sorted(teacher_s / max(student_s, 1e-9) for student_s, teacher_s in zip(*took, strict=True))
    middle = ratios[len(ratios) // 2]
    return {"parameters": sizes, "cpu_seconds": [min(each) for each in took], "speed": middle, "speeds": ratios}


def _size_sentence(comparison: Json) -> str:
    student, teacher = comparison["parameters"]
    speed = f"{comparison['speed']:.1f} times its teacher's speed on this CPU"
    return f"{student:,} weights, its teacher has {teacher:,}; {speed}"


def _rows(comparison: Json) -> list[list[str]]:
    rows = []
    for name, row in comparison["evaluations"].items():
        apart = row.get("difference")
        edges = f"{apart['value']:+.4f} ({apart['low']:+.4f} to {apart['high']:+.4f})" if apart else "–"
        rows.append([
            name, row["measure"], f"{row['student']:.4f}", f"{row['teacher']:.4f}", f"{row['kept']:.1%}", edges,
            f"{apart['p']:.2g}" if apart else "–",
        ])  # fmt: skip
    return rows


def _lines(sentences: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{page.text(sentence)}</li>" for sentence in sentences) + "</ul>"
