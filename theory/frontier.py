"""Pareto frontier of speed and quality: who owns which stretch, what effort gains, and how sure each point is."""

from dataclasses import dataclass, replace

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
        Effort of each point; None if it was not given.
    """

    speed: NDArray[np.float64]
    quality: NDArray[np.float64]
    index: NDArray[np.int64]
    owner: NDArray[np.int64] | None

    def __len__(self) -> int:
        return len(self.index)

    def stretches(self) -> tuple["Stretch", ...]:
        """Return who owns what, from the best quality to the highest speed; equal points belong to the smaller effort.

        Raises
        ------
        ValueError
            The efforts were not given to `pareto_frontier`.
        """
        if self.owner is None:
            raise ValueError("`effort` must be given to `pareto_frontier`, got none; it says whose a stretch is")
        order = np.lexsort((self.owner, self.speed))
        first = np.append(True, np.diff(self.speed[order]) > 0)
        speed, quality, owner = (values[order][first] for values in (self.speed, self.quality, self.owner))
        starts = np.flatnonzero(np.append(True, np.diff(owner) != 0))
        ends = np.append(starts[1:], owner.size)
        return tuple(
            Stretch(
                effort=int(owner[start]),
                best_quality=float(quality[start]),
                next_quality=float(quality[end]) if end < owner.size else None,
                slowest=float(speed[start]),
                fastest=float(speed[end - 1]),
            )
            for start, end in zip(starts, ends, strict=True)
        )


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """A run of neighbours on the frontier with one effort.

    For every floor on quality above ``next_quality`` (the best of all faster points; None where there are none) and up
    to ``best_quality``, the fastest configuration has this effort, with a speed from ``slowest`` to ``fastest``.
    """

    effort: int
    best_quality: float
    next_quality: float | None
    slowest: float
    fastest: float


@dataclass(frozen=True, kw_only=True, eq=False)
class EffortGain:
    """What choosing the effort gains over one fixed effort.

    ``hypervolume_ratio`` is the area that ``joint`` dominates over the area that ``fixed`` dominates, both counted from
    ``reference``, (speed, quality); at least 1.
    """

    joint: Frontier
    fixed: Frontier
    fixed_effort: int
    reference: tuple[float, float]
    hypervolume_ratio: float


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


def effort_gain(
    speed: ArrayLike, quality: ArrayLike, effort: ArrayLike, *, reference: tuple[float, float], fixed_effort: int = 1
) -> EffortGain:
    """Set the frontier over all efforts against the frontier at one of them, as the paper does for K = 1.

    Parameters
    ----------
    speed, quality, effort : (N,)
        As in `pareto_frontier`.
    reference
        Speed and quality of the worst acceptable point.
    fixed_effort
        The effort that is fixed; at least one point must have it.
    """
    speed, quality, effort = (np.asarray(values) for values in (speed, quality, effort))
    rows = np.flatnonzero(effort == fixed_effort)
    if not rows.size:
        msg = (
            f"`fixed_effort` must be one of {np.unique(effort).tolist()}, got {fixed_effort}; record it or take another"
        )
        raise ValueError(msg)
    joint = pareto_frontier(speed, quality, effort=effort)
    alone = pareto_frontier(speed[rows], quality[rows], effort=effort[rows])
    fixed = replace(alone, index=rows[alone.index])
    ratio = hypervolume_ratio(joint, fixed, reference)
    return EffortGain(joint=joint, fixed=fixed, fixed_effort=fixed_effort, reference=reference, hypervolume_ratio=ratio)


def frontier_probability(speed: ArrayLike, quality: ArrayLike) -> NDArray[np.float64]:
    """Return the share of bootstrap draws in which each configuration is on the frontier, ``(R, N) -> (N,)``.

    The draws of one row must belong together (one resample of the prompts), since configurations rise and fall with the
    same prompts. A NaN keeps a configuration off the frontier of its row and dominates nothing.

    Parameters
    ----------
    speed, quality : (R, N)
        R draws of N configurations, both better when larger.
    """
    points = np.stack(np.broadcast_arrays(np.asarray(speed, dtype=float), np.asarray(quality, dtype=float)), axis=-1)
    if points.ndim != 3 or not points.shape[0]:
        msg = f"`speed` and `quality` must have shape (draws, configurations), got {points.shape[:-1]}; "
        raise ValueError(msg + "pass at least one draw")
    counts: NDArray[np.float64] = np.zeros(points.shape[1])
    for draw in points:
        usable = np.flatnonzero(np.isfinite(draw).all(axis=1))
        if usable.size:
            counts[usable] += moocore.is_nondominated(draw[usable], maximise=True, keep_weakly=True)
    return np.asarray(counts / points.shape[0])
