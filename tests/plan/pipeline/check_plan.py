"""Checks plans of `weft plan pipeline --json` with a solver of its own (standard library only)."""
import itertools
import json
import math
import random
import subprocess
import sys

WEFT = sys.argv[1]


def objective(costs, cuts):
    worst = 0.0
    for first, last in cuts:
        ops = costs["ops"][first:last + 1]
        seconds = sum(op["forward"] for op in ops)
        seconds += costs["lambda"] * (costs["latency"] + ops[-1]["output_bytes"] / costs["bandwidth"])
        worst = max(worst, seconds)
    return worst


def brute(costs, stages):
    n, best = len(costs["ops"]), math.inf
    for inner in itertools.combinations(range(1, n), stages - 1):
        cut = (0,) + inner + (n,)
        cuts = [(cut[q], cut[q + 1] - 1) for q in range(stages)]
        stage = [q for q in range(stages) for _ in range(cut[q], cut[q + 1])]
        if all(j - i <= 1 or stage[i] + stage[j] == stages - 1 for i, j in costs["skips"]):
            best = min(best, objective(costs, cuts))
    return best


def check_schedule(plan, stages, devices, microbatches):
    at, busy, home = {}, set(), {}
    for task in plan["schedule"]:
        key = (task["kind"], task["stage"], task["microbatch"])
        assert key not in at, f"{key} twice"
        assert 0 <= task["device"] < devices and 0 <= task["stage"] < stages
        assert (task["device"], task["step"]) not in busy, f"two tasks at {task}"
        assert home.setdefault(task["stage"], task["device"]) == task["device"]
        busy.add((task["device"], task["step"]))
        at[key] = task["step"]
    assert len(at) == 2 * stages * microbatches
    for s in range(stages):
        for m in range(microbatches):
            assert at["F", s, m] < at["B", s, m]
            if s:
                assert at["F", s - 1, m] < at["F", s, m]
                assert at["B", s, m] < at["B", s - 1, m]
            if m:
                assert at["F", s, m - 1] < at["F", s, m] and at["B", s, m - 1] < at["B", s, m]
    return home


def main():
    random.seed(7)
    solved = refused = 0
    for round_ in range(60):
        n = random.randint(4, 12)
        costs = {"ops": [{"forward": random.choice([0, random.random(), random.randint(1, 5)]), "backward": random.random(),
                          "output_bytes": random.randint(0, 30), "parameter_bytes": random.randint(0, 9),
                          "activation_bytes": random.randint(0, 9)} for _ in range(n)],
                 "skips": [[i, n - 1 - i] for i in range(n // 2) if random.random() < 0.5] if round_ % 3 else [],
                 "lambda": random.random(), "bandwidth": 20.0, "latency": 0.01}
        if round_ % 3 == 2 and n > 5:
            costs["skips"].append([0, random.randint(2, n - 1)])
        stages = random.randint(1, min(n, 6))
        microbatches = random.randint(1, 6)
        with open("costs.json", "w") as file:
            json.dump(costs, file)
        command = [WEFT, "plan", "pipeline", "--costs", "costs.json", "--stages", str(stages),
                   "--microbatches", str(microbatches), "--json", "--skips", "collocate"]
        run = subprocess.run(command, capture_output=True, text=True)
        best = brute(costs, stages)
        if math.isinf(best):
            assert run.returncode == 1 and "cannot all be collocated" in run.stderr, run.stderr
            refused += 1
            continue
        assert run.returncode == 0, run.stderr
        plan = json.loads(run.stdout)
        assert abs(plan["bottleneck"] - best) < 1e-9, (plan["bottleneck"], best)
        assert abs(objective(costs, plan["stages"]) - plan["bottleneck"]) < 1e-12
        assert plan["stages"][0][0] == 0 and plan["stages"][-1][1] == n - 1
        assert all(a[1] + 1 == b[0] for a, b in zip(plan["stages"], plan["stages"][1:]))
        home = check_schedule(plan, stages, plan["devices"], microbatches)
        assert plan["device_of_stage"] == [home[s] for s in range(stages)]
        stage = [q for q, (a, b) in enumerate(plan["stages"]) for _ in range(a, b + 1)]
        crossing = sum(costs["ops"][plan["stages"][s][1]]["output_bytes"] for s in range(stages - 1) if home[s] != home[s + 1])
        assert all(j - i <= 1 or home[stage[i]] == home[stage[j]] for i, j in costs["skips"])
        assert abs(plan["bytes_per_microbatch"] - crossing) < 1e-9
        solved += 1
    assert solved > 30 and refused > 3, (solved, refused)
    print(f"{solved} plans equal brute force, {refused} refused")


main()
