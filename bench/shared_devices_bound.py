#!/usr/bin/env python3
"""bench/shared_devices_bound.py WEFT [STEPS.csv]: the most deadlines that any policy meets on 8 devices, also one that knows all
later jobs, for the traces of bench/shared_devices.py. The seconds of a step are the ones of the last run
(bench/results/shared-devices-degrees.csv). Needs scipy (WEFT_PEER_PYTHON). JOBS (2000) and SEEDS (3): length and number of
the traces; LOADS ("0.5"), MIX ("videos"). Some minutes.

A job that meets its deadline uses at least the device seconds of the cheapest mixture of two degrees whose steps fit between
arrival and deadline. For every arrival and every deadline after it, up to SPAN seconds, the jobs in between that are met need no
more device seconds than the devices have in this time. The optimum of this integer program (HiGHS), or its bound if
the time ends, is above any schedule."""
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile

import numpy
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_matrix

HERE = os.path.dirname(os.path.abspath(__file__))
DEVICES, STEPS, START, SPAN, SECONDS = 8, 30, 0.05, 250.0, 120
MIXES = {"previews and videos": {"17x256x256": 4, "33x480x832": 2, "81x480x832": 1},
         "videos": {"33x480x832": 1, "49x480x832": 1, "81x480x832": 1}}


def read_sizes(path):
    """Seconds of a step by degree, and of the decoding, by size."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    columns = ["1 device s", "2 devices s", "4 devices s", "8 devices s"]
    return {row["size"]: ([float(row[c]) for c in columns], float(row["decoding s"])) for row in rows}


def least_work(window, step, decode):
    """Device seconds of a job that ends within `window`; more than any window has, if none does."""
    each, best = (window - decode - START) / STEPS, float("inf")
    for a, slow in enumerate(step):
        if slow <= each:
            best = min(best, slow * 2 ** a)
        for b, fast in enumerate(step):
            if fast <= each < slow:
                share = (each - fast) / (slow - fast)
                best = min(best, share * slow * 2 ** a + (1 - share) * fast * 2 ** b)
    return STEPS * best + decode


def make_trace(weft, scratch, sizes, mix, load, seed):
    """Arrivals, deadlines and least device seconds."""
    table, trace = scratch + "/degrees.json", scratch + "/trace.jsonl"
    with open(table, "w", encoding="utf-8") as file:
        json.dump({"sizes": [{"name": name, "steps": STEPS, "step_seconds": sizes[name][0], "decode_seconds": sizes[name][1], "share": share}
                             for name, share in MIXES[mix].items()]}, file)
    subprocess.run([weft, "simulate", "serve", "poisson", "--degrees", table, "--workers", str(DEVICES), "--load", load, "--seed", str(seed),
                    "--jobs", os.environ.get("JOBS", "2000"), "--start-seconds", str(START), "--save", trace], check=True,
                   stdout=subprocess.DEVNULL)
    with open(trace, encoding="utf-8") as file:
        jobs = [json.loads(line) for line in file]
    return [(job["arrival"], job["deadline"], least_work(job["deadline"] - job["arrival"], *sizes[job["size"]])) for job in jobs]


def constraints(jobs):
    """Sets of jobs that would need more than the devices have."""
    rows, columns, values, limits = [], [], [], []
    for first, (begin, _, _) in enumerate(jobs):
        inside = [i for i in range(first, len(jobs)) if jobs[i][0] < begin + SPAN and jobs[i][1] <= begin + SPAN]
        inside.sort(key=lambda i: jobs[i][1])
        work = 0.0
        for count, i in enumerate(inside):
            work += jobs[i][2]
            room = DEVICES * (jobs[i][1] - begin)
            if work > room:
                rows += [len(limits)] * (count + 1)
                columns += inside[:count + 1]
                values += [jobs[k][2] for k in inside[:count + 1]]
                limits.append(room)
    return coo_matrix((values, (rows, columns)), shape=(len(limits), len(jobs))).tocsr(), limits


def most_met(jobs):
    able = [job for job in jobs if job[2] < float("inf")]
    matrix, limits = constraints(able)
    if not limits:
        return len(able) / len(jobs)
    found = milp(-numpy.ones(len(able)), constraints=LinearConstraint(matrix, -numpy.inf, limits), bounds=Bounds(0, 1),
                 integrality=numpy.ones(len(able)), options={"time_limit": SECONDS})
    return -found.mip_dual_bound / len(jobs)


def main():
    weft = os.path.abspath(sys.argv[1])
    sizes = read_sizes(sys.argv[2] if len(sys.argv) > 2 else os.path.join(HERE, "results/shared-devices-degrees.csv"))
    mix = os.environ.get("MIX", "videos")
    print("machine: simulated, 8 H100\n| mix | load | trace | any policy at most, in time % |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        for load in os.environ.get("LOADS", "0.5").split():
            shares = []
            for seed in range(1, 1 + int(os.environ.get("SEEDS", "3"))):
                shares.append(most_met(make_trace(weft, scratch, sizes, mix, load, seed)))
                print(f"| {mix} | {load} | {seed} | {100 * shares[-1]:.1f} |", flush=True)
            print(f"| {mix} | {load} | mean | {100 * statistics.mean(shares):.1f} |", flush=True)


main()
