"""The review is for the person at this computer, and data cannot act through it."""

import json
import os
import re
from html.parser import HTMLParser

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("starlette")
pytest.importorskip("httpx")

from support.review_client import HOST, Client
from support.review_runs import image_run, suspect, table_run, text_run, write_run

PATHS = ["/", "/card", "/progress", "/classes", "/image/1", "/files/confirmed.csv"]
POSTS = ["/decide", "/undo", "/export"]
KEEP = {"index": 1, "action": "keep"}


@pytest.fixture
def client(tmp_path):
    with Client(table_run(tmp_path)) as made:
        yield made


@pytest.fixture
def stranger(tmp_path):
    with Client(table_run(tmp_path), known=False) as made:
        yield made


@pytest.mark.parametrize("path", PATHS)
def test_without_the_cookie_nothing_is_told(stranger, path):
    for cookies in ({}, {stranger.keys.cookie: "guess"}, {stranger.keys.cookie: ""}):
        stranger.cookies = cookies
        answer = stranger.get(path)
        assert answer.status_code == 403
        assert "pet" not in answer.text
        assert stranger.keys.token not in answer.text


@pytest.mark.parametrize("path", POSTS)
def test_without_the_cookie_nothing_is_done(stranger, path):
    assert stranger.post(path, KEEP).status_code == 403
    assert stranger.desk.progress().decided == 0


def test_the_printed_token_is_exchanged_for_a_strict_cookie(stranger):
    answer = stranger.get(f"/?token={stranger.keys.token}")
    assert answer.status_code == 200
    cookie = answer.headers["set-cookie"]
    assert f"{stranger.keys.cookie}={stranger.keys.token};" in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "pet" not in answer.text
    assert stranger.get("/?token=wrong").status_code == 403
    assert stranger.get("/?token=").status_code == 403
    assert stranger.get(f"/card?token={stranger.keys.token}").status_code == 403


def test_a_ticket_opens_once(stranger):
    ticket = stranger.keys.ticket()
    assert "set-cookie" in stranger.get(f"/?token={ticket}").headers
    assert stranger.get(f"/?token={ticket}").status_code == 403


def test_tokens_differ_and_cannot_be_guessed(tmp_path):
    from reweigh.review.gate import Keys

    tokens = {Keys(port=1).token for _ in range(50)}
    assert len(tokens) == 50
    assert min(map(len, tokens)) >= 43  # 256 bits


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8477", "127.0.0.1.evil.example",
                                  "localhost.evil.example:8477", "10.0.0.1:8477"])  # fmt: skip
def test_a_name_on_the_net_pointed_here_is_refused(client, host):
    assert client.get("/", headers={"Host": host}).status_code == 421
    origin = {"Host": host, "Origin": f"http://{host}"}
    assert client.post("/decide", KEEP, headers=origin).status_code == 421
    assert client.desk.progress().decided == 0


def test_a_tunnel_to_another_port_is_fine(client):
    assert client.get("/", headers={"Host": "localhost:9000"}).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1",
                                    "http://localhost:8477", f"https://{HOST}", ""])  # fmt: skip
@pytest.mark.parametrize("path", POSTS)
def test_other_pages_cannot_decide(client, path, origin):
    assert client.post(path, KEEP, headers={"Origin": origin}).status_code == 403
    assert client.desk.progress().decided == 0


def test_without_an_origin_nothing_is_done(client):
    assert client.request("POST", "/decide", json=KEEP).status_code == 403


def test_a_form_of_another_site_has_the_wrong_type(client):
    answer = client.request("POST", "/decide", data={"index": "1"},
                            headers={"Origin": f"http://{HOST}"})  # fmt: skip
    assert answer.status_code == 415


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH"])
def test_other_methods_are_refused(client, method):
    headers = {"Origin": f"http://{HOST}", "Content-Type": "application/json"}
    assert client.request(method, "/decide", headers=headers).status_code == 405


@pytest.mark.parametrize("size", [65_537, 5_000_000])
def test_bodies_are_bounded(client, size):
    assert client.post("/decide", {"index": 1, "action": "k" * size}).status_code == 413


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 50_000, b"NaN"])
def test_bodies_that_are_not_json_are_refused(client, body):
    answer = client.request("POST", "/decide", content=body,
                            headers={"Origin": f"http://{HOST}", "Content-Type": "application/json"})  # fmt: skip
    assert answer.status_code == 422


@pytest.mark.parametrize("path", [*PATHS, "/static/review.js", "/static/nothing", "/nowhere"])
def test_every_answer_forbids_what_the_page_does_not_need(client, path):
    headers = client.get(path).headers
    policy = dict(part.strip().split(" ", 1)
                  for part in headers["content-security-policy"].split(";"))  # fmt: skip
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["img-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"


def test_refusals_carry_the_same_headers(stranger):
    for answer in (stranger.get("/"), stranger.get("/", headers={"Host": "evil.example"})):
        assert "default-src 'none'" in answer.headers["content-security-policy"]


class Tags(HTMLParser):
    """Every element and attribute of a page."""

    def __init__(self, text):
        super().__init__()
        self.found, self.text = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


EVIL = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' autofocus onfocus=alert(1) x='",
    "</textarea></script><script>alert(1)</script>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "&lt;script&gt;",
]


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize("kind", ["table", "text"])
def test_data_stay_text_wherever_they_are_shown(tmp_path, evil, kind):
    example = json.dumps({evil: evil, "other": evil}) if kind == "table" else evil
    folder = write_run(tmp_path / "run", [suspect(0, evil, evil + "2", example, why=evil),
                                          suspect(1, evil, None, example, why=evil)],
                       data=tmp_path, rows=2, kind=kind, classes=[evil, evil + "2"])  # fmt: skip
    plain = write_run(tmp_path / "plain", [suspect(0, "a", "a2", json.dumps({"a": "a", "other": "a"})
                                                   if kind == "table" else "a"),
                                           suspect(1, "a", None, "{}")],
                      data=tmp_path, rows=2, kind=kind, classes=["a", "a2"])  # fmt: skip
    with Client(folder) as client, Client(plain) as harmless:
        page, other = Tags(client.get("/").text), Tags(harmless.get("/").text)
        shape = [(tag, sorted(attributes)) for tag, attributes in page.found]
        assert shape == [(tag, sorted(attributes)) for tag, attributes in other.found]
        assert evil in "".join(page.text)
        answer = client.decide(0, "relabel", evil + "2", query="").json()
        assert evil + "2" in answer["said"]  # shown as text, never as markup
        card = Tags(answer["card"])
        assert not [tag for tag, _ in card.found if tag in ("script", "svg", "img")]


def test_the_page_has_no_inline_script_style_or_foreign_address(tmp_path):
    for number, make in enumerate((table_run, image_run)):
        with Client(make(tmp_path / str(number))) as client:
            for tag, attributes in Tags(client.get("/").text).found:
                assert tag != "style"
                assert tag != "script" or attributes["src"].startswith("/static/")
                assert not [name for name in attributes if name.startswith("on") or name == "style"]
                for name in ("src", "href"):
                    assert attributes.get(name, "/").startswith(("/", "#"))


def test_characters_that_turn_the_text_around_are_shown_and_not_obeyed(tmp_path):
    turned = "invoice\u202efdp.exe\u2066\u200b\x00\x1b[31m"
    with Client(text_run(tmp_path, [turned], classes=["a\u202eb", "c"], given="a\u202eb",
                         suggested="c")) as client:  # fmt: skip
        page = re.sub(r"<(?:option|button|article)\b[^>]*>", "", client.get("/").text)
        assert not set("\u202e\u2066\u200b\x00\x1b") & set(page)
        assert "invoice⟨U+202E⟩fdp.exe⟨U+2066⟩⟨U+200B⟩⟨U+0000⟩⟨U+001B⟩[31m" in page
        assert "a⟨U+202E⟩b" in page


def test_right_to_left_writing_is_left_as_it_is(tmp_path):
    with Client(text_run(tmp_path, ["שלום world مرحبا"])) as client:
        card = client.get("/card").json()["card"]
        assert '<p dir="auto">שלום world مرحبا</p>' in card


def test_half_a_surrogate_pair_does_not_stop_the_page(tmp_path):
    folder = write_run(tmp_path / "run", [suspect(0, "cat", "dog", '{"x": "a\\ud800b"}')],
                       data=tmp_path, rows=1)  # fmt: skip
    with Client(folder) as client:
        assert "a\ufffdb" in client.get("/").text


@pytest.mark.parametrize("kind", ["table", "text"])
def test_cells_of_ten_megabytes_are_cut_and_their_length_is_said(tmp_path, kind):
    huge = "x" * 10_000_000
    example = json.dumps({"a": huge}) if kind == "table" else huge
    folder = write_run(tmp_path / "run", [suspect(0, "cat", "dog", example)], data=tmp_path, rows=1,
                       kind=kind)  # fmt: skip
    with Client(folder) as client:
        page = client.get("/").text
        assert len(page) < 60_000
        assert "10,000,000 characters in all" in page


def test_of_very_wide_tables_some_columns_are_shown(tmp_path):
    row = json.dumps({f"c{i}": "x" for i in range(5000)})
    with Client(write_run(tmp_path / "run", [suspect(0, "cat", "dog", row)], data=tmp_path,
                          rows=1)) as client:  # fmt: skip
        page = client.get("/").text
        assert page.count("<tr>") == 200
        assert "4,800 more columns" in page


SECRET = b"\x89PNG\r\n\x1a\n secret"


@pytest.mark.parametrize("path", ["../secret.png", "cat/../../secret.png", "{tmp}/secret.png",
                                  "link.png", "linked/secret.png", "cat", "", ".",
                                  "cat/\0.png", "x" * 5000])  # fmt: skip
def test_images_outside_the_data_folder_are_never_sent(tmp_path, path):
    from PIL import Image

    folder = image_run(tmp_path)
    Image.new("RGB", (7, 7)).save(tmp_path / "secret.png")
    data = tmp_path / "pictures"
    os.symlink(tmp_path / "secret.png", data / "link.png")
    os.symlink(tmp_path, data / "linked")
    named = path.format(tmp=tmp_path)
    write_run(folder, [suspect(1, "cat", "dog", named)], data=data, rows=8, kind="images")
    with Client(folder) as client:
        answer = client.get("/image/1")
        assert answer.status_code == 422
        assert "error" in answer.json()
        assert client.get("/").status_code == 200  # the card says so instead


def test_a_link_inside_the_folder_is_fine(tmp_path):
    folder = image_run(tmp_path)
    data = tmp_path / "pictures"
    os.symlink(data / "dog" / "002.png", data / "cat" / "again.png")
    write_run(folder, [suspect(1, "cat", "dog", "cat/again.png")], data=data, rows=8,
              kind="images")  # fmt: skip
    with Client(folder) as client:
        assert client.get("/image/1").status_code == 200


@pytest.mark.parametrize("content", [b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"<html>", b"",
                                     SECRET, b"%PDF-1.7"])  # fmt: skip
def test_files_that_are_no_raster_image_are_not_sent(tmp_path, content):
    folder = image_run(tmp_path)
    (tmp_path / "pictures" / "cat" / "001.png").write_bytes(content)
    with Client(folder) as client:
        assert client.get("/image/1").status_code == 422
        assert "not an image that can be shown" in client.get("/card?row=1").json()["card"]


@pytest.mark.parametrize("path", ["/image/../source.json", "/image/1/../../x", "/image/%2e%2e",
                                  "/static/../pages.py", "/static/%2e%2e%2fpages.py",
                                  "/files/source.json", "/files/..%2fpets.csv",
                                  "/files/%2fetc%2fpasswd", "/image/1e3"])  # fmt: skip
def test_no_path_of_a_request_reaches_the_file_system(client, path):
    assert client.get(path).status_code == 404
