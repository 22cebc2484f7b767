"""A front before the real S3 server that knows temporary credentials: it takes some session tokens,
says of all others that they have expired, and gives some by AssumeRoleWithWebIdentity. It may bear few
requests at once."""

from __future__ import annotations

import datetime
import http.client
import json
import threading
import urllib.parse
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from lab.s3 import Bucket

_STS = """<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>key</AccessKeyId>
<SecretAccessKey>secret</SecretAccessKey><SessionToken>{token}</SessionToken>
<Expiration>{until}</Expiration></Credentials></AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>"""
_HOP = {"host", "authorization", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token"}


def until(minutes: float) -> str:
    end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=minutes)
    return end.strftime("%Y-%m-%dT%H:%M:%SZ")


class Front(ThreadingHTTPServer):
    """`tokens`: which ones it takes now. `identity`: the web identity that gets one of them."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, store: Bucket) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.store = store
        self.tokens, self.identity = {"first"}, ""
        self.served: Counter[str] = Counter()  # GETs of objects, by token
        self.refused = 0
        self.objects: Counter[str] = Counter()  # whole answers, by path
        self.most_at_once = 1 << 30
        self.at_once = self.slowed = 0
        self.at: dict[int, Callable[[], None]] = {}  # what happens before the nth is served
        self.lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def end(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()

    def takes(self, token: str, of_object: bool) -> bool:
        with self.lock:
            if of_object and (change := self.at.pop(sum(self.served.values()), None)):
                change()
            taken = token in self.tokens
            self.refused += not taken
            self.served[token] += of_object and taken
            return taken

    def enters(self) -> bool:
        with self.lock:
            may = self.at_once < self.most_at_once
            self.at_once += may
            self.slowed += not may
            return may

    def leaves(self, path: str) -> None:
        with self.lock:
            self.at_once -= 1
            self.objects[path] += 1


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Front

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
        front = self.server
        if form["WebIdentityToken"] != [front.identity]:
            return self._answer(
                400, b"<ErrorResponse><Error><Code>ExpiredTokenException</Code></Error></ErrorResponse>"
            )
        return self._answer(200, _STS.format(token=max(front.tokens), until=until(60)).encode())

    def do_GET(self) -> None:
        of_object = self.command == "GET" and "?" not in self.path
        if not self.server.takes(self.headers.get("x-amz-security-token", ""), of_object):
            return self._answer(400, b"<Error><Code>ExpiredToken</Code><Message>it has</Message></Error>")
        if not self.server.enters():
            return self._answer(503, b"<Error><Code>SlowDown</Code><Message>less</Message></Error>")
        try:
            return self._pass_on()
        finally:
            self.server.leaves(self.path)

    def _pass_on(self) -> None:
        store = self.server.store
        kept = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        asked = AWSRequest(self.command, store.endpoint + self.path, kept)
        S3SigV4Auth(Credentials(store.access_key, store.secret_key), "s3", store.region).add_auth(asked)
        parts = urllib.parse.urlsplit(store.endpoint)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        connection.request(self.command, self.path, headers=dict(asked.headers.items()))
        answer = connection.getresponse()
        body = answer.read()
        names = ("ETag", "Last-Modified", "Content-Range", "Content-Type", "x-amz-checksum-sha256")
        headers = {name: value for name in names if (value := answer.getheader(name))}
        if self.command == "HEAD":
            headers["Content-Length"] = answer.getheader("Content-Length", "0")
        connection.close()
        return self._answer(answer.status, body, headers)

    do_HEAD = do_GET

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = headers or {}
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def write_keys(path: Path, token: str, minutes: float = 60) -> None:
    """What a credential_process says: one that prints this file."""
    said = {"Version": 1, "AccessKeyId": "key", "SecretAccessKey": "secret", "SessionToken": token}
    new = path.with_suffix(".new")
    new.write_text(json.dumps({**said, "Expiration": until(minutes)}))
    new.replace(path)
