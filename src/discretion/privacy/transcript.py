"""Lines on disk, written ahead: each is there, whole and synchronised, before the next thing happens.

A line is a checksum of everything up to it and a JSON object, so that a line that was altered, lost or swapped is
noticed. A last line that a crash tore off is cut away: what it would have said has not happened.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from discretion.privacy.certificate import canonical, public_json
from discretion.privacy.once import RunError

try:
    import fcntl
except ImportError:  # where there is none, nothing keeps two processes from running the same run
    fcntl = None

__all__ = ["Transcript"]

_BEGUN = re.compile(rb"[0-9a-f]{0,64}|[0-9a-f]{64} (\{.*)?", re.DOTALL)
"""What a crash can leave of a line."""

_MOST, _SHORT = 8, 60
"""Of differences that a message lists, and of the letters of a value in it."""
_WORDS = {"schema": "version of the file", "bookable": "bookable source of noise", "event": "kind of run"}

_HELD: set[tuple[int, int, int]] = set()
"""Process, device and number of each file that is open here: a fork keeps the set, and not what it says."""


def _differences(there: Any, here: Any) -> str:
    """What differs between two headers, both public: names, with the values where they are short."""
    found = [
        f"{_WORDS.get(name, name.removeprefix('parameters.'))} ({one} there, {other} here)"
        for name, one, other in _different("", there, here)
    ]
    more = [f"and {len(found) - _MOST} more"] if len(found) > _MOST else []
    return ", ".join([*found[:_MOST], *more])


def _different(name: str, there: Any, here: Any) -> Iterator[tuple[str, str, str]]:
    """Dotted names of what differs, and both values."""
    if isinstance(there, dict) and isinstance(here, dict):
        for each in {**there, **here}:
            yield from _different(f"{name}.{each}".lstrip("."), there.get(each), here.get(each))
    elif canonical(there) != canonical(here):
        texts = ("none" if value is None else canonical(value) for value in (there, here))
        one, other = (text if len(text) <= _SHORT else "something longer" for text in texts)
        yield name, one, other


class Transcript:
    """The lines of one run, in a file that one object has open, until it is closed or nobody has it any more.

    Args:
        path: a file that does not exist, or one that was begun before.
        private: readable by its owner alone, whatever it was before.

    Attributes:
        lines: what was read and appended, as JSON data.
        digests: the checksum of each line, which is one of all lines before it too.

    Raises:
        RunError: the file cannot be opened, another process or object has it, or it is damaged.
    """

    def __init__(self, path: str | os.PathLike[str], *, private: bool = False) -> None:
        self.path = Path(path).absolute()
        self.lines: list[dict[str, Any]] = []
        self.digests: list[str] = []
        self._file: int | None = None
        self._found: int | None = None  # bytes of it that were read
        self._held: tuple[int, int, int] | None = None
        flags, mode = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600 if private else 0o644
        try:
            try:
                self._file, self._made = os.open(self.path, flags | os.O_EXCL, mode), True
            except FileExistsError:
                self._file, self._made = os.open(self.path, flags, mode), False
        except OSError as error:
            raise RunError(f"Cannot open {self.path}: {error.strerror}.") from None
        try:
            self._take()
            if private and os.name == "posix":
                self._hide()
            self._read()
        except BaseException:
            self.close(as_found=True)
            raise

    def append(self, line: dict[str, Any]) -> None:
        """Write a line; it is on disk before this returns."""
        if self._file is None:
            raise RunError(f"{self.path} was closed; open the run again.")
        body = canonical(public_json(line, "line"))
        digest = self._next(body)
        end, data = os.lseek(self._file, 0, os.SEEK_END), f"{digest} {body}\n".encode()
        try:
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)
        except BaseException:
            os.ftruncate(self._file, end)  # so that nothing follows half a line
            raise
        if not self.lines and os.name == "posix":  # the name of a new file is in its folder
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        self.lines.append(json.loads(body))
        self.digests.append(digest)

    def opened(self, header: Mapping[str, Any]) -> str:
        """The name of the run with this header, which becomes the first line of a new file.

        Raises:
            RunError: the file is of a run with another header.
        """
        if not self.lines:
            self.append({**header, "id": str(uuid.uuid4())})
        found = dict(self.lines[0])
        name = str(found.pop("id", ""))
        if canonical(found) != canonical(public_json(header, "header")):
            raise RunError(
                f"{self.path} is a run with other parameters: {_differences(found, public_json(header, 'header'))}. "
                "All were fixed with its first line: give the same, or another path."
            )
        return name

    def close(self, *, as_found: bool = False) -> None:
        """Let others have it; `as_found`: without what was appended, and without the file if this object made it."""
        if self._file is not None:
            leave = as_found and self._made and self._is_there()
            if leave and fcntl is not None:  # while it is locked, so that it is nobody else's by then
                self.path.unlink()
            elif as_found and self._found is not None:
                os.ftruncate(self._file, self._found)
            os.close(self._file)
            self._file = None
            if leave and fcntl is None:  # where files that are open cannot be removed
                self.path.unlink()
        if self._held is not None:
            _HELD.discard(self._held)
            self._held = None

    def __del__(self) -> None:
        """The lock of an object that nobody has any more would last as long as the process."""
        self.close()

    def _next(self, body: str) -> str:
        before = self.digests[-1] if self.digests else ""
        return hashlib.sha256(f"{before}\n{body}".encode("utf-8", "replace")).hexdigest()

    def _take(self) -> None:
        if fcntl is None or self._file is None:
            return
        found = os.fstat(self._file)
        this = (os.getpid(), found.st_dev, found.st_ino)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if this in _HELD:
                raise RunError(
                    f"{self.path} is still open in this process: call close() on the object that has it, or use that."
                ) from None
            raise RunError(f"Another process has {self.path} open: wait for it, or end it.") from None
        _HELD.add(this)
        self._held = this
        if not self._is_there():
            raise RunError(f"{self.path} was taken away while it was opened. Open it again.")

    def _is_there(self) -> bool:
        """Whether the path still names the file that is open."""
        assert self._file is not None
        try:
            return os.path.samestat(os.fstat(self._file), self.path.stat())
        except OSError:
            return False

    def _hide(self) -> None:
        assert self._file is not None
        try:
            os.fchmod(self._file, 0o600)
        except OSError:
            raise RunError(f"{self.path} belongs to somebody else, who could read what is private.") from None

    def _read(self) -> None:
        assert self._file is not None
        with os.fdopen(os.dup(self._file), "rb") as file:
            data = file.read()
        whole, _, torn = data.rpartition(b"\n")
        for line in whole.decode("utf-8", "replace").split("\n") if whole else ():
            digest, _, body = line.partition(" ")
            if digest != self._next(body):
                raise RunError(f"{self.path} is damaged, or no file of a run. Bring back a copy, or begin anew.")
            self.lines.append(json.loads(body))
            self.digests.append(digest)
        if torn:
            if not _BEGUN.fullmatch(torn):
                raise RunError(f"{self.path} is no file of a run, or damaged. Bring back a copy, or begin anew.")
            os.ftruncate(self._file, len(data) - len(torn))
        self._found = len(data) - len(torn)
