"""What tests of the engines on the line share: awkward data, and the law of paths without drawing any."""

import numpy as np


class UnitNormals:
    """Instead of normals, the columns of an identity: the paths are the linear map from normals to values."""

    def __init__(self, total):
        self.total, self.used = total, 0

    def __call__(self, shape):
        block = np.zeros(shape)
        block[self.used : self.used + shape[1]] = np.eye(shape[1])
        self.used += shape[1]
        assert self.used <= self.total
        return block


def normals_for(paths_of, posterior, requests):
    """How many normals a path takes for these requests."""
    asked = []

    def counted(shape):
        asked.append(shape[1])
        return np.zeros(shape)

    paths = paths_of(posterior, 1.0, 1e-3, counted)
    for T in requests:
        paths.evaluate(T)
    return sum(asked)


def map_of(paths_of, posterior, requests, nugget=1e-3, scale=0.7):
    """For each request the mean, and the matrix from normals to noise, of the values."""
    total = normals_for(paths_of, posterior, requests)
    paths = paths_of(posterior, scale, nugget, UnitNormals(total), paths=total + 1)
    found = []
    for T in requests:
        values = paths.evaluate(T)
        found.append((values[-1], (values[:-1] - values[-1]).T))
    return found


def law(paths_of, posterior, requests, nugget=1e-3, scale=0.7):
    """Mean, and the matrix from normals to noise, of the values of all requests."""
    means, maps = zip(*map_of(paths_of, posterior, requests, nugget, scale), strict=True)
    return np.concatenate(means), np.concatenate(maps)


def made(n, seed=0):
    """Sites with a repeated one, one at 1e-12 and one at 1e-300 from it, and far ones."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 1.0, n)
    if n > 6:
        x[1:4] = x[0], x[0] + 1e-12, 40.0
        x[4:6] = 0.0, 1e-300
    return x[:, None], np.sin(7.0 * x) + 0.3 * rng.normal(size=n)
