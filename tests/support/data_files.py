"""Small data sets in the official file formats, and a web server that can be told to misbehave."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

from reweigh.data.sets import store
from reweigh.data.sets.catalog import SOURCES, Official, Source
from reweigh.data.sets.layouts import IDX, Arrays
from reweigh.data.sets.origins import RemoteFile

CLASSES = 10


def tiny_arrays(
    shape: tuple[int, int, int], *, train: int = 50, test: int = 10, classes: int = CLASSES
) -> Arrays:
    draw = np.random.Generator(np.random.PCG64(7))
    return {
        "train_images": draw.integers(0, 256, (train, *shape), dtype=np.uint8),
        "train_labels": np.resize(np.arange(classes, dtype=np.uint8), train),
        "test_images": draw.integers(0, 256, (test, *shape), dtype=np.uint8),
        "test_labels": np.resize(np.arange(classes, dtype=np.uint8), test),
    }


def tiny_source(name: str, arrays: Arrays, **changes: object) -> Source:
    """The entry called `name`, resized and pinned to `arrays`."""
    return replace(
        SOURCES[name],
        train=len(arrays["train_labels"]),
        test=len(arrays["test_labels"]),
        digests=store.digests(arrays),
        file_md5={},
        origins=(),
        **changes,  # type: ignore[arg-type]
    )


def idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.tobytes()


def idx_files(arrays: Arrays) -> dict[str, bytes]:
    names = ("train_images", "train_labels", "test_images", "test_labels")
    return {
        file: idx(arrays[name][:, 0] if name.endswith("images") else arrays[name])
        for file, name in zip(IDX.files, names, strict=True)
    }


def csv_files(arrays: Arrays) -> dict[str, bytes]:
    files = {}
    for part in ("train", "test"):
        images = arrays[f"{part}_images"].reshape(len(arrays[f"{part}_images"]), -1)
        rows = [
            ",".join(map(str, [label, *pixels]))
            for label, pixels in zip(arrays[f"{part}_labels"], images, strict=True)
        ]
        header = ",".join(["label", *(f"p{k}" for k in range(images.shape[1]))])
        files[f"mnist_{part}.csv"] = ("\n".join([header, *rows]) + "\n").encode()
    return files


def _batches(arrays: Arrays) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Five train batches and one test batch, as CIFAR-10 is cut."""
    images, labels = arrays["train_images"], arrays["train_labels"]
    cuts = zip(np.array_split(images, 5), np.array_split(labels, 5), strict=True)
    named = {f"data_batch_{k}": cut for k, cut in enumerate(cuts, start=1)}
    return {**named, "test_batch": (arrays["test_images"], arrays["test_labels"])}


def cifar10_binary(arrays: Arrays) -> dict[str, bytes]:
    return {
        f"{name}.bin": np.concatenate([y[:, None], x.reshape(len(x), -1)], axis=1).tobytes()
        for name, (x, y) in _batches(arrays).items()
    }


def cifar10_pickle(arrays: Arrays) -> dict[str, bytes]:
    return {name: python2_pickle(x, y, "labels") for name, (x, y) in _batches(arrays).items()}


def cifar10_sheets(arrays: Arrays) -> dict[str, bytes]:
    from PIL import Image

    files = {}
    for name, (x, _) in _batches(arrays).items():
        out = io.BytesIO()
        rows = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).reshape(len(x), 1024, 3)
        Image.fromarray(rows).save(out, "PNG")
        files[f"{name}.png"] = out.getvalue()
    for part in ("train", "test"):
        files[f"{part}_lables.json"] = json.dumps(arrays[f"{part}_labels"].tolist()).encode()
    return files


def cifar100_binary(arrays: Arrays) -> dict[str, bytes]:
    return {
        f"{part}.bin": np.concatenate(
            [
                arrays[f"{part}_labels"][:, None] // 5,
                arrays[f"{part}_labels"][:, None],
                arrays[f"{part}_images"].reshape(len(arrays[f"{part}_images"]), -1),
            ],
            axis=1,
        ).tobytes()
        for part in ("train", "test")
    }


def cifar100_pickle(arrays: Arrays) -> dict[str, bytes]:
    return {
        part: python2_pickle(arrays[f"{part}_images"], arrays[f"{part}_labels"], "fine_labels")
        for part in ("train", "test")
    }


def python2_pickle(images: np.ndarray, labels: np.ndarray, key: str) -> bytes:
    """Opcode by opcode what Python 2.6 and numpy 1.3 wrote, as in the official archives."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    raw = images.tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n"
        + (b"cnumpy\nndarray\n" + number(0) + b"\x85" + text(b"b") + b"\x87R")
        + (b"(" + number(1) + number(len(images)) + number(3072) + b"\x86")
        + (b"cnumpy\ndtype\n" + text(b"u1") + number(0) + number(1) + b"\x87R")
        + (b"(" + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb")
        + (b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb")
    )
    listed = b"](" + b"".join(number(int(y)) for y in labels) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(key.encode()) + listed + b"u."


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def tar_gz(files: dict[str, bytes], top: str = "set") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def gzipped(files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in files.items()}


@dataclass
class Web:
    """What the server has and how it behaves; `asked` logs (path, Range header)."""

    files: dict[str, bytes] = field(default_factory=dict)
    base: str = ""
    cut_after: int = 0
    cuts_left: int = 0
    resumes: bool = True
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def official(self) -> Official:
        return Official(
            tuple(
                RemoteFile(f"{self.base}/{name}", hashlib.md5(content).hexdigest(), len(content))
                for name, content in self.files.items()
            )
        )


@contextmanager
def served(files: dict[str, bytes]) -> Iterator[Web]:
    web = Web(files)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            web.asked.append((self.path, wanted))
            content = web.files.get(self.path.lstrip("/"))
            if content is None:
                self.send_error(404)
                return
            start = 0
            if wanted and web.resumes:
                start = int(wanted.removeprefix("bytes=").rstrip("-"))
                self.send_response(206)
            else:
                self.send_response(200)
            body = content[start:]
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if web.cuts_left and len(body) > web.cut_after:
                web.cuts_left -= 1
                body = body[: web.cut_after]
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    web.base = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
