"""Where the ledgers of these tests are kept: a SQLite file, and a database of a PostgreSQL server of this run."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from benchmarks.postgres import Cluster, find

NUMBERS = count(1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A throw-away PostgreSQL server."""
    if find() is None:
        pytest.skip("no PostgreSQL here (Debian: apt-get install postgresql)")
    with Cluster(durable=False) as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Each call gives a place where no ledger is yet; in PostgreSQL, all in one database."""
    if request.param == "sqlite":
        return lambda: str(tmp_path / f"{next(NUMBERS)}.ledger")
    url = request.getfixturevalue("cluster").url
    return lambda: f"{url}&ledger=number-{next(NUMBERS)}"
