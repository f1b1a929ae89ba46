"""What is no file of a run is left as it is."""

import json
import subprocess
import sys

import pytest

from discretion.privacy.once import RunError
from discretion.privacy.transcript import Transcript


@pytest.mark.parametrize("text", [json.dumps([1, 2, 3]), "name,age", "a" * 64 + "x", "\n\nname"])
def test_somebody_elses_file_is_refused_and_not_touched(tmp_path, text):
    path = tmp_path / "records.json"
    path.write_text(text)
    with pytest.raises(RunError, match="no file of a run"):
        Transcript(path).opened({"kind": "test"})
    assert path.read_text() == text


_HOLD = """
import sys
from discretion.privacy.transcript import Transcript
held = Transcript(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_who_has_the_file_is_said(tmp_path):
    path, link = tmp_path / "run", tmp_path / "link"
    first = Transcript(path)
    link.hardlink_to(path)
    for name in (path, link):
        with pytest.raises(RunError, match=r"still open in this process: call close\(\)"):
            Transcript(name)
    first.close()
    first.close()
    Transcript(path).close()
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(RunError, match="Another process has"):
            Transcript(path)
        other.stdin.close()
    Transcript(path).close()


@pytest.mark.parametrize("left", [0, 1, 40, 64, 65, 70])
def test_a_line_that_a_crash_tore_off_is_cut_away(tmp_path, left):
    path = tmp_path / "run"
    first = Transcript(path)
    name = first.opened({"kind": "test"})
    whole = path.read_bytes()
    first.append({"round": 1})
    first.close()
    line = path.read_bytes()[len(whole) :]
    path.write_bytes(whole + line[:left])
    again = Transcript(path)
    assert again.opened({"kind": "test"}) == name
    assert path.read_bytes() == whole
    again.close()
