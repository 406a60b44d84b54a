#!/usr/bin/env python3
"""bench/serve.py MODEL: figures of `weft serve` with a model folder, as tables.

1. ready: seconds from the start of the server to its first answer of /ready
2. a video: seconds of a job, from the request to the end, next to those of `weft generate`, in
   turn; medians, and the median of the ratios
3. a request: milliseconds while a video is generated. An accepted job waits for the disk: in turn
   with writes inside of a file that wait for it, too
4. a cancel: milliseconds until the worker has stopped, and until the answer, which also waits for
   the disk, next to the milliseconds of a step
5. a queue: 1,000 jobs and 200 event streams, with a job that is generated: memory of the server, and
   its share of a core

WEFT: the program. ROUNDS (5), FRAMES, SIZE (WIDTHxHEIGHT) and STEPS (30) of the video. The figures
need a machine without other load."""
import http.client
import json
import os
import select
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

WEFT = os.path.abspath(os.environ.get("WEFT", "build/weft"))
ROUNDS, STEPS = int(os.environ.get("ROUNDS", 5)), int(os.environ.get("STEPS", 30))
JOBS, STREAMS, SECONDS = 1000, 200, 10
VIDEO = {"prompt": "a red circle moving left", "steps": STEPS}
if "FRAMES" in os.environ:
    VIDEO["frames"] = int(os.environ["FRAMES"])
if "SIZE" in os.environ:
    VIDEO["size"] = os.environ["SIZE"]


class Server:
    def __init__(self, model, *options):
        command = [WEFT, "serve", "--model", "m=" + model, "--state", "state", "--listen", "127.0.0.1:0", *options]
        started = time.perf_counter()
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ, WEFT_LOG_FORMAT="json"))
        self.port = None
        while self.port is None:
            message = json.loads(self.process.stderr.readline())
            self.port = int(message["details"]["port"]) if message["id"] == "server-ready" else None
        self.call("GET", "/ready")
        self.ready = time.perf_counter() - started
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        data = json.loads(answer.read())
        connection.close()
        if answer.status != 200:
            sys.exit(f"{method} {path}: {data}")
        return data

    def metric(self, name):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        return float(next(line.split()[1] for line in lines if line.startswith(name + " ")))

    def stream(self, path):
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return connection

    def until(self, id, ends):
        """Follows the events of a job until its data fits."""
        with self.stream(f"/v1/jobs/{id}/events").makefile("r", encoding="utf-8", newline="\n") as lines:
            for line in lines:
                if line.startswith("data: ") and ends(json.loads(line[6:])):
                    return
        sys.exit("the event stream ended")

    def make(self, video):
        id = self.call("POST", "/v1/jobs", video)["id"]
        self.until(id, lambda job: job["status"] in ("completed", "failed", "parked"))
        return id

    def stop(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree("state")


def row(name, *cells):
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def table(*columns):
    print("\n| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))


def generate(model, seed):
    line = {"prompt": VIDEO["prompt"], "seed": seed, "steps": STEPS}
    if "frames" in VIDEO:
        line["frames"] = VIDEO["frames"]
    if "size" in VIDEO:
        line["width"], line["height"] = map(int, VIDEO["size"].split("x"))
    with open("prompts.jsonl", "w", encoding="utf-8") as f:
        f.write(json.dumps(line) + "\n")
    subprocess.run([WEFT, "generate", "--model", model, "--prompts", "prompts.jsonl", "--out", "own.mp4"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def seconds_of(work, *arguments):
    began = time.perf_counter()
    result = work(*arguments)
    return time.perf_counter() - began, result


def ready_and_videos(model):
    table("ready", "seconds", "goal")
    generate(model, 0)  # the model's files are in memory from here on
    readies, firsts, own, ratios = [], [], [], []
    for _ in range(ROUNDS):
        own.append(seconds_of(generate, model, 0)[0])
        s = Server(model)
        readies.append(s.ready)
        firsts.append(seconds_of(s.make, dict(VIDEO, seed=0))[0])
        ratios.append(firsts[-1] / own[-1])
        s.stop()
    row("first answer of /ready", f"{statistics.median(readies):.2f}", "2")
    s = Server(model)
    s.make(dict(VIDEO, seed=0))
    served, later = [], []
    for seed in range(1, ROUNDS + 1):
        own.append(seconds_of(generate, model, seed)[0])
        took, id = seconds_of(s.make, dict(VIDEO, seed=seed))
        served.append(took)
        later.append(took / own[-1])
        if open("own.mp4", "rb").read() != open(f"state/jobs/{id}/video.mp4", "rb").read():
            sys.exit("the video of the server has other bytes")
    s.stop()
    table("video", "s", "overhead %", "goal %")
    row("`weft generate`", f"{statistics.median(own):.3f}", "-", "-")
    for name, times, pairs in ("first job of the server", firsts, ratios), ("later jobs of the server", served, later):
        row(name, f"{statistics.median(times):.3f}", f"{100 * (statistics.median(pairs) - 1):+.1f}", "3")


def times_of(works, count):
    """Milliseconds of `count` calls of each, in turn."""
    times = [[] for _ in works]
    for i in range(count):
        for work, kept in zip(works, times):
            time.sleep(0.01)
            kept.append(1000 * seconds_of(work, i)[0])
    return times


def percentiles(times):
    """50, 95 and 99 %, and the share above 20 ms in %."""
    return [*(f"{sorted(times)[int(share * (len(times) - 1))]:.1f}" for share in (0.5, 0.95, 0.99)),
            f"{100 * sum(t > 20 for t in times) / len(times):.1f}"]


def processor_seconds(pid):
    fields = open(f"/proc/{pid}/stat", encoding="utf-8").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(pid):
    lines = open(f"/proc/{pid}/status", encoding="utf-8").read().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def long_job(s, video=None):
    """A job that runs for longer than the measurement, after its first step."""
    id = s.call("POST", "/v1/jobs", dict(video or VIDEO, steps=10000))["id"]
    s.until(id, lambda job: (job["progress"] or {}).get("step", 0) > 0)
    return id


def requests(model):
    s = Server(model)
    id = long_job(s)
    table("request, a video is generated", "p50 ms", "p95 ms", "p99 ms", "above 20 ms %", "goal p99 ms")
    works = {"GET /health": lambda i: s.call("GET", "/health"),
             "GET /v1/jobs/ID": lambda i: s.call("GET", "/v1/jobs/" + id),
             "GET /v1/jobs?limit=100": lambda i: s.call("GET", "/v1/jobs?limit=100"),
             "POST /v1/jobs/price": lambda i: s.call("POST", "/v1/jobs/price", VIDEO),
             "POST /v1/jobs": lambda i: s.call("POST", "/v1/jobs", dict(VIDEO, seed=i))}
    s.call("POST", "/v1/jobs/price", VIDEO)  # the price of a size is predicted once
    posts = works.pop("POST /v1/jobs")
    for name, work in works.items():
        row("`" + name + "`", *percentiles(times_of([work], 200)[0]), "20")
    with open("synced", "wb", buffering=0) as file:
        file.write(bytes(4096 * 400))
        os.fsync(file.fileno())
        accepted, written = times_of([posts, lambda i: (os.pwrite(file.fileno(), b"x" * 4096, 4096 * i), os.fdatasync(file.fileno()))], 400)
    row("`POST /v1/jobs`", *percentiles(accepted), "20")
    row("4 KiB to the disk, without the server", *percentiles(written), "-")
    s.stop()


def cancel_row(s, name, video):
    """Each cancel is sent at another moment of a step."""
    waits, frees, steps = [], [], []
    for i in range(20):
        id, seen = long_job(s, video), []

        def enough(job):
            seen.append((time.perf_counter(), (job["progress"] or {}).get("step", 0)))
            return seen[-1][0] > seen[0][0] + 0.7 and seen[-1][1] > seen[0][1]
        s.until(id, enough)
        steps.append((seen[-1][0] - seen[0][0]) / (seen[-1][1] - seen[0][1]))
        time.sleep(steps[-1] * i / 20)
        waits.append(seconds_of(s.call, "POST", f"/v1/jobs/{id}/cancel")[0])
        frees.append(s.metric("weft_serve_stop_seconds"))
    step = statistics.median(steps)
    row(name, *(f"{1000 * x:.1f}" for x in (step, statistics.median(frees), max(frees), statistics.median(waits), max(waits))),
        f"{max(frees) / step:.2f}", "1")


def cancels(model):
    s = Server(model)
    table("cancel", "step ms", "worker free p50 ms", "longest ms", "answer p50 ms", "longest answer ms", "worker free, longest in steps", "goal")
    for frames, size in ((13, "64x64"), (49, "128x128")):
        cancel_row(s, f"{frames} frames of {size}", dict(VIDEO, frames=frames, size=size))
    s.stop()


def drain(connections):
    poll = select.poll()
    by_number = {c.fileno(): c for c in connections}
    for number in by_number:
        poll.register(number, select.POLLIN)
    while True:
        for number, _ in poll.poll():
            if not by_number[number].recv(1 << 16):
                poll.unregister(number)


def queue(model):
    s = Server(model)
    running = long_job(s)
    ids = [s.call("POST", "/v1/jobs", dict(VIDEO, seed=i))["id"] for i in range(JOBS - 1)]
    followed = ([running] + ids)[:STREAMS]
    threading.Thread(target=drain, args=([s.stream(f"/v1/jobs/{id}/events") for id in followed],), daemon=True).start()
    time.sleep(2)  # the streams' first events
    before, began = processor_seconds(s.process.pid), time.perf_counter()
    time.sleep(SECONDS)
    share = 100 * (processor_seconds(s.process.pid) - before) / (time.perf_counter() - began)
    table("queue", "MiB", "goal MiB", "% of a core", "goal %")
    row(f"{JOBS} jobs, {STREAMS} event streams", f"{peak_mib(s.process.pid):.1f}", "100", f"{share:.2f}", "2")
    s.stop()


def main():
    model = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for part in os.environ.get("PARTS", "videos requests cancels queue").split():
            {"videos": ready_and_videos, "requests": requests, "cancels": cancels, "queue": queue}[part](model)
        os.chdir("/")


main()
