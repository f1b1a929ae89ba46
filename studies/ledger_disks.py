"""A ledger on a disk that is full, read-only, torn or rotten, and under a clock that runs backwards."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import random
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.postgres import Cluster
from discretion.privacy import Ledger, LedgerError
from studies.ledger_children import (
    UNIT,
    Drill,
    Files,
    Server,
    Site,
    Tell,
    charge,
    create,
    examine,
    examine_all,
    same,
    seen,
    told_by,
)
from studies.ledger_kills import Traced

PAGE = 4096
_libc = ctypes.CDLL(None, use_errno=True)


def _in_child(drill: Drill, work: Callable[[Drill], object]) -> Drill:
    """Do `work` in a forked process, so that its mounts, limits, account and clock end with it."""

    def tell_figures(tell: Tell) -> None:
        mine = Drill(drill.name)
        work(mine)
        for what, number in mine.counts.items():
            tell(f"{number} {what}")
        for breach in mine.breaches:
            tell(f"broke {breach}")

    for word in told_by(tell_figures):
        first, _, rest = word.partition(" ")
        if first == "broke":
            drill.breaches.append(rest)
        else:
            drill.counts[rest] += int(first)
    return drill


# --- A full disk


def mounted(folder: Path, size: int) -> bool:
    """Mount a disk of `size` bytes, kept in memory, that only this process and its children see; False if forbidden."""
    private, namespace = 1 << 14 | 1 << 18, 0x20000
    return (
        _libc.unshare(namespace) == 0
        and _libc.mount(b"none", b"/", None, private, None) == 0
        and _libc.mount(b"none", os.fsencode(folder), b"tmpfs", 0, f"size={size}".encode()) == 0
    )


@contextlib.contextmanager
def _filled(folder: Path, pages: int) -> Iterator[None]:
    """Leave so many free pages on the disk."""
    ballast = folder / "ballast"
    descriptor = os.open(ballast, os.O_CREAT | os.O_WRONLY)
    with contextlib.suppress(OSError):
        while os.write(descriptor, bytes(PAGE)):
            pass
    os.ftruncate(descriptor, os.fstat(descriptor).st_size - pages * PAGE)
    os.close(descriptor)
    yield
    ballast.unlink()


@contextlib.contextmanager
def _limited(place: str, pages: int) -> Iterator[None]:
    """Forbid this process to write a file beyond so many pages, where no disk can be mounted."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (pages * PAGE, usual[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, usual)


def _charge_until_it_fails(drill: Drill, place: str, most: int = 2_000) -> None:
    """Charge until the ledger refuses for want of room; what it says then, and what is in it, must be right."""
    told: list[str] = []
    while charge(Ledger.open(place), told.append) and len(told) < 2 * most:
        pass
    drill.expect(told[-1].startswith("failed") and "disk" in told[-1], f"a full disk, and it says {told[-1]}")
    examine_all(drill, place, told)


def full_disk(where: Site, *, most_pages: int = 24) -> Drill:
    """A disk with room for ever fewer pages: the ledger says so, opens and reads, and goes on once there is room."""
    drill = Drill("the disk is full")

    def files(mine: Drill, folder: Path) -> None:
        real = mounted(folder, 2 << 20)
        mine.counts["disks filled" if real else "file sizes limited (no mount allowed)"] = most_pages
        for pages in range(most_pages):
            place = create(str(folder / f"full{pages}.ledger"), 10_000)
            room = _filled(folder, pages) if real else _limited(place, os.stat(place).st_size // PAGE + pages)
            with room:
                _charge_until_it_fails(mine, place)
            told: list[str] = []
            mine.expect(charge(Ledger.open(place), told.append), f"does not go on with room: {told}")

    def server(mine: Drill, cluster: Cluster) -> None:
        if not mounted(cluster.folder, 80 << 20):
            mine.counts["no mount allowed"] = 1
            return
        with cluster:
            inside = Server(cluster)
            for pages in range(0, 4 * most_pages, 16):
                mine.counts["disks filled"] += 1
                place = inside.fresh(10_000)
                with _filled(cluster.folder, pages):
                    _charge_until_it_fails(mine, place)
                told: list[str] = []
                mine.expect(charge(Ledger.open(place), told.append), f"does not go on with room: {told}")

    if isinstance(where, Files):
        return _in_child(drill, lambda mine: files(mine, where.folder))
    small = Cluster()
    _in_child(drill, lambda mine: server(mine, small))
    shutil.rmtree(small.folder)  # the child could not remove what it had mounted something on
    return drill


# --- A ledger that cannot be written


def _refuses(drill: Drill, place: str, words: str) -> None:
    """It can be read and verified; a charge is refused before the records are read, in words that help."""
    before = seen(place)
    told: list[str] = []
    drill.expect(not charge(Ledger.open(place), told.append), "charged though it cannot be written")
    drill.expect("handed" not in told and words in told[-1], f"says {told}")
    after = examine(drill, place, told, before)
    drill.expect(same(after[0], before[0]), "a refused charge was written")
    drill.counts["refused for want of permission"] += 1


def read_only(where: Site) -> Drill:
    """A read-only file, folder and disk; a database role, or a standby, that may only read."""
    drill = Drill("the ledger is read-only")
    place = where.fresh(10)
    charge(Ledger.open(place), str)

    def files(mine: Drill) -> None:
        path = Path(place)
        root = os.geteuid() == 0
        if root:
            nobody = pwd.getpwnam("nobody")
            for each in (path, path.parent):
                os.chown(each, nobody.pw_uid, nobody.pw_gid)
            os.setgroups([])
            os.setgid(nobody.pw_gid)
            os.setuid(nobody.pw_uid)
        for each, mode in ((path, 0o444), (path.parent, 0o555)):
            usual = each.stat().st_mode
            each.chmod(mode)
            _refuses(mine, place, "writable")
            each.chmod(usual)
            mine.expect(charge(Ledger.open(place), str), "does not go on once it can be written")

    def disk(mine: Drill) -> None:
        folder, read_only_remount = Path(place).parent, 1 | 1 << 5
        if mounted(folder, 1 << 20):
            moved = create(str(folder / "moved.ledger"), 10)
            _libc.mount(b"none", os.fsencode(folder), b"tmpfs", read_only_remount, None)
            _refuses(mine, moved, "writable")

    def server(mine: Drill) -> None:
        _refuses(mine, place, "may not write")

    if isinstance(where, Files):
        _in_child(drill, disk)
        return _in_child(drill, files)
    database = where.url.partition("?")[0].rpartition("/")[2]
    where.cluster.sql(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    _in_child(drill, server)
    where.cluster.sql(f"ALTER DATABASE {database} RESET default_transaction_read_only")
    drill.expect(told_by(lambda tell: charge(Ledger.open(place), tell))[-1] == "released", "does not go on")
    return drill


# --- Torn writes


OnDisk = tuple[bytes, bytes | None, bytes]
"""A ledger's file, its rollback journal if there is one, and the file as it was before the transaction."""


def _crashes(place: str) -> list[tuple[OnDisk, int]]:
    """Every state on disk during one charge, and how many entries are certain in it."""
    path, journal = Path(place), Path(place + "-journal")
    certain = len(seen(place)[0])
    states: list[tuple[OnDisk, int]] = []
    before = path.read_bytes()
    child = Traced(lambda tell: charge(Ledger.open(place), tell))
    while child.step():
        file, rollback = path.read_bytes(), journal.read_bytes() if journal.exists() else None
        before = file if rollback is None else before
        state = (file, rollback, before), certain + child.has_told("handed")
        if not states or states[-1] != state:
            states.append(state)
    child.end()
    return states


def _torn(data: bytes, start: int, end: int, chance: random.Random) -> bytes:
    """Bytes of which a random stretch between start and end never reached the disk: it holds zeros or anything."""
    at = chance.randint(start, end)
    size = chance.randint(0, end - at)
    return data[:at] + chance.choice((bytes(size), chance.randbytes(size))) + data[at + size :]


def _crash(state: OnDisk, chance: random.Random) -> tuple[bytes, bytes | None]:
    """The file and its journal after a power cut: what was not synchronised yet is torn.

    The journal is synchronised before the first page of the file is written, and holds what the pages written were.
    """
    file, journal, before = state
    if journal is None:
        return file, None
    if file == before:
        torn = _torn(journal, 0, len(journal), chance)
        return file, torn[: chance.randint(0, len(torn))] if chance.random() < 0.3 else torn
    for page in range(0, len(file), PAGE):
        if file[page : page + PAGE] != before[page : page + PAGE] and chance.random() < 0.7:
            file = _torn(file, page, min(page + PAGE, len(file)), chance)
    return file[: chance.randint(len(before), len(file))] if len(file) > len(before) else file, journal


def _shown(place: str) -> list[str]:
    """What is spent, and every entry, in words."""
    ledger = Ledger.open(place)
    return [*(repr(each) for each in ledger.entries()), str(ledger.spent())]


def _outcome(place: str, shown: list[str], head: str) -> str:
    """How a damaged ledger is met: "refused", "whole", "found by verify", "found by verify against a kept head", or
    "forgotten" where nothing of these notices that what it says is not what was written."""
    try:
        now = _shown(place)
    except LedgerError:
        return "refused at once"
    try:
        Ledger.open(place).verify()
    except LedgerError:
        return "found by verify"
    try:
        Ledger.open(place).verify(head)
    except LedgerError:
        return "found by verify with a kept head"
    return "whole" if now == shown else "forgotten"


def torn_writes(where: Files, *, tears: int = 300, rot: int = 300, seed: int = 0) -> Drill:
    """Writes that a crash tore, and damage that no crash does.

    A crash may tear what was not yet synchronised: the journal while the file is untouched, the pages of the file
    while its journal is whole. The ledger must open with every completed reservation. Damage at any place of a
    finished file, and an old copy put back, must be noticed or be harmless.
    """
    drill, chance = Drill("torn writes"), random.Random(seed)
    place = where.fresh(1_000)
    for _ in range(12):
        charge(Ledger.open(place), str)
    path, journal = Path(place), Path(place + "-journal")
    old = seen(place)
    states = _crashes(place)
    drill.counts["states left by a crash"] = len(states)
    for number in range(tears):
        state, certain = states[number % len(states)]
        file, rollback = _crash(state, chance)
        path.write_bytes(file)
        journal.unlink(missing_ok=True)
        if rollback is not None:
            journal.write_bytes(rollback)
        after = examine(drill, place, [], old)
        drill.expect(len(after[0]) >= certain, "a torn write lost a reservation")
        drill.counts["tears"] += 1
    journal.unlink(missing_ok=True)

    path.write_bytes(states[-1][0][0])
    shown, head = _shown(place), seen(place)[1]
    good = path.read_bytes()
    for _ in range(rot):
        at = chance.randrange(len(good))
        size = chance.choice((1, 16, 512, PAGE))
        damage = chance.choice((bytes(size), chance.randbytes(size)))
        cut = chance.random() < 0.2
        path.write_bytes(good[:at] if cut else good[:at] + damage[: len(good) - at] + good[at + size :])
        try:
            found = _outcome(place, shown, head)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
            drill.breaches.append(found)
        drill.expect(found != "forgotten", "damage made the ledger forget, unnoticed")
        drill.counts[f"damaged files: {found}"] += 1
    path.write_bytes(states[0][0][0])
    drill.counts[f"old copies put back: {_outcome(place, shown, head)}"] += 1
    path.write_bytes(good)
    return drill


def torn_log(where: Server, *, trials: int = 6, seed: int = 0) -> Drill:
    """PostgreSQL's log torn behind what was synchronised, which is a crash, and within it, which is a lying disk."""
    drill, chance, cluster = Drill("torn write-ahead log"), random.Random(seed), where.cluster
    for number in range(trials):
        place = where.fresh(100)
        for _ in range(3):
            charge(Ledger.open(place), str)
        shown, head = _shown(place), seen(place)[1]
        place_of_end = "SELECT file_name || ' ' || file_offset FROM pg_walfile_name_offset(pg_current_wal_flush_lsn())"
        name, offset = cluster.sql(place_of_end).split()
        cluster.stop("immediate")
        end, lying = int(offset), number % 2 == 1
        with (cluster.folder / "data" / "pg_wal" / name).open("r+b") as log:
            log.seek(max(0, end - chance.randrange(1, 300)) if lying else end)
            log.write(chance.randbytes(5_000))
        cluster.start()
        found = _outcome(place, shown, head)
        drill.expect(found == "whole" or lying, f"a tear behind the end: {found}")
        drill.expect(found != "forgotten", "a log cut short made the ledger forget, unnoticed")
        drill.counts[f"{'logs cut short' if lying else 'tears'}: {found}"] += 1
    return drill


# --- The clock


def backward_clock(where: Site) -> Drill:
    """Ten charges while the clock jumps back by years: none is lost, refused or put out of order."""
    drill = Drill("the clock runs backwards")
    place = where.fresh(10)

    def charged(mine: Drill) -> None:
        before = seen(place)
        modules = [each for name, each in sys.modules.items() if name.startswith("discretion.")]
        clocks = {each: each.utc_now for each in modules if hasattr(each, "utc_now")}
        for number in range(11):
            for module, real in clocks.items():
                module.__dict__["utc_now"] = lambda years=4 * number, real=real: (
                    f"{int(real()[:4]) - years}{real()[4:]}"
                )
            told: list[str] = []
            charge(Ledger.open(place), told.append)
            before = examine(mine, place, told, before)
            mine.counts["charges"] += "released" in told
        mine.expect(mine.counts["charges"] == 10, "not exactly ten charges fitted")
        stamps = [each.created for each in before[0]]
        mine.expect(
            stamps == sorted(stamps, reverse=True) and len(set(stamps)) == 10, "the clock did not run backwards"
        )
        mine.expect([each.id for each in before[0]] == sorted(each.id for each in before[0]), "out of order")
        mine.expect(Ledger.open(place).spent().epsilon == float(10 * UNIT), "not spent to the last unit")

    return _in_child(drill, charged)
