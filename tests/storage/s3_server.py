#!/usr/bin/env python3
"""An S3 server of the standard library, for tests: s3_server.py FOLDER [--quirks]

Prints its port, and serves buckets (folders of FOLDER) until its standard input is closed. It checks
signatures and payload hashes with code of its own. The file FOLDER/faults has one fault for each
line, "METHOD WORD KIND [VALUE]"; the first line whose METHOD is the request's and whose WORD is in
its path and query is applied and removed:
  status N        replies N with an XML error     code N CODE     the same with this code
  retry N SECONDS replies N with Retry-After      cut [BYTES]     ends the connection in the body
  close           ends the connection before a reply, after the work was done
  drop            ends the connection before the work is done
  error200        replies 200 with an error in the body
  hold            creates FOLDER/held, and keeps the request and all later ones waiting until
                  FOLDER/held is removed
  skewed SECONDS  refuses with 403, and a Date that is later by this time
  resized BYTES   sends the object with this size, and the ETag of the present one: a read while a
                  server replaces the object
  region N        replies 301 with the region eu-test-1 when N such requests have arrived
FOLDER/requests has a line for each request: method, path, status, bytes.
--quirks: ranges are answered with 200, If-Match is ignored, lists have ETags without quotes, and the
end of an upload has another ETag than the object, which has the MD5 of its bytes, as with rclone."""
import hashlib, hmac, os, re, sys, threading, time, urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

ROOT, QUIRKS = sys.argv[1], "--quirks" in sys.argv
KEYS = {"testkey1": "testsecret12"}
lock = threading.Lock()
uploads = {}  # id to {number: bytes}; None: completed or aborted
tags = {}  # path to ETag
together = threading.Condition()  # of `arrived`
arrived = 0  # requests with the fault region


def quote(text, safe=""):
    return urllib.parse.quote(text, safe=safe + "-._~")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # a reply is one packet: a second one would wait for the acknowledgement
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def date_time_string(self, timestamp=None):
        fault = getattr(self, "fault", [])  # none for a method that is not served
        later = int(fault[1]) if fault[:1] == ["skewed"] else 0
        return super().date_time_string(time.time() + later)

    def take_fault(self):
        with lock:
            try:
                lines = open(ROOT + "/faults").read().splitlines()
            except FileNotFoundError:
                return []
            for i, line in enumerate(lines):
                method, word, *fault = line.split()
                if method == self.command and word in self.path:
                    with open(ROOT + "/faults", "w") as f:
                        f.write("".join(l + "\n" for l in lines[:i] + lines[i + 1:]))
                    return fault
        return []

    def reply(self, status, body=b"", headers=(), length=None):
        with lock, open(ROOT + "/requests", "a") as f:
            print(self.command, self.path, status, len(body), file=f)
        if self.fault[:1] == ["close"]:
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            cut = int(self.fault[1]) if self.fault[1:] else len(body) // 2
            self.wfile.write(body[:cut] if self.fault[:1] == ["cut"] else body)
        if self.fault[:1] == ["cut"]:
            self.wfile.flush()
            self.close_connection = True

    def error(self, status, code, text="a test"):
        xml = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{text}</Message></Error>"
        self.reply(status, xml.encode(), [("Content-Type", "application/xml")])

    def check_signature(self, path, query):
        match = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=(\w+)/(\d{8})/([\w-]+)/s3/aws4_request, *"
                             r"SignedHeaders=([\w;-]+), *Signature=(\w{64})",
                             self.headers.get("Authorization", ""))
        if not match and path.startswith("/web/") and self.command in ("GET", "HEAD"):
            return None  # the bucket `web` is a folder of a web server, too
        if not match:
            return "AccessDenied"
        key, day, region, names, signature = match.groups()
        if key not in KEYS:
            return "InvalidAccessKeyId"
        if hashlib.sha256(self.body).hexdigest() != self.headers["x-amz-content-sha256"]:
            return "XAmzContentSHA256Mismatch"
        unsigned = [n for n in self.headers if n.lower().startswith("x-amz-")
                    and n.lower() not in names.split(";")]
        if unsigned or "host" not in names.split(";"):
            return "AccessDenied"
        canonical = "\n".join([
            self.command, path,
            "&".join(sorted(f"{quote(k)}={quote(v)}" for k, v in query)),
            "".join(f"{n}:{' '.join(self.headers[n].split())}\n" for n in names.split(";")), names,
            self.headers["x-amz-content-sha256"]])
        scope = f"{day}/{region}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", self.headers["x-amz-date"], scope,
                          hashlib.sha256(canonical.encode()).hexdigest()])
        secret = ("AWS4" + KEYS[key]).encode()
        for part in (day, region, "s3", "aws4_request", text):
            secret = hmac.new(secret, part.encode(), hashlib.sha256).digest()
        return None if secret.hex() == signature else "SignatureDoesNotMatch"

    def handle_request(self):
        self.fault = self.take_fault()
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, text = self.path.partition("?")
        query = urllib.parse.parse_qsl(text, keep_blank_values=True)
        bucket, _, key = urllib.parse.unquote(path)[1:].partition("/")
        kind = self.fault[:1]
        if kind == ["hold"]:
            open(ROOT + "/held", "w").close()
        while os.path.exists(ROOT + "/held"):
            time.sleep(0.01)
        if kind == ["drop"]:
            self.close_connection = True
            return
        if kind in (["status"], ["code"], ["retry"]):
            if kind == ["retry"]:
                self.reply(int(self.fault[1]), b"", [("Retry-After", self.fault[2])])
            else:
                self.error(int(self.fault[1]), self.fault[2] if kind == ["code"] else "Fault")
            return
        if kind == ["region"]:
            self.wait_for(int(self.fault[1]))
            self.reply(301, b"", [("x-amz-bucket-region", "eu-test-1")])
            return
        if kind == ["skewed"]:
            self.error(403, "SignatureDoesNotMatch")
            return
        if kind == ["error200"]:
            self.error(200, "InternalError")
            return
        wrong = self.check_signature(path, query)
        if wrong:
            self.error(403, wrong)
        elif not os.path.isdir(os.path.join(ROOT, bucket)):
            self.error(404, "NoSuchBucket")
        else:
            self.serve(bucket, key, dict(query))

    def wait_for(self, count):
        global arrived
        with together:
            arrived += 1
            together.notify_all()
            together.wait_for(lambda: arrived >= count)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_request

    def serve(self, bucket, key, query):
        folder = os.path.join(ROOT, bucket)
        path = os.path.join(folder, quote(key)) if key else None  # flat: a name for each key
        if self.command == "GET" and not key:
            self.list(folder, query)
        elif "uploads" in query or "uploadId" in query:
            self.multipart(bucket, key, path, query)
        elif self.command == "PUT":
            self.store(path, self.body)
            self.reply(200, b"", [("ETag", self.etag(self.body))])
        elif self.command == "DELETE":
            if os.path.exists(path):
                os.remove(path)
            self.reply(204)
        elif not os.path.exists(path):
            self.error(404, "NoSuchKey")
        else:
            self.get(path)

    def etag(self, data):
        return '"%s"' % hashlib.md5(data).hexdigest()

    def store(self, path, data, tag=None):
        with open(path + "~", "wb") as f:  # '~' is quoted by no key
            f.write(data)
        with lock:
            os.rename(path + "~", path)
            tags[path] = tag or self.etag(data)

    def read(self, path):
        """The bytes and the ETag of one version of an object."""
        with lock:
            data = open(path, "rb").read()
            return data, tags.get(path) or self.etag(data)

    def get(self, path):
        data, tag = self.read(path)
        if self.fault[:1] == ["resized"]:
            data = data.ljust(int(self.fault[1]))[:int(self.fault[1])]
        headers = [("ETag", tag), ("Accept-Ranges", "bytes")]
        if self.headers.get("If-Match", tag) != tag and not QUIRKS:
            return self.error(412, "PreconditionFailed")
        if self.command == "HEAD":
            return self.reply(200, b"", headers, len(data))
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not match:
            return self.reply(200, data, headers)
        first, last = int(match[1]), min(int(match[2]), len(data) - 1)
        if first >= len(data):
            return self.error(416, "InvalidRange")
        headers.append(("Content-Range", f"bytes {first}-{last}/{len(data)}"))
        self.reply(200 if QUIRKS else 206, data[first:last + 1], headers)

    def list(self, folder, query):
        names = sorted(urllib.parse.unquote(n) for n in os.listdir(folder) if not n.endswith("~"))
        prefix, after = query.get("prefix", ""), query.get("continuation-token", "")
        names = [n for n in names if n.startswith(prefix) and n > after
                 and not (query.get("delimiter") and query["delimiter"] in n[len(prefix):])]
        most = min(int(query.get("max-keys", 1000)), int(os.environ.get("MAX_KEYS", 1000)))
        url = query.get("encoding-type") == "url"
        xml = "<?xml version='1.0'?><ListBucketResult>"
        if url:
            xml += "<EncodingType>url</EncodingType>"
        for name in names[:most]:
            data, tag = self.read(os.path.join(folder, quote(name)))
            tag = tag.strip('"') if QUIRKS else tag
            shown = quote(name, "/") if url else escape(name)
            xml += (f"<Contents><Key>{shown}</Key><Size>{len(data)}</Size>"
                    f"<ETag>{escape(tag, {chr(34): '&quot;'})}</ETag></Contents>")
        more = len(names) > most
        xml += f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>"
        if more:
            xml += f"<NextContinuationToken>{escape(names[most - 1])}</NextContinuationToken>"
        self.reply(200, (xml + "</ListBucketResult>").encode())

    def multipart(self, bucket, key, path, query):
        ident = query.get("uploadId")
        with lock:
            upload = uploads.get(ident)
            if "uploads" in query:
                ident = "upload%d" % len(uploads)
                uploads[ident] = {}
        if "uploads" in query:
            xml = f"<R><UploadId>{ident}</UploadId></R>"
            return self.reply(200, xml.encode())
        if upload is None:
            return self.error(404, "NoSuchUpload")
        if self.command == "PUT":
            upload[int(query["partNumber"])] = self.body
            return self.reply(200, b"", [("ETag", self.etag(self.body))])
        if self.command == "DELETE":
            uploads[ident] = None
            return self.reply(204)
        parts = re.findall(r"<PartNumber>(\d+)</PartNumber><ETag>(.*?)</ETag>", self.body.decode())
        if any(upload.get(int(n), b"") == b"" or self.etag(upload[int(n)]) != t for n, t in parts):
            return self.error(400, "InvalidPart")
        sums = b"".join(hashlib.md5(upload[int(n)]).digest() for n, _ in parts)
        tag = '"%s-%d"' % (hashlib.md5(sums).hexdigest(), len(parts))
        self.store(path, b"".join(upload[int(n)] for n, _ in parts), None if QUIRKS else tag)
        uploads[ident] = None
        reply = '"another"' if QUIRKS else tag
        self.reply(200, f"<R><ETag>{escape(reply)}</ETag></R>".encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()
