"""The cheapest term of every e-class, as a tree.

By Knuth, "A generalization of Dijkstra's algorithm", Information Processing Letters 6, 1977: each
class is settled once, in the order of cost, with the node that settled it. So a term never holds
itself, however the e-graph is tied.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

__all__ = ["cheapest"]


def cheapest(
    owner: Sequence[int], children: Sequence[Sequence[int]], cost: Sequence[float], classes: int
) -> tuple[list[int], list[float], list[int]]:
    """For each class the node with the cheapest tree (-1 where no term is finite), that tree's cost
    (a shared part counts at every use; infinite where there is none), and the classes in the order
    in which they were settled. `owner`, `children` and `cost` are the nodes' classes, children's
    classes and own costs, which are 0 or more."""
    best, least, order = [-1] * classes, [float("inf")] * classes, list[int]()
    waiting = [len(set(c)) for c in children]
    users: list[list[int]] = [[] for _ in range(classes)]
    for n, below in enumerate(children):
        for c in set(below):
            users[c].append(n)
    queue = [(cost[n], n) for n, w in enumerate(waiting) if w == 0]
    heapq.heapify(queue)
    while queue:
        value, n = heapq.heappop(queue)
        c = owner[n]
        if best[c] >= 0:
            continue
        best[c], least[c] = n, value
        order.append(c)
        for user in users[c]:
            waiting[user] -= 1
            if waiting[user] == 0 and best[owner[user]] < 0:
                tree = cost[user] + sum(least[k] for k in children[user])
                heapq.heappush(queue, (tree, user))
    return best, least, order
