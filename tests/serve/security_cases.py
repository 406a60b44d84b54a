"""Cases of security_test.sh."""
import http.client, json, os, select, socket, subprocess, time
from serve_client import MODEL, VIDEO, WEFT, Server, main


def new_token(name, *limits):
    return subprocess.run([WEFT, "serve", "--state", "state", "--new-token", name, *limits], check=True, capture_output=True,
                          text=True).stdout.strip()


def raw(s, text):
    """The first line of the answer to bytes."""
    with socket.create_connection(("127.0.0.1", s.port)) as c:
        c.sendall(text)
        return c.makefile("rb").readline().decode().strip()


def tokens_are_needed():
    token = new_token("a")
    lines = open("state/tokens").read()
    open("state/tokens", "w").write(lines.rstrip("\n"))  # of an editor that ends no line
    other = new_token("b")
    assert token != other and token not in open("state/tokens").read()
    s = Server()
    assert not any(m.get("id") == "server-unprotected" for m in s.messages)
    status, head, _ = s.raw("GET", "/v1/videos")
    assert status == 401 and head["WWW-Authenticate"] == "Bearer"
    s.error(401, "invalid_token", "POST", "/v1/videos", VIDEO)
    for path in "/metrics", "/capabilities", "/v1/machine", "/v1/models", "/v1/jobs/x/events":
        s.error(401, "invalid_token", "GET", path)
    s.token = token[:-1]
    s.error(401, "invalid_token", "GET", "/v1/videos")
    s.token = other
    assert s.call("GET", "/v1/videos")["data"] == []
    s.token = None
    s.call("GET", "/health"), s.call("GET", "/ready")
    assert s.raw("GET", "/")[0] == 200  # the page asks for the token
    s.stop()


def tokens_have_limits():
    """A token with a limit has no further job; other tokens do. Places are free again when jobs end.
    Jobs that are resumed or become longer are limited, too."""
    import fcntl
    s = Server()
    seconds = s.call("POST", "/v1/jobs/price", VIDEO)["seconds"]
    s.stop()
    first, second, third = new_token("a", "--token-jobs", "2"), new_token("b", "--token-seconds", "1e-6"), new_token("c")
    fourth = new_token("d", "--token-seconds", str(1.5 * seconds))
    s = Server()
    lock = open("state/worker.lock", "a")
    fcntl.flock(lock, fcntl.LOCK_EX)  # no job runs
    s.token = first
    ids = [s.call("POST", "/v1/jobs", dict(VIDEO, seed=i))["id"] for i in range(2)]
    answer = s.error(429, "token_limit", "POST", "/v1/jobs", VIDEO)
    assert "2 jobs that wait" in answer["message"], answer
    s.error(429, "token_limit", "POST", "/v1/videos", VIDEO)
    s.error(429, "token_limit", "POST", f"/v1/jobs/{ids[0]}/duplicate", {})
    s.call("POST", "/v1/jobs/price", VIDEO)
    s.call("POST", f"/v1/jobs/{ids[0]}/cancel")
    s.call("POST", "/v1/jobs", VIDEO)
    s.error(429, "token_limit", "POST", f"/v1/jobs/{ids[0]}/resume")
    s.call("POST", f"/v1/jobs/{ids[1]}/pause")
    s.call("POST", f"/v1/jobs/{ids[1]}/resume")
    s.token = fourth
    id = s.call("POST", "/v1/jobs", VIDEO)["id"]
    s.error(429, "token_limit", "PATCH", f"/v1/jobs/{id}", {"steps": 1000})
    s.call("PATCH", f"/v1/jobs/{id}", {"prompt": "a dog"})
    s.token = second
    answer = s.error(429, "token_limit", "POST", "/v1/jobs", VIDEO)
    assert "24 hours" in answer["message"], answer
    s.token = third
    for i in range(3):
        s.call("POST", "/v1/jobs", dict(VIDEO, seed=i))
    lock.close()
    s.stop()
    lost = subprocess.run([WEFT, "serve", "--model", MODEL, "--token-jobs", "2"], capture_output=True, text=True)
    assert lost.returncode and "--new-token" in lost.stderr, lost


def deleted_jobs_count():
    """The seconds of a deleted job still count for the limit of its token, also after a restart."""
    s = Server()
    seconds = s.call("POST", "/v1/jobs/price", VIDEO)["seconds"]
    s.stop()
    token = new_token("a", "--token-seconds", str(seconds + 1e-6))
    s = Server()
    s.token = token
    id = s.call("POST", "/v1/jobs", VIDEO)["id"]
    job, = s.finish(id)
    assert job["status"] == "completed", job
    s.error(429, "token_limit", "POST", "/v1/jobs", dict(VIDEO, seed=2))
    s.call("DELETE", f"/v1/videos/{id}")
    assert s.call("GET", "/v1/jobs")["data"] == []
    s.error(429, "token_limit", "POST", "/v1/jobs", dict(VIDEO, seed=2))
    s.stop()
    s = Server()
    s.token = token
    s.error(429, "token_limit", "POST", "/v1/jobs", dict(VIDEO, seed=2))
    s.stop()


def jobs_of_other_tokens_are_hidden():
    """A token neither sees nor changes the jobs of another one; jobs that were accepted without a token are everybody's."""
    def held():  # no job runs
        s, lock = Server(), open("state/worker.lock", "a")
        fcntl.flock(lock, fcntl.LOCK_EX)
        return s, lock
    import fcntl
    s, lock = held()
    common = s.call("POST", "/v1/jobs", VIDEO)["id"]
    s.call("POST", f"/v1/jobs/{common}/pause")
    lock.close()
    s.stop()
    first, second = new_token("a"), new_token("b")
    s, lock = held()
    s.token = first
    s.call("POST", f"/v1/jobs/{common}/resume")
    hidden = s.call("POST", "/v1/jobs", dict(VIDEO, seed=1, request_id="one"))["id"]
    s.token = second
    own = s.call("POST", "/v1/jobs", dict(VIDEO, seed=2))
    assert own["queue_position"] == 2, own  # after the hidden job
    for path in "/v1/jobs", "/v1/videos":
        assert [j["id"] for j in s.call("GET", path + "?order=asc")["data"]] == [common, own["id"]]
        for method, end, body in (("GET", "", None), ("DELETE", "", None)):
            s.error(404, "not_found", method, f"{path}/{hidden}{end}", body)
    for end in "events", "preview", "inputs/video":
        s.error(404, "not_found", "GET", f"/v1/jobs/{hidden}/{end}")
    for end in "cancel", "pause", "resume", "duplicate":
        s.error(404, "not_found", "POST", f"/v1/jobs/{hidden}/{end}", {})
    s.error(404, "not_found", "PATCH", f"/v1/jobs/{hidden}", {"steps": 3})
    s.error(404, "not_found", "POST", f"/v1/jobs/{hidden}/move", {"after": own["id"]})
    s.error(404, "not_found", "POST", f"/v1/jobs/{own['id']}/move", {"before": hidden})
    s.error(404, "not_found", "GET", f"/v1/videos/{hidden}/content")
    s.error(404, "not_found", "POST", f"/v1/videos/{hidden}/remix", {"prompt": "x"})
    s.error(404, "not_found", "GET", f"/v1/videos?after={hidden}")
    other = dict(VIDEO, seed=3, request_id="one")  # the id of another token's job
    same = s.call("POST", "/v1/jobs", other)["id"]
    assert same != hidden and s.call("POST", "/v1/jobs", other)["id"] == same
    s.error(409, "request_id_conflict", "POST", "/v1/jobs", dict(VIDEO, seed=1, request_id="one"))
    assert s.call("POST", f"/v1/jobs/{own['id']}/move", {"before": common})["queue_position"] == 0
    assert s.call("POST", f"/v1/jobs/{common}/cancel")["status"] == "cancelled"
    s.token = first
    assert s.call("GET", f"/v1/jobs/{hidden}")["status"] == "queued"
    assert s.call("POST", "/v1/jobs", dict(VIDEO, seed=1, request_id="one"))["id"] == hidden
    lock.close()
    s.stop()


def limits_are_kept():
    s = Server()
    s.error(413, "too_large", "POST", "/v1/videos", dict(VIDEO, prompt="x" * 300000))
    s.error(400, "request-invalid", "POST", "/v1/videos", dict(VIDEO, prompt="x" * 33000))
    long = b'{"prompt": "' + b"x" * 400000 + b'"}'
    chunked = b"POST /v1/videos HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = raw(s, chunked + b"%x\r\n" % len(long) + long + b"\r\n0\r\n\r\n")
    assert " 413 " in answer, answer
    answer = raw(s, b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"y" * 20000 + b"\r\n\r\n")
    assert " 431 " in answer, answer
    s.call("GET", "/health")
    s.stop()


def idle_connections_leave_descriptors():
    """More idle clients than descriptors: the oldest are closed, and a request that has begun is answered by a child."""
    s = Server(files=256)
    opened = lambda: len(os.listdir(f"/proc/{s.process.pid}/fd"))
    body = json.dumps(dict(VIDEO, steps=1)).encode()
    with socket.create_connection(("127.0.0.1", s.port)) as begun:
        begun.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
                      b"Content-Length: %d\r\n\r\n" % len(body))
        answer = begun.makefile("rb")
        assert b" 100 " in answer.readline() and answer.readline() == b"\r\n"
        idle = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(300)]
        while not select.select(idle[:1], [], [], 0)[0] and opened() < 250:
            time.sleep(0.01)
        begun.sendall(body)
        assert b" 200 " in answer.readline()
        length = 0
        while (line := answer.readline()) != b"\r\n":
            length = int(line.split()[1]) if line.lower().startswith(b"content-length") else length
        job, = s.finish(json.loads(answer.read(length))["id"])
        assert job["status"] == "completed", job
        assert idle[0].recv(1) == b"" and opened() <= 200
        idle[-1].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 200 " in idle[-1].makefile("rb").readline()
        for c in idle:
            c.close()
    # long answers leave connections for others
    id = s.call("POST", "/v1/jobs", dict(VIDEO, steps=2000))["id"]
    held, status = [], 200
    while status == 200 and len(held) < 300:
        c = http.client.HTTPConnection("127.0.0.1", s.port)
        c.request("GET", f"/v1/jobs/{id}/events")
        held.append(c)
        status = c.getresponse().status
    assert status == 503, len(held)
    s.call("GET", "/health")
    assert s.call("POST", f"/v1/jobs/{id}/cancel")["status"] == "cancelled"
    s.stop()
    few = Server("few", files=64, ready=False)
    assert few.drain() != 0 and [m["id"] for m in few.messages if m["level"] == "error"] == ["worker-failed"], few.messages


def paths_are_hidden():
    """Every answer, and the answers about a job that failed, name no folder of this machine."""
    import shutil
    shutil.copytree(MODEL, "model")
    s = Server(models=("m=model",))
    os.remove("model/transformer/diffusion_pytorch_model.safetensors")
    status, _, data = s.raw("POST", "/v1/jobs", VIDEO)
    answers = [data]
    if status == 200:
        id = json.loads(data)["id"]
        job, = s.finish(id)
        assert job["status"] == "failed" and job["error"]["code"], job
        answers += [s.raw("GET", path + id)[2] for path in ("/v1/jobs/", "/v1/videos/")]
    answers += [s.raw("GET", path)[2] for path in ("/v1/models", "/v1/machine", "/capabilities", "/metrics", "/v1/videos", "/v1/jobs", "/nowhere",
                                                   "/v1/videos/..%2f..%2fqueue.sqlite/content", "/v1/videos/../../lock")]
    for answer in answers:
        assert os.getcwd().encode() not in answer and b"safetensors" not in answer, answer
    s.stop()


def ambiguous_requests_are_refused():
    s = Server()
    head = b"POST /v1/videos HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    answer = raw(s, head + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
    assert " 400 " in answer, answer
    answer = raw(s, head + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ")
    assert " 400 " in answer, answer
    answer = raw(s, b"GET /health HTTP/1.1\r\n\r\n")
    assert " 400 " in answer, answer
    s.stop()


def foreign_pages_are_refused():
    s = Server()
    assert [m["level"] for m in s.messages if m.get("id") == "server-unprotected"] == ["warning"], s.messages
    s.error(403, "foreign_origin", "POST", "/v1/videos", VIDEO, {"Origin": "http://elsewhere.example"})
    for host in ("rebound.example", "127." + "0" * 59 + "x.example", "[::1]x.example"):
        s.error(403, "foreign_origin", "GET", "/v1/videos", None, {"Host": f"{host}:{s.port}"})
    for host in ("127.0.0.1", "localhost"):
        s.call("GET", "/v1/videos", headers={"Host": f"{host}:{s.port}", "Origin": f"http://{host}:{s.port}"})
    s.stop()


def tls_protects_the_connection():
    import http.client, shutil, ssl
    if not shutil.which("openssl"):
        open("skipped", "w").write("no openssl")
        return
    for name in "one", "two":
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", name + ".key", "-out", name + ".pem"],
                       check=True, capture_output=True)
    for options, id in (["--tls-cert", "one.pem"], "option-required"), (["--tls-key", "one.key"], "option-required"), \
            (["--tls-cert", "one.pem", "--tls-key", "two.key"], "option-invalid"), (["--tls-cert", "one.key", "--tls-key", "one.key"], "option-invalid"):
        s = Server("state", *options)
        assert s.port is None and [m["id"] for m in s.messages if m["level"] == "error"] == [id], (options, s.messages)
    s = Server("state", "--tls-cert", "one.pem", "--tls-key", "one.key")
    def get(trusted, path):
        connection = http.client.HTTPSConnection("127.0.0.1", s.port, context=ssl.create_default_context(cafile=trusted))
        connection.request("GET", path)
        return connection.getresponse().read()
    assert json.loads(get("one.pem", "/health"))["status"] == "ok" and b"<html" in get("one.pem", "/")
    try:
        get("two.pem", "/health")
        raise AssertionError("another certificate is accepted")
    except ssl.SSLError:
        pass
    try:
        assert s.raw("GET", "/health")[0] != 200, "plain HTTP is answered"
    except (http.client.HTTPException, OSError):
        pass
    s.stop()


def options_are_checked():
    def refused(id, *options, **env):
        out = subprocess.run([WEFT, "serve", *options], capture_output=True, text=True, env=dict(os.environ, WEFT_LOG_FORMAT="json", **env))
        errors = [json.loads(line)["id"] for line in out.stderr.splitlines() if '"error"' in line]
        assert out.returncode in (1, 2) and errors == [id], (options, out)
    model = ("--model", MODEL, "--state", "state")
    refused("option-required")
    refused("model-not-found", "--model", "nowhere")
    refused("option-conflict", *model, "--model", MODEL)
    refused("server-token", *model, "--listen", "0.0.0.0:0")
    refused("option-invalid", *model, "--policy", "sjf")
    refused("gpu-driver", *model, "--backend", "cuda", WEFT_CUDA_LIBRARY=os.path.abspath("absent.so"))
    refused("option-invalid", *model, "--lora", "a/b=x")
    refused("model-not-found", *model, "--lora", "style=nowhere")
    refused("option-invalid", *model, "--listen", "localhost")
    refused("option-invalid", *model, "--listen", "localhost:80")
    for port in "99999", "65536", "-1", "+80", " 80", "0x50", "80a", "":
        refused("option-invalid", *model, "--listen", "127.0.0.1:" + port)
    for address in "::1:8080", "::1", "[127.0.0.1]:0", "[::1]", "[]:80", ":80":
        refused("option-invalid", *model, "--listen", address)
    for memory in "banana", "0", "-1", "1e":
        refused("option-invalid", *model, "--memory-limit", memory)
    for name in "x" * 129, "a\nb", "a\x7f", b"\xff":
        spec = name + b"=" + os.fsencode(MODEL) if isinstance(name, bytes) else f"{name}={MODEL}"
        refused("option-invalid", "--model", spec, "--state", "state")
    out = subprocess.run([WEFT, "serve", *model, "--on", "nonsense"], capture_output=True, text=True,
                         env=dict(os.environ, WEFT_LOG_FORMAT="json"))
    error, = [json.loads(line) for line in out.stderr.splitlines() if '"error"' in line]
    assert out.returncode in (1, 2) and error["key"] == "--on", error
    refused("server-token", "--state", "state", "--new-token", "a b")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused("server-listen", *model, "--listen", "127.0.0.1:%d" % taken.getsockname()[1])


main(globals())
