"""Pareto frontier of speed and quality, and which effort owns which stretch of it."""

from dataclasses import dataclass

import moocore
import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Frontier:
    """M configurations that no other beats, ordered by increasing speed; equal configurations are all kept.

    Attributes
    ----------
    speed, quality : (M,)
        Both are better when larger.
    index : (M,)
        Position of each in the input.
    owner : (M,) or None
        Effort that owns each point.
    """

    speed: NDArray[np.float64]
    quality: NDArray[np.float64]
    index: NDArray[np.int64]
    owner: NDArray[np.int64] | None

    def __len__(self) -> int:
        return len(self.index)


def pareto_frontier(speed: ArrayLike, quality: ArrayLike, *, effort: ArrayLike | None = None) -> Frontier:
    """Keep the points that no other point equals or exceeds in both, and exceeds in one.

    Parameters
    ----------
    speed, quality : (N,)
        Finite numbers, both better when larger.
    effort : (N,), optional
        Effort of each point, for `Frontier.owner`.
    """
    points = np.stack([np.asarray(speed, dtype=float), np.asarray(quality, dtype=float)], axis=1)
    unusable = np.flatnonzero(~np.isfinite(points).all(axis=1))
    if unusable.size or not len(points):
        got = f"other values at {unusable.tolist()}" if unusable.size else "none"
        raise ValueError(f"`speed` and `quality` must be finite numbers, got {got}; leave out what was not measured")
    index = np.flatnonzero(moocore.is_nondominated(points, maximise=True, keep_weakly=True))
    index = index[np.lexsort((index, points[index, 0]))]
    return Frontier(
        speed=points[index, 0],
        quality=points[index, 1],
        index=index,
        owner=None if effort is None else np.asarray(effort)[index],
    )


def hypervolume_ratio(frontier: Frontier, other: Frontier, reference: tuple[float, float]) -> float:
    """Return how much of the plane ``frontier`` dominates for each unit that ``other`` dominates.

    Parameters
    ----------
    frontier, other
        Frontiers in the same units.
    reference
        Speed and quality of the worst acceptable point; the areas are counted from there.
    """
    area, other_area = (
        moocore.hypervolume(np.stack([f.speed, f.quality], axis=1), ref=reference, maximise=True)
        for f in (frontier, other)
    )
    if not other_area > 0:
        msg = f"`reference` must lie below a point of `other`, got {reference}; take a slower or poorer point"
        raise ValueError(msg)
    return float(area / other_area)
