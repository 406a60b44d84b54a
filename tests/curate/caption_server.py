"""An OpenAI-compatible server with faults, for tests of captions.

usage: caption_server.py FOLDER

Writes its port to FOLDER/port. Each request takes the first line of FOLDER/faults, if there is one,
and is described by a line of FOLDER/seen:

    429 S       status 429 with Retry-After: S          500, 400, 401   that status
    cut         a reply that ends early                 html            status 200, not JSON
    words       text without JSON                       missing         JSON without two members
    long        finish_reason length                    blocked         finish_reason content_filter
"""
import base64, http.server, json, os, sys, threading

folder = sys.argv[1]
lock = threading.Lock()
FIELDS = ["summary", "scene", "subject", "motion", "background", "style", "camera", "light"]


def take_fault():
    path = os.path.join(folder, "faults")
    with lock:
        lines = open(path).read().split("\n") if os.path.exists(path) else []
        lines = [line for line in lines if line]
        if lines:
            with open(path, "w") as f:
                f.write("\n".join(lines[1:]))
        return lines[0] if lines else ""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, body, headers=(), cut=0):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:len(body) - cut])
        self.close_connection = self.close_connection or cut > 0

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = take_fault()
        parts = request["messages"][0]["content"]
        images = [p["image_url"]["url"] for p in parts if p["type"] == "image_url"]
        jpegs = [base64.b64decode(i.split(",", 1)[1]) for i in images]
        videos = [p["video_url"]["url"] for p in parts if p["type"] == "video_url"]
        for i, url in enumerate(videos):
            kind, data = url.split(",", 1)
            assert kind == "data:video/mp4;base64", kind
            with open(os.path.join(folder, "video-%d.mp4" % i), "wb") as f:
                f.write(base64.b64decode(data))
        seen = {"fault": fault, "path": self.path, "model": request["model"], "images": len(images), "videos": len(videos),
                "jpeg": all(j[:2] == b"\xff\xd8" and j[-2:] == b"\xff\xd9" for j in jpegs),
                "messages": len(request["messages"]), "schema": "response_format" in request,
                "authorization": self.headers["Authorization"]}
        with lock, open(os.path.join(folder, "seen"), "a") as f:
            f.write(json.dumps(seen) + "\n")
        name, _, value = fault.partition(" ")
        if name == "429":
            return self.reply(429, {"error": {"message": "slow down"}}, [("Retry-After", value)])
        if name.isdigit():
            said = "wrong key " + str(self.headers["Authorization"])
            return self.reply(int(name), {"error": {"message": said}})
        if name == "html":
            return self.reply(200, b"<html>busy</html>")
        content = {field: field + " of the clip" for field in FIELDS}
        content["summary"] = "The video shows a moving pattern."
        if name == "missing":
            del content["camera"], content["light"]
        text = "I cannot help." if name == "words" else "```json\n" + json.dumps(content) + "\n```"
        end = {"long": "length", "blocked": "content_filter"}.get(name, "stop")
        answer = {"object": "chat.completion", "model": request["model"],
                  "choices": [{"index": 0, "finish_reason": end,
                               "message": {"role": "assistant", "content": text}}],
                  "usage": {"prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 100}}
        self.reply(200, answer, cut=40 if name == "cut" else 0)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open(os.path.join(folder, "port.part"), "w") as f:
    f.write(str(server.server_address[1]))
os.rename(os.path.join(folder, "port.part"), os.path.join(folder, "port"))
server.serve_forever()
