"""Gradient-boosted trees as flat arrays, and the walks over them that score and explain.

XGBoost trains and stores the trees; serving walks them here, because XGBoost's fixed cost per call (0.3 ms for three
members and one row) is the price of a whole micro-batch, and because one walk gives both the margin and the reasons.
Margins are the same bits as XGBoost's: float32, intercept first, leaves added in tree order. A bundle is refused
when they are not.

Every tree is laid out as a complete binary tree of the same depth (children of slot s at 2s+1 and 2s+2), so that a
walk has no branches to mispredict, and eight rows are walked in lockstep, so that their cache misses overlap.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.models.ubjson import parse_ubjson
from assay.schemas.limits import MAX_TREE_DEPTH
from assay.tables.compiled import compiled

LOCKSTEP = 8  # rows walked together

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Forest:
    """The trees of all members, member after member; T trees, D levels, M members.

    A leaf that lies above the last level is pushed down to it: both children of each slot below carry its value.
    """

    depth: int
    feature: npt.NDArray[np.int16]  # (T, 2^D - 1): column that the slot looks at
    threshold: Floats  # (T, 2^D - 1): less goes left
    missing_left: npt.NDArray[np.bool_]  # (T, 2^D - 1): where NaN goes
    leaf: Floats  # (T, 2^D): log-odds
    expected: Floats  # (T, 2^(D+1) - 1): mean leaf below the slot, weighted by hessian
    intercept: Floats  # (M,): log-odds before the first tree
    ends: npt.NDArray[np.int32]  # (M,): tree after the member's last

    @property
    def members(self) -> int:
        return len(self.ends)


def read_forest(members: Sequence[bytes], features: int) -> Forest:
    """The forest of members given as XGBoost's UBJSON, for so many features. Raises ValueError with what does not fit.

    Nothing is taken on trust: the compiled walk follows indices without looking.
    """
    documents = [parse_ubjson(member) for member in members]
    trees: list[dict[str, Any]] = []
    ends: list[int] = []
    for document in documents:
        try:
            trees.extend(_trees(document, features))
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(
                f"it has no {error}" if isinstance(error, KeyError) else "it is not laid out as XGBoost does"
            ) from None
        ends.append(len(trees))
    depth = max(_depth(tree) for tree in trees)
    if depth > MAX_TREE_DEPTH:
        raise ValueError(f"a tree of depth {depth}; at most {MAX_TREE_DEPTH} is served")
    slots, leaves = 2**depth - 1, 2**depth
    forest = Forest(
        depth=depth,
        feature=np.zeros((len(trees), slots), np.int16),
        threshold=np.zeros((len(trees), slots), np.float32),
        missing_left=np.ones((len(trees), slots), np.bool_),
        leaf=np.zeros((len(trees), leaves), np.float32),
        expected=np.zeros((len(trees), slots + leaves), np.float32),
        intercept=np.array([_intercept(document) for document in documents], np.float32),
        ends=np.array(ends, np.int32),
    )
    for index, tree in enumerate(trees):
        _lay_out(forest, index, tree)
    return forest


def _trees(document: dict[str, Any], features: int) -> list[dict[str, Any]]:
    learner = document["learner"]
    objective, booster = learner["objective"]["name"], learner["gradient_booster"]["name"]
    if objective != "binary:logistic" or booster != "gbtree":
        raise ValueError(f"objective {objective} with booster {booster}; binary:logistic with gbtree is served")
    if int(learner["learner_model_param"]["num_feature"]) != features:
        raise ValueError(f"it takes other features: {learner['learner_model_param']['num_feature']}; {features} are served")
    if not 0 < _base_score(document) < 1:
        raise ValueError("its base score is no probability")
    trees = learner["gradient_booster"]["model"]["trees"]
    if not trees:
        raise ValueError("no trees")
    return [_checked({name: np.asarray(tree[name]).tolist() for name in _PARTS}, features) for tree in trees]


_PARTS = ("left_children", "right_children", "split_conditions", "split_indices", "default_left", "sum_hessian", "split_type")


def _checked(tree: dict[str, Any], features: int) -> dict[str, Any]:
    """The tree, which is one: every node but the root is the child of one other, and looks at a feature that exists."""
    lefts, rights, nodes = tree["left_children"], tree["right_children"], len(tree["left_children"])
    if not nodes or any(len(tree[part]) != nodes for part in _PARTS):
        raise ValueError("a tree whose parts differ in length")
    if any(tree["split_type"]):
        raise ValueError("categorical splits; only numerical ones are served")
    children = [child for child in (*lefts, *rights) if child >= 0]
    pairs = all((left < 0) == (right < 0) for left, right in zip(lefts, rights, strict=True))
    if not pairs or len(set(children)) != len(children) or not all(0 < child < nodes for child in children):
        raise ValueError("a tree whose nodes are no tree")
    if not all(left < 0 or 0 <= column < features for left, column in zip(lefts, tree["split_indices"], strict=True)):
        raise ValueError("a tree that looks at a feature that does not exist")
    if not all(np.isfinite(tree["sum_hessian"])) or not all(np.isfinite(tree["split_conditions"])):
        raise ValueError("a tree with values that are no numbers")
    return tree


def _base_score(document: dict[str, Any]) -> np.float32:
    """A probability, as text: `2.3E-1` before XGBoost 3.1, `[2.3E-1]` since."""
    return np.float32(str(document["learner"]["learner_model_param"]["base_score"]).strip("[]"))


def _intercept(document: dict[str, Any]) -> np.float32:
    one = np.float32(1)
    return np.float32(-math.log(one / _base_score(document) - one))  # rounded as the C library's logf does, unlike numpy's


def _depth(tree: dict[str, Any], node: int = 0) -> int:
    left, right = tree["left_children"][node], tree["right_children"][node]
    return 0 if left < 0 else 1 + max(_depth(tree, left), _depth(tree, right))


def _lay_out(forest: Forest, index: int, tree: dict[str, Any]) -> None:
    lefts, rights = tree["left_children"], tree["right_children"]
    values, columns, missing = tree["split_conditions"], tree["split_indices"], tree["default_left"]
    hessian = tree["sum_hessian"]
    slots = forest.feature.shape[1]

    def expected(node: int) -> float:
        left, right = lefts[node], rights[node]
        if left < 0:
            return float(values[node])
        total = hessian[left] + hessian[right]
        return (expected(left) * hessian[left] + expected(right) * hessian[right]) / total if total else 0.0

    def place(node: int, slot: int) -> None:
        forest.expected[index, slot] = expected(node)
        if slot >= slots:
            forest.leaf[index, slot - slots] = values[node]
            return
        is_leaf = lefts[node] < 0
        forest.threshold[index, slot] = np.inf if is_leaf else values[node]
        forest.feature[index, slot] = 0 if is_leaf else columns[node]
        forest.missing_left[index, slot] = True if is_leaf else missing[node]
        place(node if is_leaf else lefts[node], 2 * slot + 1)
        place(node if is_leaf else rights[node], 2 * slot + 2)

    place(0, 0)


def walk(forest: Forest, features: Floats, members: int | None = None) -> tuple[Floats, Floats]:
    """Margins (n, members) in log-odds, and contributions (n, F): how far each feature moved their sum.

    A contribution is the difference of node expectations along the path, summed over all trees (Saabas 2014, "Interpreting
    random forests"; XGBoost's `approx_contribs`). `features`: float32 (n, F), C-contiguous, NaN = missing; `members`: only
    the first so many. Row by row the same bits, whatever the batch.
    """
    first = forest.members if members is None else members
    margins = np.empty((len(features), first), np.float32)
    contributions = np.zeros(features.shape, np.float32)
    _walk(
        features,
        forest.depth,
        forest.feature,
        forest.threshold,
        forest.missing_left,
        forest.leaf,
        forest.expected,
        forest.intercept,
        forest.ends,
        margins,
        contributions,
    )
    return margins, contributions


@compiled
def _walk(
    features: Any,
    depth: int,
    column: Any,
    threshold: Any,
    missing_left: Any,
    leaf: Any,
    expected: Any,
    intercept: Any,
    ends: Any,
    margins: Any,
    contributions: Any,
) -> None:
    rows, slots = features.shape[0], column.shape[1]
    at = np.zeros(LOCKSTEP, np.int32)
    for first in range(0, rows, LOCKSTEP):
        width = min(LOCKSTEP, rows - first)
        for member in range(margins.shape[1]):
            margins[first : first + width, member] = intercept[member]
            for tree in range(ends[member - 1] if member else 0, ends[member]):
                at[:] = 0
                for _ in range(depth):
                    if width == LOCKSTEP:  # a constant count, which the compiler unrolls
                        for lane in range(LOCKSTEP):
                            _step(features, column, threshold, missing_left, expected, contributions, tree, first, at, lane)
                    else:
                        for lane in range(width):
                            _step(features, column, threshold, missing_left, expected, contributions, tree, first, at, lane)
                for lane in range(width):
                    margins[first + lane, member] += leaf[tree, at[lane] - slots]


@compiled
def _step(
    features: Any,
    column: Any,
    threshold: Any,
    missing_left: Any,
    expected: Any,
    contributions: Any,
    tree: int,
    first: int,
    at: Any,
    lane: int,
) -> None:
    slot = at[lane]
    feature = column[tree, slot]
    value = features[first + lane, feature]
    right = (not (value < threshold[tree, slot])) & ((value == value) | (not missing_left[tree, slot]))
    child = 2 * slot + 1 + right
    at[lane] = child
    contributions[first + lane, feature] += expected[tree, child] - expected[tree, slot]


@compiled
def heaviest(contributions: Any, indices: Any, weights: Any) -> None:
    """Fill indices and weights (n, k) with the k largest of |contributions| (n, F) a row, heaviest first.

    Of equals the lower index; -1 where there are fewer that are not zero.
    """
    for row in range(contributions.shape[0]):
        for rank in range(indices.shape[1]):
            indices[row, rank], weights[row, rank] = -1, 0.0
        for feature in range(contributions.shape[1]):
            weight = contributions[row, feature]
            rank = indices.shape[1]
            while rank > 0 and abs(weight) > abs(weights[row, rank - 1]):
                if rank < indices.shape[1]:
                    indices[row, rank], weights[row, rank] = indices[row, rank - 1], weights[row, rank - 1]
                rank -= 1
            if rank < indices.shape[1]:
                indices[row, rank], weights[row, rank] = feature, weight
