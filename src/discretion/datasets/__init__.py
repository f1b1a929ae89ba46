"""Small real data, each with its licence and attribution beside it."""

from importlib.resources import files
from pathlib import Path

__all__ = ["london_region", "london_sales"]

_LONDON = Path(str(files("discretion.datasets").joinpath("london")))


def london_sales(year: int) -> Path:
    """Path of the Greater London sales of one year.

    The file is a gzipped CSV with columns ``price_gbp`` (pounds), ``year``, ``new_build`` (0 or 1), ``easting_m``,
    ``northing_m`` (metres, EPSG:27700) and ``borough_code``. This project treats 2017 as public (choose
    hyper-parameters on it) and 2018 as private (release it).

    Parameters
    ----------
    year : int
        2017 or 2018.

    Raises
    ------
    ValueError
        For any other year.
    """
    path = _LONDON / f"london_{year}.csv.gz"
    if not path.is_file():
        raise ValueError(f"No London sales of {year} are bundled; the years are 2017 (public) and 2018.")
    return path


def london_region() -> Path:
    """Path of a public outline of built-up Greater London (GeoJSON, coordinates in metres, EPSG:27700)."""
    return _LONDON / "region.geojson"
