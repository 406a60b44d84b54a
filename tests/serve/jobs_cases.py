"""Cases of jobs_test.sh. A worker that stops itself (SIGSTOP) when it saves its state holds the queue."""
import json, os, signal, sqlite3, threading, time
from serve_client import VIDEO, Server, at_event, main, undisturbed

LONG = dict(VIDEO, steps=40)


def held(state="state"):
    """A server whose first worker stops itself at its first saved state, and the job."""
    s = Server(state, env=at_event(signal.SIGSTOP, "*video.sampling.safetensors", once="held"))
    job = s.call("POST", "/v1/jobs", LONG)
    s.until(job["id"], lambda job: job["status"] == "running")
    return s, job["id"], s.held_worker()


def answered(s, worker, method, path):
    """The answer to a request that waits for the worker, which continues after the request was stored."""
    got = []
    thread = threading.Thread(target=lambda: got.append(s.raw(method, path)))
    thread.start()
    id = path.split("/")[3]
    shown = 200, None, b'{"status": "running"}'
    while shown[0] == 200 and json.loads(shown[2])["status"] == "running":  # a deleted job is not found
        time.sleep(0.01)
        shown = s.raw("GET", "/v1/jobs/" + id)
    assert not got, "acknowledged while the worker ran"
    os.kill(worker, signal.SIGCONT)
    thread.join()
    assert s.workers() == [worker]  # it stays for the next job
    return got[0][0], json.loads(got[0][2])


def prices_are_predicted():
    s, id, worker = held()
    price = s.call("POST", "/v1/jobs/price", LONG)
    assert price["seconds"] > 0 and price["bytes"] > 1 << 20 and price["queue_position"] == 1, price
    assert price["expected_end"] - price["expected_start"] >= price["seconds"] - 1e-6  # with the start of a worker
    twice = s.call("POST", "/v1/jobs/price", dict(LONG, steps=80))
    assert twice["seconds"] > price["seconds"]
    s.error(400, "video-size", "POST", "/v1/jobs/price", dict(LONG, size="33x32"))
    waiting = s.call("POST", "/v1/jobs", dict(LONG, deadline=1, priority=2))
    assert waiting["queue_position"] == 1 and waiting["expected_late"] and waiting["price"]["seconds"] == price["seconds"]
    assert waiting["expected_start"] <= waiting["expected_end"] and waiting["status"] == "queued"
    for job in (price, waiting):  # too few requests for a future
        assert job["expected_end_range"] == [job["expected_end"]] * 2, job
    assert s.call("POST", "/v1/jobs/price", LONG)["queue_position"] == 2
    assert s.call("POST", "/v1/jobs/price", dict(LONG, priority=3))["queue_position"] == 1
    assert len(s.call("GET", "/v1/jobs")["data"]) == 2
    running = s.call("GET", "/v1/jobs/" + id)
    assert running["queue_position"] == 0 and running["started_at"], running
    # requests are answered before the steps of the video
    assert os.getpriority(os.PRIO_PROCESS, worker) == min(19, os.getpriority(os.PRIO_PROCESS, s.process.pid) + 5)
    os.kill(worker, signal.SIGCONT)
    s.finish(id, waiting["id"])
    s.stop()


def a_refused_price_is_asked_again():
    """The reason is on the disk, and is removed: the same request is then accepted."""
    import shutil
    from serve_client import MODEL
    shutil.copytree(MODEL, "model")
    s = Server(models=("m=model",))
    os.rename("model/transformer/config.json", "hidden.json")
    for _ in range(2):
        status, _, data = s.raw("POST", "/v1/jobs", VIDEO)
        assert status == 400, data
    assert metric(s, "estimates_started_total") == 1  # the second refusal is the stored one
    os.rename("hidden.json", "model/transformer/config.json")
    job, = s.finish(s.call("POST", "/v1/jobs", VIDEO)["id"])
    assert job["status"] == "completed", job
    s.stop()


def metric(s, name):
    lines = s.raw("GET", "/metrics")[2].decode().splitlines()
    return float(next(line for line in lines if line.startswith(f"weft_serve_{name} ")).split()[1])


def a_locked_worker_stops_no_request():
    """A process of an earlier worker has the lock: the job stays queued, and the server answers."""
    import fcntl
    s = Server()
    with open("state/worker.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        id = s.call("POST", "/v1/jobs", VIDEO)["id"]
        for _ in range(3):
            assert s.call("GET", "/v1/jobs/" + id)["status"] == "queued"
        assert s.call("POST", "/v1/jobs/price", dict(VIDEO, steps=3))["queue_position"] == 1  # the main thread works, too
        assert s.call("GET", "/v1/jobs/" + id)["status"] == "queued"
    assert s.finish(id)[0]["status"] == "completed"
    s.stop()


def a_video_that_never_fits_is_refused():
    s = Server("state", "--memory-limit", "100MiB")
    s.error(400, "memory-needed", "POST", "/v1/jobs", dict(VIDEO, size="832x480", frames=81))
    assert s.call("GET", "/v1/jobs")["data"] == []
    assert s.call("GET", "/v1/machine")["loaded"] == []  # a worker starts with the estimate, and gets nothing
    assert s.call("POST", "/v1/jobs/price", VIDEO)["bytes"] < 100 << 20
    s.stop()


def a_request_id_has_one_job():
    s = Server()
    first = s.call("POST", "/v1/jobs", dict(VIDEO, request_id="r-1"))
    again = s.call("POST", "/v1/jobs", dict(VIDEO, request_id="r-1"))
    assert again["id"] == first["id"] and again["request_id"] == "r-1"
    by_header = s.call("POST", "/v1/videos", VIDEO, {"Idempotency-Key": "r-1"})
    assert by_header["id"] == first["id"]
    s.error(400, "request-invalid", "POST", "/v1/jobs", VIDEO, {"Idempotency-Key": b"a\xffb"})
    s.error(409, "request_id_conflict", "POST", "/v1/jobs", dict(VIDEO, seed=1, request_id="r-1"))
    s.finish(first["id"])
    s.stop()
    s = Server()
    assert s.call("POST", "/v1/jobs", dict(VIDEO, request_id="r-1"))["id"] == first["id"]
    assert len(s.call("GET", "/v1/jobs")["data"]) == 1
    s.stop()


def queued_jobs_change():
    s, id, worker = held()
    a, b = (s.call("POST", "/v1/jobs", dict(VIDEO, seed=i))["id"] for i in (1, 2))
    assert s.call("POST", f"/v1/jobs/{a}/cancel")["status"] == "cancelled"
    assert s.call("POST", f"/v1/jobs/{b}/pause")["status"] == "paused"
    s.error(409, "queue-transition", "POST", f"/v1/jobs/{a}/resume")
    video = s.call("GET", "/v1/videos/" + a)
    assert video["status"] == "failed" and video["error"]["code"] == "cancelled", video
    os.kill(worker, signal.SIGCONT)
    s.finish(id)
    assert s.call("GET", "/v1/jobs/" + b)["status"] == "paused"
    assert s.call("POST", f"/v1/jobs/{b}/resume")["status"] in ("queued", "running", "completed")
    assert s.finish(b)[0]["status"] == "completed"
    s.error(409, "not_completed", "GET", f"/v1/videos/{a}/content")
    s.error(409, "queue-transition", "POST", f"/v1/jobs/{b}/cancel")
    s.error(404, "not_found", "POST", "/v1/jobs/x/cancel")
    s.stop()


def a_running_job_is_cancelled():
    s, id, worker = held()
    after = s.call("POST", "/v1/jobs", VIDEO)["id"]
    status, job = answered(s, worker, "POST", f"/v1/jobs/{id}/cancel")
    assert status == 200 and job["status"] == "cancelled", job
    assert not os.path.exists("state/jobs/%s/video.mp4" % id)
    assert s.finish(after)[0]["status"] == "completed"
    s.stop()


def a_cancelled_job_is_not_saved():
    """Its state cannot be written, which would be an error of the worker."""
    for path, method in ("/v1/jobs/%s/cancel", "POST"), ("/v1/videos/%s", "DELETE"):
        s, id, worker = held(method)
        os.remove("held")
        state = f"{method}/jobs/{id}/video.sampling.safetensors"
        os.remove(state)
        os.makedirs(state + "/full")
        assert answered(s, worker, method, path % id)[0] == 200
        assert not os.path.exists(f"{method}/jobs/{id}")
        assert s.stop() == 130
        assert "worker-ended" not in [m.get("id") for m in s.messages], s.messages


def a_cancel_that_is_not_stored():
    """The worker stops while the cancel is stored. The write fails, and the job resumes."""
    s, id, worker = held()
    queue = sqlite3.connect("state/queue.sqlite", isolation_level=None)
    queue.execute("BEGIN IMMEDIATE")
    s.error(500, "queue-database", "POST", f"/v1/jobs/{id}/cancel")
    os.kill(worker, signal.SIGCONT)
    queue.execute("ROLLBACK")
    queue.close()
    seen = [job for _, job in s.events(id)]
    assert any(job["status"] in ("queued", "running") and job["seconds_spent"] > 0 for job in seen), "the worker did not stop"
    assert seen[-1]["status"] == "completed" and s.content(id)[1] == undisturbed("whole", LONG), seen[-1]
    s.stop()


def a_running_job_is_paused_and_resumed():
    s, id, worker = held()
    status, job = answered(s, worker, "POST", f"/v1/jobs/{id}/pause")
    assert status == 200 and job["status"] == "paused", job
    assert os.path.exists(f"state/jobs/{id}/video.sampling.safetensors")
    s.stop()
    s = Server()  # a pause survives a restart
    assert s.call("GET", "/v1/jobs/" + id)["status"] == "paused"
    s.error(409, "queue-transition", "PATCH", "/v1/jobs/" + id, {"steps": 3})  # steps are finished
    assert s.call("PATCH", "/v1/jobs/" + id, {"priority": 3, "steps": 40})["priority"] == 3
    s.call("POST", f"/v1/jobs/{id}/resume")
    s.finish(id)
    assert s.content(id)[1] == undisturbed("whole", LONG)
    s.stop()


def a_running_job_is_deleted():
    """Its deletion waits for the worker. The deletion of a queued job does not wait for the other one."""
    s, id, worker = held()
    queued = s.call("POST", "/v1/jobs", LONG)["id"]
    got = []
    thread = threading.Thread(target=lambda: got.append(s.call("DELETE", "/v1/videos/" + id)))
    thread.start()
    while s.raw("GET", "/v1/videos/" + id)[0] != 404:
        time.sleep(0.01)
    assert s.call("DELETE", "/v1/videos/" + queued)["deleted"] and not got
    os.kill(worker, signal.SIGCONT)
    thread.join()
    assert got[0]["deleted"] and os.listdir("state/jobs") == [] and s.workers() == [worker]
    s.stop()


def events_show_the_steps():
    s = Server()
    id = s.call("POST", "/v1/jobs", LONG)["id"]
    seen = list(s.events(id))
    assert seen[-1][0] == "final" and seen[-1][1]["status"] == "completed", seen[-1]
    steps = [job["progress"]["step"] for _, job in seen if job["progress"] and job["progress"]["steps"]]
    assert steps == sorted(steps) and all(job["progress"]["steps"] == 40 for _, job in seen if job["progress"] and job["progress"]["steps"])
    assert all(name == "job" for name, _ in seen[:-1])
    assert [name for name, _ in s.events(id)] == ["final"]
    s.stop()


def previews_are_images():
    s = Server()
    s.error(400, "request-invalid", "POST", "/v1/jobs", dict(VIDEO, preview=21))
    job = s.call("POST", "/v1/jobs", dict(VIDEO, preview=2))
    assert job["request"]["preview"] == 2
    seen = [event["progress"]["preview"] for _, event in s.events(job["id"]) if event["progress"]]
    assert seen and seen[-1], seen
    status, head, data = s.raw("GET", f"/v1/jobs/{job['id']}/preview")
    assert status == 200 and head["Content-Type"] == "image/png" and data.startswith(b"\x89PNG"), head
    assert s.content(job["id"])[1] == undisturbed("whole", VIDEO)
    other = s.call("POST", "/v1/jobs", dict(VIDEO, steps=1))["id"]
    s.finish(other)
    s.error(404, "no_preview", "GET", f"/v1/jobs/{other}/preview")
    s.stop()


def priorities_come_first():
    s, id, worker = held()
    ids = [s.call("POST", "/v1/jobs", dict(VIDEO, steps=2, seed=i, priority=p))["id"] for i, p in enumerate((0, 5, 0, 9))]
    os.kill(worker, signal.SIGCONT)
    jobs = s.finish(*ids)
    started = [s.call("GET", "/v1/jobs/" + i) for i in ids]
    order = sorted(range(4), key=lambda i: started[i]["started_at"])
    spent = [job["seconds_spent"] for job in jobs]
    assert all(x > 0 for x in spent)
    log = [started[i]["started_at"] for i in (3, 1, 0, 2)]
    assert log == sorted(log), (order, log)
    s.stop()


def a_deadline_goes_first():
    """edf: the longer job has a deadline that it meets only before the shorter one. A slow machine has predicted hours, beside which
    the seconds of this case do not count."""
    import fcntl
    with open("slow.yaml", "w") as f:
        f.write("nodes: 1\ndevices: 1\ndevice: {memory: 28GiB, flops: 1e4, memory_bandwidth: 1e4}\nlink: {bandwidth: 1e10}\n")
    s = Server("state", "--policy", "edf", "--on", "slow.yaml")
    with open("state/worker.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        short, long = dict(VIDEO, steps=2), dict(VIDEO, steps=20)
        seconds = [s.call("POST", "/v1/jobs/price", video)["seconds"] for video in (short, long)]
        assert 3600 < seconds[0] < seconds[1], seconds
        a = s.call("POST", "/v1/jobs", short)
        b = s.call("POST", "/v1/jobs", dict(long, deadline=int(time.time() + seconds[1] + seconds[0] / 2)))
        assert b["queue_position"] == 0 and not b["expected_late"], b
        assert s.call("GET", "/v1/jobs/" + a["id"])["queue_position"] == 1
        late = s.call("POST", "/v1/jobs", dict(long, deadline=int(time.time() + seconds[0])))
        assert late["queue_position"] == 2 and late["expected_late"], late  # has no chance, and delays nobody
    s.until(a["id"], lambda job: job["status"] != "queued")
    assert s.call("GET", "/v1/jobs/" + b["id"])["status"] == "completed"
    s.finish(a["id"], late["id"])
    s.stop()


def a_shorter_job_goes_first():
    """srpt: the running job is stopped after a step, and resumes after the shorter one."""
    s = Server("state", "--policy", "srpt")
    assert s.call("GET", "/capabilities")["policy"] == "srpt"
    long, short = dict(VIDEO, steps=4000), dict(VIDEO, steps=2)
    id = s.call("POST", "/v1/jobs", long)["id"]
    s.until(id, lambda job: job["status"] == "running" and job["progress"] and job["progress"]["step"] > 4)
    other = s.call("POST", "/v1/jobs", short)
    s.error(409, "ordered_by_policy", "POST", f"/v1/jobs/{other['id']}/move", {"before": id})
    s.finish(other["id"])
    job = s.call("GET", "/v1/jobs/" + id)
    assert job["status"] in ("queued", "running") and job["seconds_spent"] > 0, job
    assert metric(s, "stops_total") == 1
    s.until(id, lambda job: job["status"] == "running" and job["progress"] and job["progress"]["step"] > 4)
    assert s.call("POST", f"/v1/jobs/{id}/cancel")["status"] == "cancelled"
    assert s.content(other["id"])[1] == undisturbed("short", short)
    s.stop()


def queued_jobs_are_edited():
    s, id, worker = held()
    a, b, c = (s.call("POST", "/v1/jobs", dict(VIDEO, seed=i, steps=2, request_id=f"r{i}"))["id"] for i in (1, 2, 3))
    order = lambda: [job["id"] for job in sorted((job for job in s.call("GET", "/v1/jobs")["data"] if "queue_position" in job),
                                                 key=lambda job: job["queue_position"])]
    assert s.call("POST", f"/v1/jobs/{c}/move", {"before": a})["queue_position"] == 1
    assert order() == [id, c, a, b]
    assert s.call("POST", f"/v1/jobs/{a}/move", {"after": b})["queue_position"] == 3
    for body in {}, {"before": a, "after": b}, {"to": 1}, {"before": 3}:
        s.error(400, "request-invalid", "POST", f"/v1/jobs/{c}/move", body)
    s.error(409, "queue-transition", "POST", f"/v1/jobs/{c}/move", {"before": id})
    s.error(409, "queue-transition", "POST", f"/v1/jobs/{id}/move", {"after": c})
    s.error(404, "not_found", "POST", "/v1/jobs/x/move", {"after": c})
    # an edit has a new price; other values and the request id stay
    before = s.call("GET", "/v1/jobs/" + b)
    job = s.call("PATCH", "/v1/jobs/" + b, {"steps": 3, "prompt": "a blue dog", "priority": 4})
    assert job["request"] == dict(before["request"], steps=3, prompt="a blue dog") and job["priority"] == 4, job
    assert job["price"]["seconds"] > before["price"]["seconds"] and job["queue_position"] == 1
    assert s.call("POST", "/v1/jobs", dict(VIDEO, seed=2, steps=2, request_id="r2"))["id"] == b
    assert s.call("PATCH", "/v1/jobs/" + b, {"deadline": 5})["priority"] == 4
    s.error(400, "video-size", "PATCH", "/v1/jobs/" + b, {"size": "33x32"})
    s.error(400, "request-invalid", "PATCH", "/v1/jobs/" + b, {"request_id": "other"})
    s.error(400, "request-invalid", "PATCH", "/v1/jobs/" + b, {"sead": 1})
    s.error(415, "unsupported_type", "PATCH", "/v1/jobs/" + b, b"{}")
    s.error(409, "queue-transition", "PATCH", "/v1/jobs/" + id, {"steps": 3})
    # a duplicate is a job of its own
    twin = s.call("POST", f"/v1/jobs/{b}/duplicate")
    assert twin["request"] == job["request"] and twin["remix_of"] == b and twin["id"] != b and twin["request_id"] is None
    other = s.call("POST", f"/v1/jobs/{b}/duplicate", {"seed": 8})
    assert other["request"] == dict(job["request"], seed=8), other
    os.kill(worker, signal.SIGCONT)
    s.finish(id, a, b, c, twin["id"], other["id"])
    assert s.content(b)[1] == s.content(twin["id"])[1] == undisturbed("edited", dict(VIDEO, seed=2, steps=3, prompt="a blue dog"))
    s.error(409, "queue-transition", "PATCH", "/v1/jobs/" + b, {"steps": 3})
    s.stop()


main(globals())
