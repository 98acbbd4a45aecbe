"""Search, clusters and near duplicates: exact by definition, in whatever blocks, with ties and without data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import filbert as fb
from filbert.core.errors import InputError
from filbert.engine import neighbours

pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = ["今天天气很好", "the train leaves", "今天天气很好。", "a ship on water", "天气", "the train leaves", "", "🙂"]


def drawn(count: int, width: int = 8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("blocks", [(3, 5), (256, 16_384)])
def test_the_nearest_are_those_of_a_full_sort(monkeypatch: pytest.MonkeyPatch, blocks: tuple[int, int]) -> None:
    monkeypatch.setattr(neighbours, "QUERIES", blocks[0])
    monkeypatch.setattr(neighbours, "VECTORS", blocks[1])
    vectors, queries = drawn(37), drawn(10, seed=1)
    vectors[[5, 20, 30]] = vectors[2]  # ties: in the order in which they were given
    wanted = np.round(unit(queries) @ unit(vectors).T, 6)
    index = neighbours.Index(vectors * 7, [f"k{place}" for place in range(37)])
    for row, hits in zip(wanted, index.search(queries, 6), strict=True):
        order = np.argsort(-row, kind="stable")[:6]
        assert [hit.place for hit in hits] == order.tolist()
        assert [hit.key for hit in hits] == [f"k{place}" for place in order]
        np.testing.assert_allclose([hit.score for hit in hits], row[order], atol=2e-6)
    ties = index.search(vectors[2:3], 5)[0]
    assert [hit.place for hit in ties[:4]] == [2, 5, 20, 30]
    assert [len(hits) for hits in index.search(queries, 100)] == [37] * 10


def test_nothing_to_search_in_and_nothing_to_search_for() -> None:
    assert neighbours.Index([]).search(drawn(2)) == [[], []]
    assert neighbours.Index(drawn(3)).search(np.zeros((0, 8))) == []
    assert neighbours.clusters([], 1).tolist() == []
    assert neighbours.communities([]) == []


def test_wrong_asks_are_named() -> None:
    with pytest.raises(InputError, match="3 vectors but 2 keys"):
        neighbours.Index(drawn(3), ["a", "b"])
    with pytest.raises(InputError, match="4 numbers each, but the vectors have 8"):
        neighbours.Index(drawn(3)).search(drawn(1, 4))
    with pytest.raises(InputError, match="top is 0"):
        neighbours.Index(drawn(3)).search(drawn(1), 0)
    with pytest.raises(InputError, match="must be a table"):
        neighbours.Index([1.0, 2.0])
    with pytest.raises(InputError, match="not finite"):
        neighbours.Index([[1.0, np.nan]])
    for num in (0, 4, 1.5):
        with pytest.raises(InputError, match="from 1 to 3"):
            neighbours.clusters(drawn(3), num)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="from -1 to 1"):
        neighbours.communities(drawn(3), 1.5)


def test_clusters_that_lie_apart_are_found() -> None:
    centres = np.eye(8, dtype=np.float32)[:4] * 10
    which = np.random.default_rng(2).permutation(np.repeat(np.arange(4), 25))
    points = centres[which] + drawn(100, seed=3) * 0.5
    labels = neighbours.clusters(points, 4)
    assert {(int(one), int(two)) for one, two in zip(which, labels, strict=True)} == {
        (int(which[np.flatnonzero(labels == label)[0]]), label) for label in range(4)
    }
    first = [int(np.flatnonzero(labels == label)[0]) for label in range(4)]
    assert first == sorted(first)  # numbered as they come
    assert (neighbours.clusters(points * 3, 4) == labels).all()
    assert (neighbours.clusters(points, 4, seed=9) == labels).all()


def test_clusters_of_few_different_vectors() -> None:
    points = drawn(2)[[0, 1, 0, 0, 1]]
    assert neighbours.clusters(points, 5).tolist() == [0, 1, 0, 0, 1]
    assert neighbours.clusters(points, 1).tolist() == [0] * 5
    assert neighbours.clusters(np.zeros((3, 4)), 2).max() <= 1  # a vector of length 0 has no direction


@pytest.mark.parametrize("blocks", [(2, 3), (256, 16_384)])
def test_near_duplicates(monkeypatch: pytest.MonkeyPatch, blocks: tuple[int, int]) -> None:
    monkeypatch.setattr(neighbours, "QUERIES", blocks[0])
    monkeypatch.setattr(neighbours, "VECTORS", blocks[1])
    turns = np.deg2rad([0, 90, 5, 180, 10, 91, 270])
    vectors = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    assert neighbours.communities(vectors, np.cos(np.deg2rad(6))) == [[0, 2, 4], [1, 5]]  # 0 and 10 by way of 5
    assert neighbours.communities(vectors, np.cos(np.deg2rad(2))) == [[1, 5]]
    assert neighbours.communities(vectors, 1.0) == []


def test_a_model_searches(tiny_folder: Path) -> None:
    model = fb.load(tiny_folder, device="cpu")
    found = model.search(["the train leaves", "今天天气很好"], TEXTS, top=3)
    assert [hit.place for hit in found[0][:2]] == [1, 5]
    assert found[0][0].key == "the train leaves"
    assert found[0][0].score == pytest.approx(1, abs=1e-5)
    assert found[1][0].place == 0
    cut = model.search(["天气"], TEXTS, top=1, width=8)
    assert cut[0][0].key == "天气"
    assert model.search(["a"], []) == [[]]
    assert model.search([], TEXTS) == []


def test_the_command(tiny_folder: Path, tmp_path: Path, filbert: Callable[..., tuple[int, str, str]]) -> None:
    data = tmp_path / "texts.jsonl"
    data.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS if text), encoding="utf-8")
    ask = ["embed", tiny_folder, "--data", data]
    code, out, err = filbert(*ask, "--search", "a ship on water", "--top", "2")
    assert code == 0, err
    hits = [json.loads(line) for line in out.splitlines()]
    assert hits[0] == {"text": "a ship on water", "score": 1.0, "place": 3}
    assert len(hits) == 2
    code, out, _ = filbert(*ask, "--search", "a ship on water", "--json", "--width", "8")
    assert json.loads(out)["query"] == "a ship on water"
    assert len(json.loads(out)["found"]) == 5
    code, out, _ = filbert(*ask, "--clusters", "3", "--out", tmp_path / "c.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "c.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["text"] for row in rows] == [text for text in TEXTS if text]
    assert rows[1]["cluster"] == rows[5]["cluster"]  # the same text
    assert {row["cluster"] for row in rows} == {0, 1, 2}
    code, _, err = filbert(*ask, "--clusters", "300")
    assert code == 2
    assert "from 1 to 7" in err
    code, _, err = filbert(*ask, "--clusters", "3", "--search", "a")
    assert code == 2
    assert "one at a time" in err
    code, _, err = filbert(*ask, "--width", "999")
    assert code == 2
    assert "from 1 to 32" in err
    code, out, err = filbert("embed", tiny_folder, "--text", "天气", "--width", "5", "--json")
    assert code == 0
    assert (json.loads(out)["width"], len(json.loads(out)["vectors"][0])) == (5, 5)
    assert "not fine-tuned for vectors of 5 numbers" in err
