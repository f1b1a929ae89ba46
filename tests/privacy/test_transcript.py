"""What is no file of a run is left as it is."""

import fcntl
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


def test_a_file_that_nobody_has_any_more_is_free(tmp_path):
    path = tmp_path / "run"
    name = Transcript(path).opened({"kind": "test"})
    assert Transcript(path).opened({"kind": "test"}) == name


def test_as_found_takes_back_what_was_made_and_written(tmp_path):
    path = tmp_path / "run"
    for before in (None, b""):
        if before is not None:
            path.write_bytes(before)
        first = Transcript(path)
        first.opened({"kind": "test"})
        first.close(as_found=True)
        first.close(as_found=True)
        assert (path.read_bytes() if path.exists() else None) == before
    Transcript(path).opened({"kind": "test"})
    found = path.read_bytes()
    again = Transcript(path)
    again.append({"round": 1})
    again.close(as_found=True)
    assert path.read_bytes() == found


def test_somebody_elses_file_at_the_path_stays(tmp_path):
    path = tmp_path / "run"
    first = Transcript(path)
    path.rename(tmp_path / "moved")
    path.write_text("another file")
    first.close(as_found=True)
    assert path.read_text() == "another file"


def test_a_file_that_is_no_longer_at_its_path_is_not_opened(tmp_path, monkeypatch):
    """Another process removed it between opening and locking: what was written there would be lost."""
    path = tmp_path / "run"
    taken = fcntl.flock

    def late(file, how):
        path.unlink()
        taken(file, how)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", late)
        with pytest.raises(RunError, match="taken away"):
            Transcript(path)
    Transcript(path).close()
