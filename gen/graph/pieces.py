"""Which results of a program hang together while it grows: union-find over their names (Tarjan, JACM 22,
1975).
"""

from collections.abc import Iterable


class Pieces:
    """Sets of results that nodes connect. `count` is how many of them hold a node of the main graph."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}
        self._main: set[str] = set()
        self.count = 0

    def root(self, name: str) -> str:
        """The result that stands for the piece of another."""
        parent = self._parent
        top = parent.setdefault(name, name)
        while top != parent[top]:
            parent[top] = parent[parent[top]]
            top = parent[top]
        parent[name] = top
        return top

    def apart(self, name: str, root: str) -> bool:
        """Whether a result is of another piece than the one that `root` stands for."""
        return self._parent.get(name) != root and self.root(name) != root

    def connect(self, names: Iterable[str], main: bool) -> None:
        """These results hang together; with `main` a node of the main graph is among those that make or read
        them.
        """
        parent, mains, top, held = self._parent, self._main, "", 0
        for name in names:
            if name not in parent:  # as what the node gives
                top = top or name
                parent[name] = top
                continue
            root = self.root(name)
            if root == top:
                continue
            if root in mains:
                held += 1
            if top:
                mains.discard(root)
                parent[root] = top
            else:
                top = root
        if top and (held or main):
            mains.add(top)
            self.count += 1 - held
