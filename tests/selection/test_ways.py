"""Shared rates, thresholds and disjoint tuning as the runner does them: exact laws of what leaves, and one price."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import chisquare
from tests.selection.makers import MeanMechanism

from benchmarks.extension_truth import shared_best
from discretion.privacy import GaussianDP, Ledger, MechanismFailed, Neighbours, PublicError, PureDP, SeededRandomness
from discretion.privacy.loss import PrivacyLoss
from discretion.selection import (
    DensityBox,
    DisjointTuning,
    NegativeBinomial,
    NoisyScore,
    Outcome,
    Poisson,
    PrivateRidge,
    PrivateSearchCV,
    Proposals,
    PublicScore,
    SelectionMechanism,
    SharedRate,
    Threshold,
    disjoint_tuning_loss,
    geometric,
    select,
    selection_loss,
    threshold_loss,
)
from discretion.selection.bounds import heterogeneous
from discretion.selection.extensions import _below, dearest
from discretion.selection.sampling import BetaBinomialTerms
from discretion.selection.streams import SearchKey

ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE
RECORDS = np.linspace(0.0, 1.0, 12)
VALUE = PublicScore(lambda release: float(release.value), "value")


@dataclass(frozen=True)
class Found:
    """What `Coins` release."""

    value: float


@dataclass(frozen=True, eq=False)
class Coins(MeanMechanism):
    """Releases outcome i with chance `masses[i]`: with its place as score, or the number of records it was given."""

    masses: tuple[float, ...] = (0.5, 0.5)
    places: tuple[int, ...] = (0, 1)
    counts: bool = False

    name = "coins"

    def privacy_loss(self, n):
        return PureDP(0.5, neighbours=self.neighbours)

    def run(self, records, randomness):
        place = np.searchsorted(np.cumsum(self.masses), float(randomness.uniform()))
        return Found(len(records) if self.counts else self.places[min(place, 1)])


def outcomes(mechanism: SelectionMechanism, count: int, places: int, records=RECORDS) -> np.ndarray:
    """How often each place won, the default first."""
    found = np.zeros(places + 1)
    mechanism.privacy_loss(None)
    for seed in range(count):
        best = mechanism._best(records, SearchKey.draw(SeededRandomness(seed)))
        found[0 if best is None or not best.ranked else 1 + int(best.score)] += 1
    return found


# --- A shared rate


def test_the_number_of_runs_is_beta_binomial():
    trials, g = 7, 0.6
    k = np.arange(trials + 1)
    exact = g * np.exp(gammaln(8) - gammaln(k + 1) + gammaln(k + g) - gammaln(8 + g))
    assert exact.sum() == pytest.approx(1.0, rel=1e-12)
    assert exact[0] == pytest.approx(SharedRate(7, 1, g).none, rel=1e-12)
    assert float(exact @ k) == pytest.approx(SharedRate(7, 1, g).mean, rel=1e-12)
    randomness, terms = SeededRandomness(1), BetaBinomialTerms(trials, g)
    drawn = np.bincount([terms.draw(randomness) for _ in range(4000)], minlength=trials + 1)
    assert chisquare(drawn, 4000 * exact).pvalue > 1e-4


def test_the_probabilities_of_the_sampler_add_up():
    from decimal import Context

    context = Context(prec=40)
    for trials, g in ((1, 2.0), (30, 0.1), (400, 3.7)):
        terms = BetaBinomialTerms(trials, g)
        k, mass = terms.start(context)
        total = mass
        for k in range(trials):
            mass = context.multiply(mass, terms.ratio(k, context))
            total = context.add(total, mass)
        assert abs(total - 1) < 10**-36
        assert terms.ratio(trials, context) == 0


def test_whole_numbers_are_equally_likely():
    stream = SearchKey(b"k" * 32, False).stream("numbers")
    found = np.bincount([_below(stream, 5) for _ in range(5000)], minlength=5)
    assert chisquare(found).pvalue > 1e-4
    assert _below(stream, 1) == 0


def test_every_cell_runs_equally_often_and_at_most_once():
    rate, counts, pairs = SharedRate(3, 2, 1.0), np.zeros(3), 0
    for seed in range(1500):
        chosen = rate.draw(SearchKey.draw(SeededRandomness(seed)))
        each = np.bincount(chosen, minlength=3)
        assert each.max(initial=0) <= 2
        counts, pairs = counts + each, pairs + (each == 2).sum()
    assert chisquare(counts).pvalue > 1e-4
    # E[p^2] = 1/3 for each candidate
    assert pairs / 4500 == pytest.approx(1 / 3, abs=0.03)


def test_what_a_shared_rate_releases_has_its_exact_law():
    rate = SharedRate(2, 3, 0.7)
    masses, order = np.array([[0.8, 0.2], [0.6, 0.4]]), np.array([0, 2, 1, 3])
    candidates = [Coins(masses=tuple(masses[j]), places=tuple(order.reshape(2, 2)[j])) for j in range(2)]
    found = outcomes(SelectionMechanism(tuple(candidates), VALUE, rate, 1e-6), 800, 4)
    assert chisquare(found, 800 * shared_best(rate, masses, order)).pvalue > 1e-4


def test_the_price_of_a_shared_rate_holds_for_any_losses():
    rate = SharedRate(2, 5, 0.5)
    pure = rate.price([PureDP(0.3, neighbours=ADD), PureDP(0.2, neighbours=ADD)])
    assert pure.epsilon(0.0) == pytest.approx(2.5 * 0.3, rel=1e-12)
    losses: list[PrivacyLoss] = [GaussianDP(0.2, neighbours=ADD), GaussianDP(0.3, neighbours=ADD)]
    found = rate.price(losses)
    # each statement (epsilon, delta_j) of the candidates gives one of the whole; the table has the best of them
    for e in np.linspace(0.1, 2.0, 30):
        deltas = [loss.delta(e) for loss in losses]
        assert found.delta(2.5 * e) <= rate.loss(e, neighbours=ADD, deltas=deltas).delta(2.5 * e) * 1.01
        assert found.delta(2.5 * e) >= sum(deltas) * 5 / 3 * (1 - 1e-9) or found.delta(2.5 * e) >= 1
    assert found.epsilon(1e-6) < math.inf
    mixed = rate.price([PureDP(0.3, neighbours=ADD), GaussianDP(0.2, neighbours=ADD)])
    assert mixed.epsilon(1e-6) <= found.epsilon(1e-6) + 1.0
    with pytest.raises(ValueError, match="shared by 2"):
        rate.price(losses[:1])


def test_a_search_at_a_shared_rate_is_refused_weights_and_other_numbers():
    candidates = (Coins(), Coins())
    with pytest.raises(ValueError, match="shared by 3"):
        SelectionMechanism(candidates, VALUE, SharedRate(3, 2, 1.0), 1e-6)
    with pytest.raises(ValueError, match="no weights"):
        SelectionMechanism(candidates, VALUE, SharedRate(2, 2, 1.0), 1e-6, weights=(1, 2))
    search = SelectionMechanism(candidates, VALUE, SharedRate(2, 2, 1.0), 1e-6)
    assert replace(search, delta=1e-3).weights == (0.5, 0.5)
    with pytest.raises(ValueError, match="Proposals"):
        replace(search, proposals=Proposals(DensityBox(0.5, 2), lambda history: (), "none"))
    with pytest.raises(ValueError, match="100,000"):
        SharedRate(1000, 1000, 1.0)
    assert search.most_runs == 4


# --- A threshold


def test_what_a_threshold_releases_has_its_exact_law():
    stop, good = 0.3, 0.25
    candidates = (Coins(masses=(0.7, 0.3)), Coins(masses=(0.8, 0.2)))
    search = SelectionMechanism(candidates, VALUE, Threshold(1.0, stop), 1e-6)
    # good / (good + stop (1 - good)): the loop until one of both ends it
    accepted = good / (good + stop * (1 - good))
    found = outcomes(search, 1000, 2)
    assert found[1] == 0
    assert chisquare(found[[0, 2]], 1000 * np.array([1 - accepted, accepted])).pvalue > 1e-4
    # whoever is accepted is so in proportion to weight times chance
    best = [search._best(RECORDS, SearchKey.draw(SeededRandomness(seed))) for seed in range(400)]
    chosen = [each.candidate for each in best if each is not None]
    assert chosen.count(0) / len(chosen) == pytest.approx(0.6, abs=0.1)


def test_runs_stop_at_the_first_that_is_good():
    made = []

    class Counted(Coins):
        def run(self, records, randomness):
            made.append(1)
            return super().run(records, randomness)

    search = SelectionMechanism((Counted(masses=(0.0, 1.0)),), VALUE, Threshold(1.0, 0.01), 1e-6)
    release = search.run(RECORDS, SeededRandomness(0))
    assert (len(made), release.outcome, release.score) == (1, Outcome.CHOSEN, 1.0)


def test_below_the_threshold_the_default_is_all_there_is():
    for candidate in (Coins(masses=(1.0, 0.0)), MeanMechanism(fails="error"), MeanMechanism(fails="nan")):
        search = SelectionMechanism((candidate,), VALUE, Threshold(5.0, 0.5), 1e-6, default="public")
        release = search.run(RECORDS, SeededRandomness(0))
        assert (release.outcome, release.winner, release.candidate, release.score) == (
            Outcome.BELOW,
            "public",
            None,
            None,
        )
        assert not release.is_default


def test_the_price_of_a_threshold():
    search = SelectionMechanism((MeanMechanism(mu=0.4),), VALUE, Threshold(0.5, 0.1), 1e-6)
    base = GaussianDP(0.4, neighbours=REPLACE)
    assert search.privacy_loss(12).epsilon(1e-6) == threshold_loss(base, 0.1).epsilon(1e-6)
    assert SelectionMechanism((Coins(),), VALUE, Threshold(0.5, 0.1), 1e-6).privacy_loss(12).epsilon(0.0) == 1.0
    for change in ({"jobs": 2}, {"proposals": Proposals(DensityBox(0.5, 2), lambda history: (), "none")}):
        with pytest.raises(ValueError, match=r"leave jobs|Proposals have"):
            replace(search, **change)
    for level, stop in ((math.nan, 0.5), (0.0, 0.0), (0.0, 1.5), (math.inf, 0.5)):
        with pytest.raises(ValueError, match="finite level"):
            Threshold(level, stop)


# --- A disjoint part


def disjoint(candidates=None, law=None, share=0.25, **options):
    found = (Coins(neighbours=ADD, counts=True),) if candidates is None else candidates
    return DisjointTuning(found, VALUE, law or geometric(2), 1e-6, share=share, **options)


def test_the_final_training_has_the_records_that_were_not_tuned_on():
    search = disjoint()
    seen = [search._best(RECORDS, SearchKey.draw(SeededRandomness(seed))) for seed in range(600)]
    assert all(each.score + each.artefact.value == RECORDS.size for each in seen)
    counts = np.bincount([int(each.score) for each in seen], minlength=RECORDS.size + 1)
    exact = np.array([math.comb(12, k) * 0.25**k * 0.75 ** (12 - k) for k in range(13)])
    assert chisquare(np.append(counts[:6], counts[6:].sum()), 600 * np.append(exact[:6], exact[6:].sum())).pvalue > 1e-4
    assert search.run(RECORDS, SeededRandomness(0)).certificate.n is None


def test_which_candidate_leaves_has_its_exact_law():
    # tuned on no information, the better of two fixed outcomes wins wherever it ran: 1 - E 2^-K
    law, fixed = Poisson(2.0), [Coins(neighbours=ADD, masses=(1.0, 0.0), places=(j, j)) for j in range(2)]
    found = outcomes(disjoint(fixed, law), 800, 2)
    none, one = math.exp(-2.0), math.exp(-1.0)
    assert chisquare(found, 800 * np.array([none, one - none, 1 - one])).pvalue > 1e-4


def test_the_price_of_disjoint_tuning_is_that_of_the_dearest_training():
    candidates = (MeanMechanism(mu=0.3, neighbours=ADD, exact=True), MeanMechanism(mu=0.5, neighbours=ADD, exact=True))
    search = disjoint(candidates, geometric(5), share=0.1)
    one = heterogeneous([each.privacy_loss(None) for each in candidates], (0.5, 0.5))
    expected = disjoint_tuning_loss(selection_loss(one, geometric(5)), GaussianDP(0.5, neighbours=ADD), search.share)
    assert search.privacy_loss(None).epsilon(1e-6) == pytest.approx(expected.epsilon(1e-6), rel=1e-11)
    whole = SelectionMechanism(candidates, VALUE, geometric(5), 1e-6).privacy_loss(None).epsilon(1e-6)
    assert search.privacy_loss(None).epsilon(1e-6) < whole
    losses: list[PrivacyLoss] = [PureDP(0.1, neighbours=ADD), GaussianDP(0.5, neighbours=ADD)]
    for x in (0.1, 1.0, 10.0):
        assert dearest(losses).renyi_excess(x) == max(loss.renyi_excess(x) for loss in losses)


def test_where_nothing_is_chosen_nothing_is_trained():
    failing = MeanMechanism(neighbours=ADD, exact=True)
    release = disjoint((failing,), Poisson(1e-9), default="public").run(RECORDS, SeededRandomness(0))
    assert (release.outcome, release.winner) == (Outcome.DEFAULT, "public")
    release = disjoint((failing,), Threshold(9.0, 0.9), default="public").run(RECORDS, SeededRandomness(0))
    assert (release.outcome, release.winner) == (Outcome.BELOW, "public")


def test_a_final_training_that_fails_is_an_outcome():
    class Grumpy(Coins):
        def run(self, records, randomness):
            if len(records) > 4:
                raise RuntimeError("too many")
            return super().run(records, randomness)

    release = disjoint((Grumpy(neighbours=ADD),)).run(RECORDS, SeededRandomness(0))
    assert (release.outcome, release.winner, release.candidate) == (Outcome.FAILED, None, None)


def test_refusals_of_disjoint_tuning():
    for share in (0.0, 1.0, -1.0, math.nan, 1e-20):
        with pytest.raises(ValueError, match="share of the records"):
            disjoint(share=share)
    with pytest.raises(ValueError, match="add-remove"):
        disjoint((Coins(),))

    class Several(Coins):
        contributions = 3

    with pytest.raises(ValueError, match="in both parts"):
        disjoint((Several(neighbours=ADD),))

    class Needy(Coins):
        def run(self, records, randomness):
            return super().run(records[:1] * records[0], randomness)

    with pytest.raises(PublicError, match="no records"):
        disjoint((Needy(neighbours=ADD),)).check(RECORDS)


# --- Ledger, journal, resume


WAYS = {
    "shared rate": (SharedRate(2, 4, 1.0), {}),
    "threshold": (Threshold(0.55, 0.2), {}),
    "disjoint": (NegativeBinomial.of_mean(2.0, 3.0), {"share": 0.3}),
    "disjoint, threshold": (Threshold(0.55, 0.2), {"share": 0.3}),
}


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("name", WAYS)
def test_a_search_is_booked_once_and_taken_up_with_the_same_draws(name, tmp_path, monkeypatch):
    law, more = WAYS[name]
    candidates = [MeanMechanism(shift=s, neighbours=ADD) for s in (0.0, 0.1)]
    candidates = [
        each if "share" not in more else WithoutRecords(shift=each.shift, neighbours=ADD) for each in candidates
    ]
    book = Ledger.create(tmp_path / "book", dataset="d", epsilon=40, delta=1e-5, neighbours=ADD)
    options = {"delta": 1e-6, "ledger": book, "journal": tmp_path / "journal", **more}

    def stop(release):
        raise Interrupted

    with pytest.raises(Interrupted):
        select(candidates, VALUE, law, RECORDS, 12, save=stop, **options)
    assert (tmp_path / "journal").exists()
    kept = []
    release = select(candidates, VALUE, law, RECORDS, 12, save=kept.append, **options)
    entries = book.entries()
    assert [str(entry.state) for entry in entries] == ["booked"]
    assert release.certificate.ledger_entry == f"{book.id}#1"
    assert release.certificate.epsilon <= entries[0].loss.epsilon(1e-6) * (1 + 1e-9)
    assert not (tmp_path / "journal").exists()
    assert kept[0].score == release.score


@dataclass(frozen=True, eq=False)
class WithoutRecords(MeanMechanism):
    """As its parent, and runs on no records too."""

    def run(self, records, randomness):
        return super().run(np.append(records, 0.5), randomness)


@pytest.mark.parametrize("name", WAYS)
def test_runs_that_were_interrupted_are_made_again_from_the_key(name, tmp_path):
    law, more = WAYS[name]
    fuse = [2]

    class Fused(WithoutRecords):
        def run(self, records, randomness):
            if fuse and records.size:
                fuse[0] -= 1
                if fuse[0] <= 0:
                    raise KeyboardInterrupt
            return super().run(records, randomness)

    plan = {"delta": 1e-6, **more}
    candidates = [Fused(shift=s, neighbours=ADD) for s in (0.0, 0.1)]
    seed = next(
        seed
        for seed in range(50)
        if len(list(SharedRate(2, 4, 1.0).draw(SearchKey.draw(SeededRandomness(seed))))) > 3
        and NegativeBinomial.of_mean(2.0, 3.0).sample(SearchKey.draw(SeededRandomness(seed)).stream("number of runs"))
        > 2
    )
    fuse[0] = 1
    with pytest.raises(KeyboardInterrupt):
        select(candidates, VALUE, law, RECORDS, 12, journal=tmp_path / "j", randomness=SeededRandomness(seed), **plan)
    fuse.clear()
    again = select(candidates, VALUE, law, RECORDS, 12, journal=tmp_path / "j", randomness=SeededRandomness(99), **plan)
    whole = select(candidates, VALUE, law, RECORDS, 12, randomness=SeededRandomness(seed), **plan)
    assert (again.outcome, again.candidate, again.score) == (whole.outcome, whole.candidate, whole.score)


def test_a_budget_that_does_not_reach_stops_it_before_a_record_is_read(tmp_path):
    book = Ledger.create(tmp_path / "book", dataset="d", epsilon=0.1, delta=1e-5, neighbours=ADD)
    for name in WAYS:
        law, more = WAYS[name]
        with pytest.raises(Exception, match="budget") as error:
            select([WithoutRecords(neighbours=ADD)] * 2, VALUE, law, RECORDS, 12, delta=1e-6, ledger=book, **more)
        assert not isinstance(error.value, MechanismFailed)
    assert book.entries() == []


def test_estimators_are_tuned_these_ways_too():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 2))
    search = PrivateSearchCV(
        PrivateRidge(2.0, mu=1.0),
        {"alpha": [1.0, 10.0]},
        Threshold(-10.0, 0.5),
        validation=(X[:20], X[:20, 0]),
        randomness=SeededRandomness(0),
    )
    assert search.fit(X, X[:, 0]).outcome_ is Outcome.CHOSEN
    search.set_params(law=Threshold(2.0, 0.5)).fit(X, X[:, 0])
    assert search.outcome_ is Outcome.BELOW
    with pytest.raises(ValueError, match="reached the threshold"):
        search.predict(X)
    assert search.set_params(law=SharedRate(2, 50, 2.0)).fit(X, X[:, 0]).best_params_ is not None


def test_noisy_scores_may_part_the_part_again():
    held = NoisyScore(lambda release, records: records, 0.0, 1.0, 0.5, 0.5)
    candidates = (WithoutRecords(neighbours=ADD),)
    search = DisjointTuning(candidates, held, geometric(2), 1e-6, share=0.5)
    assert search.run(RECORDS, SeededRandomness(0)).outcome is Outcome.CHOSEN
