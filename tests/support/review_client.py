"""Asking the review without a network: one request at a time, as a browser would send it."""

import asyncio
import re

import httpx

from reweigh.review import ReviewState as Desk
from reweigh.review.gate import Keys
from reweigh.review.pages import application
from reweigh.runs import open_run

HOST = "127.0.0.1:8477"


class Client:
    """A browser that was shown the address, unless `known` is False."""

    def __init__(self, folder, *, known=True):
        self.desk = Desk(open_run(folder))
        self.keys = Keys(port=8477)
        self.app = application(self.desk, self.keys)
        self.cookies = {self.keys.cookie: self.keys.token} if known else {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.desk.close()

    def request(self, method, path, *, headers=None, host=HOST, **options):
        async def send():
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(
                transport=transport, base_url=f"http://{host}", cookies=self.cookies
            ) as client:
                return await client.request(method, path, headers=headers, **options)

        return asyncio.run(send())

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, body, **options):
        headers = {"Origin": f"http://{HOST}"} | options.pop("headers", {})
        return self.request("POST", path, json=body, headers=headers, **options)

    def decide(self, index, action, label=None, query=""):
        body = {"index": index, "action": action, "label": label, "query": query}
        return self.post("/decide", body)

    def rows(self, query="", *, action="skip"):
        """The rows one comes through by deciding `action` again and again."""
        found, answer = [], self.get(f"/card?{query}").json()
        while answer["row"] is not None and answer["row"] not in found:
            found.append(answer["row"])
            answer = self.decide(found[-1], action, query=query).json()
        return found


def text_of(html):
    """What a person reads in a piece of a page."""
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())
