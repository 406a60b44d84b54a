"""Cases of ranks_test.sh."""
import fcntl, json, os, shutil, signal, sqlite3, subprocess, time
from serve_client import MODEL, VIDEO, WEFT, Server, at_event, main, undisturbed, write_lora


def serve(ranks, *options, state="state", env=None):
    return Server(state, "--ranks", str(ranks), *options, env=env)


def whole(ranks, *options):
    """The bytes of `weft generate` on ranks."""
    return undisturbed("whole", VIDEO, *options, launcher=("mpirun", "-n", str(ranks)))


def ranks_of(s):
    """Processes of the worker: children of mpirun."""
    pid, = s.workers()
    return open(f"/proc/{pid}/task/{pid}/children").read().split()


def left(state="state"):
    """Processes that have their working folder in a state."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/cwd").startswith(os.path.realpath(state)):
                found.append(pid)
        except OSError:
            pass  # the process has ended
    return found


def stop(s):
    assert s.stop() == 130
    while left():  # mpirun ends with the server
        time.sleep(0.01)


def files_are_those_of_generate():
    for ranks, options in (2, ()), (2, ("--parallel", "cp=2")), (4, ("--parallel", "tp=2", "--parallel", "cfg=2")):
        expected = whole(ranks, *options)
        s = serve(ranks, *options)
        ids = [s.call("POST", "/v1/jobs", VIDEO)["id"] for _ in range(2)]
        s.finish(*ids)
        assert len(ranks_of(s)) == ranks
        machine = s.call("GET", "/v1/machine")
        assert machine["workers_started"] == 1 and machine["loads"] > 0 and machine["worker_bytes"] > 0, machine
        for id in ids:
            assert s.content(id)[1] == expected, ("other bytes", ranks, options)
        stop(s)
        shutil.rmtree("state")


def killed(expected, env, restarts=False):
    """A signal of `env` ends the worker, and the job is finished by another one."""
    s = serve(2, env=env)
    open("pid.server", "w").write(str(s.process.pid))
    id = s.call("POST", "/v1/jobs", VIDEO)["id"]
    if restarts:
        assert s.drain() == -signal.SIGKILL
        s = serve(2)  # waits until the ranks have ended
        assert len(left()) <= 4, left()  # mpirun, its ranks and an estimate
    seen = [job for _, job in s.events(id)]
    job, steps = seen[-1], [job["progress"]["step"] for job in seen if job["progress"] and job["progress"]["steps"]]
    assert job["status"] == "completed" and job["crashes"] == (0 if restarts else 1), job
    after = steps[:1] if restarts else [b for a, b in zip(steps, steps[1:]) if b < a]
    assert all(step > 1 for step in after), ("started again", steps)
    assert os.path.exists("killed"), "the event did not happen"
    assert s.content(id)[1] == expected, "other bytes"
    stop(s)


def in_a_step(number, rank, **event):
    """A rank gets the signal at its message 12 after a step was saved."""
    saved = os.path.abspath("state/jobs/*/video.sampling.safetensors")
    return dict(at_event(number, saved, on="send", count=12, **event), SIGNAL_RANK=str(rank))


def a_killed_rank_ends_the_worker():
    expected = whole(2)
    for rank in 0, 1:
        killed(expected, in_a_step(signal.SIGKILL, rank, once="killed"))
        os.remove("killed")
        shutil.rmtree("state")


def a_killed_server_leaves_no_rank():
    killed(whole(2), in_a_step(signal.SIGKILL, 1, once="killed", to=os.path.abspath("pid.server")), restarts=True)


def a_killed_launcher_leaves_no_rank():
    """mpirun is killed while the second job runs: its ranks end, too, before the next worker starts."""
    expected = whole(2)
    env = at_event(signal.SIGKILL, os.path.abspath("second"), on="send", once="killed", to=os.path.abspath("pid.mpirun"))
    s = serve(2, env=dict(env, SIGNAL_RANK="1"))
    s.finish(s.call("POST", "/v1/jobs", VIDEO)["id"])
    open("pid.mpirun", "w").write(str(s.workers()[0]))
    first = ranks_of(s)
    open("second", "w").close()
    id = s.call("POST", "/v1/jobs", VIDEO)["id"]
    job, = s.finish(id)
    assert job["status"] == "completed" and job["crashes"] == 1 and s.content(id)[1] == expected, job
    assert not set(first) & set(left()), "ranks of the first worker are left"
    stop(s)


def a_rank_killed_twice_parks():
    s = serve(2, env=in_a_step(signal.SIGSEGV, 1))
    job, = s.finish(s.call("POST", "/v1/jobs", VIDEO)["id"])
    assert job["status"] == "parked" and job["crashes"] == 2 and job["error"]["code"] == "worker_crashed", job
    assert "rank" in job["error"]["message"] and "11" in job["error"]["message"], job
    stop(s)


def stepping(job):
    return job["progress"] and job["progress"]["step"] >= 2


def pause_cancel_and_sigterm_stop_all_ranks():
    s = serve(2)
    long = dict(VIDEO, steps=60)
    id = s.call("POST", "/v1/jobs", long)["id"]
    s.until(id, stepping)
    paused = s.call("POST", f"/v1/jobs/{id}/pause")
    assert paused["status"] == "paused", paused
    pids = ranks_of(s)
    other = s.call("POST", "/v1/jobs", dict(VIDEO, steps=2000))["id"]
    s.until(other, stepping)
    assert s.call("POST", f"/v1/jobs/{other}/cancel")["status"] == "cancelled"
    assert ranks_of(s) == pids, "the worker was started again"
    s.call("POST", f"/v1/jobs/{id}/resume")
    s.until(id, stepping)
    stop(s)  # SIGTERM
    s = serve(2)
    s.finish(id)
    assert s.content(id)[1] == undisturbed("long", long, launcher=("mpirun", "-n", "2")), "other bytes after a pause and SIGTERM"
    stop(s)


def a_long_step_does_not_delay_the_stop():
    """A rank hangs in its step: the server ends without the ranks, which end as well, and the job resumes at its saved step."""
    request = dict(VIDEO, frames=5, steps=8)
    s = serve(2, env=in_a_step(signal.SIGSTOP, 1, once="held"))
    id = s.call("POST", "/v1/jobs", request)["id"]
    while not os.path.exists("held"):
        time.sleep(0.01)
    stop(s)
    s = serve(2)
    job, = s.finish(id)
    assert job["status"] == "completed" and job["crashes"] == 0, job
    assert s.content(id)[1] == undisturbed("short", request, launcher=("mpirun", "-n", "2")), "other bytes"
    stop(s)


def idle_weights_are_unloaded():
    """--idle-unload on all ranks, between two jobs of one worker."""
    request = dict(VIDEO, frames=5, steps=4)
    s = serve(2, "--idle-unload", "0.001")
    files = []
    for _ in range(2):
        id = s.call("POST", "/v1/jobs", request)["id"]
        s.finish(id)
        files.append(s.content(id)[1])
        while s.call("GET", "/v1/machine")["loaded"]:
            time.sleep(0.01)
    machine = s.call("GET", "/v1/machine")
    assert machine["workers_started"] == 1 and machine["loads"] == machine["unloads"] > 0 and machine["loads"] % 2 == 0, machine
    assert files[0] == files[1] == undisturbed("idle", request, launcher=("mpirun", "-n", "2")), "other bytes"
    stop(s)


def a_refused_job_names_its_reason():
    """The communicator of the ranks has failed with the job: another worker has the next one."""
    write_lora("fits.safetensors")
    with open("other.safetensors", "wb") as f:
        f.write(b"\2\0\0\0\0\0\0\0{}")
    s = serve(2, "--lora", "other=other.safetensors")
    refused = s.call("POST", "/v1/jobs", dict(VIDEO, lora="other"))["id"]
    id = s.call("POST", "/v1/jobs", VIDEO)["id"]
    job, = s.finish(refused)
    assert job["status"] == "failed" and job["error"]["code"] not in ("rank-failed", "worker_crashed"), job
    job, = s.finish(id)
    assert job["status"] == "completed" and job["crashes"] == 0, job
    stop(s)


def a_batch_is_the_one_of_generate():
    """Bitwise `weft generate --batch-size 2` on the same ranks, with the sampler state of each member saved."""
    requests = [dict(VIDEO, frames=5, steps=4, seed=1), dict(VIDEO, frames=5, steps=4, seed=2, prompt="a blue dog in the rain")]
    with open("both.jsonl", "w") as f:
        for i, r in enumerate(requests):
            f.write(json.dumps({"prompt": r["prompt"], "frames": 5, "width": 32, "height": 32, "steps": 4, "seed": r["seed"],
                                "guidance": 4, "out": f"{i}.mp4"}) + "\n")
    subprocess.run(["mpirun", "-n", "2", WEFT, "generate", "--model", MODEL, "--prompts", "both.jsonl", "--out", "both",
                    "--batch-size", "2", "--split-states"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    s = serve(2, "--batch", "2")
    with open("state/worker.lock", "a") as lock:  # both start together, when the lock is released
        fcntl.flock(lock, fcntl.LOCK_EX)
        ids = [s.call("POST", "/v1/jobs", request)["id"] for request in requests]
    ends = s.finish(*ids)
    assert ends[0]["started_at"] == ends[1]["started_at"], ends
    for i, id in enumerate(ids):
        assert s.content(id)[1] == open(f"both/{i}.mp4", "rb").read(), "other bytes"
    stop(s)


def estimate(request, *options):
    width, height = request["size"].split("x")
    return json.loads(subprocess.run([WEFT, "estimate", "--model", MODEL, *options, "--frames", str(request["frames"]), "--width", width,
                                      "--height", height, "--steps", str(request["steps"]), "--json"], check=True, capture_output=True).stdout)


def jobs_have_the_layout_of_their_price():
    """--parallel auto: the layout is chosen when the job is priced, is stored with the job, and stays after a restart and an edit. A
    server with other ranks ignores it. The file is bitwise the one of `weft generate` with this layout."""
    request = dict(VIDEO, frames=5, steps=4, seed=1)
    s = serve(2, "--parallel", "auto")
    price, made = s.call("POST", "/v1/jobs/price", request), estimate(request, "--ranks", "2", "--parallel", "auto")
    assert price["layout"] == made["layout"] and price["seconds"] == made["video_seconds"] and price["bytes"] == made["peak_bytes"], (price, made)
    assert "layout" not in price["request"], price
    keys = [part for key in made["layout"].split() for part in ("--parallel", key)]
    for other in "cp=2", "tp=2", "cfg=2":
        assert made["video_seconds"] <= estimate(request, "--ranks", "2", "--parallel", other)["video_seconds"] + 1e-12, (made["layout"], other)
    job, = s.finish(s.call("POST", "/v1/jobs", request)["id"])
    assert job["layout"] == made["layout"] and "layout" not in job["request"], job
    assert s.content(job["id"])[1] == undisturbed("auto", request, *keys, launcher=("mpirun", "-n", "2")), "other bytes"
    stop(s)
    # the stored layout is the one that runs, also if another one is faster
    id, db = job["id"], sqlite3.connect("state/queue.sqlite")
    stored = json.loads(db.execute("SELECT request FROM job").fetchone()[0])
    assert stored["layout"] == made["layout"], stored
    db.execute("UPDATE job SET state='paused', started=0, finished=0, remaining=0, request=?", (json.dumps(dict(stored, layout="tp=2")),))
    db.commit()
    db.close()
    shutil.rmtree("state/jobs/" + id)
    s = serve(2, "--parallel", "auto")
    assert s.call("PATCH", f"/v1/jobs/{id}", {"priority": 3})["layout"] == "tp=2"
    s.call("POST", f"/v1/jobs/{id}/resume")
    s.finish(id)
    assert s.content(id)[1] == undisturbed("tp", request, "--parallel", "tp=2", launcher=("mpirun", "-n", "2")), "other bytes"
    stop(s)


def prices_are_of_the_layout():
    options, large = ("--parallel", "cp=2"), VIDEO | {"size": "128x128"}
    s = serve(2, *options)
    price = s.call("POST", "/v1/jobs/price", large)
    made = estimate(large, "--ranks", "2", *options)
    assert price["bytes"] == made["peak_bytes"] and price["seconds"] == made["video_seconds"], (price, made)
    stop(s)
    s = Server("alone")
    one = s.call("POST", "/v1/jobs/price", large)
    assert one["seconds"] > price["seconds"], (one, price)
    s.stop()


main(globals())
