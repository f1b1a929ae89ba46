"""Slow tests run in `make test` and with --slow; plain pytest leaves them out."""

import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def alone_with_ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One test at a time has a ray cluster on this machine: two that start at once mistake each other's for theirs."""
    for name, value in {
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }.items():
        monkeypatch.setenv(name, value)
    with (Path(tempfile.gettempdir()) / "discretion-ray-tests.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session", autouse=True)
def _results_kept_aside(tmp_path_factory: pytest.TempPathFactory):
    """Results of long computations are kept in a folder of this test run, not in the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISCRETION_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests that take many seconds")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="slow; run with --slow"))
