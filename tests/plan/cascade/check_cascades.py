"""Checks plans of `weft plan cascades --costs --json` with a brute force of its own (standard library only)."""
import itertools
import json
import math
import random
import subprocess
import sys

WEFT, ROUNDS = sys.argv[1], int(sys.argv[2])


def fits(placed, start, end, degree, devices):
    """Cascades that take no time need their devices free, one after the other, and hold up nobody."""
    if start == end:
        return sum(d for s, e, d in placed if s < start < e) + degree <= devices
    moments = [start] + [s for s, e, _ in placed if start < s < end]
    for t in moments:
        if sum(d for s, e, d in placed if s <= t < e) + degree > devices:
            return False
    for s, e, d in placed:
        if s == e and start < s < end and sum(k for a, b, k in placed if a < s < b) + d + degree > devices:
            return False
    return True


def brute(cascades, devices, memory):
    """Serial schedules of all orders with all degrees hold an optimum."""
    names = [c["id"] for c in cascades]
    after = {c["id"]: c.get("after", []) for c in cascades}
    options = [[(int(k), o["seconds"]) for k, o in c["degrees"].items()
                if int(k) <= devices and o.get("bytes", 0) <= memory] for c in cascades]
    orders = [o for o in itertools.permutations(names)
              if all(o.index(a) < o.index(n) for n in names for a in after[n])]
    best = math.inf
    for choice in itertools.product(*options):
        chosen = dict(zip(names, choice))
        for order in orders:
            placed, end = [], {}
            for name in order:
                degree, seconds = chosen[name]
                ready = max([end[a] for a in after[name]], default=0)
                for start in sorted({ready} | {e for _, e, _ in placed if e > ready}):
                    if fits(placed, start, start + seconds, degree, devices):
                        break
                end[name] = start + seconds
                placed.append((start, end[name], degree))
            best = min(best, max(end.values()))
    return best


def instance(rng):
    devices, count = rng.randint(1, 5), rng.randint(1, 4)
    memory = rng.choice([math.inf, 5e9])
    cascades = []
    for i in range(count):
        degrees = rng.sample(range(1, devices + 1), min(devices, rng.randint(1, 3)))
        whole = rng.random() < 0.5
        entry = {"id": f"c{i}", "degrees": {}}
        for k in degrees:
            seconds = 0 if rng.random() < 0.15 else rng.randint(1, 6) if whole else rng.uniform(0.1, 5)
            entry["degrees"][str(k)] = {"seconds": seconds}
            if memory < math.inf and rng.random() < 0.7:
                entry["degrees"][str(k)]["bytes"] = rng.choice([1e9, 4e9, 9e9])
        if all(o.get("bytes", 0) > memory for o in entry["degrees"].values()):
            entry["degrees"][str(degrees[0])]["bytes"] = 5e9
        before = [f"c{j}" for j in range(i) if rng.random() < 0.3]
        if before or rng.random() < 0.3:
            entry["after"] = before
        cascades.append(entry)
    rng.shuffle(cascades)
    return cascades, devices, memory


def check(cascades, devices, memory, plan):
    at = {p["id"]: p for p in plan["cascades"]}
    assert len(plan["cascades"]) == len(at) == len(cascades)
    for c in cascades:
        p = at[c["id"]]
        option = c["degrees"][str(p["degree"])]
        assert abs(p["end"] - p["start"] - option["seconds"]) < 1e-9 and option.get("bytes", 0) <= memory
        assert len(set(p["devices"])) == p["degree"] and all(0 <= d < devices for d in p["devices"])
        assert all(at[a]["end"] <= p["start"] for a in c.get("after", []))
    for a, b in itertools.combinations(plan["cascades"], 2):
        if set(a["devices"]) & set(b["devices"]):
            assert a["end"] <= b["start"] or b["end"] <= a["start"], (a, b)
    assert plan["makespan"] == max(p["end"] for p in plan["cascades"])
    best = brute(cascades, devices, memory)
    assert abs(plan["makespan"] - best) <= 1e-9 * (1 + best), (plan["makespan"], best)
    assert plan["lower_bound"] <= plan["makespan"]
    assert not plan["proved"] or plan["lower_bound"] == plan["makespan"]


def main():
    rng, proved = random.Random(11), 0
    for round_ in range(ROUNDS):
        cascades, devices, memory = instance(rng)
        with open("random.json", "w") as file:
            json.dump({"cascades": cascades}, file)
        command = [WEFT, "plan", "cascades", "--costs", "random.json", "--devices", str(devices), "--json"]
        command += ["--memory-limit", str(int(memory))] if memory < math.inf else []
        plan = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        check(cascades, devices, memory, plan)
        proved += plan["proved"]
    assert proved == ROUNDS, f"{proved} of {ROUNDS} proved"


main()
