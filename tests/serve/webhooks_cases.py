"""Cases of webhooks_test.sh."""
import base64, hashlib, hmac, http.server, json, subprocess, threading, time
from serve_client import VIDEO, WEFT, Server, main


class Receiver:
    """Answers each POST with the next status of a list, the last one again and again."""
    def __init__(self, *statuses):
        self.messages, self.came = [], threading.Condition()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with receiver.came:
                    status = statuses[min(len(receiver.messages), len(statuses) - 1)]
                    receiver.messages.append((self.path, dict(self.headers), body))
                    receiver.came.notify()
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d/hooks/" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def wait(self, count):
        with self.came:
            while len(self.messages) < count:
                self.came.wait()
        return self.messages


def secret():
    return subprocess.run([WEFT, "serve", "--state", "state", "--webhook-secret"], check=True, capture_output=True,
                          text=True).stdout.strip()


def check(message, key, event, id):
    """The message is about the job, and its signature is right."""
    _, headers, body = message
    headers = {name.lower(): value for name, value in headers.items()}
    text = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    mac = hmac.new(base64.b64decode(key.removeprefix("whsec_")), text, hashlib.sha256).digest()
    assert headers["webhook-signature"] == "v1," + base64.b64encode(mac).decode(), headers
    assert headers["content-type"] == "application/json", headers
    json_body = json.loads(body)
    assert json_body["type"] == event and json_body["data"] == {"id": id, "object": "job", "status": event.split(".")[1]}, json_body
    return headers["webhook-id"]


def settled(s, id):
    """The webhook of a job when it is no longer pending."""
    while (w := s.call("GET", "/v1/jobs/" + id)["webhook"])["status"] in (None, "pending"):
        time.sleep(0.02)
    return w


def failures_are_repeated():
    """Also by the next server, with the same id; redirections are not followed."""
    receiver, key = Receiver(500, 302, 204), secret()
    s = Server("state", "--webhook", receiver.url)
    assert s.call("GET", "/capabilities")["webhooks"]
    id = s.call("POST", "/v1/jobs", dict(VIDEO, steps=2, webhook=receiver.url + "a?b=1"))["id"]
    receiver.wait(1)
    while s.call("GET", "/v1/jobs/" + id)["webhook"]["attempts"] < 1:
        time.sleep(0.02)
    assert s.stop() == 130
    s = Server("state", "--webhook", receiver.url)
    w = settled(s, id)
    assert w == {"url": receiver.url + "a?b=1", "status": "delivered", "event": "job.completed", "attempts": 3,
                 "response_status": 204, "error": None}, w
    assert secret() == key and key.startswith("whsec_")
    ids = {check(message, key, "job.completed", id) for message in receiver.messages}
    assert len(ids) == 1 and len(receiver.messages) == 3 and {m[0] for m in receiver.messages} == {"/hooks/a?b=1"}
    # a cancelled job, and a job without a webhook
    paused = s.call("POST", "/v1/jobs", dict(VIDEO, steps=4000, webhook=receiver.url))["id"]
    s.call("POST", f"/v1/jobs/{paused}/cancel")
    assert settled(s, paused)["event"] == "job.cancelled"
    check(receiver.messages[3], key, "job.cancelled", paused)
    assert "webhook" not in s.call("POST", "/v1/jobs", dict(VIDEO, steps=1))
    s.stop()


def only_urls_of_the_operator():
    s = Server("state", "--webhook", "http://127.0.0.1:9/hooks/")
    for url in "http://127.0.0.1:9/", "http://localhost:9/hooks/", "http://127.0.0.1:9/hooks/../x", "x", 3, "http://127.0.0.1:9/hooks/#x":
        assert s.error(400, "request-invalid", "POST", "/v1/jobs", dict(VIDEO, webhook=url))["param"] == "webhook"
    # a receiver that does not answer
    id = s.call("POST", "/v1/jobs", dict(VIDEO, steps=1, webhook="http://127.0.0.1:9/hooks/"))["id"]
    s.finish(id)
    while not (w := s.call("GET", "/v1/jobs/" + id)["webhook"])["status"] or not w["attempts"]:
        time.sleep(0.02)
    assert w["status"] == "pending" and w["response_status"] is None and w["error"], w
    s.stop()
    s = Server()
    assert s.error(400, "request-invalid", "POST", "/v1/jobs", dict(VIDEO, webhook="http://127.0.0.1:9/hooks/"))["param"] == "webhook"
    s.stop()


main(globals())
