"""The built dashboard as files."""

import pytest


@pytest.fixture
def built(tmp_path):
    folder = tmp_path / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>built</title>")
    (folder / "assets" / "index-3fa9.js").write_text("export {}")
    (folder / "icon.svg").write_text("<svg/>")
    (tmp_path / "secret.txt").write_text("secret")
    return folder


@pytest.fixture
def client(make_log, client_of, built):
    return client_of(make_log(), static_dir=built)


def test_page_is_asked_for_anew_and_loads_nothing_from_elsewhere(client):
    response = client.get("/restore/")
    assert response.status_code == 200
    assert "built" in response.text
    assert response.headers["content-type"].startswith("text/html")
    assert response.headers["cache-control"] == "no-cache"
    policy = response.headers["content-security-policy"]
    for part in (
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "frame-ancestors 'none'",
    ):
        assert part in policy
    assert response.headers["x-content-type-options"] == "nosniff"


def test_hashed_files_may_be_kept_for_ever(client):
    response = client.get("/restore/assets/index-3fa9.js")
    assert response.status_code == 200
    assert "immutable" in response.headers["cache-control"]
    assert "javascript" in response.headers["content-type"]
    assert client.get("/restore/icon.svg").headers["cache-control"] == "no-cache"


def test_unchanged_page_is_304(client):
    etag = client.get("/restore/").headers["etag"]
    response = client.get("/restore/", headers={"if-none-match": etag})
    assert response.status_code == 304
    assert response.headers["cache-control"] == "no-cache"


def test_head_is_answered_as_get_is(client):
    response = client.head("/restore/")
    assert response.status_code == 200
    assert response.content == b""


@pytest.mark.parametrize("path", ["/restore", "/"])
def test_short_paths_lead_to_the_page(client, path):
    response = client.get(path)
    assert response.status_code == 200
    assert response.url.path == "/restore/"
    assert client.get(path, follow_redirects=False).status_code == 307


@pytest.mark.parametrize(
    "path", ["..%2fsecret.txt", "%2e%2e/secret.txt", "assets/..%2f..%2fsecret.txt", "assets/none.js", "assets"]
)
def test_nothing_but_the_folders_files_is_served(client, path):
    response = client.get(f"/restore/{path}")
    assert response.status_code == 404
    assert "detail" in response.json()


def test_page_that_is_not_built_says_how_to_build_it(make_log, client_of, tmp_path):
    folder = tmp_path / "later"
    client = client_of(make_log(), static_dir=folder)
    response = client.get("/restore/")
    assert response.status_code == 503
    assert "make web" in response.text
    assert "npm ci" in response.text
    folder.mkdir()
    (folder / "index.html").write_text("now it is")
    assert client.get("/restore/").text == "now it is"
