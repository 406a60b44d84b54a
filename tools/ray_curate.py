#!/usr/bin/env python3
"""Runs `weft curate` on a Ray cluster.

    ray_curate.py --in FOOTAGE --out CURATED [--workers N] [--address auto] [-- CONFIG --set KEY=VALUE]

Each Ray actor keeps one `weft curate --worker` and passes it tasks: a video to analyse or to write, or
a batch of videos to score or of clips to caption (curate_stages.py has the rule). Records and clips
are files below --out, which all machines must see. They are the state: a killed driver, actor or
machine loses at most the tasks in work, and the same command continues. At the end this machine runs
`weft curate --finish`. The result is that of `weft curate` on one machine, byte for byte.

Exit status: 0 done, 1 a video failed on every attempt or the last pass failed.
"""
import argparse
import fcntl
import json
import os
import subprocess
import sys
import time

import ray
from ray.exceptions import RayActorError, RayTaskError

from curate_stages import Stages, first_stages, second_stages

ATTEMPTS = 3  # of a video or clip, before the run ends with an error


def output(command, text=None):
    """The standard output of a command."""
    return subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout


class Worker:
    """An actor with one worker process, which ends when its standard input closes."""

    def __init__(self, command, version):
        self.command, self.version, self.process = command, version, None

    def start(self):
        own = output([self.command[0], "--version"])
        if own != self.version:
            raise RuntimeError(f"{os.uname().nodename} has {own.strip()}, and the driver {self.version.strip()}")
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
            raise RuntimeError(f"weft ended with status {status} during {json.dumps(task)}")
        return json.loads(line)

    def ready(self):
        """Answers as soon as Ray has started the actor."""

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
        version = output([command[0], "--version"])
        self.actors = [actor.remote(command, version) for _ in range(workers)]
        self.idle = list(self.actors)
        self.running = {}  # future to (actor, what the caller remembers)
        self.restarting = {}  # future to actor: its process or node died

    def start(self, task, memory):
        actor = self.idle.pop()
        self.running[actor.run.remote(task)] = actor, memory

    def next(self):
        """Waits for a task to end. Returns what the caller remembers, the result, and the error in place
        of a result. None: an actor that died is back."""
        (future,), _ = ray.wait([*self.running, *self.restarting], num_returns=1)
        if future in self.restarting:
            self.welcome(self.restarting.pop(future), future)
            return None
        actor, memory = self.running.pop(future)
        try:
            result = ray.get(future)
        except (RayActorError, RayTaskError) as error:
            if isinstance(error, RayActorError):  # Ray restarts it, perhaps when another node is added
                self.restarting[actor.ready.remote()] = actor
            else:
                self.idle.append(actor)
            return memory, None, str(error).strip().splitlines()[-1]
        self.idle.append(actor)
        return memory, result, None if result["done"] else result["message"]

    def welcome(self, actor, future):
        try:
            ray.get(future)
            self.idle.append(actor)
        except RayActorError:
            time.sleep(1)
            self.restarting[actor.ready.remote()] = actor

    def stop(self):
        lost = list(self.restarting.values())
        for future in [actor.stop.remote() for actor in self.actors if actor not in lost]:
            try:
                ray.get(future)
            except (RayActorError, RayTaskError):
                pass  # its process ended, too


class Pass:
    """The stages that a list of the worker names, over its videos."""

    def __init__(self, pool, listed, captions):
        known = first_stages() + second_stages(captions)
        self.pool, self.names = pool, listed["stages"]
        self.stages = Stages([s for s in known if s.name in self.names], len(pool.actors))
        self.stages.add(listed["videos"])
        self.attempts, self.failed, self.done, self.videos = {}, [], 0, len(listed["videos"])

    def run(self):
        """Returns the videos and clips that failed on every attempt."""
        while True:
            while self.pool.idle and (taken := self.stages.next()):
                self.pool.start(self.task(*taken), taken)
            if not self.pool.running and not self.stages.waiting():
                return self.failed
            if ended := self.pool.next():
                self.end(*ended)

    def task(self, stage, items):
        name = self.names[stage]
        many = {"score": "videos", "caption": "clips"}.get(name)
        return {"task": name, many or "video": items if many else items[0]}

    def end(self, taken, result, error):
        stage, items = taken
        if error:
            self.fail(stage, items, error)
            return
        outputs = result.get("uncaptioned", items if result.get("unscored") else [])
        self.stages.done(stage, items, outputs if stage + 1 < len(self.names) else [])
        if stage == 0:
            self.done += 1
            print(f"{self.names[0]} {self.done}/{self.videos}  {items[0]}  {result['seconds']:.1f} s", flush=True)

    def fail(self, stage, items, error):
        print(f"ray_curate: {self.names[stage]} {', '.join(items)}: {error}", file=sys.stderr, flush=True)
        for item in items:
            self.attempts[stage, item] = self.attempts.get((stage, item), 0) + 1
        again = [item for item in items if self.attempts[stage, item] < ATTEMPTS]
        self.failed += [item for item in items if item not in again]
        self.stages.failed(stage, items, again)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--in", dest="footage", required=True, help="folder of source videos")
    parser.add_argument("--out", required=True, help="folder of the clips")
    parser.add_argument("--weft", default="weft", help="the program, on every machine [weft]")
    parser.add_argument("--workers", type=int, default=0, help="actors; 0: one per --cpus of the cluster [0]")
    parser.add_argument("--cpus", type=int, default=1, help="processors of an actor [1]")
    parser.add_argument("--captions", type=int, default=4, help="caption tasks at the same time [4]")
    parser.add_argument("--address", help="address of the cluster, e.g. auto; none: this machine only")
    parser.add_argument("arguments", nargs="*", help="after --: config and options of weft curate")
    return parser.parse_args()


def lock(out):
    """Keeps a second driver from the folder. Ends with this process."""
    os.makedirs(os.path.join(out, "state"), exist_ok=True)
    file = open(os.path.join(out, "state", "driver.lock"), "w", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(f"ray_curate: another driver is working on {out}; wait for its end, or end it")
    return file


def ask(command, task):
    """The answer of a worker process of this machine to one task."""
    try:
        answer = json.loads(output(command, json.dumps(task) + "\n"))
    except subprocess.CalledProcessError as error:  # weft has printed the reason
        sys.exit(f"ray_curate: weft ended with status {error.returncode}")
    return answer if answer["done"] else sys.exit(f"ray_curate: {answer['message']}")


def main():
    args = parse()
    out = os.path.abspath(args.out)
    command = [args.weft, "curate", *args.arguments, "--in", os.path.abspath(args.footage), "--out", out]
    worker = [*command, "--worker", "--wait", "--set", f"workers={args.cpus}"]
    locked = lock(out)
    machine = {"include_dashboard": False, "num_cpus": os.cpu_count(), "object_store_memory": 80 << 20}
    ray.init(log_to_driver=False, **({"address": args.address} if args.address else machine))
    workers = args.workers or max(1, int(ray.cluster_resources().get("CPU", 1)) // args.cpus)
    pool = Pool(workers, worker, args.cpus)
    failed = Pass(pool, ask(worker, {"task": "list"}), args.captions).run()
    if not failed:
        failed = Pass(pool, ask(worker, {"task": "list-clips"}), args.captions).run()
    pool.stop()
    ray.shutdown()
    if failed:
        print(f"ray_curate: {len(failed)} videos or clips failed {ATTEMPTS} times, the first of them {failed[0]}; "
              "the same command tries them again", file=sys.stderr)
        return 1
    status = subprocess.run([*command, "--wait", "--finish"], check=False).returncode
    locked.close()
    return status


if __name__ == "__main__":
    sys.exit(main())
