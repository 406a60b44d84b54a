"""Cases of batches_test.sh. Videos of a batch are close to the ones of `weft generate`, not bitwise: products of other shapes sum
in another order. The latents differ by less than 1e-4, so that a pixel may round to a neighbouring level, which the encoder
may spread: the mean difference is below 1 of 255 levels."""
import array, fcntl, json, os, shutil, signal, subprocess, termios, threading, time
from serve_client import MODEL, VIDEO, Server, at_event, main, undisturbed

VIDEO = dict(VIDEO, frames=5, steps=12)
STATE = "*video.sampling.safetensors"
REQUESTS = [dict(VIDEO, seed=1), dict(VIDEO, seed=2, prompt="a blue dog in the rain", negative_prompt="fog")]


def server(*options, batch=2, env=None, requests=REQUESTS):
    """A server with queued jobs that start together, when the lock of its worker is released. Returns the ids as well."""
    s = Server("state", "--batch", str(batch), *options, env=env)
    lock = open("state/worker.lock", "a")
    fcntl.flock(lock, fcntl.LOCK_EX)
    ids = [s.call("POST", "/v1/jobs", request)["id"] for request in requests]
    lock.close()
    return s, ids


def job(s, id):
    return s.call("GET", "/v1/jobs/" + id)


def frames(path):
    return subprocess.check_output(["ffmpeg", "-v", "error", "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"])


def check_close(s, id, request):
    with open(id + ".mp4", "wb") as f:
        f.write(s.content(id)[1])
    name = f"../own{request['seed']}"  # of all cases
    if not os.path.exists(name + ".mp4"):
        options = ("--negative-prompt", request["negative_prompt"]) if "negative_prompt" in request else ()
        undisturbed(name, request, *options)
    a, b = frames(id + ".mp4"), frames(name + ".mp4")
    mean = sum(abs(x - y) for x, y in zip(a, b)) / len(b)
    assert len(a) == len(b) == 5 * 32 * 32 * 3 and mean < 1, mean


def held_batch(count=2):
    """A server whose worker is stopped after it has saved the states of both members. Returns the worker as well."""
    s, ids = server(env=at_event(signal.SIGSTOP, STATE, once="held", count=count))
    return s, ids, s.held_worker()


def resume(worker):
    """Continues the worker after the server has written a command, which a short video must not overtake."""
    commands = open(f"/proc/{worker}/fd/0", "rb")
    while not array.array("i", fcntl.ioctl(commands, termios.FIONREAD, b"\0" * 4))[0]:
        time.sleep(0.01)
    commands.close()
    os.kill(worker, signal.SIGCONT)


def ask(s, worker, path):
    """Sends a request about a running job, then continues the worker. Returns the answer."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(s.call("POST", path)))
    thread.start()
    resume(worker)
    thread.join()
    return answers[0]


def two_jobs_are_a_batch():
    s, ids, worker = held_batch()
    a, b = (job(s, id) for id in ids)
    assert a["status"] == b["status"] == "running" and a["price"] == b["price"], (a, b)
    assert a["queue_position"] == b["queue_position"] == 0 and a["expected_end"] == b["expected_end"], (a, b)
    other = s.call("POST", "/v1/jobs", dict(VIDEO, steps=4, seed=9))  # arrives later, and waits for the batch
    assert other["queue_position"] == 1 and other["expected_start"] >= a["expected_end"] - 1, other
    events = []
    threads = [threading.Thread(target=lambda id=id: events.append([job for _, job in s.events(id)])) for id in ids]
    for thread in threads:
        thread.start()
    os.kill(worker, signal.SIGCONT)
    ends = s.finish(*ids)
    for thread in threads:
        thread.join()
    for id, request in zip(ids, REQUESTS):
        check_close(s, id, request)
    assert s.call("GET", "/v1/machine")["workers_started"] == 1
    # each member has its own events, half of the seconds, and no further files
    assert all(any(job["progress"] and job["progress"]["step"] > 0 for job in jobs) for jobs in events), events
    assert abs(ends[0]["seconds_spent"] - ends[1]["seconds_spent"]) < 1e-9 and ends[0]["started_at"] == ends[1]["started_at"], ends
    s.finish(other["id"])
    assert s.content(other["id"])[1] == undisturbed("other", dict(VIDEO, steps=4, seed=9))
    assert sorted(os.listdir("state/jobs")) == sorted([*ids, other["id"]]), os.listdir("state/jobs")
    for id in ids:
        assert not [name for name in os.listdir("state/jobs/" + id) if name.endswith(".safetensors")]
    s.stop()


def other_jobs_are_not_batched():
    """Bitwise: each of these jobs runs alone."""
    requests = [dict(VIDEO, seed=1), dict(VIDEO, seed=2, steps=11), dict(VIDEO, seed=3, guidance_scale=5), dict(VIDEO, seed=4, priority=1)]
    s, ids = server(requests=requests, batch=4)
    s.finish(*ids)
    for id, request in zip(ids, requests):
        assert s.content(id)[1] == undisturbed("own", request), request
    s.stop()
    # and equal ones without the option
    os.rename("state", "state-before")
    s, ids = server(requests=requests[:1] * 2, batch=1)
    s.finish(*ids)
    assert s.content(ids[1])[1] == undisturbed("own", requests[0])
    s.stop()


def a_member_is_cancelled():
    s, ids, worker = held_batch()
    assert ask(s, worker, f"/v1/jobs/{ids[0]}/cancel")["status"] == "cancelled"
    end, = s.finish(ids[1])
    assert end["status"] == "completed" and not os.path.exists("state/jobs/" + ids[0]), end
    check_close(s, ids[1], REQUESTS[1])
    assert s.call("GET", "/v1/machine")["workers_started"] == 1
    s.stop()


def a_member_is_paused():
    s, ids, worker = held_batch()
    assert ask(s, worker, f"/v1/jobs/{ids[1]}/pause")["status"] == "paused"
    s.finish(ids[0])
    assert job(s, ids[1])["status"] == "paused" and os.path.exists(f"state/jobs/{ids[1]}/video.sampling.safetensors")
    s.call("POST", f"/v1/jobs/{ids[1]}/resume")
    steps = [job["progress"]["step"] for _, job in s.events(ids[1]) if job["progress"] and job["progress"]["phase"] == "denoising"]
    assert all(step > 1 for step in steps), steps  # after the saved step
    for id, request in zip(ids, REQUESTS):
        check_close(s, id, request)
    s.stop()


def a_batch_is_not_stopped_for_its_member():
    """The first member is the later job: it was moved before the other one."""
    s = Server("state")
    with open("state/worker.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ids = [s.call("POST", "/v1/jobs", request)["id"] for request in REQUESTS]
        s.call("POST", f"/v1/jobs/{ids[1]}/move", {"before": ids[0]})
        s.kill()
    s = Server("state", "--batch", "2", "--policy", "fair")
    ends = s.finish(*ids)
    assert ends[0]["started_at"] == ends[1]["started_at"] and ends[0]["seconds_spent"] == ends[1]["seconds_spent"], ends
    metrics = s.raw("GET", "/metrics")[2].decode().splitlines()
    assert "weft_serve_stops_total 0" in metrics, metrics
    s.stop()


def a_killed_worker_loses_no_member():
    s, ids = server(env=at_event(signal.SIGKILL, STATE, once="killed", count=2))
    for end, request in zip(s.finish(*ids), REQUESTS):
        assert end["status"] == "completed" and end["crashes"] == 1, end
        check_close(s, end["id"], request)
    assert os.path.exists("killed") and s.call("GET", "/v1/machine")["workers_crashed"] == 1
    s.stop()


def a_batch_that_does_not_fit_is_not_made():
    """Bitwise: both jobs run alone, because the limit is below the predicted memory of two."""
    estimate = ["estimate", "--model", MODEL, "--frames", "5", "--height", "32", "--width", "32", "--steps", "12", "--json"]
    peak = [json_of(estimate + ["--batch-size", n])["peak_bytes"] for n in ("1", "2")]
    s, ids = server("--memory-limit", str(sum(peak) // 2), requests=[dict(VIDEO, seed=seed) for seed in (1, 2)])
    for id, seed in zip(ids, (1, 2)):
        assert s.finish(id)[0]["status"] == "completed"
        assert s.content(id)[1] == undisturbed(f"own{seed}", dict(VIDEO, seed=seed))
    s.stop()


def json_of(arguments):
    return json.loads(subprocess.check_output([os.environ["WEFT"], *arguments]))


def a_refused_member_fails_alone():
    """The state of one member is another video's: that job fails, and the other one finishes."""
    s, ids, worker = held_batch()
    s.kill()
    shutil.copy(f"state/jobs/{ids[1]}/video.sampling.safetensors", f"state/jobs/{ids[0]}/video.sampling.safetensors")
    s = Server("state", "--batch", "2")
    failed, end = s.finish(*ids)
    assert failed["status"] == "failed" and failed["error"]["code"] == "latents-mismatch", failed
    assert end["status"] == "completed" and end["crashes"] == 0, end
    check_close(s, ids[1], REQUESTS[1])
    s.stop()


def a_stopped_server_resumes_the_batch():
    s, ids, worker = held_batch()
    s.process.send_signal(signal.SIGTERM)
    resume(worker)
    assert s.drain() == 130
    for id in ids:
        assert os.path.exists(f"state/jobs/{id}/video.sampling.safetensors")
    s = Server("state", "--batch", "2")
    for id, request in zip(ids, REQUESTS):
        assert s.finish(id)[0]["crashes"] == 0
        check_close(s, id, request)
    s.stop()


main(globals())
