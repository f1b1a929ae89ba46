"""What a map is tuned by: records at known places, against maps whose values are known."""

import numpy as np
import pytest

from discretion.gp import RBF, Box
from discretion.posterior import KernelSumMechanism, KernelSumRelease, PathRelease, PosteriorMechanism
from discretion.posterior.agreement import Agreement, MeanAgreement
from discretion.posterior.records import Records
from discretion.privacy import SeededRandomness

BOX, GRID = Box((0.0, 10.0), (2.0, 14.0)), (3, 5)
"""Grid points (0, 1, 2) x (10, 11, 12, 13, 14)."""


def paths(*fields):
    mechanism = PosteriorMechanism(
        RBF(0.3), BOX, (0.0, 1.0), 1.0, 1.0, BOX.grid(GRID), 1e-5, paths=len(fields), grid=GRID
    )
    made = mechanism.run(Records(np.ones((1, 2)), np.ones(1)), SeededRandomness(0))
    return PathRelease(certificate=made.certificate, mechanism=mechanism, values=np.array(fields).reshape(-1, 15))


def sums(value_sums, density):
    mechanism = KernelSumMechanism(RBF(0.3), BOX, (0.0, 1.0), 1e-9, 1e-5, grid=GRID)
    made = mechanism.run(Records(np.empty((0, 2)), np.empty(0)), SeededRandomness(0))
    return KernelSumRelease(
        made.certificate, mechanism, np.reshape(value_sums, (1, 1, 15)), np.reshape(density, (1, 15))
    )


EAST = np.repeat([0.0, 0.4, 0.9], 5).reshape(GRID)
RECORDS = Records(
    np.array([[0.1, 10.0], [1.4, 12.0], [1.6, 14.0], [2.0, 11.0], [9.0, 99.0]]), np.array([0.2, 0.8, 0.7, 0.5, 0.4])
)
"""The nearest columns are 0, 1, 2, 2 and, from outside the domain, 2."""


def test_records_on_the_side_of_the_threshold_that_the_map_shows_count_one():
    found = Agreement((0.0, 1.0), 0.5)(paths(EAST), RECORDS)
    np.testing.assert_array_equal(found, [1, 0, 1, 1, 0])
    found = Agreement((0.0, 1.0), 0.5, below=True)(paths(EAST), RECORDS)
    np.testing.assert_array_equal(found, [1, 0, 1, 0, 0])


def test_the_row_of_the_grid_counts_too():
    north = np.tile([0.0, 0.0, 0.0, 1.0, 1.0], (3, 1))
    found = Agreement((0.0, 1.0), 0.5)(paths(north), RECORDS)
    np.testing.assert_array_equal(found, [1, 0, 1, 0, 0])


def test_the_paths_vote_by_the_fraction_asked_for():
    fields = paths(EAST, EAST, 1 - EAST)
    np.testing.assert_array_equal(Agreement((0.0, 1.0), 0.5)(fields, RECORDS), [1, 0, 1, 1, 0])
    np.testing.assert_array_equal(Agreement((0.0, 1.0), 0.5, fraction=0.3)(fields, RECORDS), [0, 1, 1, 1, 0])


def test_without_a_threshold_it_is_the_squared_error_as_a_share_of_the_range():
    found = Agreement((0.0, 1.0))(paths(EAST, EAST + 0.02), RECORDS)
    there = np.array([0.01, 0.41, 0.91, 0.91, 0.91])
    np.testing.assert_allclose(found, -((RECORDS.response - there) ** 2), rtol=1e-12)
    wide = Agreement((0.0, 4.0))(paths(EAST, EAST + 0.02), RECORDS)
    np.testing.assert_allclose(wide, found / 16, rtol=1e-12)


def test_values_and_responses_beyond_the_range_are_clipped_so_that_scores_stay_within_their_bounds():
    rows = Records(RECORDS.covariates, np.array([-50.0, 70.0, 0.5, -3.0, 2.0]))
    for agreement in (Agreement((0.0, 1.0)), Agreement((0.0, 1.0), 0.5)):
        found = agreement(paths(1e6 * (EAST - 0.5)), rows)
        assert agreement.bounds[0] <= found.min() <= found.max() <= agreement.bounds[1]


def test_smoothing_is_that_of_the_map():
    spike = np.zeros(GRID)
    spike[1, 2] = 1.0
    at_it = Records(np.array([[1.0, 12.0]]), np.array([1.0]))
    assert Agreement((0.0, 1.0), 0.5)(paths(spike), at_it) == 1
    assert Agreement((0.0, 1.0), 0.5, smoothing=1.5)(paths(spike), at_it) == 0


def test_kernel_sums_show_the_sign_of_the_sum_and_the_local_mean():
    centred = np.where(EAST > 0.5, 2.0, -2.0)  # the centre is 0.5, M = 0.5: ten rows near, local means 0.7 and 0.3
    release = sums(centred, np.full(GRID, 5.0))
    np.testing.assert_array_equal(Agreement((0.0, 1.0), 0.5)(release, RECORDS), [1, 0, 1, 1, 0])
    found = Agreement((0.0, 1.0))(release, RECORDS)
    there = np.array([0.3, 0.3, 0.7, 0.7, 0.7])
    np.testing.assert_allclose(found, -((RECORDS.response - there) ** 2), rtol=1e-6)


def test_where_no_record_is_near_a_kernel_sum_says_the_centre():
    found = Agreement((0.0, 1.0))(sums(np.zeros(GRID), np.full(GRID, -1.0)), RECORDS)
    np.testing.assert_allclose(found, -((RECORDS.response - 0.5) ** 2))


def test_the_mean_is_over_public_records():
    agreement = Agreement((0.0, 1.0), 0.5)
    assert MeanAgreement(agreement, RECORDS)(paths(EAST)) == pytest.approx(0.6)


def test_each_value_depends_on_its_own_record_alone():
    release, rng = paths(EAST), np.random.default_rng(0)
    other = Records(RECORDS.covariates.copy(), RECORDS.response.copy())
    other.covariates[3], other.response[3] = rng.uniform(size=2), 0.0
    for agreement in (Agreement((0.0, 1.0)), Agreement((0.0, 1.0), 0.5)):
        changed = agreement(release, RECORDS) != agreement(release, other)
        assert not changed[[0, 1, 2, 4]].any()
