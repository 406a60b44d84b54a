#!/usr/bin/env python3
"""MODEL=DIR bench/serve_waits.py WEFT: predicted and actual waits of `weft serve` on this machine. A server
with a profile of this machine gets Poisson traces of videos of several sizes, with deadlines of 1.5, 2, 3 and 5
times the seconds of the video alone on the server. The policies take turns with each trace, so that they meet the
same load of the machine. The measured seconds are then replayed by `weft simulate serve` for the least mean. The
predictions are those at the submission of a job, which later requests may make wrong, and those after the last request
before the end of the job. Prints a table for tools/bench_tables.py; the demo's model takes three minutes. Times are taken by the client, because the
server's are whole seconds. JOBS (12) of a trace, ROUNDS (4) traces, LOAD (0.8), POLICIES ("fifo srpt edf")."""
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
JOBS, ROUNDS, LOAD = int(os.environ.get("JOBS", "12")), int(os.environ.get("ROUNDS", "4")), float(os.environ.get("LOAD", "0.8"))
# frames, steps
SIZES = ((5, 30), (13, 30), (13, 60), (13, 120))
FINAL = ("completed", "failed", "cancelled", "parked")


class Server:
    def __init__(self, folder, policy, profile):
        self.process = subprocess.Popen([WEFT, "serve", "--model", "demo=" + MODEL, "--state", folder, "--listen", "127.0.0.1:0",
                                         "--policy", policy, "--on", profile], stderr=subprocess.PIPE, text=True,
                                        env=dict(os.environ, WEFT_LOG_FORMAT="json"))
        for line in self.process.stderr:
            message = json.loads(line) if line.startswith("{") else {}
            if message.get("id") == "server-ready":
                self.port = int(message["details"]["port"])
                break
        else:
            sys.exit("the server did not start")
        self.ended = {}  # time of the end, by id
        self.stopping = threading.Event()
        self.watcher = threading.Thread(target=self.watch)
        self.watcher.start()
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def watch(self):
        """Records the ends, of which a page has the newest 100, within 50 ms."""
        while not self.stopping.wait(0.05):
            for job in self.call("/v1/jobs?part=final&limit=100")["data"]:
                self.ended.setdefault(job["id"], time.time())

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
        self.stopping.set()
        self.watcher.join()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def request(size):
    return {"prompt": "a red circle moving left", "frames": size[0], "width": 64, "height": 64, "steps": size[1]}


def alone(server, size):
    """Predicted seconds of a video without others, with the start."""
    price = server.call("/v1/jobs/price", request(size))
    return price["expected_end"] - price["expected_start"]


def run(folder, policy, profile, number):
    """Submits trace `number`. Returns the ended jobs with their predictions at submission."""
    server, random_numbers = Server(folder, policy, profile), random.Random(number)
    for _ in range(2):  # the server measures the start of a worker, and of a job with loaded weights
        server.finish([server.call("/v1/jobs", request(SIZES[1]))["id"]])
    seconds = {size: alone(server, size) for size in SIZES}
    gap, predicted, last = statistics.mean(seconds.values()) / LOAD, [], {}
    for _ in range(JOBS):
        size, factor = random_numbers.choice(SIZES), random_numbers.choice((1.5, 2, 3, 5))
        time.sleep(random_numbers.expovariate(1 / gap))
        arrival = time.time()
        deadline = arrival + factor * seconds[size]
        predicted.append({**server.call("/v1/jobs", {**request(size), "deadline": deadline}), "arrival": arrival, "deadline": deadline})
        for job in server.call("/v1/jobs?part=unfinished&limit=100")["data"]:
            last[job["id"]] = {"asked": time.time(), "expected_end": job["expected_end"]}
    jobs = [{**job, "end": server.ended[job["id"]], "last": last[job["id"]]} for job in server.finish([job["id"] for job in predicted])]
    server.stop()
    return list(zip(predicted, jobs))


def quantile(values, share):
    return sorted(values)[max(0, -(-int(share * 1000) * len(values) // 1000) - 1)]


def replay(folder, runs):
    """The least mean of a trace, by `weft simulate serve`."""
    first, trace, out = min(p["arrival"] for p, _ in runs), folder + "/trace.jsonl", folder + "/out.json"
    with open(trace, "w", encoding="utf-8") as file:
        for p, job in runs:
            file.write(json.dumps({"arrival": p["arrival"] - first, "seconds": max(1e-3, job["seconds_spent"])}) + "\n")
    subprocess.run([WEFT, "simulate", "serve", trace, "--policy", "srpt", "--out", out], check=True, stdout=subprocess.DEVNULL)
    with open(out, encoding="utf-8") as file:
        return json.load(file)["policies"][0]["least_mean"]


def in_range(runs):
    """% of the jobs that end in the range of their first prediction."""
    return f"{100 * sum(p['expected_end_range'][0] - 0.1 <= job['end'] <= p['expected_end_range'][1] + 0.1 for p, job in runs) / len(runs):.0f}"


def quality(predictions):
    """Median error in %, and % of the errors up to 25 %. predictions: (time of the question, predicted end, end). Less than
    a second until the end has no meaningful relative error."""
    errors = [abs((predicted - asked) / (end - asked) - 1) for asked, predicted, end in predictions if end - asked >= 1]
    return f"{100 * statistics.median(errors or [float('nan')]):.0f} | {100 * sum(e <= 0.25 for e in errors) / max(1, len(errors)):.0f}"


def row(folder, policy, traces):
    runs = [pair for trace in traces for pair in trace]
    took = [job["end"] - p["arrival"] for p, job in runs]
    least = statistics.mean(replay(folder, trace) for trace in traces)
    met = sum(job["end"] <= p["deadline"] for p, job in runs)
    first = [(p["arrival"], p["expected_end"], job["end"]) for p, job in runs]
    last = [(job["last"]["asked"], job["last"]["expected_end"], job["end"]) for _, job in runs]
    return (f"| {policy} | {len(runs)} | {100 * met / len(runs):.0f} | {statistics.mean(took):.2f} | {quantile(took, 0.95):.2f} | "
            f"{quantile(took, 0.99):.2f} | {100 * (statistics.mean(took) / least - 1):.1f} | "
            f"{quality(first)} | {in_range(runs)} | {quality(last)} |")


def main():
    with tempfile.TemporaryDirectory() as scratch:
        profile = os.environ.get("PROFILE", scratch + "/profile.json")
        if not os.path.exists(profile):
            subprocess.run([WEFT, "profile", "--model", MODEL, "--frames", "13", "--height", "64", "--width", "64", "--seconds", "20", "--out",
                            profile], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        print("| policy | jobs | in time % | mean s | p95 s | p99 s | mean above bound % | median error of the predicted end % | within 25 % | in the range % | median error after the last request % | within 25 % |")
        print("|" + "---|" * 12)
        traces = {policy: [] for policy in os.environ.get("POLICIES", "fifo srpt edf").split()}
        for number in range(ROUNDS):
            for policy, ended in traces.items():
                ended.append(run(f"{scratch}/{policy}{number}", policy, profile, number))
        for policy, ended in traces.items():
            print(row(scratch, policy, ended), flush=True)


main()
