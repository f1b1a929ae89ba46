"""Whose each row is: read strictly, cut at random, and never told."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

from discretion.gp import Box
from discretion.privacy import SeededRandomness
from discretion.spatial.reading import BadTable, Records, read_table

RULES = {
    "covariates": ["x", "y"],
    "response": "z",
    "domain": Box((0.0, 0.0), (1.0, 1.0)),
    "response_range": (0.0, 10.0),
    "unit_id": "who",
}


def read(tmp_path, rows, **changes) -> Records:
    path = tmp_path / "t.csv"
    path.write_text("x,y,z,who\n" + "\n".join(rows), encoding="utf-8")
    return read_table(path, **{**RULES, **changes})


def test_units_are_read_and_bounded(tmp_path):
    records = read(tmp_path, [f"0.{i},0.5,{i},s{i % 3}" for i in range(1, 10)])
    assert records.units is not None
    assert sorted(np.bincount(records.units)) == [3, 3, 3]
    cut = records.bounded(2, SeededRandomness(1))
    assert cut.n == 6
    assert cut.units is not None
    assert (np.bincount(cut.units) == 2).all()
    assert "3 rows left out, so that each of 3 units has at most 2" in cut.notes
    assert "left out" not in repr(cut)
    assert {float(read(tmp_path, ["0.1,0.1,1,a", "0.2,0.2,2,a"]).bounded(1).response[0]) for _ in range(40)} == {1, 2}


def test_rules_that_drop_rows_keep_ids_aligned(tmp_path):
    rows = ["0.1,0.1,1,a", "5,5,2,b", "0.3,0.3,,c", "0.4,0.4,4,a", "0.5,0.5,5,d"]
    records = read(tmp_path, rows, outside="drop", missing="drop")
    assert records.units is not None
    assert records.units[0] == records.units[1] != records.units[2]
    assert records.response.tolist() == [1.0, 4.0, 5.0]


@pytest.mark.parametrize("missing", ["", " ", "NA", "null"])
def test_a_missing_id_is_refused_whatever_the_rule(tmp_path, missing):
    rows = ["0.1,0.1,1,a", f"0.2,0.2,2,{missing}"]
    for rule in ("refuse", "drop"):
        with pytest.raises(BadTable, match="column 'who', row 3: no id"):
            read(tmp_path, rows, missing=rule)
    # ... but not in rows that a public rule left out
    assert read(tmp_path, rows, where={"z": "1"}).n == 1


def test_ids_of_frames_keep_all_their_digits():
    big = 2**60
    table = {"x": [0.1, 0.2, 0.3], "y": [0.1, 0.2, 0.3], "z": [1.0, 2.0, 3.0], "who": [big, big + 1, big]}
    for frame in (pd.DataFrame(table), pl.DataFrame(table)):
        units = read_table(frame, **RULES).units
        assert units is not None
        assert units[0] == units[2] != units[1]
    for missing in (
        pd.DataFrame(table | {"who": [1.0, float("nan"), 2.0]}),
        pl.DataFrame(table | {"who": [1, None, 2]}),
    ):
        with pytest.raises(BadTable, match="position 1: no id"):
            read_table(missing, **RULES)
    spelled = read_table(pd.DataFrame(table | {"who": [7.0, 8.0, 7.0]}), **RULES).units
    assert spelled is not None
    assert spelled[0] == spelled[2]
    nullable = pd.DataFrame(table | {"who": pd.array([1, None, 2], dtype="Int64")})
    with pytest.raises(BadTable, match="position 1: no id"):
        read_table(nullable, **RULES)


def test_mistakes_are_said(tmp_path):
    with pytest.raises(ValueError, match="another column"):
        read(tmp_path, ["0.1,0.1,1,a"], unit_id="x")
    with pytest.raises(BadTable, match="no such column"):
        read(tmp_path, ["0.1,0.1,1,a"], unit_id="owner")
    plain = read(tmp_path, ["0.1,0.1,1,a"], unit_id=None)
    with pytest.raises(ValueError, match="unit_id"):
        plain.bounded(1)
    with pytest.raises(ValueError, match="one for one"):
        Records(np.zeros((2, 1)), np.zeros(2), ("x",), "y", units=np.zeros(3, dtype=int))
