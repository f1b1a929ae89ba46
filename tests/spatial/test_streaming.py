import math

import numpy as np
import pytest

from discretion.gp import RBF, Box
from discretion.posterior import KernelSumMechanism
from discretion.privacy import SeededRandomness
from discretion.spatial import BadTable, read_table
from discretion.spatial.streaming import records_in_chunks

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

DOMAIN = Box((0.0, 0.0), (10.0, 5.0))
RULES = {
    "covariates": ["x", "y"],
    "response": "price",
    "domain": DOMAIN,
    "response_range": (1.0, 3.0),
    "transform": "log",
    "where": {"kind": "old"},
}


def table(n=1000, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "x": rng.uniform(0, 10, n),
        "y": rng.uniform(0, 5, n),
        "price": np.exp(rng.normal(2, 1, n)),
        "kind": rng.choice(["old", "new"], n).tolist(),
        "other": rng.normal(size=n),
    }


@pytest.fixture
def written(tmp_path):
    def write(columns, group=300):
        path = tmp_path / "records.parquet"
        parquet.write_table(pa.table(columns), path, row_group_size=group)
        return path

    return write


@pytest.mark.parametrize("rows", [1, 64, 300, 5000])
def test_chunks_are_the_records_of_the_whole_table(written, rows):
    path = written(table())
    chunks = list(records_in_chunks(path, rows=rows, **RULES))
    whole = read_table(path, **RULES)
    assert max(chunk.n for chunk in chunks) <= rows
    np.testing.assert_array_equal(np.vstack([chunk.covariates for chunk in chunks]), whole.covariates)
    np.testing.assert_array_equal(np.concatenate([chunk.response for chunk in chunks]), whole.response)


def test_a_release_from_chunks(written):
    path = written(table())
    run = KernelSumMechanism(
        RBF(0.2), DOMAIN, RULES["response_range"], scale=1.0, delta=1e-3, grid=(6, 5), neighbours="add-remove"
    )
    streamed = run.run(records_in_chunks(path, rows=128, **RULES), SeededRandomness(0))
    whole = run.run(read_table(path, **RULES), SeededRandomness(0))
    np.testing.assert_allclose(streamed.value_sums, whole.value_sums, atol=1e-12)
    np.testing.assert_allclose(streamed.density, whole.density, atol=1e-12)


def test_the_same_refusals_with_rows_of_the_file(written):
    columns = table()
    columns["kind"] = ["old"] * 1000
    columns["x"][[5, 700]] = 11.0
    columns["price"][999] = math.nan
    path = written(columns)
    with pytest.raises(BadTable, match=r"positions? 5") as early:
        list(records_in_chunks(path, rows=100, **RULES))
    assert str(early.value).startswith(str(path))
    columns["x"][5] = 1.0
    chunks = records_in_chunks(written(columns), rows=100, **RULES)
    assert [next(chunks).n for _ in range(7)] == [100] * 7
    with pytest.raises(BadTable, match="position 700"):
        next(chunks)
    with pytest.raises(BadTable, match="position 999: missing value"):
        list(records_in_chunks(path, rows=100, **RULES | {"outside": "clamp"}))
    found = list(records_in_chunks(path, rows=100, **RULES | {"outside": "clamp", "missing": "drop"}))
    assert sum(chunk.n for chunk in found) == 999
    assert max(chunk.covariates[:, 0].max() for chunk in found) == 10.0


def test_chunks_left_empty_are_passed_over(written):
    columns = table()
    columns["kind"] = ["new"] * 500 + ["old"] * 100 + ["new"] * 400
    assert [chunk.n for chunk in records_in_chunks(written(columns), rows=50, **RULES)] == [50, 50]
    columns["kind"] = ["new"] * 1000
    with pytest.raises(BadTable, match="no record is left"):
        list(records_in_chunks(written(columns), rows=50, **RULES))


def test_what_is_not_such_a_file(tmp_path, written):
    with pytest.raises(BadTable, match="no such file"):
        list(records_in_chunks(tmp_path / "none.parquet", **RULES))
    text = tmp_path / "text.parquet"
    text.write_text("x,y,price\n1,2,3\n")
    with pytest.raises(BadTable, match="not a readable Parquet file"):
        list(records_in_chunks(text, **RULES))
    with pytest.raises(BadTable, match="no such column"):
        list(records_in_chunks(written(table()), **RULES | {"response": "prices"}))
    with pytest.raises(ValueError, match="rows must be"):
        list(records_in_chunks(written(table()), rows=0, **RULES))
