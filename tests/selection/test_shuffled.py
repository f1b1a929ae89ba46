"""Searches that shuffle first: the part kept apart knows nothing of where a record stands, or of what it holds."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from discretion.privacy import GaussianDP, Neighbours, SeededRandomness, Unreachable
from discretion.selection import Fixed, NegativeBinomial, NoisyScore, Poisson, PublicScore
from discretion.selection.search import SelectionMechanism
from discretion.selection.streams import SearchKey
from discretion.selection.within import search_within

DELTA = 1e-5


@dataclass(frozen=True)
class Echo:
    """Releases what it was given to learn from. Not private: for looking at parts alone."""

    label: int = 0
    mu: float = 1.0
    name = "echo"
    neighbours = Neighbours.REPLACE

    def privacy_loss(self, n):
        return GaussianDP(self.mu, neighbours=Neighbours.REPLACE)

    def parameters(self):
        return {"label": self.label}

    def run(self, records, randomness):
        return tuple(records.tolist())


def search(candidates=(Echo(),), law=None, **changes):
    score = NoisyScore(lambda artefact, records: np.zeros(len(records)), 0.0, 1.0, 1.0, fraction=0.25)
    return SelectionMechanism(candidates, score, law or Fixed(1), DELTA, **changes)


def learned_from(records, seed):
    return search().replay(SearchKey.draw(SeededRandomness(seed)), np.asarray(records)).winner


def test_every_part_of_its_size_is_equally_likely_whatever_the_order_was():
    trials = 400
    found = [frozenset(learned_from(range(4), seed)) for seed in range(trials)]
    assert {len(each) for each in found} == {3}
    counts = np.array([found.count(frozenset(range(4)) - {left}) for left in range(4)])
    assert ((counts - trials / 4) ** 2 / (trials / 4)).sum() < 18.0  # chi squared of 3 degrees of freedom, 1 in 2,000


def test_replacing_one_record_of_a_sorted_list_moves_no_other_under_the_same_order_of_numbers():
    """The case that parts by position get wrong: 2 leaves its place at the front, and 95 enters at the end."""
    before, after = list(range(0, 80, 2)), sorted([*range(0, 80, 2), 95])
    after.remove(2)
    split = search().score.split
    kept = set(split(np.array(before), Neighbours.REPLACE, None)[0]) & set(
        split(np.array(after), Neighbours.REPLACE, None)[0]
    )
    assert len(kept) < 25  # most records changed their part
    # the coupling of the proof: the same order of numbers, in which the one record is replaced
    order = np.random.default_rng(0).permutation(40)
    one = np.array(before)[order]
    other = np.where(one == 2, 95, one)
    parts = set(learned_from(one, 0)), set(learned_from(other, 0))
    assert parts[0] ^ parts[1] <= {2, 95}


def test_all_runs_are_compared_on_the_same_part():
    seen = set()

    def values(artefact, records):
        seen.add(tuple(records.tolist()))
        return np.zeros(len(records))

    score = NoisyScore(values, 0.0, 1.0, 1.0, fraction=0.25)
    made = SelectionMechanism((Echo(), Echo(1)), score, Fixed(6), DELTA)
    made.replay(SearchKey.draw(SeededRandomness(3)), np.arange(40))
    assert len(seen) == 1


def test_the_certificate_says_that_the_order_is_by_lot():
    assert search().parameters()["order"] == "by lot"


# --- a search within a budget


def by_epsilon(law):
    def make(one):
        mu = GaussianDP(1.0, neighbours=Neighbours.REPLACE).epsilon(DELTA)
        return SelectionMechanism((Echo(mu=one / mu),), PublicScore(lambda _: 0.0), law, DELTA)

    return make


@pytest.mark.parametrize("law", [Poisson(10.0), Poisson(0.5), NegativeBinomial.of_mean(5.0, 10.0)])
@pytest.mark.parametrize("epsilon", [0.3, 9.0])
def test_the_search_found_costs_its_budget_or_a_thousandth_less(law, epsilon):
    found, one = search_within(by_epsilon(law), epsilon, 100)
    price = found.privacy_loss(100).epsilon(DELTA)
    assert 0.998 * epsilon <= price <= epsilon
    assert one > 0


def test_a_law_that_hardly_ever_runs_is_given_what_is_tried_at_most():
    found, one = search_within(by_epsilon(Poisson(1e-7)), 2.0, 100)
    assert one == 8.0
    assert found.privacy_loss(100).epsilon(DELTA) <= 2.0


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_what_is_no_budget_is_refused(epsilon):
    with pytest.raises(ValueError, match="positive finite"):
        search_within(by_epsilon(Poisson(3.0)), epsilon, 100)


def test_a_search_that_costs_too_much_however_private_its_runs_are_is_unreachable():
    with pytest.raises(Unreachable, match="smaller mean"):
        search_within(lambda one: by_epsilon(Poisson(3.0))(50.0), 1.0, 100)
