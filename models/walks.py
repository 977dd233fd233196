"""The compiled walks over laid-out trees: margins (`models.forest`) and what each feature added to them (`models.attribution`).

Both see a row with each feature twice, what is missing once as less than all and once as more than all, so that one comparison
says where to go. Indices are unsigned throughout: a signed one would be asked each time whether it counts from the end.
"""

from typing import Any

import numpy as np

from assay.tables.compiled import compiled

LOCKSTEP = (
    16  # trees walked together for a row, so that their cache misses overlap; 8 take a tenth longer, 4 half as long again
)
POINTS = 4  # of the quadrature in `models.attribution`

# What a node is to a row, by whether the row goes the way to it in all that the feature of its edge decides there:
OFF, LEAVES, ON = 0, 1, 2  # not since an earlier edge; not from this edge on; yes


@compiled
def _spread(features: Any, index: int, row: Any) -> None:
    for feature in range(len(row) // 2):
        value = features[index, feature]
        row[2 * feature] = value if value == value else -np.inf
        row[2 * feature + 1] = value if value == value else np.inf


@compiled
def add_leaves(features: Any, count: int, slots: Any, leaf: Any, intercept: Any, ends: Any, depths: Any, margins: Any) -> None:
    """Fill margins (n, members): see `models.forest.walk`. `count`: of the first columns, which are all that trees look at."""
    row, at = np.empty(2 * count, np.float32), np.empty(LOCKSTEP, np.uint32)
    for index in range(features.shape[0]):
        _spread(features, index, row)
        for member in range(margins.shape[1]):
            margin, leaves = intercept[member], np.uint32(1 << depths[member])
            for first in range(ends[member - 1] if member else 0, ends[member], LOCKSTEP):
                width = min(LOCKSTEP, ends[member] - first)
                at[:] = 1
                for _ in range(depths[member]):
                    if width == LOCKSTEP:  # a constant count, which the compiler unrolls
                        for lane in range(LOCKSTEP):
                            _step(row, slots, first, at, lane)
                    else:
                        for lane in range(width):
                            _step(row, slots, first, at, lane)
                for lane in range(width):
                    margin += leaf[first + lane, at[lane] - leaves]
            margins[index, member] = margin


@compiled
def _step(row: Any, slots: Any, first: int, at: Any, lane: int) -> None:
    slot = slots[first + lane, at[lane]]
    at[lane] = np.uint32(2) * at[lane] + np.uint32(not (row[slot.column] < slot.threshold))


@compiled
def add_shares(
    features: Any, count: int, starts: Any, nodes: Any, terms: Any, weight: Any, most: int, contributions: Any
) -> None:
    """Fill contributions (n, count): see `models.attribution.attribute`. `most`: nodes of the largest tree."""
    row, sums = np.empty(2 * count, np.float32), np.empty((count, POINTS), np.float32)
    product, below = np.empty((most, POINTS), np.float32), np.empty((most, POINTS), np.float32)
    goes_right, state = np.empty(most, np.uint8), np.empty(most, np.uint8)
    state[0], product[0, :] = ON, weight
    for index in range(features.shape[0]):
        _spread(features, index, row)
        sums[:, :] = 0
        for tree in range(len(starts) - 1):
            start, size = np.uint32(starts[tree]), np.uint32(starts[tree + 1] - starts[tree])
            for step in range(size):  # down: the products
                at, node = np.uint32(step), nodes[start + np.uint32(step)]
                if step > 0:
                    if state[node.before] != ON:
                        state[at] = OFF
                    else:
                        state[at] = ON if goes_right[node.parent] == node.is_right else LEAVES
                    for point in range(POINTS):
                        product[at, point] = product[node.parent, point] * terms[start + at, state[at], 0, point]
                if not node.is_leaf:
                    goes_right[at] = not (row[node.column] < node.threshold)
                for point in range(POINTS):
                    below[at, point] = product[at, point] * node.threshold if node.is_leaf else np.float32(0)
            for step in range(size - np.uint32(1)):  # and up again: children before their parents
                at = size - np.uint32(1) - np.uint32(step)
                node = nodes[start + at]
                for point in range(POINTS):
                    sums[node.feature, point] += below[at, point] * terms[start + at, state[at], 1, point]
                    below[node.parent, point] += below[at, point]
        for feature in range(count):
            total = np.float32(0)
            for point in range(POINTS):
                total += sums[feature, point]
            contributions[index, feature] = total
