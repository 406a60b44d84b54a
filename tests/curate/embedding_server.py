"""An OpenAI-compatible server of embeddings, for tests.

usage: embedding_server.py FOLDER

Writes its port to FOLDER/port. Each request takes the first line of FOLDER/faults, if there is one
(a status, or `short`: the first embedding lacks a number), and is described by a line of FOLDER/seen. The embedding
of an image has the sums of its bytes, so that equal images have equal embeddings.
"""
import array, base64, http.server, json, os, sys

folder = sys.argv[1]


def take_fault():
    path = os.path.join(folder, "faults")
    lines = open(path).read().split() if os.path.exists(path) else []
    if lines:
        open(path, "w").write("\n".join(lines[1:]))
    return lines[0] if lines else ""


def embedding_of(url, fault, as_text):
    data = base64.b64decode(url.split(",", 1)[1])
    assert data[:2] == b"\xff\xd8" and data[-2:] == b"\xff\xd9"
    numbers = [sum(data[i::8]) / 1e4 for i in range(7 if fault == "short" else 8)]
    return base64.b64encode(array.array("f", numbers).tobytes()).decode() if as_text else numbers


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = take_fault()
        messages = request.get("messages")
        urls = [p["image_url"]["url"] for p in messages[0]["content"]] if messages else request["input"]
        with open(os.path.join(folder, "seen"), "a") as f:
            f.write(json.dumps({"path": self.path, "model": request["model"], "images": len(urls),
                                "messages": bool(messages), "authorization": self.headers["Authorization"]}) + "\n")
        status = int(fault) if fault.isdigit() else 200
        data = [{"index": i, "embedding": embedding_of(u, fault if i == 0 else "", not messages)} for i, u in enumerate(urls)]
        body = {"data": data[::-1]} if status == 200 else {"error": {"message": "no, " + str(self.headers["Authorization"])}}
        body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open(os.path.join(folder, "port.tmp"), "w") as f:
    f.write(str(server.server_address[1]))
os.rename(os.path.join(folder, "port.tmp"), os.path.join(folder, "port"))
server.serve_forever()
