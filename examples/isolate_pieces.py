"""Cut a signal into five ranges inside one compiled function, and plot them over the whole signal.

Inside a function that JAX compiles, `x[i:j]`, `jnp.where(c)[0]` and a boolean mask all fail, and bounds that are
fixed when compiling mean a compile for each range. `isolate` takes traced bounds: the function below is compiled
once and serves every range of the signal. Each piece is held against NumPy's slice.

    python examples/isolate_pieces.py            and a plot in the temporary folder, with matplotlib
    python examples/isolate_pieces.py 1000000    the same for a million points
"""

import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from skjaxwin import count_compiles, isolate, map_pieces

N_PIECES = 5


def pieces_of(n_points):
    """Return x, y, the pieces as a compiled function gives them, and the number of compiles."""
    x = np.linspace(0, 10, n_points)
    y = np.sin(2 * np.pi * x)
    edges = np.linspace(0, 10, N_PIECES + 1)
    edges[-1] = np.inf  # ranges are half-open, [start, stop): so the last one holds the last point
    size = n_points // N_PIECES + 1

    @jax.jit
    def master(x, y, edges):
        """Cut all pieces and compute something on each."""

        def one(bounds):
            piece = isolate(x, y, start=bounds[0], stop=bounds[1], size=size)
            _, y_window, mask = piece
            return piece, jnp.sqrt(jnp.sum(y_window**2) / jnp.sum(mask))

        return jax.lax.map(one, (edges[:-1], edges[1:]))

    with jax.enable_x64(True), count_compiles() as compiles:
        (x_windows, y_windows, masks), spread = jax.device_get(master(x, y, edges))
    rows = [*np.searchsorted(x, edges[:-1]), n_points]
    for k in range(N_PIECES):
        np.testing.assert_array_equal(x_windows[k][masks[k]], x[rows[k] : rows[k + 1]])
        np.testing.assert_array_equal(y_windows[k][masks[k]], y[rows[k] : rows[k + 1]])
    cut = [(x_windows[k][masks[k]], y_windows[k][masks[k]], spread[k]) for k in range(N_PIECES)]
    return x, y, cut, compiles.count


def plot(x, y, cut, path):
    """Draw the pieces over the whole signal, if matplotlib is there."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        print("matplotlib is not installed; no plot was drawn")
        return
    figure, axes = plt.subplots(figsize=(9, 3), layout="constrained")
    thin = max(len(x) // 5000, 1)
    axes.plot(x[::thin], y[::thin], color="0.8", linewidth=5, label="whole signal")
    for k, (x_piece, y_piece, spread) in enumerate(cut):
        axes.plot(x_piece[::thin], y_piece[::thin], label=f"piece {k}, rms {spread:.3f}")
    axes.set(xlabel="x", ylabel="y")
    figure.legend(loc="outside right upper")
    figure.savefig(path)
    print(f"drawn: {path}")


def main(n_points=1000):
    x, y, cut, n_compiles = pieces_of(n_points)
    print(f"{N_PIECES} pieces of {n_points} points: {n_compiles} compile; each equals NumPy's slice")
    assert n_compiles == 1
    plot(x, y, cut, Path(tempfile.gettempdir()) / "isolate_pieces.png")

    def rms(x, y, mask):
        return jnp.sqrt(jnp.sum(y**2) / jnp.sum(mask))

    # Without a compiled function of one's own: the same numbers from map_pieces.
    again = map_pieces(rms, x, y, edges=[0, 2, 4, 6, 8, np.inf])
    np.testing.assert_allclose(again, [spread for _, _, spread in cut], rtol=1e-12)
    print("rms of each piece:", *again.round(4))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
