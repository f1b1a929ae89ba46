"""One process, one call at a time; and a run's lines on disk."""

import os
import stat
import threading
import time

import pytest

from discretion.privacy.once import Alone, RunError, alone
from discretion.privacy.transcript import Transcript


class Counter:
    def __init__(self):
        self._alone = Alone("counter")
        self.value = 0

    @alone
    def add(self, within=lambda: None):
        """Read, wait, write: two at once would count one."""
        value = self.value
        time.sleep(0.02)
        within()
        self.value = value + 1
        return self.value

    @alone(nested=True)
    def read(self):
        return self.value


def test_threads_wait_for_each_other():
    counter = Counter()
    threads = [threading.Thread(target=counter.add) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert counter.read() == 8
    assert counter.add.__doc__.startswith("Read")


def test_from_inside_only_what_may_be():
    counter, seen = Counter(), []
    counter.add(lambda: seen.append(counter.read()))
    assert seen == [0]
    with pytest.raises(RunError, match="middle of a call"):
        counter.add(counter.add)
    with pytest.raises(RunError, match="middle of a call"):
        counter.add(lambda: (counter.read(), counter.add()))
    assert counter.add() == 2  # free again after an error


def forked(call):
    """Whether a call in a forked process is refused."""
    pid = os.fork()
    if pid == 0:
        try:
            call()
        except RunError as error:
            os._exit(7 if "fork" in str(error) else 1)
        except BaseException:
            os._exit(2)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_is_another_process():
    counter = Counter()
    assert forked(counter.add)
    assert forked(counter.read)
    refused = []
    counter.add(lambda: refused.append(forked(counter.add)))  # also while the lock is held
    assert refused == [True]


# --- lines


def test_lines_are_chained(tmp_path):
    with_lines = Transcript(tmp_path / "a")
    for k in range(3):
        with_lines.append({"k": k})
    with_lines.close()
    text = (tmp_path / "a").read_bytes()
    lines = text.splitlines(keepends=True)
    again = Transcript(tmp_path / "a")
    assert again.lines == [{"k": k} for k in range(3)]
    assert [line.split(b" ")[0].decode() for line in lines] == again.digests
    again.close()
    for wrong in (lines[0] + lines[2] + lines[1], lines[0] + lines[2], lines[1] + lines[2]):
        (tmp_path / "a").write_bytes(b"".join([wrong]))
        with pytest.raises(RunError, match="damaged"):
            Transcript(tmp_path / "a")


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_a_private_file_that_was_open_to_all_is_closed(tmp_path):
    path = tmp_path / "b"
    path.touch(0o644)
    Transcript(path, private=True).append({"y": [0.123]})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_header_names_the_run(tmp_path):
    file = Transcript(tmp_path / "a")
    name = file.opened({"parameters": {"rounds": 3}, "delta": 1e-5})
    assert file.opened({"delta": 1e-5, "parameters": {"rounds": 3}}) == name
    for other in ({"parameters": {"rounds": 3}, "delta": 1e-6}, {"parameters": {"rounds": 4}, "delta": 1e-5}, {}):
        with pytest.raises(RunError, match="fixed with its first line"):
            file.opened(other)
