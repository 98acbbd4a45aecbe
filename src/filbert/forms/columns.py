"""A task, the columns of a file and what users say of them come in; which column is which goes out, or a refusal."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from filbert.core.errors import InputError, one_of
from filbert.forms import parallel
from filbert.forms.formats import Shape
from filbert.forms.headers import LABEL_NAMES, PAIR_NAMES, TEXT_NAMES

ROLES = {
    "classify": ("text", "label"),
    "pair": ("first", "second", "label"),
    "embed": ("text", "second", "negative", "label"),
    "tag": ("text", "entities", "tokens", "tags"),
    "relation": ("head", "tail", "label", "text"),
    "answer": ("question", "context", "answers", "answer_start"),
    "choose": ("context", "question", "options", "label"),
    "translate": ("source", "target"),
}
OPTIONAL = frozenset({"label", "entities", "answers", "answer_start", "second", "negative", "target", "tokens", "tags"})
REQUIRED = {"choose": ("context",)}  # options may stand in columns of their own, and a context need not be asked about
SCORE_NAMES = (*LABEL_NAMES, "similarity", "score")  # of pairs that are more or less alike
TOKEN_NAMES, TAG_NAMES = ("tokens", "words"), ("ner_tags", "ner", "tags", "labels", "label", "pos_tags", "upos")

_ROLE_NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "classify": {"text": TEXT_NAMES, "label": LABEL_NAMES},
    "pair": {"label": LABEL_NAMES},
    "embed": {"text": TEXT_NAMES},
    "tag": {"text": TEXT_NAMES, "entities": ("entities", "spans", "label", "labels")},
    "relation": {
        "head": ("head", "subject", "e1", "h"),
        "tail": ("tail", "object", "e2", "t"),
        "label": ("relation", *LABEL_NAMES),
        "text": TEXT_NAMES,
    },
    "answer": {
        "question": ("question", "query"),
        "context": ("context", "passage", "paragraph", "text"),
        "answers": ("answers", "answer"),
        "answer_start": ("answer_start",),
    },
    "choose": {
        "context": ("context", "passage", "article", "text", "sent1"),
        "question": ("question", "query", "sent2"),
        "options": ("options", "choices", "choice", "endings"),
        "label": ("label", "answer"),
    },
    "translate": {"source": parallel.SOURCE_NAMES, "target": parallel.TARGET_NAMES},
}
_SECOND_CHOICE: dict[str, dict[str, tuple[str, ...]]] = {
    "embed": {"text": ("data",)},
    "tag": {"text": ("data",)},
    "relation": {"text": ("data",)},
    "classify": {"text": ("data",), "label": ("score",)},
    "pair": {"label": ("score", "similarity")},
}
_PLAIN_NAMES = ("text", "sentence", "label", "relation", "entities", "context", "question", "answers")


def named_roles(task: str, columns: Mapping[str, str | int] | None) -> dict[str, str]:
    """What the user says, by the task's own roles: sentence1=a is first=a for pair; an unknown role is refused."""
    found: dict[str, str] = {}
    for given, column in (columns or {}).items():
        role = given if given in ROLES[task] else _other_names(task).get(given.lower(), "")
        if not role:
            raise one_of(f"a role in columns for {task}", given, ROLES[task])
        if role in found:
            raise InputError(f"columns name the {role} of {task} twice: {found[role]} and {column}; name it once.")
        found[role] = str(column)
    return found


def _other_names(task: str) -> dict[str, str]:
    """What the field calls the roles of the task, and which each is."""
    found = {name: role for role, names in _ROLE_NAMES[task].items() for name in reversed(names)}
    if task in ("pair", "embed"):
        first = "first" if task == "pair" else "text"
        found |= dict.fromkeys(SCORE_NAMES, "label")
        for one, two in reversed(PAIR_NAMES):
            found |= {one: first, two: "second"}
    elif task == "classify":
        found |= {"score": "label"}
    elif task == "tag":
        found |= dict.fromkeys(TOKEN_NAMES, "tokens") | {"ner_tags": "tags", "pos_tags": "tags"}
    return found


def column_roles(source: str, task: str, form: Shape, wanted: Mapping[str, str]) -> dict[str, str]:
    """Role -> column name; refuses what is missing or could be two things, and says how to name it."""
    if wanted:
        found = {role: _column(source, form, column) for role, column in wanted.items()}
    elif form.has_header:
        found = _roles_by_name(source, task, form.columns)
    else:
        found = _roles_by_place(source, task, form)
    required: tuple[str, ...] = REQUIRED.get(task) or tuple(role for role in ROLES[task] if role not in OPTIONAL)
    if "tokens" in found:
        required = ("tokens",)
    elif task == "relation" and "relations" in form.columns and "text" in found:
        found |= {"head": "head", "tail": "tail", "label": "relation"}  # of rows made of it: forms.exports.related_rows
    missing = [role for role in required if role not in found]
    if missing:
        raise InputError(
            f"{source}: no column for the {missing[0]} of {task} among {', '.join(form.columns)}; "
            f"name it: --columns {','.join(f'{role}=…' for role in _shown(task))}."
        )
    return found


def _shown(task: str) -> tuple[str, ...]:
    """The roles that an error names as an example."""
    return tuple(role for role in ROLES[task] if role not in ("tokens", "tags", "answer_start"))


def _column(source: str, form: Shape, column: str) -> str:
    """The column of that name or, in a table, of that number; the path of a nested field where objects are."""
    if column in form.columns or (column.partition(".")[0] in form.nested and "." in column):
        return column
    if form.kind == "table" and column.isdigit() and 0 < int(column) <= len(form.columns):
        return form.columns[int(column) - 1]
    near = [name for name in form.columns if len(column) > 1 and (column in name or name in column) and name]
    near = near or difflib.get_close_matches(column, form.columns, 1, 0.6)
    if not near:
        raise one_of(f"{source}: the column", column, form.columns)
    listed = ", ".join(form.columns[:20]) + (f" and {len(form.columns) - 20} more" if len(form.columns) > 20 else "")
    message = f"{source}: the column is {column!r}, but must be one of: {listed}. Did you mean {near[0]!r}?"
    raise InputError(message)


def _roles_by_name(source: str, task: str, columns: tuple[str, ...]) -> dict[str, str]:
    by_low = {name.strip().lower(): name for name in reversed(columns)}
    pair = next((pair for pair in PAIR_NAMES if pair[0] in by_low and pair[1] in by_low), None)
    if pair and task in ("pair", "embed"):
        first, second = by_low[pair[0]], by_low[pair[1]]
        if task == "embed":
            texts = {"text": first, "second": second} | _one(source, by_low, "negative", ("negative",))
            return texts if "negative" in texts else texts | _one(source, by_low, "label", SCORE_NAMES)
        return {"first": first, "second": second} | _named(source, task, by_low, "label", LABEL_NAMES)
    if pair and task == "classify":
        message = f"has two texts, {pair[0]} and {pair[1]}; that is data for pair, or name the one: --columns text=…"
        raise InputError(f"{source}: {message},label=….")
    if task == "tag" and "entities" not in by_low:
        both = _first(by_low, "tokens", TOKEN_NAMES) | _first(by_low, "tags", TAG_NAMES)
        if "tokens" in both and ("tags" in both or "text" not in by_low):
            return both
    if task == "relation" and "relations" in by_low:
        return _named(source, task, by_low, "text", TEXT_NAMES)
    found: dict[str, str] = {}
    for role, names in _ROLE_NAMES[task].items():
        found |= _named(source, task, by_low, role, names)
    return found


def _first(by_low: dict[str, str], role: str, names: tuple[str, ...]) -> dict[str, str]:
    return next(({role: by_low[name]} for name in names if name in by_low), {})


def _named(source: str, task: str, by_low: dict[str, str], role: str, names: tuple[str, ...]) -> dict[str, str]:
    """The column with one of the usual names, else with one of those that mean this only where there is no other."""
    return _one(source, by_low, role, names) or _one(source, by_low, role, _SECOND_CHOICE.get(task, {}).get(role, ()))


def _one(source: str, by_low: dict[str, str], role: str, names: tuple[str, ...]) -> dict[str, str]:
    """{role: column} for the one column with such a name, the plainest name first; two of a kind are refused."""
    present = list(dict.fromkeys(name for name in names if name in by_low))
    plain = [name for name in present if name in _PLAIN_NAMES]
    if len(present) > 1 and not plain:
        listed = " or ".join(by_low[name] for name in present)
        raise InputError(f"{source}: which column is the {role}, {listed}? Name it: --columns {role}=….")
    chosen = (plain or present)[:1]
    return {role: by_low[chosen[0]]} if chosen else {}


_PLACES = {
    ("classify", 1): ("text",),
    ("classify", 2): ("text", "label"),
    ("pair", 2): ("first", "second"),
    ("pair", 3): ("first", "second", "label"),
    ("embed", 1): ("text",),
    ("embed", 2): ("text", "second"),
    ("embed", 3): ("text", "second", "label"),
    ("relation", 3): ("head", "tail", "text"),
    ("relation", 4): ("head", "tail", "label", "text"),
    ("translate", 1): ("source",),
    ("translate", 2): ("source", "target"),
}


def _roles_by_place(source: str, task: str, form: Shape) -> dict[str, str]:
    if task == "tag":
        raise InputError(
            f"{source}: is {form.told}; for tag a file has a word and its tag on each line, with a tab or space "
            "between and a blank line between sentences (CoNLL: B-PER, I-PER, O), or JSON lines of text and entities."
        )
    roles = _PLACES.get((task, len(form.columns)))
    if roles is None:
        shown = (
            ", ".join(f"{place}: {cell[:20]!r}" for place, cell in enumerate(form.sample[0], 1)) if form.sample else ""
        )
        raise InputError(
            f"{source}: has {len(form.columns)} columns and no header ({shown}); for {task} say which is which: "
            f"--columns {','.join(f'{role}=NUMBER' for role in _shown(task))}."
        )
    if roles[-1] == "label":
        _check_label_place(source, form, roles)
    return dict(zip(roles, form.columns, strict=True))


def _check_label_place(source: str, form: Shape, roles: tuple[str, ...]) -> None:
    """Refuses a file without header whose label does not seem to come last: few values elsewhere, many there."""
    rows = [row for row in form.sample if len(row) == len(roles)]
    num_values = [len({row[place] for row in rows}) for place in range(len(roles))]
    fewest = min(num_values)
    if num_values[-1] > fewest and num_values[-1] > len(rows) / 2 and len(rows) > 3:
        likely = num_values.index(fewest) + 1
        raise InputError(
            f"{source}: without a header the label is expected in the last column, but in {len(rows):,} rows that has "
            f"{num_values[-1]:,} different values and column {likely} has {fewest:,}; say which is which: "
            f"--columns {','.join(f'{role}=…' for role in roles)}."
        )


def late_role(task: str, roles: Mapping[str, str], name: str) -> str:
    """The role that a column of this name would have had, where the file has no other for it; else nothing."""
    low = name.strip().lower()
    if task in ("pair", "embed") and low in SCORE_NAMES:
        meant = "label"
    elif task == "embed":
        seconds = {two for one, two in PAIR_NAMES if one == roles["text"].strip().lower()}
        meant = "second" if low in seconds else "negative" if low == "negative" else ""
    else:
        meant = next((role for role, names in _ROLE_NAMES[task].items() if low in names), "")
    return meant if meant and meant not in roles and not ({"tokens", "tags"} & roles.keys()) else ""
