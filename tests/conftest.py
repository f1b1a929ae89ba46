"""Slow tests run in `make test` and with --slow; plain pytest leaves them out.

Every run has the same examples and the same random bits of the operating system, so that what fails once fails again.
With --by-chance a run has others: to look for what fails seldom.
"""

import fcntl
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import settings

# No deadline for one example: machines are busy.
settings.register_profile("same", derandomize=True, deadline=None, database=None, print_blob=True)
settings.register_profile("by chance", deadline=None, print_blob=True)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("by chance" if config.getoption("--by-chance") else "same")


@contextmanager
def _same_bits(config: pytest.Config, key: str) -> Iterator[None]:
    """Bits that follow from a key in place of the operating system's; not in forked processes, whose bits are others.

    Everything random here is made of these: `SystemRandomness`, keys of searches, tokens, and the generators of NumPy
    that are given no seed.
    """
    if config.getoption("--by-chance"):
        yield
        return
    real, process, source = os.urandom, os.getpid(), random.Random(key)

    def urandom(size: int) -> bytes:
        return source.randbytes(size) if os.getpid() == process else real(size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", urandom)
        patch.setattr(random, "_urandom", urandom)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef, request: pytest.FixtureRequest):
    """What a fixture makes does not depend on the test that asks for it first."""
    with _same_bits(request.config, f"{request.node.nodeid} {fixturedef.argname} {getattr(request, 'param_index', 0)}"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    with _same_bits(item.config, item.nodeid):
        return (yield)


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
    parser.addoption("--by-chance", action="store_true", help="random examples and random bits, others in each run")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="slow; run with --slow"))
