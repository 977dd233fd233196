"""The same three models in other forms, each as a function of (features, margins): what `models.walks` is compared with."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import xgboost

from assay.models.bundle import Bundle
from assay.models.forest import Forest, walk

Floats = npt.NDArray[np.float32]
Form = Callable[[Floats], npt.NDArray[Any]]  # float32 (n, M) -> margins (n, members); of fused ones their mean

SERVED, REFERENCE = "assay: trees in lockstep", "XGBoost, three boosters"
LANES = 8
LEAVES = 64  # of a bit vector


def forms(bundle: Bundle) -> dict[str, Form]:
    """By name; the one that serves first. Each knows its own layout of the bundle's trees."""
    forest = bundle.ensemble.forest
    boosters = [xgboost.Booster({"nthread": 1}, model_file=bundle.path / member.file) for member in bundle.manifest.members]
    rounded = replace(forest, leaf=forest.leaf.astype(np.float16).astype(np.float32))
    found: dict[str, Form] = {
        SERVED: lambda rows: walk(forest, rows),
        "its leaves as float16": lambda rows: walk(rounded, rows),
        "rows in lockstep": _rows_in_lockstep(forest),
        "rows in lockstep, binned": _binned(forest),
        REFERENCE: lambda rows: np.stack(
            [booster.inplace_predict(rows, predict_type="margin") for booster in boosters], axis=1
        ),
        "XGBoost, fused to one": _fused(boosters),
    }
    if 2 ** int(forest.depths.max()) <= LEAVES:
        found["bit vectors (QuickScorer)"] = _bit_vectors(forest)
    return found


def _fused(boosters: list[xgboost.Booster]) -> Form:
    """One booster with the trees of all; its margin is the sum of theirs."""
    documents = [json.loads(bytes(booster.save_raw("json"))) for booster in boosters]
    parts = [document["learner"]["gradient_booster"]["model"] for document in documents]
    first = parts[0]
    scores = [float(document["learner"]["learner_model_param"]["base_score"].strip("[]")) for document in documents]
    log_odds = sum(np.log(score / (1 - score)) for score in scores)
    first["trees"] = [tree | {"id": index} for index, tree in enumerate(tree for part in parts for tree in part["trees"])]
    first["tree_info"] = [0] * len(first["trees"])
    first["gbtree_model_param"]["num_trees"] = str(len(first["trees"]))
    first["iteration_indptr"] = list(range(len(first["trees"]) + 1))
    documents[0]["learner"]["learner_model_param"]["base_score"] = f"[{1 / (1 + np.exp(-log_odds)):.9E}]"
    booster = xgboost.Booster({"nthread": 1}, model_file=bytearray(json.dumps(documents[0]).encode()))
    return lambda rows: np.repeat(booster.inplace_predict(rows, predict_type="margin")[:, None] / 3, 3, axis=1)


def _rows_in_lockstep(forest: Forest) -> Form:
    """Eight rows together for each tree, their columns side by side."""
    thresholds, edges = forest.slots["threshold"].copy(), np.zeros(0, np.float32)
    return _lockstep(forest, thresholds, edges, np.zeros(0, np.int64))


def _binned(forest: Forest) -> Form:
    """The same over whole numbers: how many thresholds of its feature a value reaches, in a byte where they fit."""
    feature, threshold = forest.slots["column"] // 2, forest.slots["threshold"]
    edges = [np.unique(threshold[feature == number]) for number in range(forest.features)]
    kind = np.uint8 if max(map(len, edges)) < 255 else np.uint16
    bins = np.zeros(threshold.shape, kind)
    for number, own in enumerate(edges):
        bins[feature == number] = np.searchsorted(own, threshold[feature == number]) + 1
    return _lockstep(forest, bins, np.concatenate(edges), np.cumsum([0, *map(len, edges)]))


def _lockstep(forest: Forest, thresholds: npt.NDArray[Any], edges: Floats, starts: npt.NDArray[np.int64]) -> Form:
    block, columns = np.zeros((2 * forest.features, LANES), thresholds.dtype), forest.slots["column"].copy()
    highest = np.inf if thresholds.dtype == np.float32 else np.iinfo(thresholds.dtype).max
    most = thresholds.dtype.type(highest)
    least = thresholds.dtype.type(-highest if thresholds.dtype == np.float32 else 0)
    trees = (thresholds, columns, forest.leaf, forest.intercept, forest.ends, forest.depths)

    def margins(rows: Floats) -> Floats:
        made = np.empty((len(rows), forest.members), np.float32)
        _walk_rows(rows, block, least, most, edges, starts, *trees, made)
        return made

    return margins


@numba.njit(nogil=True, cache=True)
def _walk_rows(
    rows: Any, block: Any, least: Any, most: Any, edges: Any, starts: Any,
    thresholds: Any, columns: Any, leaf: Any, intercept: Any, ends: Any, depths: Any, margins: Any,
) -> None:  # fmt: skip
    at, sums = np.empty(LANES, np.uint32), np.empty(LANES, np.float32)
    for first in range(0, len(rows), LANES):
        width = min(LANES, len(rows) - first)
        for lane in range(width):
            for feature in range(len(block) // 2):
                value = rows[first + lane, feature]
                if value != value:
                    block[2 * feature, lane], block[2 * feature + 1, lane] = least, most
                elif len(starts) == 0:
                    block[2 * feature, lane] = block[2 * feature + 1, lane] = value
                else:
                    low, high = np.uint32(starts[feature]), np.uint32(starts[feature + 1])
                    while low < high:
                        middle = (low + high) >> np.uint32(1)
                        if edges[middle] <= value:
                            low = middle + np.uint32(1)
                        else:
                            high = middle
                    block[2 * feature, lane] = block[2 * feature + 1, lane] = low - np.uint32(starts[feature])
        for member in range(margins.shape[1]):
            sums[:] = intercept[member]
            leaves = np.uint32(1 << depths[member])
            for tree in range(ends[member - 1] if member else 0, ends[member]):
                at[:] = 1
                for _ in range(depths[member]):
                    for lane in range(LANES):
                        right = not (block[columns[tree, at[lane]], np.uint32(lane)] < thresholds[tree, at[lane]])
                        at[lane] = np.uint32(2) * at[lane] + np.uint32(right)
                for lane in range(LANES):
                    sums[lane] += leaf[tree, at[lane] - leaves]
            for lane in range(width):
                margins[first + lane, member] = sums[lane]


def _bit_vectors(forest: Forest) -> Form:
    """By feature instead of by tree: each threshold reached takes leaves away, the first that is left is the one
    (Lucchese et al. 2015, "QuickScorer: a fast algorithm to rank documents with additive ensembles of regression trees")."""
    nodes = []
    for tree, depth in enumerate(np.repeat(forest.depths, np.diff(forest.ends, prepend=0)).tolist()):
        for slot in range(1, 2**depth):
            level = slot.bit_length() - 1
            width = 2 ** (depth - level)
            start = (slot - 2**level) * width
            if len(set(forest.leaf[tree, start : start + width].tolist())) > 1:
                threshold, column = forest.slots[tree, slot].tolist()
                left = ((1 << width // 2) - 1) << start
                nodes.append((column // 2, threshold, tree, ~left & (2**LEAVES - 1), column % 2))
    nodes.sort()
    feature, threshold, tree, mask, missing_right = (list(part) for part in zip(*nodes, strict=True))
    starts = np.searchsorted(feature, np.arange(forest.features + 1))
    arrays = (
        np.array(threshold, np.float32),
        np.array(tree, np.uint32),
        np.array(mask, np.uint64),
        np.array(missing_right, bool),
    )

    def margins(rows: Floats) -> Floats:
        made = np.empty((len(rows), forest.members), np.float32)
        _take_leaves_away(rows, starts, *arrays, forest.leaf, forest.intercept, forest.ends, _PLACES, made)
        return made

    return margins


# A de Bruijn sequence: its top six bits, multiplied by a power of two, tell which (Leiserson, Prokop, Randall 1998).
_DE_BRUIJN = 0x03F79D71B4CB0A89
_PLACES = np.zeros(LEAVES, np.uint8)
for _bit in range(LEAVES):
    _PLACES[(_DE_BRUIJN << _bit & (2**64 - 1)) >> 58] = _bit


@numba.njit(nogil=True, cache=True)
def _take_leaves_away(
    rows: Any, starts: Any, thresholds: Any, trees: Any, masks: Any, missing_right: Any,
    leaf: Any, intercept: Any, ends: Any, places: Any, margins: Any,
) -> None:  # fmt: skip
    left, one, sequence, shift = np.empty(len(leaf), np.uint64), np.uint64(1), np.uint64(_DE_BRUIJN), np.uint64(58)
    for row in range(len(rows)):
        left[:] = ~np.uint64(0)
        for feature in range(len(starts) - 1):
            value = rows[row, feature]
            for node in range(starts[feature], starts[feature + 1]):
                if value < thresholds[node]:
                    break
                if value == value or missing_right[node]:
                    left[trees[node]] &= masks[node]
        for member in range(margins.shape[1]):
            margin = intercept[member]
            for tree in range(ends[member - 1] if member else 0, ends[member]):
                lowest = left[tree] & (~left[tree] + one)
                margin += leaf[tree, places[(lowest * sequence) >> shift]]
            margins[row, member] = margin
