"""A server under test, and requests to it: the standard library only. No function depends on elapsed time: waiting is for
an event (a message of the server, an event of a job, the end of a process)."""
import ctypes, glob, http.client, json, os, resource, signal, struct, subprocess, sys, time

WEFT, SRC = os.environ["WEFT"], os.environ["SRC"]
MODEL = os.path.join(SRC, "tests/golden/pipelines/wan_over")
IMAGE_MODEL = os.path.join(SRC, "tests/golden/pipelines/wan_i2v")
VIDEO = {"prompt": "a red cat", "size": "32x32", "frames": 17, "steps": 20}


def end_with_parent():
    """A failed case must not leave its server."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Server:
    def __init__(self, state="state", *options, models=("wan=" + MODEL,), env=None, ready=True, files=None, port=0):
        command = [WEFT, "serve", "--state", state, "--listen", f"127.0.0.1:{port}", *options]
        for model in models:
            command += ["--model", model]
        self.state, self.token = state, None
        self.log = open(state.replace("/", "_") + ".log", "a+")
        def prepare():
            end_with_parent()
            if files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=prepare,
                                        env=dict(os.environ, WEFT_LOG_FORMAT="json", **(env or {})))
        self.messages, self.port = [], None
        while ready and self.port is None:
            line = self.process.stderr.readline()
            if not line:
                self.process.wait()
                break
            self.log.write(line)
            try:
                message = json.loads(line)
            except ValueError:
                continue
            self.messages.append(message)
            if message.get("id") == "server-ready":
                self.port = int(message["details"]["port"])

    def drain(self):
        """Reads the messages until the end of the server. Returns the exit status."""
        for line in self.process.stderr:
            self.log.write(line)
            try:
                self.messages.append(json.loads(line))
            except ValueError:
                pass
        self.log.flush()
        return self.process.wait()

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.drain()

    def kill(self):
        return self.stop(signal.SIGKILL)

    def raw(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        headers = dict(headers or {})
        if self.token:
            headers["Authorization"] = "Bearer " + self.token
        if isinstance(body, dict):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), data

    def call(self, method, path, body=None, headers=None, status=200):
        got, _, data = self.raw(method, path, body, headers)
        assert got == status, (method, path, got, data)
        return json.loads(data)

    def error(self, status, code, method, path, body=None, headers=None):
        answer = self.call(method, path, body, headers, status)["error"]
        assert answer["code"] == code, answer
        return answer

    def events(self, id):
        """The events of a job as (name, job), until the stream ends."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", f"/v1/jobs/{id}/events", headers={"Authorization": f"Bearer {self.token}"} if self.token else {})
        answer = connection.getresponse()
        assert answer.status == 200 and answer.getheader("Content-Type") == "text/event-stream", answer.status
        name = None
        for line in answer:
            line = line.decode().rstrip("\n")
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                yield name, json.loads(line[6:])
        connection.close()

    def until(self, id, wanted):
        """Waits for an event of the job that fits. Returns the job."""
        for name, job in self.events(id):
            if wanted(job):
                return job
        raise AssertionError("the stream ended with %s" % job)

    def finish(self, *ids):
        """Waits until each job is final. Returns the jobs."""
        return [self.until(id, lambda job: job["status"] in ("completed", "failed", "cancelled", "parked")) for id in ids]

    def workers(self):
        """Processes of `weft worker` that the server started."""
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        return [int(pid) for pid in open(path).read().split() if b"\0worker\0" in open(f"/proc/{pid}/cmdline", "rb").read()]

    def held_worker(self):
        """The worker, when the signal of its event (once="held") has stopped it: the file is made before the signal."""
        while not os.path.exists("held"):
            time.sleep(0.01)
        worker, = self.workers()
        while open(f"/proc/{worker}/stat").read().rsplit(")", 1)[1].split()[0] != "T":
            time.sleep(0.01)
        return worker

    def content(self, id, headers=None, status=200):
        got, head, data = self.raw("GET", f"/v1/videos/{id}/content", headers=headers)
        assert got == status, (got, data[:200])
        return head, data


def at_event(number, pattern, on="rename", count=1, once=None, to=None):
    """The environment of a process that gets a signal at an event (tests/signal_at.c)."""
    env = {"LD_PRELOAD": os.path.abspath("signal_at.so"), "SIGNAL_NUMBER": str(int(number)), "SIGNAL_AT": pattern, "SIGNAL_ON": on,
           "SIGNAL_COUNT": str(count), "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
    if once:
        env["SIGNAL_ONCE"] = os.path.abspath(once)
    if to:
        env["SIGNAL_TO"] = to
    return env


def undisturbed(name, request, *options, launcher=()):
    """The bytes of `weft generate` for a request: what the server must answer. launcher: of several ranks."""
    out = name + ".mp4"
    width, height = request["size"].split("x")
    with open(name + ".jsonl", "w") as f:
        f.write(json.dumps({"prompt": request["prompt"], "frames": request["frames"], "width": int(width), "height": int(height),
                            "steps": request["steps"], "seed": request.get("seed", 0),
                            "guidance": request.get("guidance_scale", 4)}) + "\n")
    subprocess.run([*launcher, WEFT, "generate", "--model", MODEL, "--prompts", name + ".jsonl", "--out", out, *options], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return open(out, "rb").read()


def write_lora(path, **settings):
    """An adapter of rank 1 for one projection of the model. `settings`: metadata of a distilled one."""
    with open(glob.glob(MODEL + "/transformer/*.safetensors")[0], "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    rows, columns = header["blocks.0.attn1.to_q.weight"]["shape"]
    tensors, data = {}, b""
    for name, shape in ("lora_A", [1, columns]), ("lora_B", [rows, 1]):
        values = struct.pack(f"<{max(shape)}f", *(0.5 + i % 3 for i in range(max(shape))))
        tensors[f"transformer.blocks.0.attn1.to_q.{name}.weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    if settings:
        tensors["__metadata__"] = {"weft." + name: str(value) for name, value in settings.items()}
    text = json.dumps(tensors).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def main(cases):
    cases[sys.argv[1]]()
