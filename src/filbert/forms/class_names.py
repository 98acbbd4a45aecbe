"""A file and one of its columns come in; the names of the numbers in that column go out, where the file keeps them.

Hugging Face's Parquet files keep them in their schema, others in a dataset_info.json beside them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from filbert.core.errors import InputError, needed
from filbert.core.files import json_object
from filbert.text import tables

INFO = "dataset_info.json"


def number_names(source: str, column: str) -> tuple[str, ...]:
    """What the numbers in a column of tags or labels are called; none where nothing says so."""
    if not column or not os.path.exists(source):  # rows that come from no file
        return ()
    features = _parquet_features(source) if tables.kind(source) == "parquet" else _beside(source)
    return _names(features.get(column))


def _beside(source: str) -> Mapping[str, Any]:
    path = os.path.join(os.path.dirname(source), INFO)
    try:
        features = json_object(path).get("features") if os.path.isfile(path) else None
    except InputError:  # not ours: it lies there for another reason
        return {}
    return features if isinstance(features, Mapping) else {}


def _parquet_features(source: str) -> Mapping[str, Any]:
    """What the library `datasets` writes into the schema."""
    metadata = (needed("pyarrow.parquet", "data").read_schema(source).metadata or {}).get(b"huggingface")
    try:
        features = json.loads(metadata or b"{}").get("info", {}).get("features", {})
    except (ValueError, AttributeError):
        return {}
    return features if isinstance(features, Mapping) else {}


def _names(feature: object) -> tuple[str, ...]:
    """The names of a ClassLabel, itself or within a list of such."""
    while isinstance(feature, (Mapping, list)):
        if isinstance(feature, list):
            feature = feature[0] if feature else None
        elif isinstance(feature.get("names"), list):
            return tuple(map(str, feature["names"]))
        elif isinstance(feature.get("names"), Mapping):  # as a dataset card writes them: {"0": "O", "1": "B-PER"}
            return tuple(str(name) for _, name in sorted(feature["names"].items(), key=lambda item: int(item[0])))
        else:
            feature = feature.get("feature", feature.get("sequence", feature.get("class_label")))
    return ()
