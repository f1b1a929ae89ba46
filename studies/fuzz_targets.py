"""What reads an input from outside, and undamaged inputs for it."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from benchmarks import planted
from discretion.cli import app
from discretion.gp import Box, Matern32
from discretion.posterior import KernelSumMechanism, PosteriorMechanism
from discretion.posterior.decoder import Decoder, best_linear_decoder
from discretion.posterior.layout import SumLayout
from discretion.posterior.recomputation import LOSSES
from discretion.posterior.records import Records
from discretion.posterior.worlds import GaussianProcessWorlds
from discretion.privacy import Certificate, GaussianDP, Ledger, Neighbours, PrivacyLoss, PureDP, SystemRandomness
from discretion.privacy.chain import read_export
from discretion.privacy.signing import generate_key, read_certificate, read_private_key, read_public_key
from discretion.privacy.verification import verify
from discretion.spatial import read_table
from discretion.spatial.districts import Districts
from discretion.spatial.reading import BadTable
from discretion.spatial.region import Region
from discretion.spatial.streaming import records_in_chunks
from studies.damage import NUMBERS, Charge, Quote, damaged, damaged_json

__all__ = ["TARGETS", "Site", "Target"]

AWKWARD = Path(__file__).parents[1] / "tests" / "spatial" / "awkward"
EXITS = {0, 2, 3, 4, 5}
BOX = Box((503_000.0, 155_000.0), (562_000.0, 201_000.0))
COLUMNS: dict[str, Any] = {"covariates": ["easting_m", "northing_m"], "response": "price_gbp"}


class Site:
    """A folder of one process, with everything that inputs are made from and tried on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "deep" / "in" / "here"  # so that a path such as ../.. stays inside
        self.folder.mkdir(parents=True)
        os.chdir(self.folder)
        os.environ["DISCRETION_CACHE"] = str(folder / "cache")
        self.table = self.folder / "sales.csv"
        planted.table(self.table, rows=30, strays=False)
        (self.folder / "plain.csv").write_text("\n".join(self.table.read_text().splitlines()[:20]) + "\n")
        self.key = self.folder / "key"
        generate_key(self.key)
        self.book = Ledger.create(self.folder / "book.ledger", dataset="sales", epsilon=1e6, delta=1e-3)
        for k in range(1, 4):
            self.book.book(self.book.reserve(GaussianDP(0.1 * k, neighbours=Neighbours.REPLACE), {"mechanism": "sum"}))
        self.book.fail(self.book.reserve(PureDP(0.1, neighbours=Neighbours.REPLACE), {"what": "nothing"}), "a reason")

    # --- undamaged inputs

    @cached_property
    def csv(self) -> list[bytes]:
        """Tables as text."""
        found = [path.read_bytes() for path in sorted(AWKWARD.glob("*.csv"))]
        text = self.table.read_text()
        german = text.replace(",", ";").replace(".", ",")
        return [*found, *(text.encode(),) * 9, *(german.encode(),) * 3, text.encode("utf-16")]

    @cached_property
    def parquet(self) -> list[bytes]:
        """Tables as Parquet: plain, compressed and of text."""
        import pandas

        frame, found = pandas.read_csv(self.table), []
        for each in (frame, frame.astype(str), frame.astype({"price_gbp": "int64"}), frame[:0]):
            for compression in (None, "snappy", "gzip"):
                file = io.BytesIO()
                each.to_parquet(file, compression=compression)
                found.append(file.getvalue())
        return found

    @cached_property
    def certificates(self) -> list[Certificate]:
        """Certificates of small releases."""
        where: dict[str, Any] = {"domain": BOX, "locations": BOX.grid((3, 3)), "grid": (3, 3), "delta": 1e-4}
        records = Records(BOX.grid((3, 3)), np.linspace(12, 14, 9))
        each = (
            PosteriorMechanism(Matern32(0.1), response_range=(12, 14), ridge=20.0, scale=0.5, **where),
            KernelSumMechanism(Matern32(0.1), response_ranges=(12, 14), scale=3.0, **where),
            KernelSumMechanism(
                Matern32(0.1), response_ranges=(12, 14), scale=3.0, neighbours=Neighbours.ADD_REMOVE, **where
            ),
        )
        return [mechanism.run(records, SystemRandomness()).certificate for mechanism in each]

    @cached_property
    def certificate_texts(self) -> list[bytes]:
        """Them as JSON, plain and signed."""
        key = read_private_key(self.key)
        return [text.encode() for each in self.certificates for text in (each.to_json(), each.sign(key).to_json())]

    @cached_property
    def exports(self) -> list[bytes]:
        """The ledger as lines of JSON."""
        return ["".join(f"{line}\n" for line in self.book.export()).encode()]

    @cached_property
    def ledgers(self) -> list[bytes]:
        """The ledger's file, and another database."""
        other = self.folder / "other.sqlite"
        with closing(sqlite3.connect(other)) as connection:
            connection.execute("CREATE TABLE ledger (a)")
            connection.commit()
        return [(self.folder / "book.ledger").read_bytes(), other.read_bytes()]

    @cached_property
    def keys(self) -> list[bytes]:
        """Key files."""
        return [self.key.read_bytes(), Path(f"{self.key}.pub").read_bytes()]

    @cached_property
    def decoders(self) -> list[bytes]:
        """A saved decoder."""
        mechanism = KernelSumMechanism(
            Matern32(0.3), BOX, response_ranges=(12, 14), scale=3.0, locations=BOX.grid((4, 4)), grid=(4, 4), delta=1e-4
        )
        release = mechanism.run(Records(BOX.grid((3, 3)), np.linspace(12, 14, 9)), SystemRandomness())
        prior = GaussianProcessWorlds(Matern32(0.2), BOX, (4, 4), 100, 0.3, 0.3, 0.0)
        decoder = best_linear_decoder(SumLayout.of(release, 0), prior)
        decoder.save(self.folder / "decoder.npz")
        return [(self.folder / "decoder.npz").read_bytes()]

    @cached_property
    def losses(self) -> list[bytes]:
        """Privacy losses as JSON."""
        losses = [GaussianDP(0.5, neighbours=Neighbours.REPLACE), PureDP(0.1, neighbours=Neighbours.REPLACE)]
        found = [each.to_dict() for each in (*losses, losses[0] + losses[1], 3 * losses[0])]
        return [json.dumps(each).encode() for each in (*found, *(each.loss for each in self.certificates))]

    @cached_property
    def maps(self) -> list[bytes]:
        """GeoJSON: features with names, holes, several polygons."""

        def square(x: float, y: float, side: float) -> list[list[float]]:
            return [[x, y], [x + side, y], [x + side, y + side], [x, y + side], [x, y]]

        shapes = [
            {"type": "Polygon", "coordinates": [square(0, 0, 9), square(1, 1, 2)]},
            {"type": "MultiPolygon", "coordinates": [[square(9, 0, 9)], [square(30, 0, 3)]]},
        ]
        features = [{"type": "Feature", "properties": {"name": f"d{k}"}, "geometry": g} for k, g in enumerate(shapes)]
        collection = {"type": "FeatureCollection", "features": features}
        return [json.dumps(each).encode() for each in (collection, features[0], shapes[1], {**collection, "crs": None})]

    @cached_property
    def configurations(self) -> list[bytes]:
        """TOML files of ``release``."""
        lines = {
            "covariates": '"easting_m,northing_m"',
            "response": '"price_gbp"',
            "transform": '"log"',
            "domain": '"503000:562000,155000:201000"',
            "response-range": '"12:14"',
            "epsilon": "3.0",
            "delta": "1e-4",
            "grid": '"4"',
            "where": '["owner=o1"]',
            "outside": '"drop"',
            "floor": "1e9",
            "below": "true",
        }
        return ["".join(f"{key} = {value}\n" for key, value in lines.items()).encode()]

    def file(self, suffix: str, data: bytes) -> Path:
        """The input as a file."""
        path = self.folder / f"input{suffix}"
        path.write_bytes(data)
        return path


# --- trying


def refused(call: Callable[[], object], *kinds: type[Exception]) -> bool:
    """Whether a call was refused in words of this library; any other error goes on."""
    try:
        call()
    except Exception as error:
        if type(error) not in (ValueError, *kinds) and not (
            isinstance(error, ValueError) and type(error).__module__.startswith("discretion.")
        ):
            raise
        if found := planted.traces(str(error).encode()):
            raise Quote(f"{type(error).__name__} quotes {found[0]!r}") from None
        return True
    return False


def command(words: Sequence[str]) -> int:
    """The exit code of a command, which is one of those there are, and goes with a plain message."""
    done = CliRunner().invoke(app, list(words))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    if done.exit_code not in EXITS or "Traceback" in done.output:
        raise RuntimeError(f"exit code {done.exit_code}: {done.output[-300:]}")
    if done.exit_code and (found := planted.traces(done.output.encode())):
        raise Quote(f"{words[0]} quotes {found[0]!r}")
    return done.exit_code


def unpaid(site: Site, words: Sequence[str]) -> int:
    """`command`, after which nothing may be spent unless it ended well."""
    before = len(site.book.entries())
    other = ["--other-unit"] if words[0] == "release" else []  # undamaged inputs of several units share one ledger
    code = command([*words, *other, "--ledger", "book.ledger"])
    if code and len(site.book.entries()) > before:
        raise Charge(f"{words[0]} was refused and spent budget")
    return code


@dataclass(frozen=True)
class Target:
    """Something that reads inputs.

    Attributes:
        name: for people.
        share: how often it is tried, relative to the others.
        attempt: makes an input and tries it; whether it was refused.
        works: whether what is accepted is done, which may take as long as it was asked for.
    """

    name: str
    share: float
    attempt: Callable[[Site, random.Random], bool]
    works: bool = False


def of_file(
    seeds: Callable[[Site], list[bytes]],
    suffix: str,
    call: Callable[[Path, random.Random], object],
    *,
    json_: bool = False,
) -> Callable[[Site, random.Random], bool]:
    """An attempt to read a damaged file."""

    def attempt(site: Site, rng: random.Random) -> bool:
        undamaged = seeds(site)
        data = rng.choice(undamaged)
        if json_ and rng.random() < 0.6:
            value = json.loads(data)
            for _ in range(rng.choice((1, 1, 2, 4))):
                value = damaged_json(rng, value)
            data = json.dumps(value).encode()
        else:
            data = damaged(rng, data, undamaged)
        path = site.file(suffix, data)
        return refused(lambda: call(path, rng), BadTable)

    return attempt


# --- tables


def _options(rng: random.Random) -> dict[str, Any]:
    """Rules for reading a table."""
    return COLUMNS | {
        "domain": BOX,
        "response_range": (0.0, 1e6),
        "transform": rng.choice(("none", "none", "log")),
        "outside": rng.choice(("refuse", "clamp", "drop")),
        "missing": rng.choice(("refuse", "drop")),
        "where": rng.choice((None,) * 9 + ({"owner": "o1"},)),
    }


def _csv(path: Path, rng: random.Random) -> None:
    more = {
        "delimiter": rng.choice((None,) * 6 + (",", ";", "\t", "|")),
        "decimal": rng.choice((".",) * 6 + (",",)),
        "encoding": rng.choice(("utf-8-sig",) * 12 + ("cp1252", "utf-16", "latin-1", "ascii", "utf-7", "punycode")),
        "unit_id": rng.choice((None, None, "owner")),
    }
    read_table(path, **_options(rng) | more)


def _gzip(site: Site) -> list[bytes]:
    import gzip

    return [gzip.compress(each) for each in site.csv[:4]]


def _parquet(path: Path, rng: random.Random) -> None:
    if rng.random() < 0.7:
        read_table(path, unit_id=rng.choice((None, "owner")), **_options(rng))
    else:
        list(records_in_chunks(path, rows=7, **_options(rng)))


# --- certificates, ledgers, decoders, maps


def _asked(*answers: object) -> None:
    """Nothing: the answers were computed."""


def _certificate(path: Path, rng: random.Random) -> None:
    found = read_certificate(path.read_text(encoding="utf-8", errors="replace"))
    made = found if isinstance(found, Certificate) else found.certificate
    _asked(str(made), repr(made), verify(made, LOSSES).lines())


def _certificate_command(site: Site, rng: random.Random) -> bool:
    data = damaged(rng, rng.choice(site.certificate_texts), site.certificate_texts)
    path = str(site.file(".json", data))
    ledger = rng.choice(([], ["--ledger", "book.ledger"], ["--public-key", "key.pub"], ["--json"]))
    return command(["certificate", "verify", path, *ledger]) != 0


def _export(path: Path, rng: random.Random) -> None:
    with path.open(encoding="utf-8", errors="replace") as lines:
        read_export(lines, head=rng.choice((None, None, "1:" + "a" * 64)))


def _ledger(path: Path, rng: random.Random) -> None:
    for left in ("-journal", "-wal", "-shm"):
        Path(f"{path}{left}").unlink(missing_ok=True)
    book = Ledger.open(path)
    ask: Callable[[], object] = rng.choice((book.verify, book.spent, book.entries, book.head, book.odometer, None)) or (
        lambda: book.book(book.reserve(PureDP(0.1, neighbours=Neighbours.REPLACE), {}))
    )
    ask()


def _ledger_command(site: Site, rng: random.Random) -> bool:
    path = site.file(".ledger", damaged(rng, rng.choice(site.ledgers + site.exports), site.ledgers))
    return command(["ledger", rng.choice(("show", "verify", "list", "spend-report", "export")), str(path)]) != 0


def _loss(path: Path, rng: random.Random) -> None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return
    loss = PrivacyLoss.from_dict(data)
    _asked(loss.epsilon(1e-5), loss.delta(1.0), loss.renyi(2.0), loss.to_dict(1e-5))


def _decoder(path: Path, rng: random.Random) -> None:
    Decoder.load(path)


def _key(path: Path, rng: random.Random) -> None:
    path.chmod(0o600)
    rng.choice((read_private_key, read_public_key))(path)


def _region(path: Path, rng: random.Random) -> None:
    Region.read(path).contains(np.array([[1.0, 1.0], [np.inf, 0.0]]))


def _districts(path: Path, rng: random.Random) -> None:
    districts = Districts.read(path, rng.choice((None, "name")), tolerance=rng.choice((0.0, 1e-6)))
    _asked(districts.locate([[1.0, 1.0]]), districts.lattice(0.3))


# --- commands

RELEASE = """
    release sales.csv --out out --force --covariates easting_m,northing_m --response price_gbp --transform log
    --domain 503000:562000,155000:201000 --response-range 12:14 --epsilon 3 --delta 1e-3 --grid 3 --floor 1e9
    --kernel rbf --length-scale 0.1 --length-unit domain --outside drop --missing drop --where owner=o3
"""
SUMS = """
    release plain.csv --out out --force --covariates easting_m --response price_gbp --domain 503000:562000
    --response-range 0:1000000 --scale 1e6 --delta n^-1.1 --grid 5 --mechanism kernel-sum --length-scale 0.2
    --kernel rbf --neighbours replace --unit-id owner --max-per-unit 1 --level 0.9
"""
PATHS = """
    release plain.csv --out out --force --covariates easting_m --response price_gbp --domain 503000:562000
    --response-range 0:1000000 --epsilon 5 --delta 1e-3 --grid 5 --mechanism posterior --ridge 5 --paths 2 --jitter 0.1
    --prior-noise 0.1 --assumption bounded --rule closed-form --nugget 1e-6
"""
AUTO = """
    release sales.csv --out out --force --covariates easting_m,northing_m --response price_gbp --transform log
    --domain 503000:562000,155000:201000 --response-range 12:14 --epsilon 3 --delta 1e-3 --grid 3 --floor 1e9
    --mechanism auto --threshold 13
"""
PLAN = """
    plan map --n 100 --covariates easting_m,northing_m --response price_gbp --transform log --delta 1e-3 --no-posterior
    --domain 503000:562000,155000:201000 --response-range 12:14 --grid 4 --worlds 20 --epsilons 3 --outside drop
"""
BASES = [
    each.split()
    for each in (
        RELEASE,
        SUMS,
        PATHS,
        "cost posterior --n 1000 --ridge 10 --scale 0.5 --least-kernel 0.1 --delta 1e-5 --rule published --paths 2",
        "cost posterior --n 99 --ridge 9 --scale 1 --kernel rbf --length-scale 0.1 --diameter 1 --rule published",
        "cost posterior --n 99 --ridge 9 --scale 1 --least-kernel 0 --delta 1e-5 --neighbours add-remove",
        "calibrate posterior --n 500 --epsilon 2 --ridge 20 --least-kernel 0 --rule published --solve scale",
        "cost kernel-sum --epsilon 1 --delta 1e-5 --columns 2 --kernels 1 --contributions 2 --response-bound 1",
        "cost selection --base gaussian --mu 0.5 --runs tnb --shape 0.5 --mean 10 --delta 1e-6 --rule renyi",
        "cost selection --base pure --epsilon 0.1 --runs poisson --mean 10 --cap 50 --rule renyi",
        "cost gradient --n 1000 --steps 10 --noise 0.1 --clip 1 --delta 1e-5",
        "calibrate gradient --n 1000 --steps 10 --epsilon 1 --delta 1e-5 --neighbours add-remove",
        "calibrate selection --total-epsilon 2 --base gaussian --runs geometric --mean 5 --rule renyi --solve base",
        PLAN + "--public-table sales.csv",
        "audit pair --n 20 --ridge 5 --scale 1 --kernel rbf --length-scale 0.3 --domain 0:1 --delta 1e-3 --seconds 0.1",
        "plan selection --good 0.1 --success 0.6 --base pure --epsilon 0.1 --shapes 0,1 --rule renyi",
        "ledger init new.ledger --dataset d --epsilon 1 --delta 1e-5 --composition renyi-filter --order 8",
        "ledger show book.ledger --json",
        "ledger spend-report book.ledger --last 3",
        "ledger verify book.ledger --head 1:abc --certificate input.json",
        "ledger export book.ledger --out export.jsonl",
        "ledger list book.ledger",
        "certificate keygen key2",
        "certificate sign input.json --key key --out signed.json",
        "certificate verify input.json --public-key key.pub --ledger book.ledger",
    )
]
WORDS = [
    *NUMBERS,
    *(
        "n^-1",
        "n^99999",
        "n^nan",
        "n^",
        "1:2",
        "2:1",
        "0:0",
        "1:inf",
        ":",
        "1:2,",
        "1:2:3",
        ",",
        " ",
        "a,a",
        "\udc80",
        "é",
    ),
    *(
        "-",
        "--",
        "-x",
        "--help",
        "--json",
        "-h",
        ".",
        "..",
        "out",
        "key",
        "sales.csv",
        "book.ledger",
        "missing/x",
        "x" * 5000,
    ),
    *("hexagons:0", "hexagons:1e-300", "hexagons:nan", "hexagons:5000", "owner=", "=", "price_gbp=1", "EPSG:27700"),
    *(
        "EPSG:4326",
        "EPSG:99999999",
        "auto",
        "posterior",
        "kernel-sum",
        "rational-quadratic",
        "geotiff",
        "geotiff,x",
        "log",
    ),
    *(
        "postgresql://",
        "postgresql://u@/d?ledger=",
        "mysql://x",
        "file://x",
        "separated:1:2",
        "rkhs:",
        "rkhs:1:2",
        "a\nb",
    ),
    *(
        "easting_m,northing_m",
        "100000",
        "100000,100000",
        "1000000",
        "20000",
        "best",
        "renyi",
        "profile",
        "utf-7",
        "[red]",
    ),
]


def _damaged_words(rng: random.Random, undamaged: Sequence[str]) -> list[str]:
    """The words after a few changes."""
    words = list(undamaged)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(1, len(words) + 1)
        way = rng.random()
        if way < 0.55 and at < len(words):
            words[at] = rng.choice(WORDS) if rng.random() < 0.9 else words[at] + rng.choice(WORDS)
        elif way < 0.7 and at < len(words):
            del words[at]
        elif way < 0.85:
            other = rng.choice(BASES)
            start = rng.randrange(len(other))
            words[at:at] = other[start : start + 2]
        else:
            words.insert(at, rng.choice(WORDS))
    return words


def _words(site: Site, rng: random.Random) -> bool:
    site.file(".json", site.certificate_texts[0])
    words = _damaged_words(rng, rng.choice(BASES))
    try:
        return (unpaid(site, words) if words[0] == "release" else command(words)) != 0
    finally:
        _tidy(site)


def _tidy(site: Site) -> None:
    """Remove what commands made, so that the next input finds the same place."""
    kept = {"sales.csv", "plain.csv", "key", "key.pub", "book.ledger", "other.sqlite", "decoder.npz"}
    for path in site.folder.iterdir():
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _release(site: Site, rng: random.Random) -> bool:
    """A damaged table, and options that are in order."""
    path = str(site.file(".csv", damaged(rng, rng.choice(site.csv), site.csv)))
    base = rng.choice((RELEASE, SUMS, PATHS)).split()
    more = rng.choice(([], ["--outside", "drop"], ["--outside", "clamp", "--missing", "drop"], ["--decimal", ","]))
    return unpaid(site, ["release", path, *base[2:], *more]) != 0


def _public_table(site: Site, rng: random.Random) -> bool:
    """A damaged earlier table for a plan, or beside a private one that is in order."""
    path = str(site.file(".csv", damaged(rng, rng.choice(site.csv), site.csv)))
    if rng.random() < 0.9:
        return command([*PLAN.split(), "--public-table", path]) != 0
    # Exit code 4 is that of a plan that was made and found nothing useful.
    return unpaid(site, [*AUTO.split(), "--public-table", path]) not in (0, 4)


def _configuration(site: Site, rng: random.Random) -> bool:
    path = str(site.file(".toml", damaged(rng, site.configurations[0], site.configurations)))
    table = rng.choice(("missing.csv", "sales.csv"))
    return unpaid(site, ["release", table, "--out", "out", "--force", "--config", path]) != 0


TARGETS = (
    Target("CSV", 30, of_file(lambda site: site.csv, ".csv", _csv)),
    Target("gzip", 3, of_file(_gzip, ".csv.gz", _csv)),
    Target("Parquet", 9, of_file(lambda site: site.parquet, ".parquet", _parquet)),
    Target("certificate", 9, of_file(lambda site: site.certificate_texts, ".json", _certificate, json_=True)),
    Target("certificate verify", 0.5, _certificate_command),
    Target("ledger export", 8, of_file(lambda site: site.exports, ".jsonl", _export)),
    Target("ledger file", 8, of_file(lambda site: site.ledgers, ".ledger", _ledger)),
    Target("ledger command", 0.5, _ledger_command),
    Target("privacy loss", 7, of_file(lambda site: site.losses, ".json", _loss, json_=True)),
    Target("decoder", 6, of_file(lambda site: site.decoders, ".npz", _decoder)),
    Target("key", 2, of_file(lambda site: site.keys, ".pem", _key)),
    Target("region", 4, of_file(lambda site: site.maps, ".geojson", _region, json_=True)),
    Target("districts", 4, of_file(lambda site: site.maps, ".geojson", _districts, json_=True)),
    Target("options", 1.5, _words, works=True),
    Target("configuration", 0.5, _configuration, works=True),
    Target("release", 0.7, _release, works=True),
    Target("public table", 0.1, _public_table, works=True),
)
