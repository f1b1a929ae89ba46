"""The Python of docs/adapters.md, run as it stands there, for each tool that is installed."""

import re
from pathlib import Path

import numpy as np
import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text(encoding="utf-8")
TOOLS = {"Optuna": "optuna", "BoTorch": "botorch", "Ax": "ax"}


def blocks(tool):
    """The section of a tool; that of Optuna gives the loss that Ax's uses."""
    (section,) = re.findall(rf"^## {tool}.*?(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    return "\n".join(re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE))


SHARED = blocks("Optuna").split("release = ")[0].replace(", to_optuna", "")


def run(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"np": np, "print": lambda *_: None}
    exec(compile(code, "docs/adapters.md", "exec"), names)
    return names


@pytest.mark.filterwarnings("ignore")
def test_optuna(tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    assert len(run(blocks("Optuna"), tmp_path, monkeypatch)["study"].trials) == 5


@pytest.mark.filterwarnings("ignore")
def test_botorch(tmp_path, monkeypatch):
    pytest.importorskip("botorch")
    found = run(SHARED + blocks("BoTorch"), tmp_path, monkeypatch)
    assert found["chosen"].shape == (3, 2)
    assert len(list(found["ledger"].entries())) == 1
    assert found["best"].shape == (1, 2)


@pytest.mark.filterwarnings("ignore")
def test_ax(tmp_path, monkeypatch):
    pytest.importorskip("ax")
    found = run(SHARED + blocks("Ax"), tmp_path, monkeypatch)
    table = found["client"].summarize()
    assert len(table) == 5
    np.testing.assert_allclose(table["gradient_x"], found["result"].gradients[:, 0])
    with pytest.raises(Exception, match=r"objective|[Oo]ptimization"):
        found["client"].get_best_parameterization()
    with pytest.raises(ValueError, match="no gradient"):
        found["dimension"](found["RangeParameterConfig"](name="k", parameter_type="int", bounds=(0, 8), step_size=2))
