"""The sampler: the law of its actions, what leaves, crashes, the budget, refusals."""

import json
import pickle
import stat
import traceback
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from discretion.gp import RBF, Box, Exponential, Matern52
from discretion.gp.candidates import CandidatePaths
from discretion.gp.climb import Climb
from discretion.posterior import LOSSES
from discretion.posterior.thompson import HorizonReached, ThompsonSampler
from discretion.posterior.thompson_account import ChowdhuryGopalan, response_loss
from discretion.posterior.thompson_mechanism import Responses, ThompsonMechanism
from discretion.posterior.thompson_release import ThompsonRelease
from discretion.privacy import (
    BudgetExceeded,
    Ledger,
    NeighbourMismatch,
    Neighbours,
    NotBookable,
    PublicError,
    SeededRandomness,
    State,
    verify,
)
from discretion.privacy.once import RunError
from discretion.privacy.transcript import Transcript

C = np.random.default_rng(0).uniform(size=(30, 2))
PLANTED = 0.123456789


def mechanism(**changes):
    fields = {
        "kernel": Matern52(0.4),
        "actions": C,
        "response_range": (-1.0, 1.0),
        "rounds": 5,
        "schedule": 0.7,
        "ridge": 1.0,
        "batch": 2,
    }
    return ThompsonMechanism(**(fields | changes))


def sampler(seed=0, **changes):
    return ThompsonSampler(mechanism(**changes), randomness=SeededRandomness(seed))


def answer(actions):
    return np.sin(7 * actions).sum(axis=-1) / 2


def finished(run):
    if run.mechanism.history and run.rounds == 0:
        run.start(C[: run.mechanism.history], answer(C[: run.mechanism.history]))
    while not run.done:
        run.tell(answer(run.ask()))
    return run


# --- the law --------------------------------------------------------------------------------------


@pytest.mark.parametrize("private", ["responses", "records"])
def test_actions_have_the_law_of_the_highest_of_a_draw(private):
    """Three candidates, five records: exact probabilities of each action against 3000 first rounds."""
    points, kernel, ridge, scale, nugget = np.array([[0.0], [0.3], [1.0]]), Matern52(0.5), 0.9, 0.8, 1e-3
    X = points[[0, 0, 1, 2, 2]]
    y = np.array([0.9, 0.2, 0.8, 1.0, -0.4])
    run = ThompsonMechanism(
        kernel,
        points,
        (-1, 1),
        rounds=1,
        schedule=scale,
        ridge=ridge,
        batch=3000,
        history=5,
        private=private,
        nugget=nugget,
    )
    found = ThompsonSampler(run, randomness=SeededRandomness(3))
    found.start(X, y)
    counts = (found.ask()[:, :1] == points.T).sum(axis=0)

    K, cross, A = kernel(points), kernel(points, X), kernel(X)
    if private == "responses":  # there the nugget is also in the kernel
        same = (points == X.T).astype(float)
        K, cross = (K + nugget * np.eye(3)) / (1 + nugget), (cross + nugget * same) / (1 + nugget)
        A = (A + nugget * (X == X.T)) / (1 + nugget)
    A = A + ridge**2 * np.eye(5)
    mean = cross @ np.linalg.solve(A, y)
    covariance = scale**2 * (K - cross @ np.linalg.solve(A, cross.T) + nugget * np.eye(3))
    chances = []
    for best in range(3):
        D = np.delete(np.eye(3) - np.eye(3)[best], best, axis=0)
        chances.append(multivariate_normal(D @ mean, D @ covariance @ D.T).cdf(np.zeros(2)))
    assert sum(chances) == pytest.approx(1.0, abs=1e-4)
    chances = np.array(chances) / sum(chances)
    assert ((counts - 3000 * chances) ** 2 / (3000 * chances)).sum() < 16.0  # chi-squared with 2 degrees: 3e-4


def test_a_smooth_kernel_hides_in_no_direction():
    """The effective distance of two neighbours under the computed covariance, its smallest eigenvectors included."""
    rng = np.random.default_rng(1)
    points = np.sort(rng.uniform(size=(150, 1)), axis=0)
    run = mechanism(kernel=RBF(0.5), actions=points, rounds=41, batch=1, schedule=1.0)
    places, y = rng.integers(0, 150, 40), rng.uniform(-1, 1, 40)
    y[7] = 1.0
    means = []
    for sign in (1.0, -1.0):
        y[7] *= sign
        found = CandidatePaths(run.kernel, points, 1.0, run.effective_nugget, 41)
        found.append(places, y)
        means.append(found.mean())
    L = np.tril(found._prior)
    W = np.linalg.solve(found._factor[:40, :40].T, found._cross[:40])
    noise = np.hstack([L - W.T @ L[places], -W.T, np.sqrt(run.effective_nugget) * np.eye(150)])
    values, vectors = np.linalg.eigh(noise @ noise.T)
    assert values[0] > 0.9 * run.effective_nugget
    along = (vectors.T @ (means[0] - means[1])) / np.sqrt(values)
    one = response_loss(mechanism(rounds=2, batch=1, schedule=1.0).draws).mu  # one draw that reads records
    assert np.linalg.norm(along) <= one * (1 + 1e-9)
    assert run.loss.mu == pytest.approx(one * np.sqrt(40), rel=1e-6)


def test_it_learns_where_the_mean_is_high():
    values = np.linspace(-1, 1, 30)
    run = sampler(rounds=40, batch=1, schedule=0.05, ridge=1.0, kernel=Exponential(1e-3))
    while not run.done:
        run.tell(values[[np.flatnonzero((a == C).all(axis=1))[0] for a in run.ask()]])
    np.testing.assert_array_equal(run.result().most_played, C[29])
    np.testing.assert_array_equal(run.result().recommended(), C[29])


# --- advice


def of_actions(played, **changes):
    """A release of these actions (n, d), one a round."""
    run = mechanism(rounds=len(played), batch=1, schedule=5.0, **changes)
    return ThompsonRelease(certificate=run.certificate(SeededRandomness(0)), actions=np.asarray(played)[:, None])


@pytest.mark.parametrize("box", [Box((0.0, 10.0), (1.0, 30.0)), Box((-3.0, 0.0), (5.0, 0.1))])
def test_advice_is_the_mode_of_the_later_half_smoothed_by_the_public_kernel(box, monkeypatch):
    rng = np.random.default_rng(4)
    played = box.from_unit(rng.integers(0, 6, size=(41, 2)) / 5)
    played[[3, 30]] = np.nan  # lost
    release = of_actions(played, actions=box, kernel=Matern52((0.3, 0.2)))
    late = played[~np.isnan(played[:, 0])][19:]
    for kernel, given in ((Matern52((0.3, 0.2)), {}), (RBF(0.05), {"kernel": RBF(0.05)})):
        found = release.recommended(**given)
        height = [sum(kernel(box.unit(u[None]), box.unit(a[None]))[0, 0] for a in late) for u in late]
        assert (found == late).all(axis=1).any()
        assert height[int(np.flatnonzero((found == late).all(axis=1))[0])] == pytest.approx(max(height), rel=1e-12)
        monkeypatch.setattr("discretion.posterior.thompson_release._BLOCK", 7)
        np.testing.assert_array_equal(release.recommended(**given), found)
    with pytest.raises(ValueError, match="No action"):
        of_actions(np.full((3, 2), np.nan), actions=box).recommended()


def test_early_wandering_and_a_pile_at_the_edge_are_no_advice():
    line = np.linspace(0, 1, 51)[:, None]
    late = [line[i] for i in range(24, 37) for _ in range(2)] + [line[0]] * 5
    release = of_actions([line[0]] * 30 + late, actions=line, kernel=Matern52(0.2))
    assert release.most_played == 0.0
    assert release.recommended() == 0.6


def test_advice_beats_the_count_on_simulated_runs():
    """Bumps in a square at epsilon 5: the count piles up in its corners."""
    axis = np.linspace(0, 1, 12)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    run = ThompsonMechanism.calibrated(
        epsilon=5.0,
        delta=1e-5,
        kernel=Matern52(0.3),
        actions=points,
        response_range=(-1.3, 1.3),
        rounds=200,
        ridge=28.0,
    )
    regret = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        centre = rng.uniform(0.2, 0.8, 2)

        def value(actions, centre=centre):
            return 2 * np.exp(-((actions - centre) ** 2).sum(axis=-1) / 0.08) - 1

        played = ThompsonSampler(run, randomness=SeededRandomness(seed))
        while not played.done:
            played.tell(value(played.ask()) + rng.uniform(-0.3, 0.3, 1))
        found = played.result()
        regret.append(value(points).max() - value(np.array([found.most_played, found.recommended()])))
    most, advised = np.mean(regret, axis=0)
    assert advised < most / 3


def test_a_mechanism_is_printed_without_its_candidates():
    words = repr(mechanism(actions=np.arange(400.0).reshape(200, 2)))
    assert words.startswith("ThompsonMechanism(kernel=Matern52(length_scale=0.4), actions=<candidates of shape (200, ")
    assert "rounds=5" in words
    assert len(words) < 500
    assert "actions=Box(lower=(0.0, 0.0)" in repr(mechanism(actions=Box((0, 0), (1, 1))))


@pytest.mark.parametrize("private", ["responses", "records"])
def test_a_box(private):
    box = Box((-2.0, 10.0), (2.0, 30.0))
    run = sampler(actions=box, rounds=12, schedule=0.1, batch=1, private=private, climb=Climb(64, 4, 6))
    top = np.array([1.0, 15.0])
    while not run.done:
        a = run.ask()
        assert box.contains(a).all()
        run.tell(1 - (((a - top) / [4.0, 20.0]) ** 2).sum(axis=1) * 4)
    late = (run.actions[-4:, 0] - top) / [4.0, 20.0]
    assert np.abs(late).mean() < 0.2


# --- what leaves ----------------------------------------------------------------------------------


@pytest.mark.parametrize("private", ["responses", "records"])
def test_actions_alone_leave(tmp_path, private):
    run = ThompsonSampler(mechanism(private=private), path=tmp_path / "a", private=tmp_path / "b")
    while not run.done:
        actions = run.ask()
        run.tell([PLANTED, -PLANTED], *([actions + PLANTED] if private == "records" else []))
    release = run.result()
    assert release.actions.shape == (5, 2, 2)
    assert set(vars(release)) == {"certificate", "actions"}
    for text in (pickle.dumps(release), (tmp_path / "a").read_bytes(), repr(run).encode(), release.text().encode()):
        assert b"123456789" not in text
        assert np.float64(PLANTED).tobytes() not in text
    assert b"123456789" in (tmp_path / "b").read_bytes()
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o600
    with pytest.raises(AttributeError, match="private responses"):
        _ = release.best_action
    with pytest.raises(AttributeError, match="private responses"):
        _ = run.best_action
    with pytest.raises(TypeError, match="private"):
        pickle.dumps(run)


def test_asking_again_is_the_same_draw():
    run = sampler()
    first = run.ask()
    first[:] = 0.0  # what the caller does with it changes nothing
    second = run.ask()
    assert second.any()
    np.testing.assert_array_equal(second, run.ask())
    assert run.rounds == 1


def test_responses_are_clipped_by_rule():
    found = []
    for size in (1.0, 1e9):
        run = sampler(seed=4)
        while not run.done:
            run.tell(size * np.sign(answer(run.ask())))
        found.append(run.actions)
    np.testing.assert_array_equal(*found)


def test_covariates_may_be_private_and_elsewhere():
    played = []
    for shift in (0.0, 0.5):
        run = sampler(private="records", seed=1, schedule=0.1, rounds=8)
        while not run.done:
            a = run.ask()
            run.tell(answer(a), a + shift)
        played.append(run.actions)
    assert not np.array_equal(*played)


def test_the_certificate():
    text = sampler(history=3).result().text()
    assert "TEST ONLY" in text
    certificate = finished(sampler(history=3)).result().certificate
    assert certificate.n == 3 + 5 * 2
    assert certificate.neighbours is Neighbours.REPLACE_RESPONSE
    assert certificate.epsilon == mechanism(history=3).loss.epsilon(1e-5)
    assert any("actions alone" in limit for limit in certificate.limits)
    assert any("reacts to the past through the actions" in words for words in certificate.declared)
    assert mechanism(private="records").certificate(SeededRandomness(0)).neighbours is Neighbours.REPLACE


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"actions": Box((0.0, 1.0), (2.0, 3.0)), "schedule": lambda t: 1.0 + t, "climb": Climb(40, 3, 2)},
        {"private": "records", "kernel": RBF((0.2, 0.4)), "history": 4, "centre": 0.3, "ridge": 3.0},
        {"actions": np.linspace(0, 1, 9)[:, None], "kernel": Exponential(0.2), "private": "records", "ridge": 2.0},
    ],
)
def test_the_certificate_is_computed_again(changes):
    certificate = finished(sampler(**changes)).result().certificate
    assert verify(certificate, LOSSES).verified
    lowered = replace(certificate, parameters=certificate.parameters | {"ridge": 0.5})
    assert not verify(lowered, LOSSES).verified
    fewer = replace(certificate, epsilon=0.9 * certificate.epsilon)
    assert not verify(fewer, LOSSES).verified


# --- the budget -----------------------------------------------------------------------------------


def ledger(tmp_path, epsilon=1e4, neighbours=Neighbours.REPLACE_RESPONSE):
    return Ledger.create(tmp_path / "ledger", dataset="tests", epsilon=epsilon, delta=1e-5, neighbours=neighbours)


def test_the_whole_run_is_reserved_first(tmp_path):
    book = ledger(tmp_path)
    run = ThompsonSampler(mechanism(), ledger=book)
    assert [entry.state for entry in book.entries()] == [State.RESERVED]
    assert book.spent().epsilon == pytest.approx(mechanism().loss.epsilon(1e-5), rel=1e-6)
    finished(run)
    assert [entry.state for entry in book.entries()] == [State.BOOKED]
    assert run.result().certificate.ledger_entry == f"{book.id}#1"


def test_what_the_ledger_refuses(tmp_path):
    book = ledger(tmp_path, epsilon=1e-3)
    with pytest.raises(BudgetExceeded):
        ThompsonSampler(mechanism(), ledger=book)
    with pytest.raises(NeighbourMismatch):
        ThompsonSampler(mechanism(private="records"), ledger=book)
    with pytest.raises(NotBookable):
        ThompsonSampler(mechanism(), ledger=book, randomness=SeededRandomness(0))
    assert not book.entries()


@pytest.mark.parametrize("private", ["responses", "records"])
def test_a_ledger_runs_it(tmp_path, private):
    run = mechanism(private=private, history=2)
    book = ledger(tmp_path, 1e6, run.neighbours)

    def respond(actions):
        return answer(actions) if private == "responses" else (actions, answer(actions))

    release = book.run(run, Responses(respond, run.records, (C[:2], answer(C[:2]))), n=run.records)
    assert np.isfinite(release.actions).all()
    assert release.certificate.ledger_entry == f"{book.id}#1"
    with pytest.raises(PublicError, match="Responses"):
        book.run(run, C, n=run.records)
    with pytest.raises(ValueError, match=f"n = {run.records}"):
        run.privacy_loss(run.records + 1)


def test_calibrated():
    run = ThompsonMechanism.calibrated(
        epsilon=2.0, delta=1e-5, kernel=RBF(0.3), actions=C, response_range=(0, 4), rounds=30
    )
    assert 1.999 < run.loss.epsilon(1e-5) <= 2.0
    assert run.response_bound == 2.0
    assert run.ridge == pytest.approx(np.sqrt(1 + 2 / 30))


def test_what_is_priced_cannot_be_changed_afterwards():
    points = C.copy()
    calls = iter(range(1, 6))
    run = mechanism(actions=points, schedule=lambda t: float(next(calls)))
    points[:] = 0.0
    assert run.candidates[3, 1] == C[3, 1]
    for array in (run.scales, run.candidates):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1e-9
    assert run.draws.scales == (2.0, 3.0, 4.0, 5.0)


def test_the_price_does_not_know_what_was_played():
    runs = [finished(sampler(seed=s)) for s in (0, 1)]
    assert not np.array_equal(runs[0].actions, runs[1].actions)
    assert runs[0].result().certificate.loss == runs[1].result().certificate.loss


# --- on disk --------------------------------------------------------------------------------------


@pytest.mark.parametrize("actions", [C, Box((0, 0), (1, 1))])
def test_a_run_is_taken_up_again(tmp_path, actions):
    """The posterior after a restart is that of all responses so far: same noise, same next actions."""
    run = mechanism(actions=actions, history=3, climb=Climb(32, 2, 3))
    paths = {"path": tmp_path / "a", "private": tmp_path / "b"}
    first = ThompsonSampler(run, randomness=SeededRandomness(0), **paths)
    first.start(C[:3], answer(C[:3]))
    for _ in range(3):
        first.tell(answer(first.ask()))
    pending = first.ask()
    first.close()

    second = ThompsonSampler(run, randomness=SeededRandomness(7), **paths)
    np.testing.assert_array_equal(second.ask(), pending)
    np.testing.assert_array_equal(second.actions, first.actions)
    third = ThompsonSampler(run, randomness=SeededRandomness(7))
    third.start(C[:3], answer(C[:3]))
    third._played = [None] * 4
    for number, played in enumerate(second.actions, start=1):
        third._learn(number, third._places(played), answer(played))
    second.tell(answer(pending))
    # a resumed model appended the same numbers in the same order: what it draws next is the same
    np.testing.assert_allclose(second.ask(), third.ask(), atol=1e-9)
    second.tell([0.0, 0.0])
    assert second.done
    second.close()
    again = ThompsonSampler(run, randomness=SeededRandomness(1), **paths)
    assert again.done
    np.testing.assert_array_equal(again.result().actions, second.result().actions)


class Killed(BaseException):
    pass


@pytest.mark.slow
def test_killed_at_every_write(tmp_path, monkeypatch):
    """Wherever a run dies, before or after a write: no round is drawn twice, none beyond the horizon, one entry."""
    real = Transcript.append
    run = mechanism(rounds=2)
    for death in range(1, 10):
        for after in (False, True):
            folder = tmp_path / f"{death}{after}"
            folder.mkdir()
            book, shown, writes = ledger(folder), {}, 0

            def append(self, line, death=death, after=after):
                nonlocal writes
                writes += 1
                if writes == death and not after:
                    raise Killed
                real(self, line)
                if writes == death:
                    raise Killed

            monkeypatch.setattr(Transcript, "append", append)

            def drive(folder=folder, book=book, shown=shown):
                found = ThompsonSampler(run, path=folder / "a", private=folder / "b", ledger=book)
                try:
                    while not found.done:
                        actions = found.ask()
                        assert np.array_equal(shown.setdefault(found.rounds, actions), actions)
                        found.tell(answer(actions))
                    return found.result()
                finally:
                    found.close()

            try:
                release = drive()
            except Killed:
                release = drive()
            lines = [json.loads(line.split(" ", 1)[1]) for line in (folder / "a").read_text().splitlines()]
            begun = [line["round"] for line in lines if line["event"] == "begun"]
            assert begun == [1, 2]  # each round once, lost or not
            for number, actions in shown.items():
                np.testing.assert_array_equal(release.actions[number - 1], actions)
            assert [entry.state for entry in book.entries()] == [State.BOOKED]
            assert np.isnan(release.actions).all(axis=(1, 2)).sum() <= 1


class Failing(SeededRandomness):
    fails = False

    def standard_normal(self, shape=()):
        if self.fails:
            raise MemoryError
        return super().standard_normal(shape)


def test_a_failed_draw_is_lost_and_not_repeated(tmp_path):
    noise = Failing(0)
    run = ThompsonSampler(mechanism(rounds=3), path=tmp_path / "a", private=tmp_path / "b", randomness=noise)
    run.tell(answer(run.ask()))
    noise.fails = True
    with pytest.raises(MemoryError):
        run.ask()
    noise.fails = False
    with pytest.raises(RunError, match="Nothing was asked"):
        run.tell([0.0, 0.0])
    run.tell(answer(run.ask()))
    assert run.done
    lost = np.isnan(run.result().actions).all(axis=(1, 2))
    np.testing.assert_array_equal(lost, [False, True, False])
    run.close()
    again = ThompsonSampler(mechanism(rounds=3), path=tmp_path / "a", private=tmp_path / "b", randomness=noise)
    np.testing.assert_array_equal(again.result().actions, run.result().actions)


def opened(tmp_path, run=None, **changes):
    given = {"path": tmp_path / "a", "private": tmp_path / "b"} | changes
    return ThompsonSampler(run or mechanism(), **given)


def test_files_that_do_not_belong(tmp_path):
    with opened(tmp_path) as run:
        run.tell(answer(run.ask()))
        run.tell(answer(run.ask()))
        with pytest.raises(RunError, match="still open in this process"):
            opened(tmp_path)
    for other in (mechanism(rounds=6), mechanism(ridge=2.0), mechanism(actions=C[::-1])):
        with pytest.raises(RunError, match="other parameters"):
            opened(tmp_path, other)
    with pytest.raises(RunError, match=r"other parameters: rounds \(5 there, 6 here\)\. All were"):
        opened(tmp_path, mechanism(rounds=6))
    with pytest.raises(RunError, match="other parameters: bookable source of noise"):
        opened(tmp_path, randomness=SeededRandomness(0))
    with pytest.raises(RunError, match="another run"):
        opened(tmp_path, path=tmp_path / "c")
    with pytest.raises(RunError, match="lacks the responses of round 1"):
        opened(tmp_path, private=tmp_path / "d")
    with pytest.raises(ValueError, match="both files"):
        opened(tmp_path, private=None)


def test_damage_is_noticed_and_a_torn_line_cut_off(tmp_path):
    with opened(tmp_path) as run:
        run.tell(answer(run.ask()))
        pending = run.ask()
    whole = (tmp_path / "b").read_bytes()
    (tmp_path / "b").write_bytes(whole + 64 * b"0" + b' {"torn')
    with opened(tmp_path) as run:
        np.testing.assert_array_equal(run.ask(), pending)
    assert (tmp_path / "b").read_bytes() == whole
    lines = whole.splitlines(keepends=True)
    for damaged in (whole.replace(b"0", b"1", 1), lines[1] + lines[0], lines[1]):
        (tmp_path / "b").write_bytes(damaged)
        with pytest.raises(RunError, match="damaged"):
            opened(tmp_path)


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [[0.0], [0.0] * 3, [[0.0, 0.0]], [np.nan, PLANTED], [np.inf, 0.0], ["a", "b"], None])
def test_a_round_takes_its_own_responses_and_no_others(told):
    run = sampler()
    run.ask()
    with pytest.raises((PublicError, TypeError)) as error:
        run.tell(told)
    shown = "".join(traceback.format_exception(error.value))
    assert str(PLANTED) not in str(error.value)
    assert "nan, 0.1" not in shown
    run.tell([0.0, 0.0])  # nothing was told before
    with pytest.raises(RunError, match="told once"):
        run.tell([0.0, 0.0])


def test_errors_hold_no_record():
    run = sampler(private="records")
    run.ask()
    with pytest.raises(PublicError) as error:
        run.tell([PLANTED, np.nan], C[:2])
    frames = [frame.f_locals for frame, _ in traceback.walk_tb(error.value.__traceback__)][1:]
    assert not any(str(PLANTED) in repr(each) for each in frames)


def test_the_horizon_is_never_extended():
    run = finished(sampler(rounds=2))
    with pytest.raises(HorizonReached, match="2 rounds"):
        run.ask()
    with pytest.raises(RunError, match="told once"):
        run.tell([0.0, 0.0])


def test_the_history_comes_first_once_and_whole():
    run = sampler(history=2)
    with pytest.raises(RunError, match="history first"):
        run.ask()
    for X, y in (
        (C[:3], np.zeros(3)),
        (C[:2], np.zeros(1)),
        (C[:2] + 0.001, np.zeros(2)),
        (C[:2] * np.nan, np.zeros(2)),
    ):
        with pytest.raises(PublicError):
            run.start(X, y)
    run.start(C[:2], [0.1, 0.2])
    with pytest.raises(RunError, match="already"):
        run.start(C[:2], [0.1, 0.2])
    with pytest.raises(RunError, match="No history"):
        sampler().start(C[:2], [0.1, 0.2])


def test_covariates_are_refused_where_they_are_public():
    run = sampler()
    with pytest.raises(RunError, match="Leave out X"):
        run.tell([0.0, 0.0], run.ask())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"response_range": (1.0, 1.0)}, "response_range"),
        ({"rounds": 0}, "rounds"),
        ({"batch": 1.5}, "batch"),
        ({"history": -1}, "history"),
        ({"ridge": 0.0}, "ridge"),
        ({"centre": 2.0}, "centre"),
        ({"delta": 0.0}, "delta"),
        ({"private": "all"}, "private"),
        ({"rule": "best"}, "rule"),
        ({"actions": np.zeros((2, 1))}, "different"),
        ({"actions": np.array([[np.nan]])}, "finite"),
        ({"kernel": RBF((0.1, 0.2, 0.3))}, "length scales"),
        ({"schedule": 0.0}, "schedule"),
        ({"schedule": np.ones(4)}, "schedule"),
        ({"schedule": lambda t: 3.0 - t}, "schedule"),
        ({"schedule": ChowdhuryGopalan(1.0, 0.3), "actions": Box((0.0,), (1.0,))}, "information_gain"),
        ({"nugget": 1e-15}, "nugget"),
        ({"nugget": 1.0}, "nugget"),
    ],
)
def test_parameters_out_of_range(changes, words):
    with pytest.raises(ValueError, match=words):
        mechanism(**changes)


def test_schedules_are_public_functions_of_the_round():
    np.testing.assert_array_equal(mechanism(schedule=lambda t: 1.0 + t).scales, [2.0, 3.0, 4.0, 5.0, 6.0])
    run = mechanism(schedule=ChowdhuryGopalan(1.0, 0.3), ridge=None, rounds=6)
    assert run.ridge == pytest.approx(np.sqrt(1 + 2 / 6))
    assert (np.diff(run.scales) > 0).all()
    assert run.scales[0] == pytest.approx(1 + 0.3 * np.sqrt(2 * (1 + np.log(20))))
    finished(ThompsonSampler(run, randomness=SeededRandomness(0)))


def test_one_scale_has_one_name():
    run = mechanism(schedule=0.7)
    assert (run.scale, run.parameters()["scale"]) == (0.7, 0.7)
    fields = {"kernel": Matern52(0.4), "actions": C, "response_range": (-1, 1), "rounds": 5, "ridge": 9.0}
    found = ThompsonMechanism.calibrated(epsilon=1.0, delta=1e-5, **fields)
    assert found.scale == found.scales[0] == found.schedule
    with pytest.raises(ValueError, match="scales"):
        _ = mechanism(schedule=lambda t: 1.0 + t).scale


def test_a_seed_is_no_source_of_noise(tmp_path):
    with pytest.raises(TypeError, match=r"randomness must be a source of noise, not int.*SeededRandomness\(3\)"):
        opened(tmp_path, randomness=3)
    assert not list(tmp_path.iterdir())


def test_a_ledger_of_other_neighbours_says_which_are_wanted(tmp_path):
    book = Ledger.create(tmp_path / "ledger", dataset="tests", epsilon=500.0, delta=1e-5)
    with pytest.raises(NeighbourMismatch, match=r'neighbours="replace-response" \(--neighbours replace-response\)'):
        ThompsonSampler(mechanism(), ledger=book)


def test_delta_is_the_ledgers_where_nobody_said_one(tmp_path):
    fields = {"dataset": "tests", "epsilon": 500.0, "delta": 1e-7, "neighbours": "replace-response"}
    book = Ledger.create(tmp_path / "ledger", **fields)
    run = mechanism(rounds=1)
    sampler = ThompsonSampler(run, ledger=book, path=tmp_path / "a", private=tmp_path / "b")
    sampler.tell([0.1, 0.2] if len(sampler.ask()) == 2 else [0.1])
    certificate = sampler.result().certificate
    assert (certificate.delta, certificate.epsilon) == (1e-7, run.loss.epsilon(1e-7))
    assert run.delta == 1e-5
    sampler.close()
    again = ThompsonSampler(pickle.loads(pickle.dumps(run)), ledger=book, path=tmp_path / "a", private=tmp_path / "b")
    assert again.result().certificate.delta == 1e-7
    with pytest.warns(UserWarning, match=r"delta = 1e-05 is not the ledger's, 1e-07"):
        ThompsonSampler(mechanism(delta=1e-5), ledger=book)
