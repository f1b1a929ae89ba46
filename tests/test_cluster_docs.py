"""The Python of the document on clusters, run as it stands there: small, on clusters in this process."""

import importlib.util
import re
from pathlib import Path

import pytest

pytest.importorskip("distributed")

DOCUMENT = Path(__file__).parents[1] / "docs" / "clusters.md"


@pytest.mark.slow
def test_the_python_of_the_document_works(tmp_path, monkeypatch):
    for name, value in (
        ("RAY_AUTH_MODE", "disabled"),
        ("RAY_USAGE_STATS_ENABLED", "0"),
        ("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    space: dict = {"__name__": "document"}
    try:
        for code in blocks:
            if "import ray" not in code or importlib.util.find_spec("ray"):
                exec(code, space)
    finally:
        if "ray" in space:
            space["ray"].shutdown()
    assert space["on_dask"].auc == space["alone"].auc
    assert space["release"].values.shape == (1, 144)
    assert space["release"].certificate.ledger_entry
