"""Cases of starter_test.sh. Children that the starter has forked have its addresses; a new program has others."""
import os, signal, subprocess, time
from serve_client import VIDEO, Server, main, undisturbed

SHORT = dict(VIDEO, steps=2)


def children(s):
    path = f"/proc/{s.process.pid}/task/{s.process.pid}/children"
    return [int(pid) for pid in open(path).read().split()]


def state(pid):
    return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0]


def starter(s):
    """The starter, when it waits for orders: it sleeps nowhere else."""
    while True:
        for pid in children(s):
            if open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")[1:2] == [b"child-starter"] and state(pid) == "S":
                return pid
        time.sleep(0.01)


def base(pid):
    """The first address of the program."""
    return open(f"/proc/{pid}/maps").readline().split("-")[0]


def make(s, video):
    job, = s.finish(s.call("POST", "/v1/jobs", video)["id"])
    assert job["status"] == "completed", job
    return job["id"]


def children_are_forked():
    """With the working folder, lock, priority and group of a new program, and without descriptors of the server."""
    s = Server()
    first = starter(s)
    whole = undisturbed("whole", SHORT)
    assert s.content(make(s, SHORT))[1] == whole
    worker, = s.workers()
    assert base(worker) == base(first) and os.getpgid(worker) == worker
    assert os.getpriority(os.PRIO_PROCESS, worker) == min(19, os.getpriority(os.PRIO_PROCESS, s.process.pid) + 5)
    for pid in worker, first:
        opened = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        assert not any("queue.sqlite" in path or "tokens" in path or "/state/lock" in path for path in opened), opened
        assert sum(path.startswith("socket:") for path in opened) == (pid == first), opened
    assert os.readlink(f"/proc/{worker}/fd/3").endswith("state/worker.lock")
    assert s.content(make(s, dict(SHORT, seed=1)))[1] == undisturbed("other", dict(SHORT, seed=1))
    s.raw("GET", f"/v1/videos/{s.call('GET', '/v1/jobs')['data'][0]['id']}/content?variant=thumbnail")
    assert all(state(pid) != "Z" for pid in children(s)) and starter(s) == first
    assert s.stop() == 130 and not os.path.exists(f"/proc/{worker}") and not os.path.exists(f"/proc/{first}")


def a_killed_starter_is_replaced():
    s = Server()
    whole = undisturbed("whole", SHORT)
    killed = starter(s)
    os.kill(killed, signal.SIGKILL)
    while state(killed) != "Z":
        time.sleep(0.01)
    assert s.content(make(s, SHORT))[1] == whole  # by a program of its own
    worker, = s.workers()
    second = starter(s)
    assert second != killed and base(worker) != base(second)
    os.kill(worker, signal.SIGKILL)
    assert s.content(make(s, dict(SHORT, seed=1)))[1] == undisturbed("other", dict(SHORT, seed=1))
    worker, = s.workers()
    assert base(worker) == base(second)
    assert s.stop() == 130


def a_stopped_starter_stops_no_job():
    """The server kills a starter that does not answer."""
    s = Server()
    first = starter(s)
    os.kill(first, signal.SIGSTOP)
    while state(first) != "T":
        time.sleep(0.01)
    assert s.content(make(s, SHORT))[1] == undisturbed("whole", SHORT)
    assert not os.path.exists(f"/proc/{first}") and len(s.workers()) == 1
    assert s.stop() == 130


def children_end_with_the_server():
    s = Server()
    first = starter(s)
    make(s, SHORT)
    pids = [first, *s.workers()]
    s.kill()
    while any(os.path.exists(f"/proc/{pid}") and state(pid) != "Z" for pid in pids):
        time.sleep(0.01)


def a_starter_without_a_server_refuses():
    """The verb is for the server: without its socket it names the mistake."""
    done = subprocess.run([os.environ["WEFT"], "child-starter"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "`weft serve`" in done.stderr, done


main(globals())
