"""The Python of the documents on tuning, run as it stands there, and the example."""

import importlib.util
import re
from pathlib import Path

import pytest

from discretion.privacy import Ledger
from discretion.selection import Outcome

ROOT = Path(__file__).parents[1]


def blocks_of(document: str) -> list[str]:
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    wanted = [code for code in found if "import ray" not in code or importlib.util.find_spec("ray")]
    assert len(wanted) >= 2
    return wanted


@pytest.mark.slow
@pytest.mark.parametrize("document", ["tuning.md", "selection.md"])
def test_the_python_of_a_document_works(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space: dict = {"__name__": "document"}
    for code in blocks_of(document):
        exec(code, space)
    if "ray" in space:
        space["ray"].shutdown()
    if document == "tuning.md":
        search, release = space["search"], space["release"]
        assert 0.999 * 3.0 <= search.privacy_loss(400).epsilon(1e-5) <= 3.0
        assert search.outcome_ is Outcome.CHOSEN
        assert search.release_.certificate.ledger_entry
        assert 0.999 * 2.0 <= release.certificate.epsilon <= 2.0
        assert release.choice["top"] in (50.0, 100.0, 200.0)
    else:
        assert len(space["book"].entries()) == 3


@pytest.mark.slow
def test_the_example_tunes_a_classifier(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT)
    from examples import tuning

    tuned = tuning.main(tmp_path)
    said = capsys.readouterr().out
    assert tuned.outcome_ is Outcome.CHOSEN
    assert tuned.best_score_ > 0.8
    assert "PRIVACY CERTIFICATE" in said
    assert "PrivateLogisticRegression with alpha" in said
    (entry,) = Ledger.open(tmp_path / "tumours.ledger").entries()
    assert tuned.release_.certificate.ledger_entry.endswith(f"#{entry.id}")
    assert not (tmp_path / "tumours.journal").exists()
