#!/usr/bin/env python3
"""MODEL=DIR bench/serve_waits.py WEFT: predicted and actual waits of `weft serve` on this machine. A server
with a profile of this machine gets Poisson traces of videos of several sizes, with deadlines of 1.5, 2, 3 and 5
times the seconds of the video alone on the server. The predictions are in the answers to the requests, and later
requests may make them wrong. `weft simulate serve --predictions` replays the measured seconds: for the least mean, for the share of
waits that the same forecasts predict within 25 % when all seconds are exact, and for the largest share that any forecast has
which knows how often requests arrive, but not when. Prints a table for tools/bench_tables.py. Times are taken by
the client, because the server's are whole seconds. JOBS (60) of a trace, ROUNDS (1) traces, LOADS ("0.5 0.8"),
POLICIES ("fifo srpt edf"; share and elastic have two ranks, which need two processors), PROFILE: file of the profile, RAW: file for the jobs,
RESTART=1: the server has run another trace of as many jobs, and was started again. The demo's model takes ten minutes."""
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

WEFT, MODEL = os.path.abspath(sys.argv[1]), os.path.abspath(os.environ["MODEL"])
JOBS, ROUNDS = int(os.environ.get("JOBS", "60")), int(os.environ.get("ROUNDS", "1"))
# frames, steps
SIZES = ((5, 30), (13, 30), (13, 60), (13, 120))
SHARED = {"share": ["--policy", "share", "--ranks", "2"], "elastic": ["--policy", "share", "--ranks", "2", "--elastic"]}
DEGREES = {}  # prices by ranks, by size
RESTART, OTHER = bool(os.environ.get("RESTART")), 1000  # OTHER: numbers of traces that only teach a server
FINAL = ("completed", "failed", "cancelled", "parked")


class Server:
    def __init__(self, folder, policy, profile):
        self.process = subprocess.Popen([WEFT, "serve", "--model", "demo=" + MODEL, "--state", folder, "--listen", "127.0.0.1:0",
                                         "--on", profile, *SHARED.get(policy, ["--policy", policy])], stderr=subprocess.PIPE, text=True,
                                        env=dict(os.environ, WEFT_LOG_FORMAT="json"))
        for line in self.process.stderr:
            message = json.loads(line) if line.startswith("{") else {}
            if message.get("id") == "server-ready":
                self.port = int(message["details"]["port"])
                break
        else:
            sys.exit("the server did not start")
        self.ended = {}  # time of the end, by id
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def watch(self, id):
        """Records the end of a job, which is the end of its event stream."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/jobs/{id}/events", timeout=3600) as stream:
            for _ in stream:
                pass
        self.ended[id] = time.time()

    def create(self, body):
        job = self.call("/v1/jobs", body)
        threading.Thread(target=self.watch, args=(job["id"],), daemon=True).start()
        return job

    def call(self, path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode() if body else None,
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)

    def finish(self, ids):
        """The jobs, after all have ended."""
        while True:
            jobs = [self.call("/v1/jobs/" + id) for id in ids]
            if all(job["status"] in FINAL and job["id"] in self.ended for job in jobs):
                return jobs
            time.sleep(0.2)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def size_of(job):
    return job["request"]["frames"], job["request"]["steps"]


def request(size):
    return {"prompt": "a red circle moving left", "frames": size[0], "width": 64, "height": 64, "steps": size[1]}


def alone(server, size):
    """Predicted seconds of a video without others, with the start."""
    price = server.call("/v1/jobs/price", request(size))
    DEGREES[size] = price.get("degrees")
    return price["expected_end"] - price["expected_start"]


def keep(policy, load, number, seconds, runs):
    """Appends the jobs to the file RAW."""
    if "RAW" not in os.environ:
        return
    with open(os.environ["RAW"], "a", encoding="utf-8") as file:
        for p, job in runs:
            size = size_of(job)
            file.write(json.dumps({"policy": policy, "load": load, "trace": number, "size": size, "alone": seconds[size], "arrival": p["arrival"],
                                   "deadline": p["deadline"], "price": job["price"]["seconds"], "expected_end": p["expected_end"],
                                   "range": p["expected_end_range"], "end": job["end"], "spent": job["seconds_spent"], "ranks": job.get("ranks")}) + "\n")


def submit(server, load, number):
    """Submits trace `number`. Returns its ended jobs with their predictions at submission, and the seconds of each size alone."""
    random_numbers = random.Random(number)
    seconds = {size: alone(server, size) for size in SIZES}
    gap, predicted = statistics.mean(seconds.values()) / load, []
    for _ in range(JOBS):
        size, factor = random_numbers.choice(SIZES), random_numbers.choice((1.5, 2, 3, 5))
        time.sleep(random_numbers.expovariate(1 / gap))
        arrival = time.time()
        deadline = arrival + factor * seconds[size]
        predicted.append({**server.create({**request(size), "deadline": deadline}), "arrival": arrival, "deadline": deadline})
    jobs = [{**job, "end": server.ended[job["id"]]} for job in server.finish([job["id"] for job in predicted])]
    return list(zip(predicted, jobs)), seconds


def run(folder, policy, load, profile, number):
    """The jobs of trace `number`, with their predictions. With RESTART, the server has run another trace and was started again."""
    server = Server(folder, policy, profile)
    for _ in range(2):  # the server measures the start of a worker, and of a job with loaded weights
        server.finish([server.create(request(SIZES[1]))["id"]])
    if RESTART:
        submit(server, load, OTHER + number)
        server.stop()
        server = Server(folder, policy, profile)
    runs, seconds = submit(server, load, number)
    server.stop()
    keep(policy, load, number, seconds, runs)
    return runs


def quantile(values, share):
    return sorted(values)[max(0, -(-int(share * 1000) * len(values) // 1000) - 1)]


def replay(folder, policy, runs):
    """The simulated trace with the measured seconds, by `weft simulate serve`: the least mean and the quality of the forecasts."""
    first, trace, out = min(p["arrival"] for p, _ in runs), folder + "/trace.jsonl", folder + "/out.json"
    with open(trace, "w", encoding="utf-8") as file:
        for p, job in runs:
            file.write(json.dumps({"arrival": p["arrival"] - first, "seconds": max(1e-3, job["seconds_spent"]),
                                   "deadline": p["deadline"] - first, "steps": job["request"]["steps"]}) + "\n")
    subprocess.run([WEFT, "simulate", "serve", trace, "--policy", policy, "--predictions", "--out", out], check=True, stdout=subprocess.DEVNULL)
    with open(out, encoding="utf-8") as file:
        return json.load(file)["policies"][0]


def shared_sizes(runs):
    """The sizes of a trace as `weft simulate serve --degrees` reads them: the prices on one and two ranks, by the measured seconds per
    predicted one of the jobs that ended on as many ranks."""
    prices = {size: {d["ranks"]: d["seconds"] for d in degrees} for size, degrees in DEGREES.items()}
    ratios = {ranks: [job["seconds_spent"] / prices[size_of(job)][ranks] for _, job in runs if job["ranks"] == ranks] for ranks in (1, 2)}
    both = statistics.median(ratios[1] + ratios[2])
    pace = {ranks: statistics.median(found) if found else both for ranks, found in ratios.items()}
    return {"sizes": [{"name": f"{frames}-{steps}", "steps": steps, "decode_seconds": 0, "share": 1,
                       "step_seconds": [pace[ranks] * prices[frames, steps][ranks] / steps for ranks in (1, 2)]} for frames, steps in SIZES]}


def replay_shared(folder, policy, runs):
    """Like replay, on two ranks that jobs share."""
    first, trace, table, out = min(p["arrival"] for p, _ in runs), folder + "/trace.jsonl", folder + "/sizes.json", folder + "/out.json"
    with open(table, "w", encoding="utf-8") as file:
        json.dump(shared_sizes(runs), file)
    with open(trace, "w", encoding="utf-8") as file:
        for p, job in runs:
            file.write(json.dumps({"arrival": p["arrival"] - first, "size": "%d-%d" % size_of(job), "deadline": p["deadline"] - first}) + "\n")
    subprocess.run([WEFT, "simulate", "serve", trace, "--degrees", table, "--workers", "2", "--predictions", "--out", out], check=True,
                   stdout=subprocess.DEVNULL)
    with open(out, encoding="utf-8") as file:
        name = {"share": "weft-start", "elastic": "weft"}[policy]
        return next(one for one in json.load(file)["policies"] if one["policy"] == name)


def row(folder, policy, load, traces):
    runs = [pair for trace in traces for pair in trace]
    took = [job["end"] - p["arrival"] for p, job in runs]
    more = ["-", "-", "-", "-"]
    simulated = [(replay_shared if policy in SHARED else replay)(folder, policy, trace) for trace in traces]
    exact, best = (100 * statistics.mean(s["prediction"][key] for s in simulated) for key in ("near", "bound"))
    more[2:] = f"{exact:.0f}", f"{best:.0f}"
    if policy not in SHARED:
        least = statistics.mean(s["least_mean"] for s in simulated)
        free = statistics.mean(s["above_bound"] for s in simulated)
        more[:2] = f"{100 * (statistics.mean(took) / least - 1):.1f}", f"{100 * free:.1f}"
    met = sum(job["end"] <= p["deadline"] for p, job in runs)
    errors = [abs((p["expected_end"] - p["arrival"]) / (job["end"] - p["arrival"]) - 1) for p, job in runs]
    return (f"| {load} | {policy}{', restarted' if RESTART else ''} | {len(runs)} | {100 * met / len(runs):.0f} | {statistics.mean(took):.2f} | {quantile(took, 0.95):.2f} | "
            f"{quantile(took, 0.99):.2f} | {more[0]} | {more[1]} | {100 * statistics.median(errors):.1f} | "
            f"{100 * sum(e <= 0.25 for e in errors) / len(errors):.0f} | {more[2]} | {more[3]} |")


def main():
    with tempfile.TemporaryDirectory() as scratch:
        profile = os.environ.get("PROFILE", scratch + "/profile.json")
        if not os.path.exists(profile):
            subprocess.run([WEFT, "profile", "--model", MODEL, "--frames", "13", "--height", "64", "--width", "64", "--seconds", "20", "--out",
                            profile], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        columns = ("load", "policy", "jobs", "in time %", "mean s", "p95 s", "p99 s", "mean above bound %", "the policy itself %", "median error of the predicted end %",
                   "within 25 %", "with exact seconds within 25 %", "any forecast within 25 %")
        print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
        for load in map(float, os.environ.get("LOADS", "0.5 0.8").split()):
            for policy in os.environ.get("POLICIES", "fifo srpt edf").split():
                traces = [run(f"{scratch}/{policy}{load}-{number}", policy, load, profile, number) for number in range(ROUNDS)]
                print(row(scratch, policy, load, traces), flush=True)


main()
