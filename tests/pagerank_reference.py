"""Ranks an edge list with networkx, for comparison with `memonet demo pagerank`: prints `name rank`, highest first.

usage: python3 pagerank_reference.py FILE      (FILE plain, or gzip with a name that ends in .gz)
"""

import sys

try:
    import networkx
    import numpy  # noqa: F401  networkx.pagerank needs both, and says so only when it is called
    import scipy  # noqa: F401
except ImportError as missing:
    sys.exit(f"{missing}: this check compares with networkx; install it with `pip install networkx numpy scipy`")

graph = networkx.read_edgelist(sys.argv[1], create_using=networkx.DiGraph, data=False, encoding="utf-8")
# networkx stops when one iteration changes all ranks together by less than tol * nodes.
ranks = networkx.pagerank(graph, alpha=0.85, tol=1e-13 / len(graph), max_iter=10_000)
for name, rank in sorted(ranks.items(), key=lambda node: (-node[1], node[0])):
    print(name, repr(float(rank)))
