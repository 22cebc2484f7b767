"""A signed S3 client of the few requests that the tests make, in the standard library."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import time
from dataclasses import dataclass
from urllib.parse import quote, urlsplit


@dataclass(frozen=True)
class S3:
    endpoint: str
    key: str
    secret: str

    def request(self, method: str, path: str, body: bytes = b"", checksum: bool = False) -> int:
        """The status of one signed request; `path` is /bucket/key."""
        host = urlsplit(self.endpoint).netloc
        digest = hashlib.sha256(body).digest()
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        headers = {"host": host, "x-amz-content-sha256": digest.hex(), "x-amz-date": stamp}
        if checksum:
            import base64

            headers["x-amz-checksum-sha256"] = base64.b64encode(digest).decode()
        signed = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        target = quote(path, safe="/-_.~")
        canonical = f"{method}\n{target}\n\n{lines}\n{signed}\n{digest.hex()}"
        scope = f"{stamp[:8]}/us-east-1/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        secret = ("AWS4" + self.secret).encode()
        for part in (*scope.split("/"), text):
            secret = hmac.new(secret, part.encode(), hashlib.sha256).digest()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.key}/{scope}, SignedHeaders={signed}, "
            f"Signature={secret.hex()}"
        )
        connection = http.client.HTTPConnection(host, timeout=30)
        try:
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()

    def put(self, bucket: str, key: str, body: bytes, checksum: bool = True) -> None:
        status = self.request("PUT", f"/{bucket}/{key}", body, checksum)
        assert status == 200, (status, key)

    def delete(self, bucket: str, key: str) -> None:
        assert self.request("DELETE", f"/{bucket}/{key}") in (200, 204)

    def make_bucket(self, bucket: str) -> None:
        assert self.request("PUT", f"/{bucket}") in (200, 409)
