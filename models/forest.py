"""Gradient-boosted trees as flat arrays, and the walks over them that score and explain.

XGBoost trains and stores the trees; serving walks them here, because XGBoost's fixed cost per call (0.3 ms for three
members and one row) is the price of a whole micro-batch. Margins are the same bits as XGBoost's: float32, intercept
first, leaves added in tree order. A bundle is refused when they are not.

Every tree is laid out as a complete binary tree of its member's depth (root 1, children of slot s at 2s and 2s+1), so
that a walk has no branches to mispredict. A row costs the same in whatever batch it comes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from assay.models.attribution import Paths, attribute, lay_out_paths
from assay.models.trees import Tree, read_trees
from assay.models.walks import add_leaves

Floats = npt.NDArray[np.float32]

# A split: less goes left. `column`: twice the feature, one more where missing values go right. Below a leaf that lies above the
# last level, splits lead to its value whatever they are.
SLOT = np.dtype([("threshold", "<f4"), ("column", "<u4")])


@dataclass(frozen=True, slots=True)
class Forest:
    """The trees of all members, member after member; T trees, D levels at most, M members."""

    features: int  # the first columns, which are all that trees look at
    slots: npt.NDArray[np.void]  # (T, 2^D) SLOT
    leaf: Floats  # (T, 2^D): log-odds
    intercept: Floats  # (M,): log-odds before the first tree
    ends: npt.NDArray[np.int32]  # (M,): tree after the member's last
    depths: npt.NDArray[np.int32]  # (M,): levels of its trees
    paths: Paths  # the same trees, laid out to explain

    @property
    def members(self) -> int:
        return len(self.ends)


def read_forest(members: Sequence[bytes], features: int) -> Forest:
    """The forest of members given as XGBoost's UBJSON, for so many features. Raises ValueError with what does not fit."""
    read = [read_trees(member, features) for member in members]
    trees = [tree for of_member, _ in read for tree in of_member]
    ends = np.cumsum([len(of_member) for of_member, _ in read]).astype(np.int32)
    depths = np.array([max(tree.depth() for tree in of_member) for of_member, _ in read], np.int32)
    width = 2 ** int(depths.max())
    forest = Forest(
        features=features,
        slots=np.zeros((len(trees), width), SLOT),
        leaf=np.zeros((len(trees), width), np.float32),
        intercept=np.array([intercept for _, intercept in read], np.float32),
        ends=ends,
        depths=depths,
        paths=lay_out_paths(trees, ends),
    )
    leaves = 2 ** np.repeat(depths, np.diff(ends, prepend=0))
    for index, tree in enumerate(trees):
        _place(forest, index, tree, int(leaves[index]), 0, 1)
    return forest


def _place(forest: Forest, index: int, tree: Tree, leaves: int, node: int, slot: int) -> None:
    """Lay a node out at a slot, and what is below it; a leaf that lies above the last level is pushed down to it."""
    if slot >= leaves:
        forest.leaf[index, slot - leaves] = tree.value[node]
        return
    left, right = tree.left[node], tree.right[node]
    if left < 0:
        left = right = node
    else:
        forest.slots[index, slot] = (tree.value[node], 2 * tree.column[node] + (not tree.missing_left[node]))
    _place(forest, index, tree, leaves, left, 2 * slot)
    _place(forest, index, tree, leaves, right, 2 * slot + 1)


def walk(forest: Forest, features: Floats, members: int | None = None) -> Floats:
    """Margins (n, members) in log-odds. Row by row the same bits, whatever the batch.

    `features`: float32 (n, F), C-contiguous, NaN = missing; `members`: only the first so many.
    """
    margins = np.empty((len(features), forest.members if members is None else members), np.float32)
    trees = (forest.slots, forest.leaf, forest.intercept, forest.ends, forest.depths)
    add_leaves(features, forest.features, *trees, margins)
    return margins


def explain_margins(forest: Forest, features: Floats, members: int | None = None) -> Floats:
    """How far each feature moved the sum of the members' margins, (n, features of the forest): see `models.attribution`."""
    return attribute(forest.paths, features, forest.features, forest.members if members is None else members)
