"""Cases of share_test.sh. On the simulated machine of --on, a job alone is faster on two ranks, and two jobs are faster side by side.
Its steps are so long that a change of the ranks costs nothing in comparison, whatever the speed of this machine."""
import contextlib, fcntl, os, signal
from serve_client import VIDEO, Server, at_event, main, undisturbed

CLUSTER = """name: slow
nodes: 1
devices: 8
host_memory: 100GB
device: {type: slow, memory: 16GB, flops: 1e6, memory_bandwidth: 1e7}
link: {bandwidth: 1e5, latency: 2}
"""
LONG = dict(VIDEO, steps=5000)
SHORT = dict(VIDEO, frames=5, steps=4)


def serve(*options, ranks=2, env=None):
    with open("slow.yaml", "w") as f:
        f.write(CLUSTER)
    return Server("state", "--ranks", str(ranks), "--policy", "share", "--on", "slow.yaml", *options, env=env)


@contextlib.contextmanager
def nothing_starts():
    """Holds the locks of all workers, so that the jobs of this block are decided together."""
    locks = [open(f"state/worker{'' if i == 0 else f'.{i}'}.lock", "a") for i in range(8)]
    for lock in locks:
        fcntl.flock(lock, fcntl.LOCK_EX)
    yield
    for lock in locks:
        lock.close()


def generated(name, request, job):
    """The bytes of `weft generate` with the layout of a job."""
    keys = [part for key in job["layout"].split() if "=" in key for part in ("--parallel", key)]
    launcher = ("mpirun", "-n", str(job["ranks"])) if job["ranks"] > 1 else ()
    return undisturbed(name, request, *keys, launcher=launcher)


def stepping(job):
    return job["status"] == "running" and job["progress"] and job["progress"]["step"] >= 2


def ends(s):
    assert s.stop() == 130


def ranks_by_price(s, request):
    return {d["ranks"]: d for d in s.call("POST", "/v1/jobs/price", request)["degrees"]}


def jobs_share_the_ranks():
    """Two jobs that wait run at the same time on one rank each; a job alone has both ranks. Files are bitwise those of `weft generate`
    with the layout that the job names."""
    s = serve()
    price = ranks_by_price(s, VIDEO)
    assert list(price) == [1, 2] and price[2]["seconds"] < price[1]["seconds"] / 1.3 and price[1]["seconds"] < 2 * price[2]["seconds"], price
    assert price[1]["layout"] == "1 rank" and price[1]["bytes"] > 0, price
    with nothing_starts():
        ids = [s.call("POST", "/v1/jobs", dict(LONG, seed=i))["id"] for i in range(2)]
        third = s.call("POST", "/v1/jobs", dict(LONG, seed=2))["id"]
    for id in ids:
        assert s.until(id, stepping)["ranks"] == 1
    jobs = [s.call("GET", "/v1/jobs/" + id) for id in ids + [third]]
    assert [job["status"] for job in jobs] == ["running", "running", "queued"], jobs
    assert len(s.workers()) == 2 and [job["queue_position"] for job in jobs] == [0, 1, 2], jobs
    assert jobs[2]["expected_start"] >= min(job["expected_end"] for job in jobs[:2]), jobs
    for id in ids + [third]:
        assert s.call("POST", f"/v1/jobs/{id}/cancel")["status"] == "cancelled"
    alone = s.call("POST", "/v1/jobs", VIDEO)["id"]  # ends the two workers
    job, = s.finish(alone)
    assert job["ranks"] == 2 and "ranks" not in job["request"] and "degrees" not in job["request"], job
    assert s.content(alone)[1] == generated("alone", VIDEO, job), "other bytes"
    machine = s.call("GET", "/v1/machine")
    assert machine["workers_started"] == 3 and machine["workers_crashed"] == 0, machine
    ends(s)


def files_are_those_of_generate():
    s = serve()
    requests = [dict(VIDEO, seed=seed) for seed in range(3)]
    with nothing_starts():
        ids = [s.call("POST", "/v1/jobs", request)["id"] for request in requests]
    jobs = s.finish(*ids)
    assert [job["ranks"] for job in jobs[:2]] == [1, 1], jobs
    for request, job in zip(requests, jobs):
        assert job["status"] == "completed" and s.content(job["id"])[1] == generated("whole", request, job), ("other bytes", job)
    ends(s)


def a_crash_ends_one_job():
    """A killed worker does not disturb the other one; its job resumes at its step."""
    s = serve(env=at_event(signal.SIGKILL, "*video.sampling.safetensors", once="killed"))
    requests = [dict(VIDEO, steps=30, seed=seed) for seed in range(2)]
    with nothing_starts():
        ids = [s.call("POST", "/v1/jobs", request)["id"] for request in requests]
    jobs = s.finish(*ids)
    assert os.path.exists("killed") and sorted(job["crashes"] for job in jobs) == [0, 1], jobs
    for request, job in zip(requests, jobs):
        assert job["status"] == "completed" and job["ranks"] == 1 and s.content(job["id"])[1] == generated("killed", request, job), job
    ends(s)


def groups_of_two_ranks():
    """Four ranks, and two jobs on two ranks each. The launcher of one is killed: that job resumes, and the other one is undisturbed."""
    s = serve(ranks=4)
    requests = [dict(VIDEO, steps=steps) for steps in (30, 400)]
    with nothing_starts():
        ids = [s.call("POST", "/v1/jobs", request)["id"] for request in requests]
    s.until(ids[1], stepping)
    os.kill(s.workers()[1], signal.SIGKILL)
    jobs = s.finish(*ids)
    assert [(job["ranks"], job["crashes"]) for job in jobs] == [(2, 0), (2, 1)], jobs
    for request, job in zip(requests, jobs):
        assert job["status"] == "completed" and s.content(job["id"])[1] == generated("groups", request, job), ("other bytes", job)
    assert os.path.exists("state/worker.1.lock")
    ends(s)


def jobs_resume_with_their_ranks():
    """SIGKILL of the server, and SIGTERM: both jobs resume, each with the ranks of its start although one then runs alone."""
    s = serve()
    requests = [dict(VIDEO, steps=steps) for steps in (30, 400)]
    with nothing_starts():
        ids = [s.call("POST", "/v1/jobs", request)["id"] for request in requests]
    for id in ids:
        s.until(id, lambda job: job["status"] == "completed" or stepping(job))
    s.kill()
    s = serve()
    status = s.raw("POST", f"/v1/jobs/{ids[1]}/pause")[0]
    s.finish(ids[0])
    if status == 200:
        s.call("POST", f"/v1/jobs/{ids[1]}/resume")
    else:
        assert status == 409, status  # a slow client: the job had ended
    assert s.stop() == 130
    s = serve()
    for request, job in zip(requests, s.finish(*ids)):
        assert job["status"] == "completed" and job["crashes"] == 0 and job["ranks"] == 1, job
        assert s.content(job["id"])[1] == generated("resumed", request, job), "other bytes"
    ends(s)


def a_job_that_fits_many_ranks_only():
    """Ranks whose part does not fit --memory-limit are no choice."""
    s = serve()
    price = ranks_by_price(s, VIDEO)
    assert price[1]["bytes"] > price[2]["bytes"], price
    ends(s)
    limit = (price[1]["bytes"] + price[2]["bytes"]) // 2
    s = serve("--memory-limit", str(limit))
    assert list(ranks_by_price(s, VIDEO)) == [2]
    with nothing_starts():
        ids = [s.call("POST", "/v1/jobs", dict(SHORT, seed=seed))["id"] for seed in range(2)]
    assert [job["ranks"] for job in s.finish(*ids)] == [2, 2]
    s.error(400, "memory-needed", "POST", "/v1/jobs", dict(VIDEO, size="1024x1024", frames=81))
    ends(s)


def ranks_change_between_steps():
    """--elastic: a job on both ranks yields one to a second job, and takes the rank back. The sampler state moves from layout to layout.
    Bitwise here: the layouts split the rows of the batch, of which each is computed as on one rank."""
    s = serve("--elastic")
    for steps in (1500, 7500):  # on a busy machine a short job can end before the second one begins
        request = dict(VIDEO, steps=steps)
        id = s.call("POST", "/v1/jobs", request)["id"]
        first = s.until(id, stepping)
        assert first["ranks"] == 2, first
        other = s.call("POST", "/v1/jobs", dict(LONG, seed=9))["id"]
        seen = s.until(other, stepping)
        if s.call("GET", f"/v1/jobs/{id}")["status"] != "completed":
            break
        s.call("POST", f"/v1/jobs/{other}/cancel")
    assert seen["ranks"] == 1, seen
    job = s.until(id, lambda job: job["status"] == "completed" or stepping(job) and job["ranks"] == 1)
    assert job["ranks"] == 1, job
    s.call("POST", f"/v1/jobs/{other}/cancel")
    job = s.until(id, lambda job: job["status"] == "completed" or stepping(job) and job["ranks"] == 2)
    assert job["ranks"] == 2, job
    job, = s.finish(id)
    assert job["status"] == "completed" and job["crashes"] == 0, job
    assert s.content(id)[1] == undisturbed("one", request), "other bytes"
    ends(s)


def learned_seconds_survive_a_restart():
    """The price of the slow machine is far above the measured seconds. They hold after SIGTERM and SIGKILL, not for another cluster."""
    def seconds(s):
        price = s.call("POST", "/v1/jobs/price", VIDEO)
        return (price["expected_end"] - price["expected_start"]) / price["seconds"]

    for policy in ("share", "edf"):
        options = ("--ranks", "2") if policy == "share" else ()
        start = lambda cluster: Server(policy, "--policy", policy, "--on", cluster, *options)
        for name in "slow.yaml", "other.yaml":
            with open(name, "w") as f:
                f.write(CLUSTER)
        s = start("slow.yaml")
        assert seconds(s) > 0.9, seconds(s)
        # the first job of a worker counts until another one is known
        for seed in range(2):
            job, = s.finish(s.call("POST", "/v1/jobs", dict(VIDEO, seed=seed))["id"])
            assert job["status"] == "completed", job
        assert seconds(s) < 0.5, seconds(s)
        assert s.stop() == 130
        s = start("slow.yaml")
        assert seconds(s) < 0.5, seconds(s)
        job, = s.finish(s.call("POST", "/v1/jobs", dict(VIDEO, seed=2))["id"])
        s.kill()
        s = start("slow.yaml")
        assert seconds(s) < 0.5, seconds(s)
        assert s.stop() == 130
        s = start("other.yaml")
        assert seconds(s) > 0.9, seconds(s)
        assert s.stop() == 130


def refusals():
    for code, *options in (("option-no-effect", "--elastic", "--policy", "edf"), ("option-invalid", "--policy", "share"),
                           ("option-invalid", "--policy", "share", "--ranks", "9"),
                           ("option-conflict", "--policy", "share", "--ranks", "2", "--batch", "2"),
                           ("option-conflict", "--policy", "share", "--ranks", "2", "--parallel", "tp=2")):
        s = Server("state", *options, ready=False)
        assert s.drain() != 0 and any(m.get("id") == code for m in s.messages), (code, s.messages)


main(globals())
