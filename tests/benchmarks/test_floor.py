"""The floor that exact engines are held against."""

import numpy as np

from benchmarks import floor


def test_the_floor_is_the_sum_of_four_calls_and_others_are_taken_in_turns():
    turns = []
    found, (other,) = floor.beside(60, 40, (lambda: turns.append(1),), repetitions=3)
    assert len(turns) == 3
    assert other >= 0.0
    assert found.seconds == found.potrf_n + found.trsm + found.syrk + found.potrf_m
    assert all(np.isfinite(found))


def test_a_larger_problem_has_a_higher_floor():
    assert floor.floor(600, 600, 3).seconds > floor.floor(30, 30, 3).seconds
