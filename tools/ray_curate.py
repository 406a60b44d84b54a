#!/usr/bin/env python3
"""Runs `weft curate` on a Ray cluster.

    ray_curate.py --in FOOTAGE --out CURATED [--workers N] [--address auto] [-- CONFIG --set KEY=VALUE]

Each Ray actor runs one `weft curate --worker` and gives it one video at a time, so that long videos
do not hold up short ones. Records and clips are files below --out, which all machines must see.
They are the state: a killed driver, actor or machine loses at most the videos in work, and the same
command continues. At the end this machine runs `weft curate --finish`. The result is that of
`weft curate` on one machine, byte for byte.

Exit status: 0 done, 1 a video failed on every attempt or the last pass failed.
"""
import argparse
import json
import os
import subprocess
import sys

import ray
from ray.exceptions import RayActorError, RayTaskError

ATTEMPTS = 3  # of a video, before the run ends with an error


class WorkerEnded(Exception):
    """The process of `weft curate --worker` ended before it answered."""


class Worker:
    """An actor with one worker process, which ends when its standard input closes."""

    def __init__(self, command):
        self.command = command
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, task):
        if self.process is None:
            self.start()
        try:
            self.process.stdin.write(json.dumps(task) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except OSError:
            line = ""
        if not line.endswith("\n"):
            status = self.process.wait()
            self.process = None  # the next task starts another process
            raise WorkerEnded(f"weft ended with status {status} during {json.dumps(task)}")
        return json.loads(line)

    def stop(self):
        """Ends the process, which has the lock of the folder, and waits for its end."""
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
            self.process = None


class Pool:
    """Actors, and the tasks that they have not finished."""

    def __init__(self, workers, command, cpus):
        actor = ray.remote(num_cpus=cpus, max_restarts=-1, max_task_retries=0)(Worker)
        self.idle = [actor.remote(command) for _ in range(workers)]
        self.running = {}  # future to (actor, task)

    def start(self, task):
        actor = self.idle.pop()
        self.running[actor.run.remote(task)] = actor, task

    def next(self):
        """Waits for a task to end. Returns the task, its result, and the error in its place."""
        (future,), _ = ray.wait(list(self.running), num_returns=1)
        actor, task = self.running.pop(future)
        self.idle.append(actor)  # Ray restarts an actor that died
        try:
            return task, ray.get(future), None
        except (RayActorError, RayTaskError) as error:
            return task, None, str(error).strip().splitlines()[-1]

    def stop(self):
        for future in [actor.stop.remote() for actor in self.idle]:
            try:
                ray.get(future)
            except (RayActorError, RayTaskError):
                pass  # its process ended, too

    def ask(self, task):
        """Runs one task, again if its actor dies."""
        for _ in range(ATTEMPTS):
            self.start(task)
            _, result, error = self.next()
            if result and result["done"]:
                return result
            print(f"ray_curate: {error or result['message']}", file=sys.stderr)
        sys.exit(1)


def run_videos(pool, kind, videos):
    """Runs the task for every video. Returns the videos that failed on every attempt."""
    waiting, attempts, failed, done = list(reversed(videos)), {}, [], 0
    while waiting or pool.running:
        while waiting and pool.idle:
            video = waiting.pop()
            attempts[video] = attempts.get(video, 0) + 1
            pool.start({"task": kind, "video": video})
        task, result, error = pool.next()
        video = task["video"]
        if result and result["done"]:
            done += 1
            print(f"{kind} {done}/{len(videos)}  {video}  {result['seconds']:.1f} s", flush=True)
            continue
        print(f"ray_curate: {video}: {error or result['message']}", file=sys.stderr, flush=True)
        if attempts[video] < ATTEMPTS:
            waiting.insert(0, video)  # after the others: its machine may have been at fault
        else:
            failed.append(video)
    return failed


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--in", dest="footage", required=True, help="folder of source videos")
    parser.add_argument("--out", required=True, help="folder of the clips")
    parser.add_argument("--weft", default="weft", help="the program, on every machine [weft]")
    parser.add_argument("--workers", type=int, default=0, help="actors; 0: one per --cpus of the cluster [0]")
    parser.add_argument("--cpus", type=int, default=1, help="processors of an actor [1]")
    parser.add_argument("--address", help="address of the cluster, e.g. auto; none: this machine only")
    parser.add_argument("arguments", nargs="*", help="after --: config and options of weft curate")
    return parser.parse_args()


def connect(address):
    options = {"address": address} if address else {
        "include_dashboard": False,
        "num_cpus": os.cpu_count(),
        "object_store_memory": 80 << 20,
    }
    ray.init(log_to_driver=False, **options)


def main():
    args = parse()
    command = [args.weft, "curate", *args.arguments, "--in", os.path.abspath(args.footage),
               "--out", os.path.abspath(args.out)]
    connect(args.address)
    workers = args.workers or max(1, int(ray.cluster_resources().get("CPU", 1)) // args.cpus)
    pool = Pool(workers, [*command, "--worker", "--set", f"workers={args.cpus}"], args.cpus)
    failed = run_videos(pool, "analyse", pool.ask({"task": "list"})["videos"])
    if not failed:
        failed = run_videos(pool, "write", pool.ask({"task": "list-clips"})["videos"])
    pool.stop()
    ray.shutdown()
    if failed:
        print(f"ray_curate: {len(failed)} videos failed {ATTEMPTS} times, the first of them {failed[0]}; "
              "the same command tries them again", file=sys.stderr)
        return 1
    return subprocess.run([*command, "--finish"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
