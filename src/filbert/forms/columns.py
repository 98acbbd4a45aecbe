"""A task's roles, the columns of a file and what users say of them in; which column is which, or a refusal, out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from filbert.core.errors import InputError, one_of
from filbert.forms.formats import Shape
from filbert.forms.headers import LABEL_NAMES, PAIR_NAMES
from filbert.forms.spec import FileSpec, Roles

SCORE_NAMES = (*LABEL_NAMES, "similarity", "score")  # of pairs that are more or less alike
# Names of columns ("relation" is one) that are taken where several could be meant: the plainest.
_PLAINEST_NAMES = ("text", "sentence", "label", "relation", "entities", "context", "question", "answers")


def named_roles(spec: FileSpec, columns: Mapping[str, str | int] | None) -> dict[str, str]:
    """What the user says, by the task's own roles: sentence1=a is first=a for two texts; an unknown role is refused."""
    roles: dict[str, str] = {}
    for word, column in (columns or {}).items():
        role = role_of(spec, word)
        if not role:
            raise one_of(f"a role in columns for {spec.task}", word, spec.roles)
        if role in roles:
            raise InputError(f"columns name the {role} of {spec.task} twice: {roles[role]} and {column}; name it once.")
        roles[role] = str(column)
    return roles


def role_of(spec: FileSpec, word: str) -> str:
    """The role that a user's word for a column means: the role itself, or what the field calls it; else nothing."""
    if word in spec.roles:
        return word
    low = word.lower()
    return spec.aliases.get(low) or next((role for role, names in spec.names.items() if low in names), "")


def column_roles(source: str, spec: FileSpec, form: Shape, named: Roles) -> dict[str, str]:
    """Role -> column name; refuses what is missing or could be two things, and says how to name it."""
    if named:
        roles = {role: _column(source, form, column) for role, column in named.items()}
    elif form.has_header:
        roles = _roles_by_name(source, spec, form.columns)
    else:
        roles = _roles_by_place(source, spec, form)
    if spec.complete is not None:
        roles = dict(spec.complete(roles, form))
    waived = {other for role in roles for other in spec.stand_ins.get(role, ())}
    missing = [role for role in spec.needed if role not in roles and role not in waived]
    if missing:
        raise InputError(
            f"{source}: no column for the {missing[0]} of {spec.task} among {', '.join(form.columns)}; "
            f"name it: --columns {','.join(f'{role}=…' for role in spec.shown or spec.roles)}."
        )
    return roles


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


def _roles_by_name(source: str, spec: FileSpec, columns: tuple[str, ...]) -> dict[str, str]:
    by_low = {name.strip().lower(): name for name in reversed(columns)}
    together = spec.find(source, by_low) if spec.find is not None else None
    if together is not None:
        return together
    roles: dict[str, str] = {}
    for role in spec.names:
        roles |= usual_column(source, spec, by_low, role)
    return roles


def usual_column(source: str, spec: FileSpec, by_low: Mapping[str, str], role: str) -> dict[str, str]:
    """The column with one of the usual names, else with one of those that mean this only where there is no other."""
    names, second = spec.names.get(role, ()), spec.second_names.get(role, ())
    return one_column(source, by_low, role, names) or one_column(source, by_low, role, second)


def one_column(source: str, by_low: Mapping[str, str], role: str, names: Iterable[str]) -> dict[str, str]:
    """{role: column} for the one column with such a name, the plainest name first; two of a kind are refused."""
    present = list(dict.fromkeys(name for name in names if name in by_low))
    plainest = [name for name in present if name in _PLAINEST_NAMES]
    if len(present) > 1 and not plainest:
        listed = " or ".join(by_low[name] for name in present)
        raise InputError(f"{source}: which column is the {role}, {listed}? Name it: --columns {role}=….")
    chosen = (plainest or present)[:1]
    return {role: by_low[chosen[0]]} if chosen else {}


def pair_among(names: Iterable[str]) -> tuple[str, str] | None:
    """The names, in small letters, that two texts which belong together have among these; None: there are no two."""
    held = set(names)
    return next((pair for pair in PAIR_NAMES if held.issuperset(pair)), None)


def pair_aliases(first: str, second: str) -> dict[str, str]:
    """What the field calls two texts that belong together and how alike they are, and which role each is."""
    aliases = dict.fromkeys(SCORE_NAMES, "label")
    for one, two in reversed(PAIR_NAMES):
        aliases |= {one: first, two: second}
    return aliases


def _roles_by_place(source: str, spec: FileSpec, form: Shape) -> dict[str, str]:
    if spec.no_places:
        raise InputError(f"{source}: is {form.description}; {spec.no_places}")
    roles = spec.places.get(len(form.columns))
    if roles is None:
        shown = (
            ", ".join(f"{place}: {cell[:20]!r}" for place, cell in enumerate(form.sample[0], 1)) if form.sample else ""
        )
        raise InputError(
            f"{source}: has {len(form.columns)} columns and no header ({shown}); for {spec.task} say which is which: "
            f"--columns {','.join(f'{role}=NUMBER' for role in spec.shown or spec.roles)}."
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


def late_role(spec: FileSpec, roles: Roles, name: str) -> str:
    """The role that a column of this name would have had, where the file has no other for it; else nothing."""
    role = spec.late_role(spec, roles, name.strip().lower())
    return role if role not in roles else ""
