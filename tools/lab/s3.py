"""A minimal S3 writer: signed PUT and DELETE, for filling the bucket of a test or the demo."""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import http.client
import threading
import urllib.parse
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field


@dataclass
class Bucket:
    """One bucket of a path-style endpoint. Any number of threads may use it."""

    endpoint: str  # http://host:port
    name: str
    access_key: str
    secret_key: str
    region: str = "us-east-1"
    _local: threading.local = field(default_factory=threading.local, repr=False)

    @property
    def url(self) -> str:
        return f"s3://{self.name}"

    def environment(self) -> dict[str, str]:
        """The standard variables with which a client reaches this bucket."""
        return {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
        }

    def create(self) -> None:
        self._request("PUT", "", b"")

    def put(self, key: str, data: bytes, *, checksum: bool = True) -> None:
        """Uploads one object, with its SHA-256 kept by the store when `checksum`."""
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        self._request("PUT", key, data, {"x-amz-checksum-sha256": digest} if checksum else {})

    def put_all(
        self, objects: Iterable[tuple[str, bytes]], *, threads: int = 8, checksum: bool = True
    ) -> None:
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(lambda o: self.put(o[0], o[1], checksum=checksum), objects):
                pass

    def get(self, key: str) -> bytes:
        return self._request("GET", key, b"")

    def delete(self, key: str) -> None:
        self._request("DELETE", key, b"")

    def _connection(self) -> http.client.HTTPConnection:
        if not hasattr(self._local, "connection"):
            parts = urllib.parse.urlsplit(self.endpoint)
            assert parts.hostname is not None
            self._local.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
        connection: http.client.HTTPConnection = self._local.connection
        return connection

    def _request(self, method: str, key: str, body: bytes, extra: dict[str, str] | None = None) -> bytes:
        path = "/" + urllib.parse.quote(f"{self.name}/{key}" if key else self.name, safe="/-_.~")
        headers = self._signed(method, path, body, extra or {})
        connection = self._connection()
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read()
        except (http.client.HTTPException, OSError):
            connection.close()
            raise
        if answer.status >= 300:
            raise OSError(f"{method} {path}: status {answer.status}: {text[:300]!r}")
        return text

    def _signed(self, method: str, path: str, body: bytes, extra: dict[str, str]) -> dict[str, str]:
        """AWS Signature Version 4 over all headers that are sent."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{now[:8]}/{self.region}/s3/aws4_request"
        payload = hashlib.sha256(body).hexdigest()
        headers = {
            "host": urllib.parse.urlsplit(self.endpoint).netloc,
            "x-amz-content-sha256": payload,
            "x-amz-date": now,
            **extra,
        }
        names = ";".join(sorted(headers))
        canonical = "\n".join(
            [method, path, "", *(f"{n}:{headers[n]}" for n in sorted(headers)), "", names, payload]
        )
        to_sign = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        key = f"AWS4{self.secret_key}".encode()
        for part in (now[:8], self.region, "s3", "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        signature = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.access_key}/{scope}, "
            f"SignedHeaders={names}, Signature={signature}"
        )
        return headers
