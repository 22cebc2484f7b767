"""Makes the archives beside it by Python's tarfile and GNU tar, and members.txt: what tarfile reads there.

Golden: run once, with Python 3.11 and GNU tar 1.34, and not again.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LONG = "long/" + "/".join(f"folder{i:02d}" for i in range(14)) + "/" + "n" * 90
FILES = {
    "a/0.jpg": b"first",
    "a/0.cls": b"1",
    "./b.x.png": b"",
    "\u00fc/\u65e5\u672c.JPG": b"x" * 512,
    f"{LONG}.jpg": b"y" * 513,
    f"{LONG}.txt": b"z",
}


def shortened(archive: bytes) -> bytes:
    """With two blocks at its end instead of a record."""
    return archive.rstrip(b"\0").ljust(-(-len(archive.rstrip(b"\0")) // 512) * 512, b"\0") + bytes(1024)


def with_tarfile(form: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        folder = tarfile.TarInfo("a")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, body in FILES.items():
            if form == tarfile.USTAR_FORMAT and name.startswith("long"):
                name = name[:40] + "/" + name[-80:]
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(body), 1_700_000_000
            tar.addfile(info, io.BytesIO(body))
        for kind, name in ((tarfile.SYMTYPE, "a/link.jpg"), (tarfile.LNKTYPE, "a/hard.jpg")):
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, "a/0.jpg" * 20 if form else "a/0.jpg", 0
            tar.addfile(info)
    return shortened(out.getvalue())


def with_tar(*options: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, body in FILES.items():
            if "v7" in options[0] or "ustar" in options[0]:
                name = name.replace(LONG, "long/name")
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
        (root / "a" / "link.jpg").symlink_to("0.jpg")
        if options[0] != "--format=v7":
            os.mkfifo(root / "a" / "pipe.jpg")
        with open(root / "sparse.bin", "wb") as hole:
            hole.truncate(1 << 20)
            hole.seek(1 << 19)
            hole.write(b"middle")
        if "--sparse" not in options:
            (root / "sparse.bin").unlink()
        fixed = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@1700000000"]
        done = subprocess.run(
            ["tar", "-c", "-b1", *options, *fixed, "-C", folder, "."], check=True, stdout=subprocess.PIPE
        )
    return done.stdout


def big_size() -> bytes:
    """The header of a file of 9 GiB, whose size is in base 256; then a small one."""
    info = tarfile.TarInfo("big.bin")
    info.size = 9 << 30
    return info.tobuf(tarfile.GNU_FORMAT)


ARCHIVES = {
    "tarfile_ustar": with_tarfile(tarfile.USTAR_FORMAT),
    "tarfile_gnu": with_tarfile(tarfile.GNU_FORMAT),
    "tarfile_pax": with_tarfile(tarfile.PAX_FORMAT),
    "tar_v7": with_tar("--format=v7"),
    "tar_ustar": with_tar("--format=ustar"),
    "tar_gnu": with_tar("--format=gnu"),
    "tar_posix": with_tar("--format=posix"),
}
REFUSED = {
    "sparse_gnu": with_tar("--format=gnu", "--sparse"),
    "sparse_posix": with_tar("--format=posix", "--sparse"),
    "big_size": big_size(),
}

if __name__ == "__main__":
    lines = []
    for name, archive in {**ARCHIVES, **REFUSED}.items():
        (HERE / f"{name}.tar").write_bytes(archive)
    for name in ARCHIVES:
        with tarfile.open(HERE / f"{name}.tar", "r:") as tar:
            for member in tar:
                where = (member.offset, member.offset_data, member.size, int(member.isreg()))
                lines.append("\t".join([name, *map(str, where), member.name]) + "\n")
    (HERE / "members.txt").write_text("".join(lines))
