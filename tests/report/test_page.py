"""Pages of releases: valid, alone, without anything private, and true to what was released."""

import base64
import hashlib
import json
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.path import Path as MatplotlibPath
from scipy.stats import norm
from typer.testing import CliRunner

from benchmarks import planted
from benchmarks.markup import Markup
from discretion import Ledger, Matern32, PosteriorMechanism
from discretion.audit.membership import MechanismGame, attack
from discretion.audit.rates import clopper_pearson
from discretion.bayesopt import SGD, Linear, LocalSearch, Study
from discretion.cli import app
from discretion.gp import Box
from discretion.posterior import KernelSumMechanism, ThompsonMechanism, ThompsonSampler
from discretion.posterior.confidence import excursion_sets, local_mean
from discretion.posterior.records import Records
from discretion.privacy import Certificate, GaussianDP, PureDP, Release, SeededRandomness, gaussian_mu, round_up
from discretion.privacy.power import attack_power
from discretion.report import View, audit_page, report, report_folder, write_folder_report
from discretion.report.folder import digest, read_scene
from discretion.report.reading import contrast, in_words
from discretion.report.scene import ABSENT, MOST_VALUES, RAMP, Layer, Scene
from discretion.selection import Outcome, SelectionRelease
from discretion.spatial.maps import style
from discretion.spatial.projection import Projection

KINDS = ("sums", "paths", "lattice", "tuned")


def page_of(home: Path, kind: str) -> str:
    return (home / kind / "report.html").read_text(encoding="utf-8")


def unpacked(layer: dict) -> np.ndarray:
    whole = np.frombuffer(base64.b64decode(layer["values"]), "<u2").astype(float)
    values = layer["low"] + whole / (ABSENT - 1) * (layer["high"] - layer["low"])
    return np.where(whole == ABSENT, np.nan, values)


def sums(**given: Any) -> KernelSumMechanism:
    domain = Box((0.0, 0.0), (1.0, 1.0))
    return KernelSumMechanism(Matern32(0.3), domain=domain, response_ranges=(0.0, 1.0), **given)


# --- as documents


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_valid_and_asks_nothing_of_the_network(released, kind):
    page = page_of(released, kind)
    found = Markup(page)
    assert found.mistakes == []
    assert found.remote == []
    assert re.findall(r"https?://", found.text) == []
    assert page.isprintable() or "\x00" not in page
    assert len(page) < 500_000


def test_the_policy_allows_the_pages_own_code_and_nothing_else(released):
    found = Markup(page_of(released, "sums"))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page_of(released, "sums"))[1]
    for text in (*found.scripts, *found.styles):
        if text.strip():
            assert f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_text_of_a_release_is_text_on_its_page():
    odd = '</script><script>alert("x")</script><img src=x onerror=alert(1)>'
    mechanism = sums(scale=1.0, delta=1e-3, grid=(4, 4), unit=odd)
    release = mechanism.run(Records(np.full((3, 2), 0.5), np.full(3, 0.5)), SeededRandomness(1))
    page = report(release, view=View(title=odd, units=odd, source=odd, floor=0.0))
    assert Markup(page).mistakes == []
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "TEST ONLY" in page


# --- nothing private


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_planted_is_on_a_page(released, kind):
    page = page_of(released, kind)
    blobs = [base64.b64decode(each) for each in re.findall(r'"([A-Za-z0-9+/]{40,}={0,2})"', page)]
    assert blobs
    for data in (page.encode(), *blobs):
        assert planted.traces(data) == []
    found = Markup(page)
    # how many corners an outline has, and packed noise, are any number by chance
    told = re.sub(r'"[A-Za-z0-9+/=]{40,}"|"lengths":\[[\d,]*\]', "", found.data["map-data"])
    assert planted.counts(found.text + told) == []


def test_the_report_for_the_owner_stays_out_wherever_it_lies(released, tmp_path):
    private = (released / "private.txt").read_text()
    assert planted.counts(private)
    for file in (released / "sums").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "private.txt").write_text(private)
    (tmp_path / "owner-secret.json").write_text('{"clipped": 263}')
    (tmp_path / "report.html").unlink()
    page = report_folder(tmp_path)
    assert "owner-secret" not in page
    assert "private.txt" not in page
    assert planted.counts(Markup(page).text) == []


def test_who_spent_the_budget_is_not_on_the_page(released):
    book = Ledger.open(released / "book.ledger")
    page = report_folder(released / "sums", ledger=book)
    assert "What was spent, and what is left" in page
    assert book.entries()[0].who not in Markup(page).text
    assert f"{book.spent().epsilon:.1f}"[:-1] in page


# --- true to what was released


def test_the_map_shows_the_released_numbers(released):
    data = json.loads(Markup(page_of(released, "sums")).data["map-data"])
    table = np.genfromtxt(released / "sums" / "sums.csv", delimiter=",", skip_header=1)
    made = Certificate.from_json((released / "sums" / "certificate.json").read_text())
    scale, (columns, rows) = made.parameters["scale"], data["grid"]
    assert (columns, rows) == (31, 25)
    density = table[:, 3].reshape(columns, rows).T
    mean = 13.0 + np.clip(table[:, 2].reshape(columns, rows).T / density, -1, 1)
    expected = np.where(density >= 2.0 + 2.0 * scale, mean, np.nan)
    step = (data["layers"][0]["high"] - data["layers"][0]["low"]) / (ABSENT - 1)
    shown = unpacked(data["layers"][0]).reshape(rows, columns)
    np.testing.assert_allclose(shown, expected, atol=0.51 * step)


def test_several_paths_share_a_scale_and_have_an_outline_each(released):
    data = json.loads(Markup(page_of(released, "paths")).data["map-data"])
    table = np.loadtxt(released / "paths" / "paths.csv", delimiter=",", skiprows=1)
    assert [layer["name"] for layer in data["layers"]] == ["Mean of the paths", "Path 1", "Path 2", "Path 3"]
    assert len({(layer["low"], layer["high"]) for layer in data["layers"]}) == 1
    # The ridge leaves a contrast: the page, as the picture, says it in units of the noise.
    made = Certificate.from_json((released / "paths" / "certificate.json").read_text())
    assert made.n is not None
    assert made.parameters["ridge"] ** 2 > made.n
    assert data["layers"][0]["units"].endswith("above (+) or below (-) 13 (442,000), in noise sd")
    assert "standard deviations of the noise above 13 (442,000)" in data["words"]
    columns, rows = data["grid"]
    step = (data["layers"][0]["high"] - data["layers"][0]["low"]) / (ABSENT - 1)
    for i in range(3):
        shown = unpacked(data["layers"][1 + i]).reshape(rows, columns)
        expected = (table[:, 2 + i].reshape(columns, rows).T - 13.0) / made.parameters["scale"]
        np.testing.assert_allclose(shown, expected, atol=0.51 * step)
    assert [line["name"] for line in data["lines"][1:]] == ["Path 1 alone", "Path 2 alone", "Path 3 alone"]


def test_paths_of_a_small_ridge_are_the_response_itself():
    released = {"scale": 0.5, "prior_noise": 1.2, "centre": 13.0, "most_records": None}
    assert contrast(released | {"ridge": 9.9}, 100) is None
    assert contrast(released | {"ridge": 9.9, "most_records": 100}, None) is None
    read = contrast(released | {"ridge": 10.1}, 100)
    assert read is not None
    assert read(np.array([13.0, 14.3])).tolist() == pytest.approx([0.0, 1.0])


def test_outlines_come_back_to_the_plane_to_a_hundredth_of_a_cell(released):
    folder = released / "sums"
    made = Certificate.from_json((folder / "certificate.json").read_text())
    scene = read_scene(folder, made, View())
    features = json.loads((folder / "excursion.geojson").read_text())["features"]
    projection = Projection("EPSG:27700", planted.DOMAIN)
    by_kind = {each["properties"]["set"]: each for each in features}
    for line, kind in zip(scene.lines, ("inner", "outer", "estimate"), strict=True):
        rings = [ring for rings in by_kind[kind]["geometry"]["coordinates"] for ring in rings]
        shown = [ring for rings in line.polygons for ring in rings]
        assert len(shown) == len(rings)
        for mine, theirs in zip(shown, rings, strict=True):
            assert np.abs(mine - projection.from_lonlat(np.array(theirs))).max() < 59_000 / 31 / 100


def test_a_tuned_map_says_what_was_chosen(released):
    found = Markup(page_of(released, "tuned"))
    told = json.loads((released / "tuned" / "tuning.json").read_text())
    assert f"{told['choice']['length_scale']:.6g}" in found.text
    assert "What was chosen" in found.text
    assert json.loads(found.data["map-data"])["grid"] == [9, 9]


def test_a_lattice_has_its_areas(released):
    data = json.loads(Markup(page_of(released, "lattice")).data["map-data"])
    values = unpacked(data["layers"][0])
    assert len(set(data["areas"]["owner"])) == len(values)
    assert sum(data["areas"]["lengths"]) == 7 * len(values)


def test_large_grids_are_thinned_out_and_the_page_says_so():
    values = np.add.outer(np.arange(900.0), np.arange(1_200.0))
    data = Scene((0.0, 0.0, 1_199.0, 899.0), (1_200, 900), (Layer("x", values, "u"),)).data()
    columns, rows = data["grid"]
    assert columns * rows <= MOST_VALUES
    assert "too fine" in data["notes"][0]
    x = np.linspace(data["box"][0], data["box"][2], columns)
    np.testing.assert_allclose(x, np.arange(0, 1_200, 2), atol=1e-9)
    np.testing.assert_allclose(unpacked(data["layers"][0]).reshape(rows, columns), values[::2, ::2], atol=0.02)


def test_the_colours_are_those_of_the_printed_maps():
    assert style.RAMP == RAMP


# --- made again


def test_a_page_made_again_keeps_its_map_and_says_what_is_left(released, tmp_path):
    for file in (released / "sums").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    before = json.loads(Markup(page_of(released, "sums")).data["map-data"])
    ran = CliRunner().invoke(app, ["report", str(tmp_path), "--ledger", str(released / "book.ledger"), "--json"])
    assert ran.exit_code == 0
    again = (tmp_path / "report.html").read_text()
    assert json.loads(Markup(again).data["map-data"]) == before
    assert "Attribution-of-the-data" in Markup(again).text
    assert json.loads(ran.stdout)["bytes"] == len(again.encode())


def test_the_map_of_another_release_is_not_taken_over(released, tmp_path):
    for name in ("certificate.json", "paths.csv", "paths.geojson"):
        (tmp_path / name).write_bytes((released / "paths" / name).read_bytes())
    (tmp_path / "report.html").write_text(page_of(released, "sums"))
    write_folder_report(tmp_path)
    data = json.loads(Markup((tmp_path / "report.html").read_text()).data["map-data"])
    assert len(data["layers"]) == 4
    made = Certificate.from_json((tmp_path / "certificate.json").read_text())
    assert data["certificate"] == digest(made)
    assert digest(made) == hashlib.sha256((tmp_path / "certificate.json").read_bytes()).hexdigest()


def test_a_certificate_alone_has_a_page(released, tmp_path):
    target = tmp_path / "page.html"
    source = released / "sums" / "certificate.json"
    ran = CliRunner().invoke(app, ["report", str(source), "--out", str(target)])
    assert ran.exit_code == 0
    found = Markup(target.read_text())
    assert found.mistakes == []
    assert "map-data" not in found.data
    assert json.loads(found.data["certificate-data"]) == source.read_text()
    assert "discretion certificate verify certificate.json" in found.text


def test_what_is_no_release_is_refused(tmp_path):
    ran = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert ran.exit_code == 2
    assert "no certificate.json" in ran.stderr
    (tmp_path / "certificate.json").write_text("{}")
    assert CliRunner().invoke(app, ["report", str(tmp_path)]).exit_code == 2


def test_no_page_where_none_is_wanted(released, tmp_path):
    words = (
        f"release {released / 'sales.csv'} --covariates easting_m,northing_m --response price_gbp --transform log "
        "--domain 503000:562000,155000:201000 --response-range 12:14 --delta 1e-3 --epsilon 8 --outside drop --grid 4 "
        f"--length-scale 0.2 --floor 2 --threshold 13 --no-report --out {tmp_path / 'out'}"
    )
    assert CliRunner().invoke(app, words.split()).exit_code == 0
    assert not (tmp_path / "out" / "report.html").exists()
    # Made later, from files in the plane's own coordinates.
    target = write_folder_report(tmp_path / "out")
    data = json.loads(Markup(target.read_text()).data["map-data"])
    assert data["grid"] == [4, 4]
    assert [line["name"].split(":")[0] for line in data["lines"]] == [
        "Surely yes inside (inner set)",
        "Surely no outside (outer set)",
        "Estimate",
    ]


def test_a_release_along_one_covariate_is_a_chart(released, tmp_path):
    words = (
        f"release {released / 'sales.csv'} --covariates easting_m --response price_gbp --transform log --grid 9 "
        "--domain 503000:562000 --response-range 12:14 --delta 1e-3 --epsilon 8 --outside drop --length-scale 0.2 "
        f"--mechanism posterior --paths 2 --out {tmp_path / 'out'}"
    )
    assert CliRunner().invoke(app, words.split()).exit_code == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert Markup(page).mistakes == []
    assert "What was released along easting_m." in page


# --- in words that are true


def test_the_estimate_is_called_one_and_what_is_sure_stands_beside_it():
    mechanism = sums(scale=6.0, delta=1e-3, grid=(12, 12))
    X = np.random.default_rng(0).uniform(size=(4_000, 2))
    release = mechanism.run(Records(X, 0.4 + 0.2 * X[:, 0]), SeededRandomness(1))
    data = json.loads(Markup(report(release, view=View(floor=3.0, threshold=0.5))).data["map-data"])
    sets, shown = excursion_sets(release, 0.5, ">", 0.95), ~np.isnan(local_mean(release, 3.0).values)
    sure, maybe = sets.inner[shown].mean(), (sets.outer & ~sets.inner)[shown].mean()
    assert min(sure, maybe, 1 - sure - maybe) > 0.02
    # The quantile of the sets is simulated anew: places at the edge may go to either side.
    assert data["answers"] == pytest.approx([sure, maybe, 1 - sure - maybe], abs=0.03)
    assert sum(data["answers"]) == pytest.approx(1.0)
    estimate = (local_mean(release, 3.0).values[shown] >= 0.5).mean()
    sure, maybe, no = data["answers"]
    words = (
        f"The estimate is at least 0.5 at {100 * estimate:.0f}\xa0% of the places shown; surely so at "
        f"{100 * sure:.0f}\xa0%, undecided at {100 * maybe:.0f}\xa0%, surely not at {100 * no:.0f}\xa0%."
    )
    assert words in data["words"]
    assert data["question"] == "Is the clipped local mean at least 0.5?"


def test_the_files_say_the_same_of_what_is_sure(released):
    data = json.loads(Markup(page_of(released, "sums")).data["map-data"])
    assert sum(data["answers"]) == pytest.approx(1.0)
    assert data["question"] == "Is the clipped local mean at least 13.28 (585,000)?"
    features = json.loads((released / "sums" / "excursion.geojson").read_text())["features"]
    by_kind = {each["properties"]["set"]: each["geometry"]["coordinates"] for each in features}
    table = np.loadtxt(released / "sums" / "sums.csv", delimiter=",", skiprows=1)
    lonlat = Projection("EPSG:27700", planted.DOMAIN).to_lonlat(table[:, :2])
    shown = ~np.isnan(unpacked(data["layers"][0]).reshape(25, 31).T.ravel())
    for kind, share in (("inner", data["answers"][0]), ("outer", 1 - data["answers"][2])):
        inside = np.zeros(len(lonlat), dtype=bool)
        for rings in by_kind[kind]:
            for ring in rings:
                inside ^= MatplotlibPath(ring).contains_points(lonlat)
        assert inside[shown].mean() == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize(("share", "text"), [(0, "0"), (0.004, "under 1"), (0.4, "40"), (0.999, "over 99"), (1, "100")])
def test_nowhere_and_everywhere_are_never_rounded_to(share, text):
    values = np.where(np.arange(1_000) < 1_000 * share, 1.0, -1.0)
    said = in_words("x", values, 0.0, False, View())
    assert f" 0 at {text}\xa0% of the places shown." in said


def test_paths_without_sets_are_an_estimate_too(released):
    words = json.loads(Markup(page_of(released, "paths")).data["map-data"])["words"]
    assert "The estimate is at least 13" in words
    assert "surely" not in words


def test_delta_is_no_chance_of_failure(released):
    text = Markup(page_of(released, "sums")).text
    assert "no more than the factor e^epsilon, plus delta" in text
    assert "not a chance of failure" in text
    # A Gaussian loss is normal with mean mu^2/2 and variance mu^2: it passes epsilon more often than delta.
    for epsilon, delta in ((0.1, 1e-5), (1.0, 1e-5), (8.0, 1e-3)):
        mu = gaussian_mu(epsilon, delta)
        assert norm.sf((epsilon - mu**2 / 2) / mu) > 1.5 * delta
    root = Path(__file__).parents[2]
    for file in (*(root / "docs").rglob("*.md"), root / "README.md", *(root / "src").rglob("*.py")):
        said = " ".join(file.read_text(encoding="utf-8").split()).lower()
        wrong = re.search(
            r"(chance|probability) that (the|a|this) \W*(\" \")?(bound|promise|guarantee|loss) fails", said
        )
        assert wrong is None, (file, wrong[0])


def test_what_is_not_protected_is_in_plain_words(released):
    limits = Certificate.from_json((released / "sums" / "certificate.json").read_text()).limits
    text = Markup(page_of(released, "sums")).text
    assert "What is released at a place is a sum over all records" in text
    assert not [each for each in limits if re.search(r"sum_|k\(|[a-z]_[a-z]\b", each)]


@pytest.mark.parametrize("version", ["0.1.0", "1.2", "2.0.0rc1", "1.0.post2", "0.3.dev4"])
def test_a_version_stands_in_the_command(released, version):
    made = Certificate.from_json((released / "sums" / "certificate.json").read_text())
    text = Markup(report(replace(made, library_version=version))).text
    assert f"pip install . # in a copy of the repository, at version {version}" in " ".join(text.split())
    assert "discretion==" not in text


@pytest.mark.parametrize(
    "version",
    ["unknown", "1.0; curl x | sh", "1.0\ncurl x | sh", "1.0 other==2", "1.0 --index-url x", "1.0+local", "1.0\n"],
)  # fmt: skip
def test_what_is_no_version_never_becomes_a_command(released, version):
    made = Certificate.from_json((released / "sums" / "certificate.json").read_text())
    page = report(replace(made, library_version=version))
    block = re.search(r"<pre>(.*?)</pre>", page, re.S)[1]
    assert block.split("\n")[0].startswith("discretion certificate verify certificate.json")
    assert "pip install" not in page
    assert "curl" not in block


# --- other kinds of releases


def test_a_search_shows_its_path_and_parameters():
    space = {"x": Linear(-1.0, 1.0), "y": Linear(0.0, 2.0)}
    search = LocalSearch(space, mu=1.0, steps=3, clip=1.0, update=SGD(0.1))
    study = Study(search, n=50, randomness=SeededRandomness(1))
    while not study.done:
        study.tell(np.column_stack([np.full(50, each["x"] ** 2 + each["y"]) for each in study.ask()]))
    page = report(study.result())
    found = Markup(page)
    assert found.mistakes == []
    assert "Parameters found" in found.text
    assert "The path of 3 noisy steps" in page


def test_thompson_sampling_shows_what_was_played():
    candidates = np.linspace(0.0, 1.0, 9)[:, None]
    mechanism = ThompsonMechanism(Matern32(0.3), candidates, (-1.0, 1.0), rounds=5, schedule=5.0)
    sampler = ThompsonSampler(mechanism, randomness=SeededRandomness(2))
    while not sampler.done:
        sampler.tell(np.sin(4 * sampler.ask()).ravel())
    found = Markup(report(sampler.result()))
    assert found.mistakes == []
    assert "What was played" in found.text
    assert "Recommended" in found.text
    assert "Played most often" in found.text


def test_paths_on_a_line_are_a_chart():
    mechanism = PosteriorMechanism(
        Matern32(0.3), domain=Box((0.0,), (1.0,)), response_range=(-1.0, 1.0), ridge=5.0, scale=0.3, delta=1e-3,
        locations=np.linspace(0, 1, 20)[:, None], paths=2,
    )  # fmt: skip
    release = mechanism.run(Records(np.full((6, 1), 0.5), np.zeros(6)), SeededRandomness(3))
    found = Markup(report(release))
    assert found.mistakes == []
    assert "2 released paths along the covariate." in report(release)


@dataclass(frozen=True, eq=False, repr=False)
class Odd(Release):
    """A release of a kind that pages know nothing of."""

    weights: np.ndarray
    name: str


def test_any_other_release_shows_its_fields():
    made = sums(scale=1.0, delta=1e-3, grid=(4, 4)).run(
        Records(np.full((3, 2), 0.5), np.full(3, 0.5)), SeededRandomness(1)
    )
    page = report(Odd(made.certificate, np.arange(40.0).reshape(5, 8), "<b>"))
    found = Markup(page)
    assert found.mistakes == []
    assert "array of shape 5 x 8: 0, 1, 2" in found.text
    assert "<b>" in found.text


def test_a_search_shows_the_map_of_its_winner_and_what_was_chosen():
    made = sums(scale=1.0, delta=1e-3, grid=(4, 4)).run(
        Records(np.full((3, 2), 0.5), np.full(3, 0.5)), SeededRandomness(1)
    )
    choice = {"length_scale": 0.3}
    chosen = SelectionRelease(made.certificate, Outcome.CHOSEN, made, 0, choice, 0.75, 0.5)
    found = Markup(report(chosen, view=View(floor=0.0)))
    assert found.mistakes == []
    assert "length scale" in found.text
    assert json.loads(found.data["map-data"])["grid"] == [4, 4]


def test_an_audit_stands_beside_the_claim(released, tmp_path):
    audit = {"epsilon_lower": 0.61237, "claimed": 8.0, "delta": 1e-3, "refuted": False, "confidence": 0.95}
    (tmp_path / "audit.json").write_text(json.dumps(audit))
    words = [
        "report",
        str(released / "sums"),
        "--audit",
        str(tmp_path / "audit.json"),
        "--out",
        str(tmp_path / "x.html"),
    ]
    assert CliRunner().invoke(app, words).exit_code == 0
    text = Markup((tmp_path / "x.html").read_text()).text
    assert "epsilon is at least 0.612 at delta 0.001 with 95 % confidence" in text
    refuted = audit_page(audit | {"refuted": True, "rates": [{"false_positive": 0.05, "true_positive": 0.08}]})
    alone = CliRunner().invoke(app, ["report", str(tmp_path / "audit.json")])
    assert alone.exit_code == 0
    assert "Audit of a private release" in (tmp_path / "report.html").read_text()
    assert Markup(refuted).mistakes == []
    assert "refutes the claim" in refuted


def measured(share: float, trials: int, aim: float = 0.05) -> dict[str, Any]:
    """An audit's dictionary whose attack found this share."""
    ends = {"interval": clopper_pearson(round(share * trials), trials, 0.95)}
    ends |= {"false_positive_interval": clopper_pearson(round(aim * trials), trials, 0.95)}
    rates = [{"false_positive": aim, "true_positive": share, "excess": share - aim, **ends}]
    return {
        "rates": rates, "trials": trials, "auc": 0.53, "epsilon_lower": 0.1, "claimed": 1.0, "delta": 1e-5,
        "confidence": 0.95, "refuted": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("share", "trials", "reading"),
    [
        (0.0877, 10_000, "within the error of 10,000 trials"),
        (0.06, 10_000, "below it"),
        (0.2, 10_000, "above it by more than the error of 10,000 trials"),
        (0.0877, 10_000_000, "above it by more than the error of 10,000,000 trials"),
    ],
)
def test_what_an_attack_reached_stands_beside_its_ceiling(share, trials, reading):
    loss = GaussianDP(gaussian_mu(1.0, 1e-5), neighbours="replace")
    made = sums(scale=1.0, delta=1e-5, grid=(4, 4)).run(
        Records(np.full((3, 2), 0.5), np.full(3, 0.5)), SeededRandomness(1)
    ).certificate  # fmt: skip
    found = measured(share, trials)
    page = report(replace(made, loss=loss.to_dict()), audit=found)
    assert Markup(page).mistakes == []
    row = re.search(r'<tr><th scope="row">5 %</th>(.*?)</tr>', page)[1]
    low, high = found["rates"][0]["interval"]
    ceiling = round_up(100 * attack_power(loss), 1)
    cells = [f"{100 * share:.3g} %", f"{100 * low:.3g} to {100 * high:.3g} %", f"{ceiling} %"]
    assert re.findall("<td>(.*?)</td>", row) == cells
    assert f"Beside the most that any attack finds: at 5 % false alarms {reading}." in Markup(page).text
    # The same figure as where the promise is put in numbers.
    assert f"{ceiling} % of true cases at 5 % false alarms" in Markup(page).text


def test_repetitions_have_the_mean_of_their_intervals():
    runs = [measured(0.08, 1_000), measured(0.10, 1_000)]
    means = [{"false_positive": 0.05, "true_positive": 0.09}]
    page = audit_page(measured(0.09, 1_000) | {"rates": means, "repetitions": 2, "each": runs})
    low, high = (np.mean([run["rates"][0]["interval"][end] for run in runs]) for end in (0, 1))
    assert f"<td>9 %</td><td>{100 * low:.3g} to {100 * high:.3g} %</td>" in page
    assert "95 % interval" in page


def test_an_audit_says_how_many_trials_it_had():
    rng = np.random.default_rng(0)
    game = MechanismGame(None, None, None, None, None)
    object.__setattr__(game, "features", lambda member, count, _: rng.standard_normal((count, 1)) + member)
    found = attack(game, shadows=50, trials=64).to_dict()
    assert found["trials"] == 64
    assert all(each["false_positive_interval"][0] <= each["false_positive_interval"][1] for each in found["rates"])


def test_a_release_without_a_bound_says_so():
    mechanism = sums(scale=1.0, delta=1e-3, grid=(4, 4))
    release = mechanism.run(Records(np.full((3, 2), 0.5), np.full(3, 0.5)), SeededRandomness(1))
    endless = PureDP(math.inf, neighbours=release.certificate.neighbours).to_dict()
    made = replace(release.certificate, epsilon=math.inf, loss=endless)
    found = Markup(report(made))
    assert found.mistakes == []
    assert "NOTHING" in found.text
    assert "nothing is promised" in found.text


def test_the_local_mean_of_a_value_is_that_of_the_library():
    mechanism = sums(scale=1.0, delta=1e-3, grid=(6, 5))
    rng = np.random.default_rng(0)
    release = mechanism.run(Records(rng.uniform(size=(400, 2)), rng.uniform(size=400)), SeededRandomness(1))
    data = json.loads(Markup(report(release, view=View(floor=3.0, threshold=0.5))).data["map-data"])
    expected = local_mean(release, 3.0).values.T
    np.testing.assert_allclose(unpacked(data["layers"][0]).reshape(expected.shape), expected, atol=1e-4)
    assert data["between"]
