"""Origins over TLS: each way to name a CA works, each kind of distrust says its own cure."""

from __future__ import annotations

import hashlib
import http.server
import re
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import quiver_cache.torch as qt
from conftest import daemons_of
from helpers import digest, digests, flat
from quiver_cache._programs import find_program
from quiver_cache.errors import QuiverError

FILES = {f"{i}.png": b"item %d" % i * 100 for i in range(8)}
DATE = "Mon, 01 Jan 2024 00:00:00 GMT"


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def new_key(name: str) -> list[str]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key"]


def make_ca(folder: Path, name: str) -> None:
    subject = ["-subj", f"/CN={name} of a test"]
    openssl(folder, "req", "-x509", *new_key(name), "-out", f"{name}.pem", "-days", "2", *subject)


def make_certificate(folder: Path, name: str, days: int) -> None:
    """For the host localhost, signed by `ca`."""
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    openssl(folder, "req", *new_key(name), "-out", f"{name}.csr", *subject)
    signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-copy_extensions", "copy"]
    output = ["-out", f"{name}.pem", "-days", str(days)]
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signing, *output)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    for ca in ("ca", "other"):
        make_ca(folder, ca)
    make_certificate(folder, "good", 2)
    make_certificate(folder, "expired", 0)  # newer versions of openssl make none that ends in the past
    time.sleep(1.1)
    return folder


class Store(http.server.BaseHTTPRequestHandler):
    """FILES as the bucket `b` of an S3 in path style, and as a web folder /w with its index."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self) -> None:
        if "list-type=2" in self.path:
            rows = "".join(
                f"<Contents><Key>{key}</Key><Size>{len(body)}</Size><ETag>{etag(body)}</ETag>"
                "<LastModified>2024-01-01T00:00:00.000Z</LastModified></Contents>"
                for key, body in FILES.items()
            )
            listing = f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>"
            return self.reply(200, listing.encode(), {})
        if self.path.endswith("/w/index.txt"):  # as a proxy it is asked for whole URLs
            return self.reply(200, "\n".join(FILES).encode(), {})
        body = FILES.get(self.path.split("/")[-1])
        if body is None:
            return self.reply(404, b"", {})
        headers = {"ETag": etag(body), "Last-Modified": DATE}
        if asked := re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            first, last = int(asked[1]), int(asked[2])
            headers["Content-Range"] = f"bytes {first}-{last}/{len(body)}"
            return self.reply(206, body[first : last + 1], headers)
        return self.reply(200, body, headers)

    do_HEAD = do_GET


def etag(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # clients that do not trust it hang up


@pytest.fixture
def serve(certificates: Path) -> Iterator[Callable[[str], int]]:
    """Starts a server with a certificate, or without TLS; returns its port."""
    servers: list[Server] = []

    def start(certificate: str) -> int:
        server = Server(("127.0.0.1", 0), Store)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            path = certificates / certificate
            context.load_cert_chain(path.with_suffix(".pem"), path.with_suffix(".key"))
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return int(server.server_address[1])

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No daemon, no profile, no CA but those that a test names."""
    for name in ("AWS_CA_BUNDLE", "SSL_CERT_FILE", "QUIVER_CA_FILE", "QUIVER_VERIFY_TLS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("QUIVER", "off")
    monkeypatch.setenv("QUIVER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("QUIVER_MANIFEST_DIR", str(tmp_path / "manifests"))
    monkeypatch.setenv("QUIVER_DISK_LIMIT", "64MB")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


def s3(port: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://localhost:{port}")
    return "s3://b"


def epoch(url: str) -> list[str]:
    return flat(qt.DataLoader(qt.Dataset(url, digest), 4))


ROUTES = [("QUIVER_CA_FILE", "s3"), ("QUIVER_CA_FILE", "web"), ("AWS_CA_BUNDLE", "s3")]
ROUTES += [("SSL_CERT_FILE", "s3"), ("SSL_CERT_FILE", "web")]


@pytest.mark.parametrize(("variable", "kind"), ROUTES)
def test_a_ca_can_be_named(
    variable: str,
    kind: str,
    certificates: Path,
    serve: Callable[[str], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = serve("good")
    url = s3(port, monkeypatch) if kind == "s3" else f"https://localhost:{port}/w"
    monkeypatch.setenv(variable, str(certificates / "ca.pem"))
    assert sorted(epoch(url)) == sorted(digests(FILES))


@pytest.mark.parametrize(
    ("certificate", "ca", "host", "why", "cure"),
    [
        ("good", None, "localhost", "is not trusted", "name the CA that signed it in ca_file"),
        ("good", "other", "localhost", "is not trusted", "name the CA that signed it in ca_file"),
        ("expired", "ca", "localhost", "expired", "renew the server's certificate"),
        ("good", "ca", "127.0.0.1", "subject", "use the host name that the certificate is for"),
        ("good", "absent", "localhost", "cannot be used", "name a PEM file in ca_file"),
    ],
)
def test_each_kind_of_distrust_names_its_cure(
    certificate: str,
    ca: str | None,
    host: str,
    why: str,
    cure: str,
    certificates: Path,
    serve: Callable[[str], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if ca is not None:
        monkeypatch.setenv("QUIVER_CA_FILE", str(certificates / f"{ca}.pem"))
    with pytest.raises(QuiverError) as caught:
        epoch(f"https://{host}:{serve(certificate)}/w")
    assert why in str(caught.value)
    assert cure in str(caught.value)


def test_unchecked_certificates_are_warned_of(
    serve: Callable[[str], int],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    certificates: Path,
) -> None:
    url = f"https://localhost:{serve('good')}/w"

    def warnings() -> list[str]:
        return [line for line in capfd.readouterr().err.splitlines() if "NOT CHECKED" in line]

    monkeypatch.setenv("QUIVER_CA_FILE", str(certificates / "ca.pem"))
    epoch(url)
    assert warnings() == []
    monkeypatch.setenv("QUIVER_VERIFY_TLS", "false")
    assert sorted(epoch(url)) == sorted(digests(FILES))
    (warning,) = warnings()  # not once a request
    assert url in warning
    assert " warning " in warning


def daemon_fetched() -> tuple[int, int]:
    """How often the daemon read from the origin, and how often it failed."""
    command = [find_program("quiver"), "status"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.findall(r"in (\d+) reads, (\d+) errors", said)
    return sum(int(reads) for reads, _ in found), sum(int(errors) for _, errors in found)


def start_daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str) -> None:
    """Of a job over another dataset; that of `url` is digested, and nothing of it cached."""
    qt.Dataset(url, digest)
    monkeypatch.setenv("QUIVER", "on")
    monkeypatch.setenv("QUIVER_IDLE_TIMEOUT", "5s")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_bytes(b"x")
    assert len(flat(qt.DataLoader(qt.Dataset(str(tmp_path / "folder"), digest), 1))) == 1
    assert len(daemons_of(tmp_path / "cache")) == 1


def test_the_daemon_uses_the_ca_of_the_job_wherever_it_runs(
    tmp_path: Path,
    certificates: Path,
    serve: Callable[[str], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(certificates)
    monkeypatch.setenv("QUIVER_CA_FILE", "ca.pem")  # the daemon's directory is the root
    url = f"https://localhost:{serve('good')}/w"
    start_daemon(monkeypatch, tmp_path, url)
    loader = qt.DataLoader(qt.Dataset(url, digest), 4)
    assert sorted(flat(loader)) == sorted(digests(FILES))
    reads, errors = daemon_fetched()
    assert errors == 0
    assert reads >= len(FILES)


def test_the_daemon_goes_by_the_proxies_of_the_job_not_by_its_own(
    tmp_path: Path,
    certificates: Path,
    serve: Callable[[str], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("QUIVER_CA_FILE", str(certificates / "ca.pem"))
    direct = f"https://localhost:{serve('good')}/w"
    behind = "http://nowhere.invalid/w"
    live, dead = f"http://127.0.0.1:{serve('')}", "http://127.0.0.1:1"
    monkeypatch.setenv("no_proxy", "localhost")
    monkeypatch.setenv("https_proxy", dead)
    start_daemon(monkeypatch, tmp_path, direct)  # with these in its environment
    for name in ("no_proxy", "https_proxy"):
        monkeypatch.delenv(name)
    loader = qt.DataLoader(qt.Dataset(direct, digest), 4)
    assert sorted(flat(loader)) == sorted(digests(FILES))
    first, errors = daemon_fetched()
    assert errors == 0
    assert first >= len(FILES)

    monkeypatch.setenv("http_proxy", live)
    loader = qt.DataLoader(qt.Dataset(behind, digest), 4)
    assert sorted(flat(loader)) == sorted(digests(FILES))
    assert daemon_fetched()[1] == 0
