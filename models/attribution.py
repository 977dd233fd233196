"""How far each feature moved a margin: Shapley values, exact, as TreeSHAP has them (`pred_contribs` of XGBoost).

Where only some features are known, a tree says its expectation over the others, by the shares of training rows that went each
way (Lundberg et al. 2018, "Consistent individualized feature attribution for tree ensembles", path-dependent). On the way to a
leaf each feature j is a factor: `o` (1 where the row goes that way) if it is known, else `z`, the share that went that way. A
Shapley value is the integral over x in [0, 1] of the derivative of the multilinear extension (Owen 1972, "Multilinear
extensions of games"), where each factor is z (1 - x) + o x. Of a leaf v that is

    v (o_i - z_i) * integral of the product over j != i of (z_j (1 - x) + o_j x)

a polynomial of a degree below the depth, which Gauss-Legendre quadrature of 4 points has exactly up to depth 8. So one pass
down a tree carries the products at 4 points, and one pass up adds leaves and hands out the shares: time grows with the nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.models.trees import Tree
from assay.models.walks import POINTS, add_shares
from assay.schemas.limits import MAX_TREE_DEPTH

assert MAX_TREE_DEPTH <= 2 * POINTS  # so many points have degree 2 POINTS - 1 exactly

Floats = npt.NDArray[np.float32]

# A node; its edge is the one that leads to it. Nodes are numbered within their tree, parents before children, the root 0.
NODE = np.dtype(
    [
        ("parent", "<u4"),
        ("before", "<u4"),  # the nearest node above whose edge has the same feature, or the root
        ("feature", "<u4"),  # of its edge
        ("column", "<u4"),  # what it splits by: twice the feature, one more where missing values go right
        ("threshold", "<f4"),  # less goes left; a leaf's log-odds
        ("is_right", "u1"),
        ("is_leaf", "u1"),
    ]
)


@dataclass(frozen=True, slots=True)
class Paths:
    """All nodes of all trees, tree after tree; N nodes, T trees, M members.

    `terms` says of each edge, for each state of a row (OFF, LEAVES, ON), by what it multiplies the product, and what it adds to
    its feature for each unit of the product below it.
    """

    starts: npt.NDArray[np.int32]  # (T + 1,): the root of each tree
    ends: npt.NDArray[np.int32]  # (M,): tree after the member's last
    nodes: npt.NDArray[np.void]  # (N,) NODE
    terms: Floats  # (N, 3, 2, POINTS)
    weight: Floats  # (POINTS,)


def lay_out_paths(trees: Sequence[Tree], ends: npt.NDArray[np.int32]) -> Paths:
    """The paths of checked trees. `ends`: the tree after each member's last."""
    points, weight = np.polynomial.legendre.leggauss(POINTS)
    nodes: list[tuple[Any, ...]] = []
    shares: list[tuple[float, float]] = []
    starts = [0]
    for tree in trees:
        _lay_out(tree, nodes, shares)
        starts.append(len(nodes))
    terms = _terms(np.array(shares), (points + 1) / 2)  # from [-1, 1] to [0, 1]
    return Paths(np.array(starts, np.int32), ends, np.array(nodes, NODE), terms, (weight / 2).astype(np.float32))


def _lay_out(tree: Tree, nodes: list[tuple[Any, ...]], shares: list[tuple[float, float]]) -> None:
    """Append the nodes of one tree, and of each what share of rows its edge's feature sends there, and sent to `before`."""
    first = len(nodes)

    def place(node: int, parent: int, feature: int, is_right: bool, share: float, above: dict[int, tuple[int, float]]) -> None:
        """`share`: of the rows at the parent; `above`: by feature, the last node whose edge has it, and its share."""
        index, left, right = len(nodes) - first, tree.left[node], tree.right[node]
        before, earlier = above.get(feature, (0, 1.0))
        column = 2 * tree.column[node] + (not tree.missing_left[node])
        nodes.append((parent, before, feature, 0 if left < 0 else column, tree.value[node], is_right, left < 0))
        shares.append((share * earlier, earlier))
        if left < 0:
            return
        if index:
            above = {**above, feature: (index, share * earlier)}
        total = tree.cover[left] + tree.cover[right]
        for child in (left, right):
            place(child, index, tree.column[node], child == right, tree.cover[child] / total if total else 0.0, above)

    place(0, 0, 0, False, 1.0, {})


def _terms(shares: npt.NDArray[np.float64], x: npt.NDArray[np.float64]) -> Floats:
    """`Paths.terms` of edges with shares (N, 2), here and at `before`."""
    here, before = shares[:, :1], shares[:, 1:]
    off, on, was_on = here * (1 - x), here * (1 - x) + x, before * (1 - x) + x
    gain_was_on = (1 - before) / was_on
    still_off = np.divide(here, before, out=np.zeros_like(here), where=before != 0) + 0 * x
    factors = np.stack([still_off, off / was_on, on / was_on], axis=1)
    gains = np.stack([0 * on, -1 / (1 - x) - gain_was_on, (1 - here) / on - gain_was_on], axis=1)
    return np.ascontiguousarray(np.stack([factors, gains], axis=2), np.float32)


def attribute(paths: Paths, features: Floats, count: int, members: int) -> Floats:
    """Shapley values, float32 (n, count): how far each of the first features moved the sum of the first members' margins.

    Row by row the same bits, whatever the batch. `features`: float32 (n, F), C-contiguous, NaN = missing.
    """
    contributions = np.empty((len(features), count), np.float32)
    starts = paths.starts[: paths.ends[members - 1] + 1]
    most = int(np.diff(starts).max())
    add_shares(features, count, starts, paths.nodes, paths.terms, paths.weight, most, contributions)
    return contributions
