#!/usr/bin/env python3
"""Writes tests/golden/clusters/embedding_clusters.json: clusters and near-duplicates of embeddings by
scikit-learn, with which tests/curate/duplicates compares weft's. Needs scikit-learn."""
import json
import sys

import numpy
import sklearn
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import cosine_similarity

COUNT, WIDTH, CLUSTERS, SIMILARITY = 160, 12, 8, 0.985
random = numpy.random.default_rng(11)
centres = random.normal(size=(CLUSTERS, WIDTH))
vectors = centres[random.integers(CLUSTERS, size=COUNT)] + 0.55 * random.normal(size=(COUNT, WIDTH))
copies = random.choice(COUNT, 40, replace=False)  # near-duplicates, some of them of near-duplicates
for i in copies:
    vectors[i] = vectors[random.integers(COUNT)] + 0.12 * random.normal(size=WIDTH)
vectors /= numpy.linalg.norm(vectors, axis=1, keepdims=True)
vectors = numpy.round(vectors, 5)
vectors = (vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)).astype(numpy.float32)


def objective(labels):
    """Sum of the cosines with the direction of the cluster's mean."""
    return float(sum(numpy.linalg.norm(vectors[labels == c].astype(float).sum(axis=0)) for c in set(labels)))


runs = [KMeans(CLUSTERS, n_init=1, random_state=seed, max_iter=300).fit_predict(vectors) for seed in range(40)]
best = max(runs, key=objective)
cosines = cosine_similarity(vectors.astype(float))
numpy.fill_diagonal(cosines, -1)
margin = numpy.abs(cosines - SIMILARITY).min()
assert margin > 1e-5, margin  # no pair whose side rounding decides
of, kept = [], []
for i in range(COUNT):  # greedy, in order: the nearest retained vector of the cluster
    near = [(cosines[i, k], -k) for k in kept if best[k] == best[i] and cosines[i, k] >= SIMILARITY]
    of.append(-max(near)[1] if near else -1)
    if not near:
        kept.append(i)
alone = []
kept = []
for i in range(COUNT):  # the same without clusters
    near = [(cosines[i, k], -k) for k in kept if cosines[i, k] >= SIMILARITY]
    alone.append(-max(near)[1] if near else -1)
    if not near:
        kept.append(i)
golden = {"by": "scikit-learn " + sklearn.__version__, "clusters": CLUSTERS, "similarity": SIMILARITY, "width": WIDTH,
          "objective": objective(best), "median_objective": float(numpy.median([objective(r) for r in runs])),
          "labels": best.tolist(), "duplicate_of": of, "duplicate_of_any": alone,
          "vectors": [round(float(x), 8) for x in vectors.ravel()]}
with open(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/clusters/embedding_clusters.json", "w") as file:
    json.dump(golden, file, separators=(",", ":"))
    file.write("\n")
print("objectives of single runs:", sorted(round(objective(r), 3) for r in runs))
print("duplicates:", sum(x >= 0 for x in of), "without clusters:", sum(x >= 0 for x in alone))
