#!/usr/bin/env python3
"""bench/curate_executed.py [--workers N] [--videos N] [--scale S]: runs tools/ray_curate.py on Ray with
workers that sleep, and compares its times with the best fixed assignment of workers to stages.

The workers are this file in place of `weft curate --worker`: they read the same JSON lines and answer
them after the seconds of the trace of bench/curate_balance.py, divided by --scale. The best fixed
assignment is that of the search of curate_balance.py. Its simulated time has no overheads; the time
of the driver has those of Ray, of the pipes and of this machine.

bench/curate_executed.py --memory [--videos N]: resident bytes of the driver on Ray with actors that
answer at once, for 1,000 videos and for N.

Needs Ray (WEFT_RAY_PYTHON: a Python that has it).
"""
import argparse
import glob
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

BENCH = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.path.join(BENCH, "..", "tools")
PYTHON = os.environ.get("WEFT_RAY_PYTHON", sys.executable)

# ---- a worker ------------------------------------------------------------------------------------


class Worker:
    """Answers tasks in the place of `weft curate --worker`."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.trace = json.load(file)
        self.path, self.log, self.loaded = path, None, False

    def meet(self):
        """Waits until all workers have their first task: starts of processes are not measured."""
        self.log = open(f"{self.path}.{os.getpid()}", "w", encoding="utf-8")
        while len(glob.glob(f"{self.path}.*")) < self.trace["workers"]:
            time.sleep(0.01)

    def answer(self, task):
        kind = task["task"]
        if kind in ("list", "list-clips"):
            first = kind == "list"
            return dict(task, done=True, videos=self.trace["videos"],
                        stages=["analyse", "score"] if first else ["write", "caption"])
        items = [task["video"]] if "video" in task else task.get("videos") or task["clips"]
        seconds = sum(self.trace["seconds"].get(f"{kind} {item}", 0.0) for item in items)
        if kind == "score" and not self.loaded:
            self.loaded = True
            seconds += self.trace["load"]
        if self.trace["seconds"]:
            if not self.log:
                self.meet()
            began = time.monotonic()
            time.sleep(seconds)
            print(kind, began, time.monotonic(), file=self.log, flush=True)
        outputs = self.trace["outputs"].get(f"{kind} {items[0]}", [])
        return dict(task, done=True, seconds=seconds, unscored=bool(outputs), clips=len(outputs), uncaptioned=outputs)


def work(arguments):
    if arguments[0] == "--version":
        print("weft of a benchmark")
    elif "--worker" in arguments:
        worker = Worker(arguments[arguments.index("--trace") + 1])
        for line in sys.stdin:
            print(json.dumps(worker.answer(json.loads(line))), flush=True)


# ---- runs of the driver --------------------------------------------------------------------------


def driver(folder, trace, workers, captions):
    """The command of a run."""
    for name in ("in", "out"):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    path = os.path.join(folder, "trace.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(trace, file)
    # actors that sleep need no processor of their own
    return [PYTHON, os.path.join(TOOLS, "ray_curate.py"), "--weft", os.path.abspath(__file__), "--in", os.path.join(folder, "in"), "--out",
            os.path.join(folder, "out"), "--workers", str(workers), "--cpus", "0", "--captions", str(captions),
            "--", "--trace", path]


def environment():
    return dict(os.environ, RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled", PYTHONDONTWRITEBYTECODE="1",
                PYTHONPATH=TOOLS)  # of the actors' classes


def executed(trace, workers):
    """Seconds of both passes, from the begin of the first task to the end of the last one, and tasks."""
    with tempfile.TemporaryDirectory() as folder:
        command = driver(folder, trace, workers, workers // 2)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment())
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        spans = {"analyse": [], "score": [], "write": [], "caption": []}
        gaps = []
        for name in os.listdir(folder):
            if name.startswith("trace.json."):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    last = None
                    for line in file:
                        kind, began, ended = line.split()
                        spans[kind].append((float(began), float(ended)))
                        gaps += [float(began) - last] if last else []
                        last = float(ended)
    gaps.sort()
    seconds = spent.ru_utime + spent.ru_stime - used.ru_utime - used.ru_stime
    print(f"between two tasks of a worker: {1000 * gaps[len(gaps) // 2]:.1f} ms (median); processor time of the driver "
          f"with Ray's servers: {1000 * seconds / len(gaps):.1f} ms per task", file=sys.stderr)
    result = []
    for names in (("analyse", "score"), ("write", "caption")):
        both = spans[names[0]] + spans[names[1]]
        result.append((max(end for _, end in both) - min(begin for begin, _ in both), len(both)))
    return result


def trace_of(first, second, scale, load, workers):
    """Both passes of curate_balance.py as one trace of names."""
    def name(item):
        return f"v{item[0]}" if item[1] in (None, -1) else f"v{item[0]}-{item[1]}"

    result = {"videos": [name(item) for item in first.source], "seconds": {}, "outputs": {}, "load": load / scale,
              "workers": workers}
    for source, kinds in ((first, ("analyse", "score")), (second, ("write", "caption"))):
        for (stage, item), seconds in source.seconds.items():
            result["seconds"][f"{kinds[stage]} {name(item)}"] = seconds / scale
        for (stage, item), outputs in source.outputs.items():
            if outputs:
                result["outputs"][f"{kinds[stage]} {name(item)}"] = [name(x) for x in outputs]
    return result


def compare(workers, videos, scale, rounds):
    sys.path.insert(0, BENCH)
    import curate_balance as balance
    passes = ("analyse, score", "write, caption")
    traces = [balance.Trace(name, videos, workers) for name in passes]
    best = [balance.best_fixed(trace, workers) for trace in traces]
    trace = trace_of(*traces, scale, balance.LOAD_SECONDS, workers)
    runs = [executed(trace, workers) for _ in range(rounds)]
    print("| pass | workers | videos | scale | tasks | best fixed assignment | simulated s | executed s | throughput |")
    print("|---|---|---|---|---|---|---|---|---|")
    for k, name in enumerate(passes):
        first, (seconds, _) = best[k]
        own = sorted(run[k][0] for run in runs)[rounds // 2]
        print(f"| {name} | {workers} | {videos} | {scale:g} | {runs[0][k][1]} | {first} + {workers - first} | {seconds / scale:.1f} "
              f"| {own:.1f} | {seconds / scale / own:.3f} |")


# ---- memory --------------------------------------------------------------------------------------


def resident(pid):
    """MiB; 0: the process has ended."""
    try:
        with open(f"/proc/{pid}/statm", encoding="utf-8") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except (OSError, IndexError):
        return 0.0


def driver_memory(videos, workers):
    """MiB of the driver after 10 % of the videos of the first pass, at the end of this pass, and at most; tasks per second."""
    with tempfile.TemporaryDirectory() as folder:
        trace = {"videos": [f"folder-{i // 1000:04}/video-{i:09}.mp4" for i in range(videos)], "seconds": {},
                 "outputs": {}, "load": 0}
        child = subprocess.Popen(driver(folder, trace, workers, workers), stdout=subprocess.PIPE, text=True,
                                 env=environment())
        seen, peak, tenth, last, rate, began = 0, 0.0, 0.0, 0.0, 0.0, None
        for line in child.stdout:
            if not line.startswith("analyse "):
                continue
            began = began or time.monotonic()
            seen += 1
            if seen % max(1, videos // 100) == 0:
                last = resident(child.pid)
                peak = max(peak, last)
                tenth = tenth or (last if 10 * seen >= videos else 0.0)
                rate = seen / max(1e-9, time.monotonic() - began)
            if seen == videos:
                child.terminate()
                break
        child.stdout.close()
        if child.wait() and seen < videos:
            sys.exit(f"the driver ended with status {child.returncode}")
    return tenth, last, peak, rate


def memory(videos, workers):
    print("| videos | actors | after a tenth MiB | at the end MiB | peak MiB | tasks/s |")
    print("|---|---|---|---|---|---|")
    for count in (1000, videos):
        tenth, last, peak, rate = driver_memory(count, workers)
        print(f"| {count} | {workers} | {tenth:.1f} | {last:.1f} | {peak:.1f} | {rate:.0f} |", flush=True)


def main():
    if sys.argv[1:2] in (["--version"], ["curate"]):
        work(sys.argv[1:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--videos", type=int, help="[60 per worker; with --memory 100000]")
    parser.add_argument("--scale", type=float, default=40, help="seconds of the trace in one second [40]")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--memory", action="store_true", help="the memory of the driver only")
    args = parser.parse_args()
    if args.memory:
        memory(args.videos or 100000, args.workers)
    else:
        compare(args.workers, args.videos or 60 * args.workers, args.scale, args.rounds)


if __name__ == "__main__":
    main()
