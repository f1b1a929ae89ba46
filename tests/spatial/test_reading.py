import builtins
import gzip
import pickle
import time
import traceback
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discretion.gp.domain import Box
from discretion.spatial.reading import BadTable, Problem, Records, read_table

LONDON = Box((503_000.0, 155_000.0), (562_000.0, 201_000.0))
DEGREES = Box((-0.52, 51.28), (0.34, 51.70))
METRES = {"covariates": ["easting_m", "northing_m"], "domain": LONDON}
LONLAT = {"covariates": ["lon", "lat"], "domain": DEGREES}
LOG_PRICE = {"response": "log_price", "response_range": (10.0, 17.0)}
PRICE = {"response": "price_gbp", "response_range": (10.0, 17.0), "transform": "log"}
HERE = Path(__file__).parent / "awkward"


@pytest.fixture
def awkward():
    """Path of one of the twelve awkward files, by its number."""
    return lambda number: next(HERE.glob(f"{number:02d}_*.csv"))


def write(tmp_path, text, name="table.csv", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


def small(tmp_path, text, **changes):
    """Read a table with columns x, y, z on the unit square, responses in [0, 10]."""
    options = {
        "covariates": ["x", "y"],
        "response": "z",
        "domain": Box((0.0, 0.0), (1.0, 1.0)),
        "response_range": (0.0, 10.0),
    }
    return read_table(write(tmp_path, text), **{**options, **changes})


def refusal(call, *args, **kwargs):
    with pytest.raises(BadTable) as caught:
        call(*args, **kwargs)
    return caught.value


# -- the awkward files
# -----------------------------------------------------------------------------------------


def test_decimal_commas_are_refused_with_the_way_out(awkward):
    error = refusal(read_table, awkward(1), **LONLAT, **LOG_PRICE)
    assert [problem.columns for problem in error.problems] == [("lon",), ("lat",), ("log_price",)]
    assert all(problem.rows == tuple(range(2, 202)) for problem in error.problems)
    assert 'pass decimal=","' in str(error)
    assert "rows 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 190 more" in str(error)


def test_decimal_commas_and_a_byte_order_mark_are_read_when_declared(awkward):
    records = read_table(awkward(1), decimal=",", **LONLAT, **LOG_PRICE)
    assert records.n == 200
    assert records.covariates[0].tolist() == [-0.036256, 51.438133]
    assert records.response[0] == 12.88156
    assert any("semicolon" in note for note in records.notes)


def test_missing_coordinates_are_listed_and_zeros_explained(awkward):
    error = refusal(read_table, awkward(2), **METRES, **LOG_PRICE)
    easting, northing, zero = error.problems
    assert easting.columns == ("easting_m",)
    assert easting.rows == (5, 11, 17, 23, 29, 35, 47, 53, 59)
    assert northing.rows == (14, 26, 50)
    assert zero.rows == (41, 72, 82)
    assert "'unknown'" in zero.what


def test_missing_coordinates_are_dropped_only_when_asked(awkward):
    error = refusal(read_table, awkward(2), missing="drop", **METRES, **LOG_PRICE)
    assert len(error.problems) == 1
    records = read_table(awkward(2), missing="drop", outside="drop", **METRES, **LOG_PRICE)
    assert records.n == 100 - 12 - 3
    assert "12 rows with a missing value dropped" in records.notes
    assert "3 rows outside the domain dropped" in records.notes


def test_duplicates_stay_and_the_custodian_is_told(awkward):
    records = read_table(awkward(3), **METRES, **LOG_PRICE)
    assert records.n == 120
    note = records.notes[-1]
    assert "26 distinct places" in note
    assert "11 repeat" in note
    assert "does not cover the person" in note


def test_swapped_columns_are_recognised(awkward):
    error = refusal(read_table, awkward(4), **LONLAT, **LOG_PRICE)
    (problem,) = error.problems
    assert len(problem.rows) == 80
    assert "swapped" in problem.what
    records = read_table(awkward(4), covariates=["lat", "lon"], domain=DEGREES, **LOG_PRICE)
    assert records.n == 80


def test_two_coordinate_systems_are_recognised(awkward):
    error = refusal(read_table, awkward(5), covariates=["x", "y"], domain=LONDON, **LOG_PRICE)
    (problem,) = error.problems
    assert len(problem.rows) == 40
    assert "two coordinate systems" in problem.what


@pytest.mark.parametrize("rules", [{}, {"missing": "drop"}, {"missing": "drop", "outside": "clamp"}])
def test_infinite_responses_are_never_read(awkward, rules):
    error = refusal(read_table, awkward(6), **METRES, **LOG_PRICE, **rules)
    assert error.problems[-1].rows == (13, 22, 40, 49, 67)
    assert "finite" in error.problems[-1].what


def test_nan_responses_are_missing(awkward):
    error = refusal(read_table, awkward(6), **METRES, **LOG_PRICE)
    assert error.problems[0].rows == (4, 31, 58)
    assert "missing" in error.problems[0].what


def test_a_constant_response_is_read(awkward):
    records = read_table(awkward(7), **METRES, **LOG_PRICE)
    assert records.n == 60
    assert (records.response == 13.0).all()


def test_a_logarithm_refuses_zero_and_negative(awkward):
    error = refusal(read_table, awkward(8), **METRES, **PRICE)
    assert error.problems[0].rows == (67, 77)


def test_responses_outside_the_range_are_clipped_and_counted(awkward):
    records = read_table(awkward(8), **METRES, response="price_gbp", response_range=(10_000.0, 10_000_000.0))
    assert records.n == 100
    assert records.response.min() == 10_000.0
    assert records.response.max() == 10_000_000.0
    assert "5 rows with a response below the declared range clipped to it" in records.notes
    assert "3 rows with a response above the declared range clipped to it" in records.notes


def test_one_row_is_a_table(awkward):
    records = read_table(awkward(9), **METRES, **LOG_PRICE)
    assert records.n == 1
    assert records.covariates.shape == (1, 2)


@pytest.mark.filterwarnings("error")
def test_huge_coordinates_are_outside_without_overflow(awkward):
    error = refusal(read_table, awkward(10), **METRES, **LOG_PRICE)
    rows = {row: problem.what for problem in error.problems for row in problem.rows}
    assert sorted(rows) == [12, 22, 32, 42, 52]
    assert "nines" in rows[42]
    assert "1000" in rows[22]
    clamped = read_table(awkward(10), outside="clamp", **METRES, **LOG_PRICE)
    assert clamped.n == 60
    assert LONDON.contains(clamped.covariates).all()
    assert "5 rows outside the domain clamped to its border" in clamped.notes


def test_text_in_a_number_column_is_listed_by_kind(awkward):
    error = refusal(read_table, awkward(11), **METRES, **PRICE)
    rows = {row for problem in error.problems for row in problem.rows}
    lines = awkward(11).read_text(encoding="utf-8").splitlines()
    odd = {
        number
        for number, line in enumerate(lines, start=1)
        if any(sign in line for sign in ("£", '"', "POA", "k,", "m,", "'"))
    }
    assert rows == odd - {1}
    # blanks around, an exponent and a decimal point are numbers
    plain = {n for n, line in enumerate(lines, start=1) if "e+05" in line or " " in line or ".00" in line}
    assert len(plain) == 3
    assert not rows & plain


def test_a_public_filter_keeps_the_stated_rows(awkward):
    error = refusal(read_table, awkward(11), where={"new_build": "0"}, **METRES, **PRICE)
    assert {row for problem in error.problems for row in problem.rows} == {6, 14}
    error = refusal(read_table, awkward(11), where={"new_build": "7"}, **METRES, **PRICE)
    assert "no row has new_build = 7" in str(error)


def test_a_public_filter_counts_and_quotes_nothing(tmp_path):
    text = "x,y,z,kind,year\n.1,.2,3,0,2018\n.1,.2,4,Y,2018\n.1,.2,5,0,2017\n.1,.2,6, 0 ,2018\n"
    records = small(tmp_path, text, where={"kind": 0, "year": "2018"})
    assert records.response.tolist() == [3.0, 6.0]
    assert "3 rows of 4 have kind = 0" in records.notes
    assert not any("Y" in note for note in records.notes)


def test_windows_encoding_gets_a_hint_and_is_read_when_declared(awkward):
    columns = {"covariates": ["longitude °", "latitude °"], "domain": DEGREES}
    price = {"response": "price (£)", "response_range": (10.0, 17.0), "transform": "log"}
    error = refusal(read_table, awkward(12), **columns, **price)
    assert 'encoding="cp1252"' in str(error)
    assert read_table(awkward(12), encoding="cp1252", **columns, **price).n == 50


# -- what else goes wrong with files
# ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("\n\n", "empty"),
        ("x,y,z\n", "no record"),
        ("x,y,w\n.1,.2,3\n", "no such column"),
        ("x,y,z,z\n.1,.2,3,4\n", "more than once"),
        ("x,y,z\n.1,.2\n", "fewer fields"),
        ("x,y,z\n.1,.2,3,4\n", "more or fewer fields than the 3"),
        ('x,y,z\n.1,.2,"3\n.1,.2,4\n', "quotation marks"),
        ("x,y,z\n.1,.2,0x10\n", "not a plain number"),
        ("x,y,z\n.1,.2,1_000\n", "not a plain number"),
        ("x,y,z\n.1,.2,١٢\n", "not a plain number"),
        ("x,y,z\n.1,.2,1 000\n", "not a plain number"),
        ("x,y,z\n.1,.2,TRUE\n", "not a plain number"),
        ('x,y,z\n.1,.2,"1,000"\n', "thousands"),
        ("x,y,z\n.1,.2,1e999\n", "finite"),
        ("x,y,z\n.1,.2, -Infinity\n", "finite"),
        ("x,y,z\n.1,.2,\n", "missing value"),
    ],
)
def test_broken_files_are_refused_in_words(tmp_path, text, said):
    assert said in str(refusal(small, tmp_path, text))


def test_numbers_are_read_in_every_plain_spelling(tmp_path):
    text = "x,y,z\n+.5,5.e-1,1E0\n 0.25 ,1,+2\n"
    records = small(tmp_path, text)
    assert records.covariates.tolist() == [[0.5, 0.5], [0.25, 1.0]]
    assert records.response.tolist() == [1.0, 2.0]


def test_blank_lines_and_quoted_line_breaks_keep_the_row_numbers_of_a_spreadsheet(tmp_path):
    text = 'x,y,z,note\n.1,.2,3,"two\nlines"\n\n.1,.2,bad,\n'
    assert refusal(small, tmp_path, text).problems[0].rows == (4,)


@pytest.mark.parametrize(("mark", "name"), [(",", "comma"), (";", "semicolon"), ("\t", "tab")])
def test_the_delimiter_is_found_and_named(tmp_path, mark, name):
    records = small(tmp_path, mark.join(["x", "y", "z"]) + "\n" + mark.join([".1", ".2", "3"]) + "\n")
    assert records.n == 1
    assert name in records.notes[0]


def test_a_decimal_comma_inside_quotes_in_a_comma_file(tmp_path):
    assert small(tmp_path, 'x,y,z\n"0,5",1,"2,5"\n', decimal=",").response.tolist() == [2.5]
    error = refusal(small, tmp_path, "x;y;z\n0,5;1;2.5\n", decimal=",")
    assert error.problems[0].rows == (2,)


def test_close_names_are_suggested_but_a_lost_header_is_not_quoted(tmp_path):
    error = refusal(small, tmp_path, "x,y,zz\n.1,.2,3\n")
    assert "Did you mean 'zz'?" in str(error)
    error = refusal(small, tmp_path, ".123,.456,7.89\n.1,.2,3\n")
    assert "header line" in str(error)
    assert not any(value in str(error) for value in (".123", ".456", "7.89"))


def test_files_that_are_not_what_their_name_says(tmp_path):
    options = {**METRES, **LOG_PRICE}
    missing = tmp_path / "nowhere.csv"
    assert "no such file" in str(refusal(read_table, missing, **options))
    assert "no such file" in str(refusal(read_table, tmp_path / "nowhere.parquet", **options))
    assert "folder" in str(refusal(read_table, tmp_path, **options))
    plain = write(tmp_path, "x,y,z\n.1,.2,3\n", "table.csv.gz")
    assert "not compressed" in str(refusal(read_table, plain, **options))
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(gzip.compress(b"x,y,z\n.1,.2,3\n" * 50)[:-20])
    assert "gzip" in str(refusal(read_table, cut, **options))
    binary = tmp_path / "binary.csv"
    binary.write_bytes(bytes(range(256)))
    assert "binary" in str(refusal(read_table, binary, **options))
    sheet = tmp_path / "sheet.csv"
    sheet.write_bytes(b"PK\x03\x04rest")
    assert "spreadsheet" in str(refusal(read_table, sheet, **options))
    wide = write(tmp_path, "x,y,z\n", "wide.csv", "utf-16")
    assert 'encoding="utf-16"' in str(refusal(read_table, wide, **options))
    broken = write(tmp_path, "PAR1", "broken.parquet")
    assert "Parquet" in str(refusal(read_table, broken, **options))
    with pytest.raises(ValueError, match="not known"):
        read_table(plain.rename(tmp_path / "plain.csv"), encoding="nonsense", **options)


def test_a_byte_order_mark_is_no_part_of_a_name_under_plain_utf8(tmp_path):
    assert small(tmp_path, "\ufeffx,y,z\n.1,.2,3\n", encoding="utf-8").n == 1


def test_gzip_and_parquet_agree_with_the_plain_file(tmp_path, awkward):
    options = {**METRES, **LOG_PRICE}
    plain = read_table(awkward(3), **options)
    packed = tmp_path / "table.csv.gz"
    packed.write_bytes(gzip.compress(awkward(3).read_bytes()))
    column_file = tmp_path / "table.parquet"
    pq.write_table(pa.Table.from_pandas(pd.read_csv(awkward(3))), column_file)
    for path in (packed, str(packed), column_file):
        records = read_table(path, **options)
        assert (records.covariates == plain.covariates).all()
        assert (records.response == plain.response).all()


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames_of_three_libraries(make):
    options = {"covariates": ["x", "y"], "response": "z", "domain": Box((0.0, 0.0), (1.0, 1.0))}
    frame = make({"x": [0, 1], "y": [0.5, 0.25], "z": ["1.5", " 2"], "kind": [0, 1]})
    records = read_table(frame, response_range=(0.0, 10.0), **options)
    assert records.covariates.tolist() == [[0.0, 0.5], [1.0, 0.25]]
    assert records.response.tolist() == [1.5, 2.0]
    assert read_table(frame, response_range=(0.0, 10.0), where={"kind": "1"}, **options).n == 1
    bad = make({"x": [0.0, None, 0.5, 0.5], "y": [0.5, 0.5, float("inf"), 0.5], "z": [1, 2, 3, 4]})
    error = refusal(read_table, bad, response_range=(0.0, 10.0), **options)
    assert [problem.rows for problem in error.problems] == [(1,), (2,)]
    assert "position 1: missing value" in str(error)
    assert read_table(make({"x": [0.1], "y": [0.1], "z": [1]}), response_range=(0.0, 10.0), **options).n == 1


def test_things_that_are_no_table():
    options = {
        "covariates": ["x"],
        "response": "z",
        "domain": Box((0.0,), (1.0,)),
        "response_range": (0.0, 1.0),
    }
    for thing in (3, [1, 2], pl.LazyFrame({"x": [0.1], "z": [0.1]})):
        assert "not a table" in str(refusal(read_table, thing, **options))
    assert "no record" in str(refusal(read_table, pd.DataFrame({"x": [], "z": []}), **options))
    flags = pd.DataFrame({"x": [0.1], "z": [True]})
    assert "not a plain number" in str(refusal(read_table, flags, **options))
    dates = pd.DataFrame({"x": [0.1], "z": pd.to_datetime(["2018-01-01"])})
    assert "not a plain number" in str(refusal(read_table, dates, **options))


def test_one_covariate_and_three(tmp_path):
    text = "x,y,z\n.1,.2,3\n.3,.4,5\n"
    line = small(tmp_path, text, covariates=["x"], domain=Box((0.0,), (1.0,)))
    assert line.covariates.shape == (2, 1)
    solid = small(
        tmp_path,
        "a,x,y,z\n.5,.1,.2,3\n2,.1,.2,3\n",
        covariates=["a", "x", "y"],
        domain=Box((0.0,) * 3, (1.0,) * 3),
        outside="clamp",
    )
    assert solid.covariates.tolist() == [[0.5, 0.1, 0.2], [1.0, 0.1, 0.2]]


@pytest.mark.parametrize(
    "changes",
    [
        {"covariates": "x"},
        {"covariates": []},
        {"covariates": ["x", "x"]},
        {"covariates": ["x", "z"]},
        {"domain": Box((0.0,), (1.0,))},
        {"response_range": (1.0, 1.0)},
        {"response_range": (0.0, float("inf"))},
        {"transform": "sqrt"},
        {"outside": "ignore"},
        {"missing": "fill"},
        {"decimal": "'"},
        {"delimiter": "::"},
    ],
)
def test_a_bad_declaration_is_refused_before_the_file_is_opened(tmp_path, changes):
    options = {
        "covariates": ["x", "y"],
        "response": "z",
        "domain": Box((0.0, 0.0), (1.0, 1.0)),
        "response_range": (0.0, 10.0),
        **changes,
    }
    with pytest.raises(ValueError, match=r"must|domain") as caught:
        read_table(tmp_path / "nowhere.csv", **options)
    assert not isinstance(caught.value, BadTable)


# -- nothing private in words
# -----------------------------------------------------------------------------------

SECRET = "0.7316498251"


@pytest.mark.parametrize(
    "text",
    [
        f"x,y,z\n{SECRET},.2,£3\n",
        f"x,y,z\n{SECRET}x,.2,3\n",
        f"x,y,z\n9{SECRET},.2,3\n",
        f"x,y,z\n.1,.2,-{SECRET}\n.1,.2,\n",
        f"x,y,z\n.1,.2,{SECRET}, \n",
        f'x,y,z\n.1,.2,"{SECRET}\n',
        f"{SECRET},.2,3\n.1,.2,3\n",
        f"x,y,z\n.1,.2,{SECRET}inf\n",
    ],
)
def test_no_refusal_and_no_traceback_quotes_a_value(tmp_path, text):
    with pytest.raises(BadTable) as caught:
        small(tmp_path, text, transform="log", encoding="utf-8")
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert SECRET not in told
    assert caught.value.__context__ is None


def test_undecodable_bytes_do_not_travel_with_the_exception(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(f"x,y,z\n.1,.2,{SECRET}\xe9\n".encode("latin-1"))
    error = refusal(read_table, path, covariates=["x"], response="z", domain=Box((0.0,), (1.0,)), response_range=(0, 1))
    assert error.__context__ is None
    assert error.__cause__ is None
    assert SECRET not in str(error)
    assert "line 2" in str(error)


def test_records_print_columns_and_n_only():
    records = Records(np.array([[0.123456]]), np.array([0.654321]), ("x",), "z")
    assert repr(records) == "Records(n=1, covariates=(x), response=z)"
    assert "123456" not in f"{records} {records!r} {[records]}"
    assert records.dimension == len(records) == 1
    assert "one row" in records.unit
    with pytest.raises(ValueError, match=r"read-only"):
        records.covariates[0, 0] = 0.0


def test_records_do_not_share_memory_with_the_callers_array():
    X, y = np.array([[0.5]]), np.array([0.5])
    records = Records(X, y, ("x",), "z")
    X[0, 0] = y[0] = 9.0
    assert records.covariates[0, 0] == records.response[0] == 0.5


@pytest.mark.parametrize(
    ("X", "y", "names"),
    [
        (np.zeros((2, 1)), np.zeros(3), ("x",)),
        (np.zeros(2), np.zeros(2), ("x",)),
        (np.zeros((0, 1)), np.zeros(0), ("x",)),
        (np.full((1, 1), np.nan), np.zeros(1), ("x",)),
        (np.zeros((1, 1)), np.full(1, np.inf), ("x",)),
        (np.zeros((1, 1)), np.zeros(1), ("x", "y")),
    ],
)
def test_records_refuse_what_is_not_records(X, y, names):
    with pytest.raises(ValueError, match=r"must|record|value|names"):
        Records(X, y, names, "z")


def test_a_refusal_survives_pickling():
    error = BadTable("a.csv", [Problem("missing value", "Fill it in", ("x",), tuple(range(2, 30)))])
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert again.problems == error.problems
    assert "and 18 more" in str(error)


# -- rules
# --------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(*[st.floats(-2, 3, allow_nan=False)] * 2, st.floats(-30, 30, allow_nan=False)),
        min_size=1,
        max_size=30,
    )
)
def test_clamping_and_clipping_never_change_n_and_always_end_inside(rows):
    frame = pd.DataFrame(rows, columns=["x", "y", "z"])
    domain = Box((0.0, 0.0), (1.0, 1.0))
    records = read_table(
        frame, covariates=["x", "y"], response="z", domain=domain, response_range=(-1.0, 1.0), outside="clamp"
    )
    assert records.n == len(rows)
    assert domain.contains(records.covariates).all()
    assert (np.abs(records.response) <= 1).all()
    assert (records.response == np.clip(frame["z"], -1, 1)).all()


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=64), min_size=1, max_size=20))
def test_text_gives_back_every_float_exactly(values):
    frame = pl.DataFrame({"x": [0.5] * len(values), "z": [repr(value) for value in values]})
    records = read_table(
        frame, covariates=["x"], response="z", domain=Box((0.0,), (1.0,)), response_range=(-1.7e308, 1.7e308)
    )
    assert (records.response == np.clip(values, -1.7e308, 1.7e308)).all()


def test_dropping_everything_is_refused(tmp_path):
    assert "no record is left" in str(refusal(small, tmp_path, "x,y,z\n2,2,3\n", outside="drop"))


def test_a_hundred_thousand_rows_are_read_quickly(tmp_path):
    generator = np.random.default_rng(1)
    n = 100_000
    columns = [
        generator.uniform(0, 1, n).round(6),
        generator.uniform(0, 1, n).round(6),
        generator.integers(0, 9, n),
    ]
    lines = ["x,y,z", *(f"{a},{b},{c}" for a, b, c in zip(*columns, strict=True))]
    path = write(tmp_path, "\n".join(lines))
    start = time.process_time()
    records = read_table(
        path,
        covariates=["x", "y"],
        response="z",
        domain=Box((0.0, 0.0), (1.0, 1.0)),
        response_range=(0.0, 10.0),
    )
    assert records.n == n
    assert time.process_time() - start < 1.0


def test_without_pyarrow_the_message_names_the_extra(tmp_path, monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.split(".")[0] == "pyarrow":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r'pip install "discretion\[parquet\]"'):
        read_table(tmp_path / "table.parquet", **METRES, **LOG_PRICE)
