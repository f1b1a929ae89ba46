"""The write-ahead journal of a search: what makes an interrupted search the same search when it is taken up again.

Before anything is paid, the key from which the number of runs, the candidates and all noise follow is on the disk, and
with it what the search was begun with. The ledger names the search by a commitment to that key, so that nobody takes up
what was paid for with another key. Once a release is made it is on the disk, and from then on nothing is computed
again: it alone is handed over. To draw again instead would be a second search.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from discretion.privacy import PublicError, Randomness
from discretion.selection.binding import code_of
from discretion.selection.outcome import SelectionRelease
from discretion.selection.streams import KEY_BYTES, SearchKey

try:
    import fcntl
except ImportError:  # where there is none, nothing keeps two processes from running the same search twice over
    fcntl = None

__all__ = ["Journal", "JournalError", "plan_hash"]

_SCHEMA = 3
_LINES = 3
_LEAST_RELEASE = 1 << 16
"""Bytes to which a release is padded, or else to the next power of two: its size tells little of what won."""


class JournalError(PublicError):
    """The journal can't be used as it is; the message says what to do. It holds nothing private."""


def plan_hash(plan: Any) -> str:
    """SHA-256 of a public plan (JSON data)."""
    return hashlib.sha256(json.dumps(plan, sort_keys=True, allow_nan=False).encode()).hexdigest()


class Journal:
    """PRIVATE. One search on disk: at most three lines, readable by their owner alone.

    1. The plan, the key and when it was drawn, and codes of what the search was begun with under that key (`code_of`);
       of constant length.
    2. That the runs have begun: a constant.
    3. The release, padded. It holds the winner and nothing of the other runs.

    The file's size tells nothing of the number of runs. While open it is locked, and the lock ends with the process.

    Args:
        path: a file that does not exist, or the journal of an interrupted search by the same plan.
        plan: hash of the public plan, as `plan_hash` gives it.
        randomness: where a new search takes its key from.
        begun_with: by name what a search must be taken up with; `records` count with all they hold.

    Attributes:
        key: of the search.
        fresh: whether this object made the journal.
        begun: whether its runs have begun.

    Raises:
        JournalError: another process runs this search; the file is another plan's, or a search's that was begun with
            other records, say; it is readable by others, or is no journal.
        ValueError: records that can't be bound.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        plan: str,
        randomness: Randomness,
        begun_with: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = Path(path).absolute()
        self._file = self._opened()
        self.fresh = False
        try:
            self._lock()
            self._check_mode()
            lines = self._lines()
            if not lines:
                self.fresh = True
                drawn = SearchKey.draw(randomness)
                codes = _codes(begun_with or {}, drawn.key)
                head = {"schema": _SCHEMA, "plan": plan, "key": drawn.key.hex(), "bookable": drawn.bookable}
                self._append(head | {"drawn": drawn.drawn, "begun_with": codes})
                lines = self._lines()
            self.key = self._read_head(lines[0], plan, begun_with or {})
            self.begun = len(lines) > 1
            self._release = lines[2]["release"] if len(lines) > 2 else None
        except BaseException:
            if self.fresh:
                self.delete()  # nothing was paid
            os.close(self._file)
            raise

    @property
    def finished(self) -> bool:
        """Whether the release is on the disk."""
        return self._release is not None

    def begin(self) -> None:
        """Write down that the loss is paid and the runs begin."""
        if not self.begun:
            self.begun = True
            self._append({"begun": True})

    def keep(self, release: SelectionRelease) -> None:
        """Write the release down; on disk before this returns, and so before it is booked or leaves."""
        body = pickle.dumps(release)
        size = max(_LEAST_RELEASE, 1 << (len(body) - 1).bit_length())
        self._release = base64.b64encode(body.ljust(size, b"\0")).decode()
        self._append({"release": self._release})

    def release(self) -> SelectionRelease:
        """The release that was kept.

        Raises:
            JournalError: it can't be read, as after a change of the programs it is made of.
        """
        assert self._release is not None
        try:
            found = pickle.loads(base64.b64decode(self._release))  # what follows a pickle's end is not read
        except Exception:
            found = None
        if not isinstance(found, SelectionRelease):
            raise JournalError(f"The release in {self.path} can't be read. Run the programs with which it was made.")
        return found

    def forget(self) -> None:
        """Take the release out again: it is not the one that was booked."""
        self._release = None
        os.ftruncate(self._file, sum(len(line) for line in self._read().splitlines(keepends=True)[: _LINES - 1]))
        os.fsync(self._file)

    def delete(self) -> None:
        """Remove the file: the search has ended."""
        self.path.unlink(missing_ok=True)
        self._synchronise_folder()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        os.close(self._file)

    def __repr__(self) -> str:
        return "Journal(PRIVATE)"

    # --- Inside

    def _opened(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        except OSError as error:
            raise JournalError(f"Cannot open the journal {self.path}: {error.strerror}.") from None

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise JournalError(
                f"Another process is running the search of {self.path}: wait for it, or end it."
            ) from None

    def _check_mode(self) -> None:
        state = os.fstat(self._file)
        others = os.name == "posix" and (state.st_mode & 0o077 or state.st_uid != os.geteuid())
        if others or state.st_nlink != 1:
            raise JournalError(
                f"The journal {self.path} belongs to somebody else, or others may read it, and with it the noise. "
                "Whatever was released from it is not protected. Delete it and choose a private place."
            )

    def _read(self) -> bytes:
        os.lseek(self._file, 0, os.SEEK_SET)
        parts = []
        while part := os.read(self._file, 1 << 24):
            parts.append(part)
        return b"".join(parts)

    def _lines(self) -> list[dict[str, Any]]:
        """The entries. A torn line is cut off, as nothing came after it: each is synchronised before what follows.

        A torn first line is refused with everything else that is no journal.
        """
        text = self._read()
        whole, _, torn = text.rpartition(b"\n")
        entries = [_checked(line) for line in whole.split(b"\n")] if text else []
        kinds = [next((kind for kind in ("key", "begun", "release") if each and kind in each), "") for each in entries]
        if kinds != ["key", "begun", "release"][: len(kinds)] or len(entries) + bool(torn) > _LINES:
            raise JournalError(
                f"{self.path} is not a journal of a search, or it is damaged. If a search was interrupted, it can't be "
                "taken up again; what it reserved stays spent. Move the file away and begin anew."
            )
        if torn:
            os.ftruncate(self._file, len(text) - len(torn))
        return [entry for entry in entries if entry is not None]

    def _append(self, entry: dict[str, Any]) -> None:
        os.lseek(self._file, 0, os.SEEK_END)
        body = json.dumps(entry, sort_keys=True).encode()
        left = memoryview(hashlib.sha256(body).hexdigest().encode() + b" " + body + b"\n")
        while left:
            left = left[os.write(self._file, left) :]
        os.fsync(self._file)
        self._synchronise_folder()

    def _read_head(self, entry: dict[str, Any], plan: str, begun_with: Mapping[str, Any]) -> SearchKey:
        if entry.get("schema") != _SCHEMA or entry.get("plan") != plan:
            raise JournalError(
                f"{self.path} is the journal of another search, or of another version of this library. To take that "
                "search up again, give the same candidates, score, law and n; otherwise choose another path."
            )
        key = bytes.fromhex(entry["key"])
        if len(key) != KEY_BYTES:
            raise JournalError(f"{self.path} is not a journal of a search.")
        codes = _codes(begun_with, key)
        changed = [name for name in codes if entry["begun_with"].get(name) != codes[name]]
        if changed:
            raise JournalError(
                f"The search of {self.path} was begun with something else: not the same {', '.join(changed)}. With the "
                "same noise, two results would tell the difference. Take it up with what it was begun with, or move "
                "the file away and begin anew; what it reserved stays spent."
            )
        return SearchKey(key, entry["bookable"] is True, entry["drawn"])

    def _synchronise_folder(self) -> None:
        if os.name == "posix":
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def _checked(line: bytes) -> dict[str, Any] | None:
    """The entry of a line, or None where its checksum is wrong."""
    checksum, _, body = line.partition(b" ")
    if hashlib.sha256(body).hexdigest().encode() != checksum:
        return None
    entry = json.loads(body)
    return entry if isinstance(entry, dict) else None


def _codes(begun_with: Mapping[str, Any], key: bytes) -> dict[str, str]:
    return {name: code_of(value, key, whole=name == "records") for name, value in begun_with.items()}
