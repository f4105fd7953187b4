"""The shape of a tree of guesses: which node follows which, and the paths from its root to its leaves."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.ground.errors import EngineError


class Tree:
    """Guesses after one token, each below its parent. Node i may only follow an earlier node."""

    def __init__(self, ids: Sequence[int], parents: Sequence[int]) -> None:
        """`parents[i]` is the index of node i's parent; -1 = it follows the last token itself.

        Raises EngineError when the parents are not in topological order, or not one for each id.
        """
        if len(ids) != len(parents):
            raise EngineError(f"{len(parents)} parents for {len(ids)} guesses")
        self.ids = tuple(ids)
        self.parents = tuple(parents)
        depths: list[int] = []
        for node, parent in enumerate(self.parents):
            if not -1 <= parent < node:
                raise EngineError(f"node {node} of a tree cannot follow node {parent}")
            depths.append(1 if parent < 0 else depths[parent] + 1)
        self.depths = tuple(depths)
        """Of each node; 1 = right after the last token."""
        inner = set(self.parents)
        self.paths = tuple(self._path(node) for node in range(len(ids)) if node not in inner)
        """Of each leaf, in the order of the leaves: its nodes, from the root down."""

    def leaf_of(self, path: Sequence[int], paths: Sequence[Sequence[int]]) -> int:
        """Index of the shortest of `paths` that begins with `path`: what lies below it is least to take back.

        Raises EngineError when `path` does not lead down from the root.
        """
        count, wanted = len(path), tuple(path)
        fitting = [index for index, whole in enumerate(paths) if tuple(whole[:count]) == wanted]
        if not fitting:
            raise EngineError(f"the nodes {list(path)} are no path of this tree")
        return min(fitting, key=lambda index: len(paths[index]))

    def _path(self, node: int) -> tuple[int, ...]:
        nodes = []
        while node >= 0:
            nodes.append(node)
            node = self.parents[node]
        return tuple(reversed(nodes))


def is_chain(parents: Sequence[int], count: int) -> bool:
    """Whether `count` nodes follow each the one before it."""
    return len(parents) == count and all(parent == node - 1 for node, parent in enumerate(parents))


def most_path_rows(rows: int, leaves: int) -> int:
    """Most rows that the paths of a tree of `rows` rows (its root counts) and up to `leaves` leaves can have, where
    what they share is repeated: then each path runs down all inner nodes."""
    nodes = rows - 1
    return max((count * (2 + nodes - count) for count in range(1, min(leaves, nodes) + 1)), default=rows)
