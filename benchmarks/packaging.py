"""The package as a user gets it: built, installed from the wheel alone in new environments, and used.

    python -m benchmarks.packaging [EXTRA ...]     # "core" is the package without extras; without words, all

Each environment is made anew, outside the repository; minutes, and gigabytes for PyTorch.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

SMOKE = {
    "core": (Path(__file__).parent / "main_jobs.py").read_text(encoding="utf-8"),
    "geo": """
import json, pathlib
import numpy as np
from discretion.spatial import read_table
from discretion.spatial.projection import Projection
import shapely
longitude, latitude = Projection("EPSG:27700").to_lonlat(np.array([[530_000.0, 180_000.0]]))[0]
assert abs(longitude + 0.13) < 0.05 and abs(latitude - 51.5) < 0.05
""",
    "parquet": """
import pyarrow as pa, pyarrow.parquet
from discretion.gp import Box
from discretion.spatial import read_table
pyarrow.parquet.write_table(pa.table({"x": [0.1, 0.2], "y": [1.0, 2.0]}), "t.parquet")
records = read_table("t.parquet", covariates=["x"], response="y", domain=Box((0,), (1,)), response_range=(0, 3))
assert records.n == 2
""",
    "raster": """
import numpy as np
from discretion.gp import Box
from discretion.spatial.projection import Projection
from discretion.spatial.raster import read_geotiff, write_geotiff
box = Box((500_000, 150_000), (510_000, 160_000))
write_geotiff("map.tif", {"mean": np.arange(12.0).reshape(3, 4)}, box, projection=Projection("EPSG:27700"))
assert np.array_equal(read_geotiff("map.tif").bands["mean"], np.arange(12.0).reshape(3, 4))
""",
    "accounting": """
from discretion.privacy import GaussianDP, Neighbours
from discretion.privacy.interchange import from_dp_event, to_dp_event
loss = GaussianDP(0.5, neighbours=Neighbours.ADD_REMOVE)
there = from_dp_event(to_dp_event(loss), Neighbours.ADD_REMOVE)
assert abs(there.epsilon(1e-5) - loss.epsilon(1e-5)) < 1e-9
""",
    "opendp": """
import numpy as np
from discretion.gp import RBF, Box
from discretion.posterior import KernelSumMechanism
from discretion.privacy.interchange import to_opendp_measurement
from opendp.mod import enable_features
enable_features("contrib", "honest-but-curious")
mechanism = KernelSumMechanism(RBF(0.2), domain=Box((0, 0), (1, 1)), response_ranges=(0, 1), scale=2.0, delta=1e-5,
                               grid=(4, 4))
assert to_opendp_measurement(mechanism, n=100) is not None
""",
    "signing": """
from discretion.privacy.signing import generate_key, read_private_key
generate_key("steward.key")
assert read_private_key("steward.key") is not None
""",
    "postgres": """
from discretion.privacy import Ledger, LedgerError
try:
    Ledger.open("postgresql://nobody:pw-7f3@127.0.0.1:1/none")
except LedgerError as error:
    assert "cannot be reached" in str(error) and "pw-7f3" not in str(error), error
""",
    "optuna": """
import numpy as np
from discretion.bayesopt import Linear, minimize, to_optuna
release = minimize(lambda x: np.full(50, x**2), {"x": Linear(-2, 2)}, n=50, steps=2, clip=4.0, mu=1.0)
assert len(to_optuna(release, study_name="s").trials) == 2
""",
    "dask": """
import dask, numpy as np
from distributed import Client, LocalCluster
from discretion import Box, PosteriorSampler
from discretion.gp.cluster import Dask
X = np.random.default_rng(0).uniform(size=(50, 2))
in_memory = {f"distributed.worker.memory.{limit}": False for limit in ("target", "spill", "pause")}
local = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
with dask.config.set(in_memory), LocalCluster(**local) as cluster, Client(cluster):
    sampler = PosteriorSampler(Box((0, 0), (1, 1)), (-1, 1), ridge=20.0, scale=0.1, delta=1e-3, grid=4, engine=Dask())
    assert sampler.fit(X, X[:, 0]).release_.on_grid().shape == (1, 4, 4)
""",
    "jax": """
from discretion.bilevel.backends import JaxBackend
assert JaxBackend() is not None
""",
    "torch": """
from discretion.bilevel.backends import TorchBackend
assert TorchBackend() is not None
""",
    "botorch": """
from discretion.posterior.botorch import PathModel
""",
    "ray": """
import os
os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
import ray
from joblib import parallel_config
from ray.util.joblib import register_ray
from discretion.audit import PathGame, repeated
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
register_ray()
game, size = PathGame(ridge=3.0, scale=0.5), {"repetitions": 2, "shadows": 50, "trials": 50, "delta": 1e-3}
with parallel_config("ray", n_jobs=1):
    there = repeated(game, **size)
ray.shutdown()
assert there.auc == repeated(game, **size).auc
""",
    "peers": """
import celerite2, gpytorch, tinygp
from discretion.posterior.botorch import PathModel
""",
}
"""What must run with each extra installed from the wheel alone."""

TORCH = ("torch", "peers")
"""In the names of extras that bring PyTorch."""


@dataclass(frozen=True)
class Trial:
    """One environment: the extra, whether its smoke test passed, and what pip and the test said if not."""

    extra: str
    passed: bool
    said: str


def extras() -> list[str]:
    """The extras that users install, as pyproject.toml names them; not those for developers."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return [each for each in named if each not in ("test", "docs")]


def pythons() -> dict[str, Path | None]:
    """An interpreter of each version that pyproject.toml names, where this machine has one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [each.rpartition(" ")[2] for each in project["classifiers"] if "Python :: 3." in each]
    return {version: _interpreter(version) for version in named}


def _interpreter(version: str) -> Path | None:
    beside = sorted(Path(sys.base_prefix).parent.glob(f"{version}.*/bin/python"))
    for path in (shutil.which(f"python{version}"), *beside):
        asked = [str(path), "-c", "import sys, ensurepip; print('%d.%d' % sys.version_info[:2])"]
        # What pyenv puts on the path may be there and refuse to run.
        if path and subprocess.run(asked, capture_output=True, text=True).stdout.strip() == version:
            return Path(path)
    return None


def long_description(readme: str) -> str:
    """What an index shows of the README: the text after the substitutions of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    for each in hook["substitutions"]:
        readme = re.sub(each["pattern"], each["replacement"], readme)
    return readme


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel and the source distribution, the wheel built from the source distribution."""
    _run([sys.executable, "-m", "venv", str(folder / "builder")])
    python = folder / "builder" / "bin" / "python"
    _run([str(python), "-m", "pip", "install", "--quiet", "build"])
    _run([str(python), "-m", "build", "--outdir", str(folder / "dist"), str(ROOT)])
    (wheel,) = (folder / "dist").glob("*.whl")
    (source,) = (folder / "dist").glob("*.tar.gz")
    return wheel, source


def tried(
    wheel: Path,
    extra: str,
    folder: Path,
    *,
    also: tuple[str, ...] = (),
    code: str | None = None,
    interpreter: str | Path = sys.executable,
) -> Trial:
    """Install ``wheel[extra]`` (and packages beside it) in a new environment, check it with pip, run the smoke test."""
    home = Path(tempfile.mkdtemp(prefix=f"try-{extra}-", dir=folder))
    python = home / "venv" / "bin" / "python"
    _run([str(interpreter), "-m", "venv", str(home / "venv")])
    what = str(wheel) if extra == "core" else f"{wheel}[{extra}]"
    if any(each in extra for each in TORCH):  # the build for the processor alone; the other is gigabytes larger
        also = ("torch==2.13.0", *also)
    steps = (
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", what, *also],
        [str(python), "-m", "pip", "check", "--disable-pip-version-check"],
        [str(python), "-c", SMOKE[extra] if code is None else code],
    )
    bare = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    for step in steps:
        done = subprocess.run(step, cwd=home, capture_output=True, text=True, env=bare)
        if done.returncode:
            return Trial(extra, False, (done.stdout + done.stderr).strip()[-2000:])
    return Trial(extra, True, "")


def oldest(folder: Path, *areas: str) -> tuple[bool, str]:
    """Whether the fast tests of these areas pass at the least versions of dependencies, and what pytest says of it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ours = ("geo", "parquet", "raster", "accounting", "opendp", "signing", "postgres")
    wanted = [*project["dependencies"], *(each for extra in ours for each in project["optional-dependencies"][extra])]
    pins = folder / "oldest.txt"
    pins.write_text("\n".join({each.replace(">=", "==") for each in wanted if "discretion" not in each}))
    python = folder / "oldest" / "bin" / "python"
    _run([sys.executable, "-m", "venv", str(folder / "oldest")])
    tools = ("pytest", "hypothesis", "jsonschema", "mpmath", "pandas<3", "polars")
    _run([str(python), "-m", "pip", "install", "--quiet", "-r", str(pins), *tools])
    _run([str(python), "-m", "pip", "install", "--quiet", "--no-deps", "-e", str(ROOT)])
    tests = [str(ROOT / "tests" / area) for area in areas]
    command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines() or [done.stderr.strip()[-300:]]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return done.returncode == 0, "; ".join([*failed, lines[-1]])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)[:200]}: {(done.stdout + done.stderr).strip()[-2000:]}")


def main(words: list[str]) -> int:
    """Try what is named; 1 if anything fails."""
    wanted = words or ["core", *extras()]
    if unknown := sorted(set(wanted) - set(SMOKE)):
        raise SystemExit(f"No smoke test for {', '.join(unknown)}; there are {', '.join(SMOKE)}.")
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel, source = build(folder)
        print(f"wheel {wheel.stat().st_size / 1e6:.2f} MB, source {source.stat().st_size / 1e6:.2f} MB", flush=True)
        for extra in wanted:
            trial = tried(wheel, extra, folder)
            failed += not trial.passed
            print(f"{extra}: {'passed' if trial.passed else trial.said}", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
