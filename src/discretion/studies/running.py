"""Running a study: configurations through joblib, each result kept, so that a study that was stopped goes on."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from joblib import parallel_config
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from discretion.posterior.planner.parallel import as_they_come

SCALES = ("quick", "full")
BACKENDS = ("loky", "threading", "dask", "ray")


@dataclass(frozen=True)
class Run:
    """How large a study is, on how many cores and where its results go.

    `scale` is "quick" (a minute or so) or "full" (as published); `jobs` as in joblib; `out` a folder. Results of single
    configurations are kept in ``out/parts`` and read instead of computed again; delete them to start afresh. `seed` is
    that of all simulated worlds. `data` is a folder with data sets that are not bundled, for the studies that have a
    use for them. ValueError for another `scale`.
    """

    scale: str
    out: Path
    jobs: int = 1
    seed: int = 0
    data: Path | None = None

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise ValueError(f"scale is one of {', '.join(SCALES)}; got {self.scale!r}.")
        (self.out / "parts").mkdir(parents=True, exist_ok=True)

    def pick(self, quick: Any, full: Any) -> Any:
        """One of two settings, by scale."""
        return quick if self.scale == "quick" else full

    def each(self, study: str, compute: Callable[..., Any], settings: Sequence[dict[str, Any]]) -> list[Any]:
        """``compute(**setting)`` for each setting, in their order: from disk, or through joblib and then to disk.

        Settings and results are JSON data. The name of the file is a digest of study and setting. A new version of the
        library computes anew.
        """
        files = [self._file(study, setting) for setting in settings]
        missing = [index for index, file in enumerate(files) if not file.exists()]
        console = Console(stderr=True)
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        with Progress(*columns, console=console) as bar:
            task = bar.add_task(study, total=len(files), completed=len(files) - len(missing))
            for number, result in as_they_come(compute, [settings[index] for index in missing], self.jobs):
                index = missing[number]
                _written(files[index], {"setting": settings[index], "result": result})
                bar.advance(task)
        return [json.loads(file.read_text(encoding="utf-8"))["result"] for file in files]

    def _file(self, study: str, setting: dict[str, Any]) -> Path:
        from discretion import __version__

        text = json.dumps([study, setting, __version__], sort_keys=True)
        return self.out / "parts" / f"{study}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def _written(file: Path, data: Any) -> None:
    """Whole or not at all."""
    draft = file.with_suffix(f".{os.getpid()}.tmp")
    draft.write_text(json.dumps(data, default=_plain), encoding="utf-8")
    draft.replace(file)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


@contextmanager
def backend(name: str, address: str | None = None) -> Iterator[None]:
    """Run what goes through joblib on the backend `name`: dask and ray on the cluster at `address`, or a local one.

    ValueError for a name that is not in `BACKENDS`; ImportError with what to install where the backend is missing.
    """
    if name not in BACKENDS:
        raise ValueError(f"backend is one of {', '.join(BACKENDS)}; got {name!r}.")
    if name == "dask":
        try:
            from distributed import Client  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ImportError("the dask backend needs: pip install 'dask[distributed]'") from None
        with Client(address) if address else Client(processes=True, dashboard_address=None), parallel_config("dask"):
            yield
    elif name == "ray":
        try:
            import ray  # pyright: ignore[reportMissingImports]
            from ray.util.joblib import register_ray  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ImportError("the ray backend needs: pip install ray") from None
        ray.init(address=address, ignore_reinit_error=True, include_dashboard=False, log_to_driver=False)
        register_ray()
        try:
            with parallel_config("ray"):
                yield
        finally:
            ray.shutdown()
    else:
        with parallel_config(name):
            yield


@dataclass(frozen=True)
class Report:
    """A table, and how to draw it.

    `rows` hold text and numbers, one for each of `columns`; `title` and `notes` stand above. Files are called `name`;
    `draw` fills a figure of `size` inches (width, height).
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    notes: tuple[str, ...] = ()
    draw: Callable[[Figure], None] | None = None
    size: tuple[float, float] = (9.0, 4.0)

    def write(self, out: Path) -> list[Path]:
        """Write NAME.csv, NAME.md and, where it can be drawn, NAME.png into the folder `out`; return their paths."""
        table, page = out / f"{self.name}.csv", out / f"{self.name}.md"
        with table.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([self.columns, *self.rows])
        page.write_text(self.markdown() + "\n", encoding="utf-8")
        if self.draw is None:
            return [table, page]
        figure = Figure(figsize=self.size, layout="constrained")
        FigureCanvasAgg(figure)
        self.draw(figure)
        figure.savefig(out / f"{self.name}.png", dpi=150)
        return [table, page, out / f"{self.name}.png"]

    def markdown(self) -> str:
        """The table as Markdown."""
        lines = [f"# {self.title}", "", *(f"{note}\n" for note in self.notes)]
        lines += ["| " + " | ".join(self.columns) + " |", "|" + " --- |" * len(self.columns)]
        lines += ["| " + " | ".join(map(shown, row)) + " |" for row in self.rows]
        return "\n".join(lines)


def shown(value: Any) -> str:
    """A cell: four significant digits."""
    if value is None:
        return ""
    if isinstance(value, float):
        return "inf" if math.isinf(value) else f"{value:.4g}"
    return str(value)


def quartiles(values: Any) -> tuple[float, float, float]:
    """Median, lower and upper quartile."""
    low, middle, high = np.quantile(np.asarray(values, dtype=np.float64), (0.25, 0.5, 0.75))
    return float(middle), float(low), float(high)


def spread(found: Sequence[float] | None) -> str:
    """median [lower, upper], or the median alone."""
    if found is None:
        return ""
    return shown(float(found[0])) + (
        f" [{shown(float(found[1]))}, {shown(float(found[2]))}]" if len(found) == 3 else ""
    )
