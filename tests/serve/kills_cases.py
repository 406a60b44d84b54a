"""Cases of kills_long_test.sh. The moments of the kills are random; no check depends on them."""
import http.client, os, random, signal, time
from serve_client import VIDEO, Server, main, undisturbed

REQUESTS = [dict(VIDEO, steps=steps, seed=steps, request_id=f"r{steps}") for steps in (2, 8, 20)]


def submit(s):
    """Sends the requests. None for a request that the server did not answer."""
    ids = []
    for request in REQUESTS:
        try:
            ids.append(s.call("POST", "/v1/jobs", request)["id"])
        except (OSError, http.client.HTTPException):
            ids.append(None)
    return ids


def kill(s, what):
    for worker in s.workers() if what != "server" else []:
        os.kill(worker, signal.SIGKILL)
    if what != "worker":
        assert s.kill() == -signal.SIGKILL


def check(s, known, whole):
    ids = submit(s)
    for before, after in zip(known, ids):
        assert before in (None, after), (before, after)
    for id, job in zip(ids, s.finish(*ids)):
        if job["status"] == "parked":  # two kills hit the same job
            assert job["crashes"] == 2 and job["error"]["code"] == "worker_crashed", job
            s.call("POST", f"/v1/jobs/{id}/resume")
    assert [job["status"] for job in s.finish(*ids)] == ["completed"] * len(ids)
    assert len(s.call("GET", "/v1/jobs")["data"]) == len(ids) and sorted(os.listdir(s.state + "/jobs")) == sorted(ids)
    for id, data in zip(ids, whole):
        assert s.content(id)[1] == data, "other bytes"
        assert sorted(os.listdir(f"{s.state}/jobs/{id}")) == ["request.jsonl", "video.mp4"]
    assert s.stop() == 130


def random_kills(what):
    seed = int(os.environ.get("WEFT_TEST_SEED", random.randrange(1 << 30)))
    print("WEFT_TEST_SEED =", seed, flush=True)
    random.seed(seed)
    whole = [undisturbed(r["request_id"], r) for r in REQUESTS]
    began = time.monotonic()
    s = Server("state0")
    s.finish(*submit(s))
    s.stop()
    seconds = time.monotonic() - began
    kills = int(os.environ.get("WEFT_KILLS", 67))
    round = 0
    while kills > 0:
        round += 1
        state = f"state{round}"
        s, known = Server(state), [None] * len(REQUESTS)
        for _ in range(random.randint(1, 3)):
            known = [b or a for a, b in zip(submit(s), known)]
            time.sleep(random.uniform(0, seconds))
            kill(s, what)
            kills -= 1
            if what != "worker":
                s = Server(state)
        check(s, known, whole)
    print("rounds:", round)


def the_server_is_killed():
    random_kills("server")


def the_worker_is_killed():
    random_kills("worker")


def both_are_killed():
    random_kills("both")


main(globals())
