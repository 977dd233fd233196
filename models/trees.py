"""A member's trees, read from XGBoost's UBJSON and checked: compiled code follows their indices without looking."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.models.ubjson import parse_ubjson
from assay.schemas.limits import MAX_TREE_DEPTH


@dataclass(frozen=True, slots=True)
class Tree:
    """Nodes of one tree, the root first; lists of the same length. A node without children (-1) is a leaf.

    Attributes:
        value: a split's threshold (less goes left), a leaf's log-odds.
        column: which feature a split looks at. missing_left: where it sends what is missing.
        cover: the sum of hessians that training saw there.
    """

    left: list[int]
    right: list[int]
    value: list[float]
    column: list[int]
    missing_left: list[int]
    cover: list[float]

    def depth(self, node: int = 0) -> int:
        """Levels of splits from there down."""
        return 0 if self.left[node] < 0 else 1 + max(self.depth(self.left[node]), self.depth(self.right[node]))


def read_trees(member: bytes, features: int) -> tuple[list[Tree], np.float32]:
    """The trees of a member, and its log-odds before the first. Raises ValueError with what does not fit."""
    try:
        document = parse_ubjson(member)
        _check_learner(document, features)
        trees = [_tree(tree, features) for tree in document["learner"]["gradient_booster"]["model"]["trees"]]
        intercept = _intercept(document)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(
            f"it has no {error}" if isinstance(error, KeyError) else "it is not laid out as XGBoost does"
        ) from None
    if not trees:
        raise ValueError("no trees")
    depth = max(tree.depth() for tree in trees)
    if depth > MAX_TREE_DEPTH:
        raise ValueError(f"a tree of depth {depth}; at most {MAX_TREE_DEPTH} is served")
    return trees, intercept


def _check_learner(document: dict[str, Any], features: int) -> None:
    learner = document["learner"]
    objective, booster = learner["objective"]["name"], learner["gradient_booster"]["name"]
    if objective != "binary:logistic" or booster != "gbtree":
        raise ValueError(f"objective {objective} with booster {booster}; binary:logistic with gbtree is served")
    if int(learner["learner_model_param"]["num_feature"]) != features:
        raise ValueError(f"it takes other features: {learner['learner_model_param']['num_feature']}; {features} are served")
    if not 0 < _base_score(document) < 1:
        raise ValueError("its base score is no probability")


_PARTS = ("left_children", "right_children", "split_conditions", "split_indices", "default_left", "sum_hessian")


def _tree(document: dict[str, Any], features: int) -> Tree:
    """The tree, which is one: every node but the root is the child of one other, and looks at a feature that exists."""
    parts = [np.asarray(document[name]).tolist() for name in _PARTS]
    tree, nodes = Tree(*parts), len(parts[0])
    if not nodes or any(len(part) != nodes for part in (*parts, document["split_type"])):
        raise ValueError("a tree whose parts differ in length")
    if any(document["split_type"]):
        raise ValueError("categorical splits; only numerical ones are served")
    children = [child for child in (*tree.left, *tree.right) if child >= 0]
    pairs = all((left < 0) == (right < 0) for left, right in zip(tree.left, tree.right, strict=True))
    if not pairs or len(set(children)) != len(children) or not all(0 < child < nodes for child in children):
        raise ValueError("a tree whose nodes are no tree")
    if not all(left < 0 or 0 <= column < features for left, column in zip(tree.left, tree.column, strict=True)):
        raise ValueError("a tree that looks at a feature that does not exist")
    if not all(np.isfinite(tree.cover)) or min(tree.cover) < 0 or not all(np.isfinite(tree.value)):
        raise ValueError("a tree with values that are no numbers")
    return tree


def _base_score(document: dict[str, Any]) -> np.float32:
    """A probability, as text: `2.3E-1` before XGBoost 3.1, `[2.3E-1]` since."""
    return np.float32(str(document["learner"]["learner_model_param"]["base_score"]).strip("[]"))


def _intercept(document: dict[str, Any]) -> np.float32:
    one = np.float32(1)
    return np.float32(-math.log(one / _base_score(document) - one))  # rounded as the C library's logf does, unlike numpy's
