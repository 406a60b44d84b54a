"""Cases of faults_test.sh."""
import concurrent.futures, fcntl, glob, http.client, json, os, shutil, signal, subprocess, time
from serve_client import IMAGE_MODEL, MODEL, VIDEO, Server, at_event, main, undisturbed

TWO = [dict(VIDEO, steps=20, seed=1, request_id="one"), dict(VIDEO, steps=20, seed=2, request_id="two")]


def submit(s):
    """Sends both requests. None for a request that the server did not answer."""
    ids = []
    for request in TWO:
        try:
            ids.append(s.call("POST", "/v1/jobs", request)["id"])
        except (OSError, http.client.HTTPException):
            ids.append(None)
    return ids


def check_two(s, known, whole):
    """Both jobs exist once, with the ids that were acknowledged, and have the bytes of undisturbed runs."""
    ids = submit(s)
    for before, after in zip(known, ids):
        assert before in (None, after), (before, after)
    jobs = s.finish(*ids)
    assert [job["status"] for job in jobs] == ["completed"] * 2, jobs
    assert len(s.call("GET", "/v1/jobs")["data"]) == 2
    assert sorted(os.listdir(s.state + "/jobs")) == sorted(ids)
    for id, request, data in zip(ids, TWO, whole):
        assert s.content(id)[1] == data, "other bytes"
        assert sorted(os.listdir(f"{s.state}/jobs/{id}")) == ["request.jsonl", "video.mp4"]
    assert s.stop() == 130


def the_server_is_killed_at_every_commit():
    whole = [undisturbed(r["request_id"], r) for r in TWO]
    count, died = 0, True
    while died:
        count += 1
        state = f"state{count}"
        s = Server(state, env=at_event(signal.SIGKILL, "*/queue.sqlite*", on="sync", count=count))
        known = submit(s) if s.port else [None, None]
        try:
            s.finish(*[id for id in known if id])
        except (OSError, http.client.HTTPException, AssertionError, ValueError):
            pass
        died = s.process.poll() is not None or s.port is None
        if not died:
            died = s.stop() != 130
        else:
            assert s.drain() == -signal.SIGKILL
        check_two(Server(state), known, whole)
    print("commits at which the server was killed:", count - 1)
    assert count > 6, count


def disturbed(pattern, to=None, **event):
    """A worker's event kills; the same server, or a restarted one, finishes both jobs."""
    whole = [undisturbed(r["request_id"], r) for r in TWO]
    s = Server(env=at_event(signal.SIGKILL, pattern, once="killed", to=to, **event))
    if to:
        open("pid.server", "w").write(str(s.process.pid))
    known = submit(s)
    if to:
        assert s.drain() == -signal.SIGKILL
        s = Server()
    check_two(s, known, whole)
    assert os.path.exists("killed"), "the event did not happen"


EVENTS = {"state": "*video.sampling.safetensors", "latents": "*video.latents.safetensors", "video": "*video.mp4"}


def the_worker_is_killed():
    for name, pattern in EVENTS.items():
        os.mkdir(name)
        os.chdir(name)
        shutil.copy("../signal_at.so", ".")
        disturbed(pattern)
        os.chdir("..")


def a_worker_is_killed_between_two_jobs():
    """When the server has written the request of the second job: it finds out when it gives the job to the worker."""
    whole = [undisturbed(r["request_id"], r) for r in TWO]
    Server().stop()
    s = Server(env=at_event(signal.SIGKILL, "*/request.jsonl", count=2, once="killed", to=os.path.abspath("pid.worker")))
    with open("state/worker.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = submit(s)
        open("pid.worker", "w").write(str(s.process.pid))  # of no event before the worker runs
    while not s.workers():
        time.sleep(0.001)
    open("pid.next", "w").write(str(s.workers()[0]))
    os.rename("pid.next", "pid.worker")
    check_two(s, known, whole)
    assert os.path.exists("killed"), "the event did not happen"


def both_are_killed():
    for name, pattern in EVENTS.items():
        os.mkdir(name)
        os.chdir(name)
        shutil.copy("../signal_at.so", ".")
        disturbed(pattern, to=os.path.abspath("pid.server"))
        os.chdir("..")


def two_kills_in_a_row():
    """The server is killed with its worker; the next server as well; the third finishes."""
    whole = [undisturbed(r["request_id"], r) for r in TWO]
    known = [None, None]
    for event in ("state", "latents"):
        s = Server(env=at_event(signal.SIGKILL, EVENTS[event], to=os.path.abspath("pid.server"), once="killed-" + event))
        open("pid.server", "w").write(str(s.process.pid))
        ids = submit(s)
        known = [b or a for a, b in zip(known, ids)]
        assert s.drain() == -signal.SIGKILL
    check_two(Server(), known, whole)


def a_second_crash_parks():
    s = Server(env=at_event(signal.SIGKILL, "*video.sampling.safetensors"))
    id = s.call("POST", "/v1/jobs", VIDEO)["id"]
    job, = s.finish(id)
    assert job["status"] == "parked" and job["crashes"] == 2 and job["error"]["code"] == "worker_crashed", job
    assert "9" in job["error"]["message"]
    video = s.call("GET", "/v1/videos/" + id)
    assert video["status"] == "failed" and video["error"]["code"] == "worker_crashed"
    assert s.call("GET", "/health")["status"] == "ok"
    assert s.stop() == 130
    assert sum(m.get("id") == "worker-ended" for m in s.messages) == 2
    s = Server()
    assert s.call("GET", "/v1/jobs/" + id)["status"] == "parked"
    s.call("POST", f"/v1/jobs/{id}/resume")
    job, = s.finish(id)
    assert job["status"] == "completed" and job["error"] is None
    assert s.content(id)[1] == undisturbed("whole", VIDEO)
    s.stop()


def sigterm_saves_the_running_job():
    """The worker's saved state sends SIGTERM to the server."""
    s = Server(env=at_event(signal.SIGTERM, "*video.sampling.safetensors", once="sent", to=os.path.abspath("pid.server")))
    open("pid.server", "w").write(str(s.process.pid))
    request = dict(VIDEO, steps=1000)
    id = s.call("POST", "/v1/jobs", request)["id"]
    assert s.drain() == 130
    assert os.path.exists(f"state/jobs/{id}/video.sampling.safetensors") and not os.path.exists(f"state/jobs/{id}/video.mp4")
    s = Server()
    job, = s.finish(id)
    assert job["status"] == "completed" and job["crashes"] == 0, job
    assert s.content(id)[1] == undisturbed("whole", request)
    s.stop()


def a_long_step_does_not_delay_the_stop():
    """The worker does not end its step: the server ends without it, and the next one resumes at the saved step."""
    s = Server(env=at_event(signal.SIGSTOP, "*video.sampling.safetensors", once="held"))
    id = s.call("POST", "/v1/jobs", TWO[0])["id"]
    worker = s.held_worker()
    assert s.stop() == 130 and not os.path.exists(f"/proc/{worker}")
    s = Server()
    job, = s.finish(id)
    assert job["status"] == "completed" and job["crashes"] == 0, job
    assert s.content(id)[1] == undisturbed("whole", TWO[0])
    s.stop()


def fill(path):
    """Takes the rest of a disk."""
    with open(path, "wb", buffering=0) as f:
        try:
            while True:
                f.write(bytes(4096))
        except OSError:
            return


def a_full_disk_loses_nothing():
    """A file system of 2 MiB is filled under a running job; the server is killed and started on the full disk."""
    os.mkdir("disk")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", "disk"], capture_output=True).returncode:
        open("skipped", "w").write("no right to mount a file system")
        return
    try:
        whole = undisturbed("whole", TWO[0])
        s = Server("disk/state", env=at_event(signal.SIGSTOP, EVENTS["state"], once="held"))
        id = s.call("POST", "/v1/jobs", TWO[0])["id"]
        worker = s.held_worker()
        fill("disk/fill")
        for i in range(99):  # the journal may have room for the first ones
            if s.raw("POST", "/v1/jobs", dict(TWO[1], request_id=str(i)))[0] == 507:
                break
        s.error(507, "disk-full", "POST", "/v1/jobs", TWO[1])
        assert s.call("GET", "/v1/jobs/" + id)["status"] == "running"
        os.kill(worker, signal.SIGCONT)
        s.until(id, lambda job: job["status"] != "running" or job["progress"]["step"] > 4)  # without being saved
        assert s.kill() == -signal.SIGKILL
        full = Server("disk/state")
        if full.port:  # the kill left room for the queue
            full.kill()
        else:
            assert [m["id"] for m in full.messages if m.get("level") == "error"] == ["disk-full"], full.messages
        os.remove("disk/fill")
        s = Server("disk/state")
        job, = s.finish(id)
        if job["status"] == "failed":  # at a file that could not be written, before the kill
            assert job["error"]["code"] == "disk-full", job
            s.call("POST", f"/v1/jobs/{id}/resume")
            job, = s.finish(id)
        assert job["status"] == "completed" and s.content(id)[1] == whole, job
        ids = [job["id"] for job in s.call("GET", "/v1/jobs")["data"]]
        s.finish(*ids)  # a waiting job has no folder
        assert sorted(os.listdir("disk/state/jobs")) == sorted(ids) and len(ids) <= 1 + i, ids
        assert sorted(os.listdir("disk/state/jobs/" + id)) == ["request.jsonl", "video.mp4"]
        assert s.stop() == 130
    finally:
        subprocess.run(["umount", "-l", "disk"], check=True)


def with_small_disk(mib, case):
    """Runs a case in which `disk` is a file system of `mib` MiB. From 72 MiB on, the log of the queue has its size from the start."""
    os.mkdir("disk")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", "disk"], capture_output=True).returncode:
        open("skipped", "w").write("no right to mount a file system")
        return
    try:
        case()
    finally:
        subprocess.run(["umount", "-l", "disk"], check=True)


def form(**fields):
    """A body of multipart/form-data. A value of bytes is a file."""
    body = b""
    for name, value in fields.items():
        file = isinstance(value, bytes)
        body += f'--xyz\r\nContent-Disposition: form-data; name="{name}"'.encode() + (b'; filename="f.png"' if file else b"")
        body += b"\r\n\r\n" + (value if file else str(value).encode()) + b"\r\n"
    return body + b"--xyz--\r\n", {"Content-Type": "multipart/form-data; boundary=xyz"}


def uploads_and_images_need_space():
    """An upload, and the images of a finished video, on a full disk: 507, and nothing is left. With space they succeed."""
    def case():
        s = Server("disk/state", models=("wan=" + MODEL, "image=" + IMAGE_MODEL))
        id = s.call("POST", "/v1/jobs", VIDEO)["id"]
        s.finish(id)
        upload = form(model="image", prompt="p", size="32x32", frames=9, steps=1, input_reference=open(IMAGE_MODEL + "/image.png", "rb").read())
        fill("disk/fill")
        for _ in range(2):
            s.error(507, "disk-full", "POST", "/v1/jobs", *upload)
            for variant in ("thumbnail", "spritesheet"):
                assert json.loads(s.raw("GET", f"/v1/videos/{id}/content?variant={variant}")[2])["error"]["code"] == "disk-full"
        assert os.listdir("disk/state/jobs") == [id]
        assert sorted(os.listdir("disk/state/jobs/" + id)) == ["request.jsonl", "video.mp4"]
        assert s.raw("GET", f"/v1/videos/{id}/content")[0] == 200
        os.remove("disk/fill")
        other = s.call("POST", "/v1/jobs", *upload)["id"]
        assert s.finish(other)[0]["status"] == "completed"
        assert s.raw("GET", f"/v1/videos/{id}/content?variant=thumbnail")[0] == 200
        assert s.stop() == 130
    with_small_disk(8, case)


def a_job_waits_for_space():
    """The disk fills at the first preview of a job, which fails, because its video has no space. A job that would start then waits.
    With space both videos have the bytes of undisturbed runs."""
    def case():
        whole = [undisturbed(r["request_id"], r) for r in TWO]
        s = Server("disk/state", env=at_event(signal.SIGSTOP, "*video.preview.png", once="held"))
        ids = [s.call("POST", "/v1/jobs", dict(r, preview=1))["id"] for r in TWO]
        s.call("POST", f"/v1/jobs/{ids[1]}/pause")
        worker = s.held_worker()
        fill("disk/fill")
        os.kill(worker, signal.SIGCONT)
        job = s.until(ids[0], lambda job: job["status"] != "running")
        assert job["status"] == "failed" and job["error"]["code"] == "disk-full", job
        assert os.getcwd() not in json.dumps(job)
        fill("disk/more")  # what the job has released
        s.call("POST", f"/v1/jobs/{ids[1]}/resume")
        for line in s.process.stderr:
            s.log.write(line)
            if f"job {ids[1]} has no worker" in line:
                break
        job = s.until(ids[1], lambda job: job["status"] == "queued")
        assert job["error"] is None and job["crashes"] == 0, job
        os.remove("disk/fill"), os.remove("disk/more")
        s.call("POST", f"/v1/jobs/{ids[0]}/resume")
        for id, job, data in zip(ids, s.finish(*ids), whole):
            assert job["status"] == "completed" and s.content(id)[1] == data, job
        assert s.stop() == 130
    with_small_disk(96, case)


def a_pause_without_space_names_the_disk():
    """The state of a paused job cannot be saved: the job fails with the reason, and a resume has the bytes of an undisturbed run."""
    def case():
        whole = undisturbed("whole", TWO[0])
        s = Server("disk/state", env=at_event(signal.SIGSTOP, "*video.preview.png", once="held"))
        id = s.call("POST", "/v1/jobs", dict(TWO[0], preview=1))["id"]
        worker = s.held_worker()
        fill("disk/fill")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            paused = pool.submit(s.raw, "POST", f"/v1/jobs/{id}/pause")
            s.until(id, lambda job: job["status"] == "pausing")
            os.kill(worker, signal.SIGCONT)
            status, _, data = paused.result()
        job = json.loads(data)
        assert status == 200 and job["status"] == "failed" and job["error"]["code"] == "disk-full", (status, job)
        os.remove("disk/fill")
        s.call("POST", f"/v1/jobs/{id}/resume")
        job, = s.finish(id)
        assert job["status"] == "completed" and s.content(id)[1] == whole, job
        assert s.stop() == 130
    with_small_disk(96, case)


def changed_weights_are_named():
    shutil.copytree(MODEL, "model")
    s = Server(models=("m=model",), env=at_event(signal.SIGTERM, "*video.sampling.safetensors", once="sent", to=os.path.abspath("pid.server")))
    open("pid.server", "w").write(str(s.process.pid))
    id = s.call("POST", "/v1/jobs", dict(VIDEO, steps=4000))["id"]
    assert s.drain() == 130
    path = "model/transformer/diffusion_pytorch_model.safetensors"
    data = bytearray(open(path, "rb").read())
    data[-1] ^= 1
    open(path, "wb").write(data)
    s = Server(models=("m=model",))
    job, = s.finish(id)
    assert job["status"] == "failed" and job["error"]["code"] == "latents-mismatch", job
    assert os.getcwd() not in json.dumps(job)
    s.stop()


def a_lost_queue_removes_no_video():
    s = Server()
    id = s.call("POST", "/v1/jobs", VIDEO)["id"]
    s.finish(id)
    s.stop()
    for name in glob.glob("state/queue.sqlite*"):
        os.remove(name)
    second = Server(ready=False)
    assert second.drain() == 1
    assert [m["id"] for m in second.messages if m.get("level") == "error"] == ["queue-lost"], second.messages
    assert os.path.exists(f"state/jobs/{id}/video.mp4")


def one_server_per_state():
    s = Server()
    second = Server(ready=False)
    assert second.drain() == 1
    assert [m["id"] for m in second.messages if m.get("level") == "error"] == ["folder-locked"], second.messages
    s.call("GET", "/health")
    s.kill()
    s = Server()  # a kill releases the folder
    s.stop()


main(globals())
