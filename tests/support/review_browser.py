"""A real Chromium, and reviews for it to open."""

import os
import shutil
import threading
from contextlib import contextmanager

import pytest

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update",
         "--disable-sync")  # fmt: skip
NEEDED = "REWEIGH_NEEDS_BROWSER"  # set by .ci/run: there, a missing browser is a failure


@contextmanager
def chromium():
    """The system's Chromium, driven by playwright; skips without, unless it is needed."""
    path = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path = None
    if path is None:
        need = "browser tests need playwright and Debian's chromium; run: make browser"
        (pytest.fail if os.environ.get(NEEDED) else pytest.skip)(need)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@contextmanager
def served(folder):
    """The review of a run folder: its desk, its address, and `stop` to end it early."""
    import uvicorn

    from reweigh.review import ReviewState as Desk
    from reweigh.review.gate import Keys
    from reweigh.review.pages import application
    from reweigh.review.serving import bound
    from reweigh.runs import open_run

    desk, listening = Desk(open_run(folder)), bound(None)
    port = listening.getsockname()[1]
    keys = Keys(port=port)
    config = uvicorn.Config(application(desk, keys), lifespan="off", log_level="warning", ws="none",
                            http="h11", timeout_graceful_shutdown=1)  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()

    def stop():
        server.should_exit = True
        thread.join()
        listening.close()

    try:
        yield desk, f"http://127.0.0.1:{port}/?token={keys.token}", stop
    finally:
        stop()
        desk.close()
