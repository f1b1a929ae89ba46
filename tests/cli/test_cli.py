"""The command line, run as a user runs it."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from discretion.cli import app
from discretion.cli.console import BAD_INPUT, OVER_BUDGET, REFUSED
from discretion.posterior import Bounded
from discretion.posterior.add_remove import add_remove_epsilon
from discretion.privacy import Certificate, Ledger

ACCOUNT = ["--n", "400", "--ridge", "8", "--scale", "0.0375"]
PATIENT = ("--time-limit", "600")  # searches end, on a busy machine too
FILES = {
    *("certificate.json", "certificate.txt", "paths.csv", "paths.geojson"),
    *("excursion.geojson", "map.png", "paths.png", "report.html"),
}


@pytest.fixture
def run():
    def call(*words: object, code: int = 0) -> str:
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == code, result.output
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.stdout if code == 0 else result.stderr

    return call


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path / "sales.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["easting_m", "northing_m", "price_gbp", "new_build"])
        for _ in range(300):
            writer.writerow(
                [round(rng.uniform(503e3, 562e3)), round(rng.uniform(155e3, 201e3)), 400_000, rng.integers(2)]
            )
    return path


def options(table: Path, out: Path, **changes: object) -> list[object]:
    words = {
        "covariates": "easting_m,northing_m",
        "response": "price_gbp",
        "transform": "log",
        "domain": "503000:562000,155000:201000",
        "response-range": "12:14",
        "mechanism": "posterior",
        "length-scale": "0.1",
        "epsilon": "3",
        "delta": "1e-3",
        "grid": "8",
        "threshold": "13",
        "paths": "2",
        "out": out,
    } | {key.replace("_", "-"): value for key, value in changes.items()}
    flat = [word for key, value in words.items() if value is not None for word in (f"--{key}", value)]
    return ["release", table, *flat]


def test_a_release_leaves_its_files_and_says_what_it_cost(run, table, tmp_path):
    out = tmp_path / "out"
    said = json.loads(run(*options(table, out, crs="EPSG:27700"), "--json"))
    assert set(said["files"]) == FILES == {path.name for path in out.iterdir()}
    assert 2.99 < said["epsilon"] <= 3.0
    assert said["n"] == 300
    assert said["neighbours"] == "replace"
    certificate = Certificate.from_json((out / "certificate.json").read_text())
    assert certificate.epsilon == said["epsilon"]
    assert certificate.unit.startswith("one row of the table; a person with several rows is not covered")
    rows = list(csv.reader((out / "paths.csv").open()))
    assert rows[0] == ["easting_m", "northing_m", "path_1", "path_2"]
    assert len(rows) == 65
    lonlat = json.loads((out / "excursion.geojson").read_text())["features"][0]
    assert lonlat["properties"]["threshold"] == 13.0
    assert lonlat["properties"]["epsilon"] >= said["epsilon"]


def test_hexagons_make_the_unit_of_privacy_a_hexagon(run, table, tmp_path):
    out = tmp_path / "out"
    run(*options(table, out, aggregate="hexagons:6000", minimum_count=2, where="new_build=0"))
    assert "One hexagon's record" in Certificate.from_json((out / "certificate.json").read_text()).unit


def test_earlier_results_are_not_overwritten_and_nothing_is_spent(run, table, tmp_path):
    out, book = tmp_path / "out", tmp_path / "book"
    run("ledger", "init", book, "--dataset", "d", "--epsilon", 9, "--delta", "1e-3")
    run(*options(table, out, ledger=book))
    assert "already holds" in run(*options(table, out, ledger=book), code=BAD_INPUT)
    assert len(Ledger.open(book).entries()) == 1
    run(*options(table, out, ledger=book), "--force")


@pytest.mark.slow
def test_what_memory_does_not_hold_a_cluster_does(run, table, tmp_path, monkeypatch):
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    book = tmp_path / "book"
    run("ledger", "init", book, "--dataset", "d", "--epsilon", 9, "--delta", "1e-3")
    monkeypatch.setenv("DISCRETION_MEMORY", "100k")
    assert "given 300 records need" in run(*options(table, tmp_path / "a", ledger=book), code=REFUSED)
    nowhere = options(table, tmp_path / "b", ledger=book, cluster="nowhere")
    assert "No connection to a dask scheduler at nowhere" in run(*nowhere, code=BAD_INPUT)
    sums = options(table, tmp_path / "b", ledger=book, cluster="nowhere", mechanism="kernel-sum", paths=None)
    assert "--cluster computes posterior paths" in run(*sums, code=BAD_INPUT)
    assert Ledger.open(book).entries() == []
    in_memory = {f"distributed.worker.memory.{limit}": False for limit in ("target", "spill", "pause")}
    local = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with dask.config.set(in_memory), distributed.LocalCluster(**local) as cluster:
        words = options(table, tmp_path / "b", ledger=book, cluster=cluster.scheduler_address)
        said = json.loads(run(*words, "--json"))
    assert set(said["files"]) == FILES
    (entry,) = Ledger.open(book).entries()
    assert said["ledger_entry"].endswith(f"#{entry.id}")


def test_a_table_that_the_ledger_was_not_made_for_is_refused_before_anything_is_spent(run, table, tmp_path):
    book, key, wrong = (tmp_path / name for name in ("book", "key", "wrong"))
    key.write_bytes(bytes(range(32)))
    wrong.write_bytes(bytes(range(1, 33)))
    made = ["--dataset", "d", "--epsilon", 9, "--delta", "1e-3"]
    run("ledger", "init", book, *made, "--records", table, "--key-file", key)
    given = {"ledger": book, "mechanism": "kernel-sum", "paths": None, "threshold": None}
    other = tmp_path / "other.csv"
    other.write_text(table.read_text().replace("400000", "400001", 1))
    tuned = options(table, tmp_path / "t", **given, length_scale="0.1,0.2")
    for words in (
        options(other, tmp_path / "a", **given, key_file=key),
        options(table, tmp_path / "a", **given, key_file=wrong),
        ["tune", other, *tuned[2:], "--key-file", key],
    ):
        assert "not the records that the ledger was created for" in " ".join(run(*words, code=REFUSED).split())
    assert Ledger.open(book).entries() == []
    run(*options(table, tmp_path / "a", **given, key_file=key))
    assert len(Ledger.open(book).entries()) == 1
    unchecked = CliRunner().invoke(app, [str(word) for word in options(table, tmp_path / "b", **given)])
    assert "which was not checked: --key-file" in " ".join(unchecked.stderr.split())
    del given["ledger"]
    assert "--key-file is for a --ledger" in run(*options(table, tmp_path / "c", **given, key_file=key), code=BAD_INPUT)


def test_an_assumption_names_the_kernel_of_a_release(run, tmp_path):
    path, out = tmp_path / "line.csv", tmp_path / "out"
    path.write_text("x,y\n" + "".join(f"{i / 60},{i % 2}\n" for i in range(60)))
    words = ["release", path, "--covariates", "x", "--response", "y", "--domain", "0:1", "--response-range", "0:1"]
    words += ["--mechanism", "posterior", "--epsilon", "3", "--grid", "9", "--out", out, "--assumption"]
    run(*words, "exponential-1d")
    assert json.loads((out / "certificate.json").read_text())["parameters"]["kernel"] == "exponential"
    assert "exponential kernel" in run(*words, "exponential-1d", "--kernel", "rbf", "--force", code=BAD_INPUT)


def test_over_budget_is_refused(run, table, tmp_path):
    book = tmp_path / "book"
    run("ledger", "init", book, "--dataset", "Sales", "--epsilon", 4, "--delta", "1e-3")
    run(*options(table, tmp_path / "a", ledger=book))
    assert "budget" in run(*options(table, tmp_path / "b", ledger=book, epsilon="3.9"), code=OVER_BUDGET)
    assert not list((tmp_path / "b").iterdir())
    said = json.loads(run("ledger", "show", book, "--json"))
    assert said["spent_epsilon"] <= 3.0
    assert [entry["state"] for entry in said["entries"]] == ["booked"]


def test_a_config_file_gives_defaults_and_the_command_line_wins(run, table, tmp_path):
    words = options(table, tmp_path / "out")[2:]
    pairs = dict(zip(words[::2], words[1::2], strict=True))
    config = tmp_path / "release.toml"
    config.write_text(
        "".join(f'{key.strip("-")} = "{value}"\n' for key, value in pairs.items()) + f'table = "{table}"\n'
    )
    said = json.loads(run("release", "--config", config, "--epsilon", "2", "--json"))
    assert 1.99 < said["epsilon"] <= 2.0
    config.write_text(config.read_text() + 'lenght-scale = "0.2"\n')
    assert "lenght-scale" in run("release", "--config", config, "--force", code=BAD_INPUT)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"domain": "1:2"}, "2 columns"),
        ({"domain": "562000:503000,155000:201000"}, "not below"),
        ({"domain": "a:b,1:2"}, "not a number"),
        ({"response_range": "12"}, "low:high"),
        ({"scale": "0.1"}, "not both"),
        ({"epsilon": None}, "Give --scale"),
        ({"delta": "2"}, "strictly between"),
        ({"aggregate": "squares:5"}, "hexagons:SIZE"),
        ({"kernel": "gauss"}, "known kernels"),
        ({"grid": "1"}, "--grid"),
        ({"assumption": "nonsense"}, "--assumption is one of"),
        ({"ledger": "/nonexistent/book"}, "discretion ledger init"),
        ({"region": "/nonexistent/region"}, "can't be read"),
        ({"covariates": "east,north"}, "east"),
        ({"response": "price"}, "price_gbp"),
        ({"length_unit": "km"}, "--length-unit"),
        ({"where": "new_build"}, "column=value"),
    ],
)
def test_bad_words_get_a_plain_error(run, table, tmp_path, changes, message):
    assert message in run(*options(table, tmp_path / "out", **changes), code=BAD_INPUT)


def test_one_row_has_no_delta_of_n(run, tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("easting_m,northing_m,price_gbp\n530000,180000,400000\n")
    assert "strictly between" in run(*options(path, tmp_path / "out", delta="n^-1.1"), code=BAD_INPUT)


def test_cost_prints_the_promised_keys(run):
    kernel = ["--kernel", "exponential", "--length-scale", "0.135", "--diameter", "1.4142135623730951"]
    words = ["cost", "posterior", *ACCOUNT, *kernel, "--delta", "n^-1.1", "--json"]
    said = json.loads(run(*words, "--rule", "renyi"))
    assert set(said) == {"epsilon", "delta", "order", "rule", "neighbours", "assumption", "compared", "complete"}
    assert said["compared"]["closed form"] == pytest.approx(5.7987384371956, rel=1e-9)
    assert said["epsilon"] == min(said["compared"].values()) == said["compared"]["renyi"]
    assert said["order"] > 1
    best = json.loads(run(*words, *PATIENT))
    assert best["epsilon"] == best["compared"]["profile"] < said["epsilon"] < best["compared"]["published"]
    assert "best" in run(*words, "--rule", "tight", code=BAD_INPUT)


@pytest.mark.parametrize(
    "assumption",
    ["bounded", "rkhs:1", "rkhs:1:0.2", "exponential-1d", "diagonal", "response-only", "separated:0.5:2"],
)
def test_every_assumption_has_a_price(run, assumption):
    words = [
        "--kernel",
        "diagonal" if assumption == "diagonal" else "exponential",
        "--length-scale",
        "0.05",
        "--diameter",
        "1",
        "--assumption",
        assumption,
    ]
    said = json.loads(run("cost", "posterior", *ACCOUNT, *words, "--rule", "renyi", "--json"))
    assert 0 < said["epsilon"] < 20
    assert said["assumption"] == assumption


@pytest.mark.parametrize(
    ("kernel", "length", "assumption"),
    [("rbf", "1", "exponential-1d"), ("rbf", "1", "diagonal"), ("exponential", "1,1", "exponential-1d")],
)
def test_a_named_kernel_must_fit_what_is_assumed(run, kernel, length, assumption):
    words = ["--kernel", kernel, "--length-scale", length, "--diameter", "1", "--assumption", assumption]
    assert "kernel" in run("cost", "posterior", *ACCOUNT, *words, code=BAD_INPUT)
    assert json.loads(run("cost", "posterior", *ACCOUNT, "--least-kernel", "0", "--assumption", assumption, "--json"))


@pytest.mark.parametrize("solve", ["scale", "ridge", "eta", "paths"])
def test_calibrate_meets_the_target_it_was_given(run, solve):
    words = ["--n", "400", "--ridge", "8", "--scale", "0.1", "--least-kernel", "0", "--delta", "1e-3", *PATIENT]
    found = json.loads(run("calibrate", "posterior", *words, "--epsilon", "2", "--solve", solve, "--json"))
    assert 0 < found["epsilon"] <= 2.0
    option = {"eta": "--prior-noise"}.get(solve, f"--{solve}")
    again = json.loads(run("cost", "posterior", *words, option, found[solve], "--json"))
    assert again["epsilon"] == found["epsilon"]


def test_each_rule_has_its_own_scale(run):
    words = ["calibrate", "posterior", "--n", "100", "--ridge", "3", "--least-kernel", "0.1", "--delta", "1e-3"]
    words += ["--epsilon", "3", "--assumption", "exponential-1d", *PATIENT, "--json"]
    scales = {}
    for rule in ("published", "renyi", "best"):
        found = json.loads(run(*words, "--rule", rule))
        assert 2.99 < found["epsilon"] <= 3.0
        scales[rule] = found["scale"]
    assert scales["best"] < 0.95 * scales["renyi"] < 0.5 * scales["published"]
    assert "--rule best" in run(*words[:-1])


def test_what_cannot_be_reached_is_refused(run):
    words = ["--n", "400", "--ridge", "1", "--least-kernel", "0", "--delta", "1e-3", "--epsilon", "0.1"]
    assert "ridge" in run("calibrate", "posterior", *words, code=REFUSED)


@pytest.mark.parametrize(
    ("words", "relations"),
    [
        (["cost", "posterior", *ACCOUNT, "--least-kernel", "0"], "add-remove"),
        (["cost", "posterior", *ACCOUNT, "--least-kernel", "0", "--assumption", "response-only"], "replace-response"),
        (["cost", "kernel-sum", "--scale", "1"], "add-remove"),
        (["cost", "gradient", "--n", "9", "--steps", "1", "--mu", "1"], "add-remove"),
        (["cost", "exponential", "--training=9", "--validation=9", "--family=ridge", "--epsilon=1"], "add-remove"),
    ],
)
def test_help_lists_the_relations_that_a_command_takes(run, words, relations):
    """And the command takes those that it lists."""
    listed = run(*words[:2], "--help").replace("\n", " ")
    assert ("replace-resp" in listed) is (words[1] == "posterior")
    delta = ["--delta", "1e-3"]
    assert relations in run(*words, *delta, "--neighbours", relations)
    if words[1] != "posterior":
        assert "neither replace nor add-remove" in " ".join(
            run(*words, "--neighbours", "replace-response", code=BAD_INPUT).replace("│", " ").split()
        )
        assert "add-remove" in run(*words, *delta, "--neighbours", "add-remove")


def test_responses_alone_are_protected_under_their_assumption_alone(run):
    words = ["cost", "posterior", *ACCOUNT, "--least-kernel", "0", "--neighbours", "replace-response"]
    assert "--assumption response-only" in run(*words, code=BAD_INPUT)
    assert "replace-response" in run(*words, "--assumption", "response-only")


def test_an_assumption_about_one_kernel_names_it(run):
    words = ["cost", "posterior", *ACCOUNT, "--rule", "renyi", "--json", "--assumption"]
    for assumption, kernel in (("exponential-1d", "exponential"), ("diagonal", "diagonal")):
        place = ["--length-scale", "0.2", "--diameter", "1"]
        named = run(*words, assumption, "--kernel", kernel, *place)
        assert run(*words, assumption, *place) == named
    assert "--kernel exponential needs --length-scale" in run(
        *words, "exponential-1d", "--diameter", "1", code=BAD_INPUT
    )
    assert "--kernel exponential needs --diameter" in run(
        *words, "exponential-1d", "--length-scale", "1", code=BAD_INPUT
    )


@pytest.mark.parametrize("assumption", ["bounded", "rkhs:1", "exponential-1d", "diagonal", "response-only"])
def test_without_a_kernel_the_price_holds_for_any(run, assumption):
    words = ["cost", "posterior", *ACCOUNT, "--rule", "renyi", "--assumption", assumption]
    any_kernel, zero = (json.loads(run(*words, *more, "--json")) for more in ([], ["--least-kernel", "0"]))
    assert any_kernel == zero
    larger = json.loads(run(*words, "--least-kernel", "0.3", "--json"))
    assert any_kernel["epsilon"] >= 0.999 * larger["epsilon"]  # searches end within a thousandth
    assert "For any kernel: none was named" in run(*words)
    assert "For any kernel" not in run(*words, "--least-kernel", "0")


def test_half_a_kernel_is_refused(run):
    words = ["cost", "posterior", *ACCOUNT]
    for half in (["--length-scale", "1"], ["--diameter", "1"], ["--alpha", "1", "--least-kernel", "0"]):
        assert f"{half[0]}: only a kernel has it" in run(*words, *half, code=BAD_INPUT)
    assert "not both" in run(*words, "--least-kernel", "0", "--kernel", "rbf", code=BAD_INPUT)
    assert "--assumption separated needs --kernel" in run(*words, "--assumption", "separated:0.5:2", code=BAD_INPUT)


def test_a_search_says_on_stderr_how_long_it_may_take_and_how_it_is_shortened():
    words = ["calibrate", "posterior", "--n", "400", "--epsilon", "2", "--ridge", "8", "--json"]
    quick, best = (CliRunner().invoke(app, [*words, *more]) for more in (["--rule", "renyi"], ["--time-limit", "1"]))
    assert quick.stderr == ""
    assert "Searching, for 1 s or so at most (--time-limit; --rule renyi" in best.stderr
    assert json.loads(best.stdout)["epsilon"] <= 2.0
    assert "--rule renyi takes a second" in " ".join(CliRunner().invoke(app, [*words[:2], "--help"]).output.split())


def test_prices_under_add_remove_need_a_delta_of_their_own(run):
    words = ["cost", "posterior", *ACCOUNT, "--least-kernel", "0", "--neighbours"]
    assert "--delta must be a number" in run(*words, "add-remove", code=BAD_INPUT)
    for useless in (["--time-limit", "3"], ["--rule", "renyi"], ["--prior-noise", "1"]):
        refused = run(*words, "add-remove", "--delta", "1e-3", *useless, code=BAD_INPUT)
        assert f"{useless[0]}: --neighbours add-remove has one rule" in refused
    said = json.loads(run(*words, "add-remove", "--delta", "1e-3", "--json"))
    assert said["neighbours"] == "add-remove"
    loss = {"ridge": 8.0, "scale": 0.0375, "assumption": Bounded(1.0), "most_records": 400}
    assert said["epsilon"] == add_remove_epsilon(delta=1e-3, **loss)
    target = ["calibrate", "posterior", *ACCOUNT[:4], "--least-kernel", "0", "--neighbours", "add-remove"]
    found = json.loads(run(*target, "--delta", "1e-3", "--epsilon", "1", "--json"))
    assert 0.999 < found["epsilon"] <= 1.0
    assert "solves for scale" in run(
        *target, "--delta", "1e-3", "--epsilon", "1", "--solve", "ridge", "--scale", "1", code=BAD_INPUT
    )


def test_the_private_report_is_a_file_of_its_own(run, table, tmp_path):
    report = tmp_path / "report.txt"
    run(*options(table, tmp_path / "out", private_report=report))
    assert report.read_text().startswith("PRIVATE")


def test_help_names_every_command(run):
    said = run("--help")
    assert all(word in said for word in ("release", "cost", "calibrate", "ledger"))


def test_rasters_and_tables_for_other_programs(run, table, tmp_path):
    pytest.importorskip("rasterio")
    out = tmp_path / "out"
    said = json.loads(run(*options(table, out, crs="EPSG:27700", formats="geotiff,geoparquet"), "--json"))
    assert {"paths.tif", "paths.parquet"} <= set(said["files"]) <= {path.name for path in out.iterdir()}
    assert "--crs" in run(*options(table, tmp_path / "b", formats="geotiff"), code=BAD_INPUT)


@pytest.mark.parametrize(
    ("words", "scale"),
    [
        (["--epsilon", "1", "--delta", "1e-5"], 7.461263269632),
        (["--epsilon", "9", "--delta", "1e-3"], 0.878520492156),
        (["--epsilon", "1", "--delta", "1e-5", "--neighbours", "add-remove", "--no-density"], 7.461263269632 / 2),
        (["--epsilon", "1", "--delta", "1e-5", "--neighbours", "add-remove"], 7.461263269632 / 2**0.5),
        (["--epsilon", "1", "--delta", "1e-5", "--contributions", "3"], 3 * 7.461263269632),
        (["--epsilon", "1", "--delta", "1e-5", "--max-per-unit", "3"], 3 * 7.461263269632),
    ],
)
def test_the_price_of_a_kernel_sum_is_exact(run, words, scale):
    found = json.loads(run("cost", "kernel-sum", *words, "--json"))
    assert found["scale"] == pytest.approx(scale, rel=1e-10)
    assert found["epsilon"] <= float(words[1])
    again = json.loads(run("cost", "kernel-sum", "--scale", found["scale"], *words[2:], "--json"))
    assert again["epsilon"] == found["epsilon"]


def test_a_kernel_sum_of_individual_rows(run, table, tmp_path):
    out = tmp_path / "out"
    words = options(
        table, out, mechanism="kernel-sum", paths=None, floor="0.5", epsilon="9", grid="20,16", crs="EPSG:27700"
    )
    said = json.loads(run(*words, "--json"))
    assert {"sums.csv", "sums.geojson", "excursion.geojson", "certificate.json", "map.png"} <= set(said["files"])
    assert 8.99 < said["epsilon"] <= 9.0
    certificate = (out / "certificate.txt").read_text()
    assert "not a draw from the posterior" in " ".join(certificate.split())
    assert "were not chosen by looking" in " ".join(certificate.split())
    features = json.loads((out / "excursion.geojson").read_text())["features"]
    assert [feature["properties"]["set"] for feature in features] == ["estimate", "inner", "outer"]
    assert len(list(csv.reader((out / "sums.csv").open()))) == 321


def test_options_without_effect_are_refused(run, table, tmp_path):
    words = options(table, tmp_path / "out", mechanism="kernel-sum", ridge="5")
    said = run(*words, code=BAD_INPUT)
    assert "--ridge" in said
    assert "--paths" in said
    assert "--mechanism" in run(*options(table, tmp_path / "out", mechanism="laplace"), code=BAD_INPUT)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fraction": "2"}, "--fraction"),
        ({"smooth": "-1"}, "--smooth"),
        ({"grid": "3000"}, "--grid"),
        ({"threshold": "4000"}, "--threshold"),
        ({"aggregate": "hexagons:1e7"}, "does not fit"),
        ({"minimum_count": "0"}, "--minimum-count"),
        ({"level": "1.5"}, "--level"),
    ],
)
def test_public_mistakes_are_found_before_anything_is_spent(run, table, tmp_path, changes, message):
    book = tmp_path / "book"
    run("ledger", "init", book, "--dataset", "d", "--epsilon", 9, "--delta", "1e-3")
    assert message in run(*options(table, tmp_path / "out", ledger=book, **changes), code=BAD_INPUT)
    assert not Ledger.open(book).entries()


def test_a_region_elsewhere_and_a_report_among_the_results_are_refused(run, table, tmp_path):
    region = tmp_path / "region.geojson"
    region.write_text('{"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}')
    out = tmp_path / "out"
    assert "no point of the grid" in run(*options(table, out, region=region), code=BAD_INPUT)
    assert "--private-report" in run(*options(table, out, private_report=out / "private"), code=BAD_INPUT)


def test_force_leaves_nothing_of_the_earlier_release(run, table, tmp_path):
    out = tmp_path / "out"
    run(*options(table, out))
    run(*options(table, out, threshold=None), "--force")
    assert not (out / "excursion.geojson").exists()


def test_the_certificate_says_which_rows_were_left_out(run, table, tmp_path):
    out = tmp_path / "out"
    run(*options(table, out, where="new_build=0", missing="drop"))
    limits = Certificate.from_json((out / "certificate.json").read_text()).limits
    assert "rows without new_build=0, rows with a missing value" in limits[-1]
