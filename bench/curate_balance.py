#!/usr/bin/env python3
"""bench/curate_balance.py [--videos N] [--workers N,...]: simulates workers of a curation under the
rule of tools/ray_curate.py (tools/curate_stages.py), under every fixed assignment of workers to
stages, and under an autoscaler like that of cosmos-xenna, all on one trace.

bench/curate_balance.py --memory: the memory of the driver with 1,000 and 100,000 videos, whose
workers answer at once.

The trace: seconds per stage of each video, drawn with a fixed seed. Videos have lognormal lengths.
A video is analysed and scored (first pass of a curation), or written as clips that get captions from
a server (second pass), which accepts a limited number of requests.
"""
import argparse
import heapq
import os
import random
import subprocess
import sys
import tempfile

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools")
sys.path.insert(0, TOOLS)
from curate_stages import Stages, first_stages, second_stages  # noqa: E402 - of the folder above

LOAD_SECONDS = 10.0  # of the models of `score`


class Trace:
    """Items of each stage: seconds of an item, and its outputs (items of the next stage)."""

    def __init__(self, name, videos, workers):
        draw = random.Random(7)
        self.name, self.source, self.seconds = name, [], {}
        self.outputs = {}
        first = name == "analyse, score"
        self.stages = first_stages() if first else second_stages(workers // 2)
        for v in range(videos):
            minutes = draw.lognormvariate(1.0, 1.2)
            share = draw.choice((0.2, 0.5, 0.9))
            clips = [(v, i) for i in range(round(minutes * 4 * share))]
            self.source.append((-minutes, (v, None)))
            if first:
                self.put((v, None), 0, 2 + 9 * minutes, [(v, -1)] if clips else [])
                self.put((v, -1), 1, 1.2 * len(clips), [])
            else:
                self.put((v, None), 0, 0.5 + 2.5 * len(clips), clips)
                for clip in clips:
                    self.put(clip, 1, draw.uniform(1.0, 5.0), [])

        self.source = [item for _, item in sorted(self.source)]  # long videos first, as the worker lists them

    def put(self, item, stage, seconds, outputs):
        self.seconds[stage, item], self.outputs[stage, item] = seconds, outputs

    def task_seconds(self, stage, items):
        return sum(self.seconds[stage, item] for item in items)


class Fixed:
    """Workers belong to stages. The queues are those of the rule."""

    def __init__(self, stages, workers, counts):
        self.stages = Stages(stages, workers)
        self.place = [k for k, n in enumerate(counts) for _ in range(n)]

    def place_of(self, worker):
        return self.place[worker]

    def next(self, worker, _):
        s, k = self.stages, self.place[worker]
        fed = k > 0 and (s.items[k - 1] or s.queue[k - 1] and s.may_start(k - 1))
        least = s.stages[k].batch if fed else 1
        return s.take(k) if len(s.queue[k]) >= least and s.may_start(k) else None

    def done(self, stage, items, outputs, *_):
        self.stages.done(stage, items, outputs)


class Rule:
    def __init__(self, stages, workers):
        self.stages = Stages(stages, workers)

    def place_of(self, _):
        return None

    def next(self, worker, _):
        return self.stages.next()

    def done(self, stage, items, outputs, *_):
        self.stages.done(stage, items, outputs)


class Autoscaler(Fixed):
    """Workers belong to stages and move at intervals, as in cosmos-xenna's saturation-aware rule:
    rates in source items per second (workers * speed / chain) over a window of the interval and at
    least 5 samples; the bottleneck, the deepest stage with a batch waiting whose consumer has none,
    grows to the second slowest rate; others keep the slowest rate and 10 %. A worker that moves ends
    its task and starts again, with the models of its stage. The first assignment is even."""

    SAMPLES, HEADROOM, GRACE = 5, 0.10, 60.0

    def __init__(self, stages, workers, interval, window):
        n = len(stages)
        self.interval, self.span = interval, window
        super().__init__(stages, workers, [workers // n + (k < workers % n) for k in range(n)])
        self.target = list(self.place)
        self.window = [[] for _ in stages]  # (end, seconds, items)
        self.since = [0.0] * workers
        self.ended, self.outputs = [0] * n, [0] * n  # items
        self.decided = 0.0

    def next(self, worker, now):
        if now - self.decided >= self.interval:
            self.decided = now
            self.decide(now)
        if self.place[worker] != self.target[worker]:
            self.place[worker], self.since[worker] = self.target[worker], now
        return super().next(worker, now)

    def done(self, stage, items, outputs, *when):
        super().done(stage, items, outputs)
        self.window[stage].append((*when, len(items)))
        self.ended[stage] += len(items)
        self.outputs[stage] += len(outputs)

    def speeds(self, now):
        """Items per second of a worker of each stage; None: not yet trusted."""
        result = []
        for k, samples in enumerate(self.window):
            recent = [x for x in samples if x[0] > now - self.span]
            samples = self.window[k] = recent if len(recent) >= self.SAMPLES else samples[-self.SAMPLES:]
            busy = sum(x[1] for x in samples)
            result.append(sum(x[2] for x in samples) / busy if len(samples) >= self.SAMPLES and busy else None)
        return result

    def bottleneck(self):
        s, n = self.stages, len(self.target_counts())
        for k in reversed(range(n)):
            waits = len(s.queue[k]) >= s.stages[k].batch
            if waits and (k + 1 == n or len(s.queue[k + 1]) < s.stages[k + 1].batch):
                return k
        return None

    def target_counts(self):
        return [self.target.count(k) for k in range(len(self.stages.stages))]

    def place_of(self, worker):
        return self.target[worker]

    def decide(self, now):
        speed, count = self.speeds(now), self.target_counts()
        slow = self.bottleneck()
        if slow is None or None in speed:
            return
        chain = [1.0]
        for k in range(len(speed) - 1):
            chain.append(chain[k] * self.outputs[k] / self.ended[k])
        rate = [n * v / c if c else float("inf") for n, v, c in zip(count, speed, chain)]
        pace = rate[slow]
        second = min((r for k, r in enumerate(rate) if k != slow and r > pace), default=pace)
        limit = self.stages.stages[slow].limit or len(self.target)
        wanted = min(limit, round(second * chain[slow] / speed[slow])) - count[slow]
        for k in sorted((k for k in range(len(rate)) if k != slow), key=lambda k: -rate[k]):
            keep = max(1, -int(-pace * (1 + self.HEADROOM) * chain[k] // speed[k]))
            moved = max(0, min(wanted, count[k] - keep))
            wanted -= moved
            self.move(k, slow, moved, now)

    def move(self, source, target, count, now):
        for worker, place in enumerate(self.target):
            if count and place == source and now - self.since[worker] >= self.GRACE:
                self.target[worker], count = target, count - 1


def simulate(trace, policy, workers):
    """Seconds to the end of all work, and the share of the workers' time without work. Loads of models
    are work: one per worker that scores. Models stay loaded, except in workers that move to another
    stage under the autoscaler."""
    policy.stages.add(trace.source)
    heap, idle, busy, now, loaded = [], list(range(workers)), 0.0, 0.0, set()
    tick = policy.interval if isinstance(policy, Autoscaler) else None
    while True:
        still, stuck = [], set()
        while idle:
            worker = idle.pop()
            place = policy.place_of(worker)
            task = None if place in stuck else policy.next(worker, now)
            if task is None:
                stuck.add(place)
                still.append(worker)
                if isinstance(policy, Rule):
                    break  # nor for any other worker
                continue
            stage, items = task
            seconds = trace.task_seconds(stage, items)
            if trace.stages[stage].name == "score":
                if worker not in loaded:
                    seconds += LOAD_SECONDS
                loaded.add(worker)
            elif not isinstance(policy, Rule):
                loaded.discard(worker)  # a worker that moved has ended
            busy += seconds
            heapq.heappush(heap, (now + seconds, worker, stage, items, seconds))
        idle.extend(still)
        if not heap:
            left = sum(len(queue) for queue in policy.stages.queue)
            if left:
                sys.exit(f"{type(policy).__name__} stopped with {left} items waiting")
            return now, 1 - busy / (workers * now)
        if tick and idle and heap[0][0] > tick:
            now, tick = tick, tick + policy.interval
            continue
        now, worker, stage, items, seconds = heapq.heappop(heap)
        outputs = [x for item in items for x in trace.outputs[stage, item]]
        policy.done(stage, items, outputs, now, seconds)
        idle.append(worker)


def best_fixed(trace, workers):
    """The shortest fixed assignment of two stages: a search from workers in proportion to the work,
    with halved steps, to 1 worker or 0.5 %."""
    tried = {}

    def seconds(first):
        if first not in tried:
            tried[first] = simulate(trace, Fixed(trace.stages, workers, [first, workers - first]), workers)
        return tried[first][0]

    work = [sum(t for (k, _), t in trace.seconds.items() if k == stage) for stage in (0, 1)]
    best, step = min(workers - 1, max(1, round(workers * work[0] / sum(work)))), max(1, workers // 12)
    while True:
        near = min((f for f in (best - step, best, best + step) if 0 < f < workers), key=seconds)
        if near == best and step == 1 or near == best and step <= workers // 200:
            break
        best, step = near, step if near != best else max(1, step // 2)
    return best, tried[best]


def compare(videos, counts):
    print("machine: simulated")
    print("| pass | workers | videos | policy | assignment | makespan s | throughput | idle % |")
    print("|---|---|---|---|---|---|---|---|")
    for workers in counts:
        for name in ("analyse, score", "write, caption"):
            count = min(videos, workers * 100)
            trace = Trace(name, count, workers)
            first, best = best_fixed(trace, workers)
            rows = [("best fixed assignment", best),
                    ("rule of weft", simulate(trace, Rule(trace.stages, workers), workers)),
                    *((f"autoscaler every {interval} s",
                       simulate(trace, Autoscaler(trace.stages, workers, interval, window), workers))
                      for interval, window in ((180, 180), (10, 60)))]
            for policy, (seconds, idle) in rows:
                places = f"{first} + {workers - first}" if policy.startswith("best") else "-"
                print(f"| {name} | {workers} | {count} | {policy} | {places} | {seconds:.0f} | {best[0] / seconds:.3f} "
                      f"| {100 * idle:.1f} |", flush=True)


# ---- memory of the driver ------------------------------------------------------------------------

# A program in place of `weft`: it lists videos.
LISTS = """#!{python} -IS
import json, sys
names = [f"folder-{{i // 1000:04}}/video-{{i:09}}.mp4" for i in range({videos})]
for line in sys.stdin if "--worker" in sys.argv else []:
    stages = ["write", "caption"] if "clips" in line else ["analyse", "score"]
    print(json.dumps({{"done": True, "stages": stages, "videos": names}}))
"""

# A module `ray` whose actors answer at once, for the driver as it is.
STAND_IN = """
import itertools, sys, types
exceptions = sys.modules["ray.exceptions"] = types.ModuleType("ray.exceptions")
exceptions.RayActorError = exceptions.RayTaskError = type("RayError", (Exception,), {})
results, number = {}, itertools.count()
def answer(task):
    kind = task["task"]
    ids = [f"{task['video']}-{i:06}" for i in range(4)] if kind == "write" else []
    return {"done": True, "seconds": 0.0, "unscored": True, "clips": len(ids), "uncaptioned": ids}
def keep(result):
    results[key := next(number)] = result
    return key
def remote(**options):
    method = types.SimpleNamespace(remote=lambda task: keep(answer(task)))
    actor = types.SimpleNamespace(run=method, stop=types.SimpleNamespace(remote=lambda: keep(None)))
    return lambda cls: types.SimpleNamespace(remote=lambda *arguments: actor)
def wait(futures, num_returns):
    return futures[:1], futures[1:]
get = results.pop
def init(**options): pass
def shutdown(): pass
def cluster_resources(): return {"CPU": 1000.0}
"""


def driver_bytes(videos):
    """Peak of the driver's resident bytes."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "ray.py"), "w", encoding="utf-8") as file:
            file.write(STAND_IN)
        os.mkdir(os.path.join(folder, "in"))
        weft = os.path.join(folder, "weft")
        with open(weft, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o755)) as file:
            file.write(LISTS.format(python=sys.executable, videos=videos))
        environment = dict(os.environ, PYTHONPATH=folder)
        command = [sys.executable, os.path.join(TOOLS, "ray_curate.py"), "--weft", weft, "--in",
                   os.path.join(folder, "in"), "--out", os.path.join(folder, "out")]
        child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            sys.exit(f"the driver ended with status {child.returncode}")
        return usage.ru_maxrss * 1024


def memory():
    print("| videos | actors | peak MiB | bytes per video |")
    print("|---|---|---|---|")
    counts = (1000, 10000, 100000)
    peaks = [driver_bytes(n) for n in counts]
    for n, peak in zip(counts, peaks):
        each = f"{(peak - peaks[0]) / (n - counts[0]):.0f}" if n > counts[0] else "-"
        print(f"| {n} | 1000 | {peak / 2**20:.1f} | {each} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=100000, help="at most; at most 100 per worker [100000]")
    parser.add_argument("--workers", default="16,100,1000", help="numbers of workers [16,100,1000]")
    parser.add_argument("--memory", action="store_true", help="the memory of the driver only")
    args = parser.parse_args()
    if args.memory:
        memory()
    else:
        compare(args.videos, [int(n) for n in args.workers.split(",")])


if __name__ == "__main__":
    main()
