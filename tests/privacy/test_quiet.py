import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from discretion.privacy.quiet import quiet


def test_nothing_of_an_overflow_is_shown_and_it_is_still_infinite(capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with quiet():
            found = np.array([1e300]) * 1e300, np.array([0.0]) / 0.0, np.array([np.longdouble("1e400")]).astype(float)
            np.log(np.array([-1.0]))
            warnings.warn("the record 424242 is odd", UserWarning, stacklevel=1)
    assert found[0][0] == np.inf
    assert np.isnan(found[1][0])
    assert found[2][0] == np.inf
    assert capfd.readouterr() == ("", "")


def test_it_ends_where_it_should_also_after_an_error_and_as_a_decorator():
    @quiet()
    def overflow():
        return np.array([1e300]) * 1e300

    assert overflow()[0] == np.inf
    assert overflow()[0] == np.inf
    with pytest.raises(KeyError), quiet():
        raise KeyError
    with pytest.raises(RuntimeWarning):  # an error in this test run
        np.array([1e300]) * 1e300


def test_threads_that_overlap_are_quiet_until_the_last_has_left():
    def filters():
        return [each[:3] for each in warnings.filters]

    before, inside, left = filters(), threading.Event(), threading.Event()

    def stay():
        with quiet():
            inside.set()
            left.wait(120)
            warnings.warn("the record 424242 is odd", RuntimeWarning, stacklevel=1)  # would be an error

    with ThreadPoolExecutor(1) as pool:
        with quiet():
            told = pool.submit(stay)
            inside.wait(120)
        assert filters()[0][0] == "ignore"
        left.set()
        told.result()
    assert filters() == before
