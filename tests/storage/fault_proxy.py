#!/usr/bin/env python3
"""A proxy with faults, for tests: fault_proxy.py PORT SEED LOG

Forwards requests to the server at 127.0.0.1:PORT. It prints its own port, and serves until its
standard input is closed. Headers pass unchanged, so signatures stay valid. Of 15 requests in
sequence, 6 have a fault, one of each kind, in an order of the seed:
  delay       the server gets the request later
  busy        the reply is 503; the server does not get the request
  unsent      the connection ends in the middle of the request
  unanswered  the server's reply is lost
  cut         the connection ends in the middle of the reply's body
  short       half of the body of a GET arrives, with the length of this half
LOG has a line for each request: fault (or none), method, path."""
import http.client, random, socket, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, SEED, LOG = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
FAULTS = ["delay", "busy", "unsent", "unanswered", "cut", "short"]
DECK = FAULTS + ["none"] * 9
HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"}
draw, lock, deck = random.Random(SEED), threading.Lock(), []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def draw_fault(self):
        with lock:
            if not deck:
                deck.extend(draw.sample(DECK, len(DECK)))
            fits = [i for i, card in enumerate(deck) if card != "short" or self.command == "GET"]
            fault = deck.pop(fits[-1]) if fits else "none"
            with open(LOG, "a") as f:
                print(fault, self.command, self.path, file=f)
        return fault

    def send_half(self, body):
        """Sends the first half of a request to the server."""
        head = [self.requestline, *(f"{name}: {value}" for name, value in self.headers.items()), ""]
        with socket.create_connection(("127.0.0.1", PORT)) as server:
            data = "\r\n".join(head).encode("latin-1") + b"\r\n" + body
            server.sendall(data[:len(data) // 2])

    def forward(self, body):
        server = http.client.HTTPConnection("127.0.0.1", PORT)
        server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() != "connection":
                server.putheader(name, value)
        server.endheaders(body)
        reply = server.getresponse()
        data = reply.read()
        server.close()
        return reply, data

    def send(self, reply, data, sent):
        self.send_response_only(reply.status, reply.reason)
        for name, value in reply.getheaders():
            if name.lower() not in HOP or name.lower() == "date":
                self.send_header(name, value)
        if self.command == "HEAD":
            self.send_header("Content-Length", reply.getheader("Content-Length", "0"))
        elif reply.status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[:sent])

    def handle_request(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.draw_fault()
        if fault == "busy":
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if fault == "unsent":
            self.send_half(body)
        if fault == "delay":
            time.sleep(draw.uniform(0.1, 0.5))
        reply, data = self.forward(body) if fault != "unsent" else (None, b"")
        if fault in ("unsent", "unanswered"):
            self.close_connection = True
            return
        if fault == "short" and reply.status < 300:
            data = data[:len(data) // 2]
        self.send(reply, data, len(data) // 2 if fault == "cut" else len(data))
        self.close_connection = fault == "cut"

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_request


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
