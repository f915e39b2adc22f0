"""Lays the documents out for mdBook (`prepare FOLDER`), and checks the links of the built book
(`check FOLDER`). The book has the folders of the repository, so links between its pages stay as they
are; all other relative links lead to the repository on GitHub."""

import html.parser
import os
import pathlib
import re
import shutil
import sys
import urllib.parse

SITE = pathlib.PurePosixPath("docs/site")
REPOSITORY = "https://github.com/redquorum/redquorum/"
MAIN = re.compile(re.escape(REPOSITORY) + r"(?:blob|tree)/main/([^#?]*)")
# Of a link, `](address`, and of its definition, `[text]: address`.
LINK = re.compile(r"(\]\(|^\[[^\]]+\]: )([^)\s`]+)")


def resolved(folder, link):
    """A relative link of a document in FOLDER, as a path from the root of the repository."""
    return os.path.normpath(folder / urllib.parse.unquote(link))


def in_prose(text, change):
    """Changes the lines that are not code."""
    code = False
    for line in text.splitlines(keepends=True):
        fence = line.lstrip().startswith("```")
        code ^= fence
        yield line if code or fence else change(line)


def prepare(work):
    source = work / "src"
    source.mkdir(parents=True)
    for name in ["book.toml", "site.css"]:
        shutil.copy(SITE / name, work / name)
    summary = (pathlib.Path(SITE) / "SUMMARY.md").read_text()
    pages = {resolved(SITE, link) for _, link in LINK.findall(summary)}
    whole = LINK.sub(lambda link: link[1] + resolved(SITE, link[2]), summary)
    (source / "SUMMARY.md").write_text(whole)
    shutil.copytree("docs/images", source / "docs/images")
    for page in sorted(pages):
        folder = pathlib.PurePosixPath(page).parent

        def lead(link):
            path, mark, anchor = link[2].partition("#")
            to = resolved(folder, path)
            if not path or ":" in path or to in pages or to.startswith("docs/images/"):
                return link[0]
            kind = "tree" if os.path.isdir(to) else "blob"
            return f"{link[1]}{REPOSITORY}{kind}/main/{to}{mark}{anchor}"

        (source / page).parent.mkdir(parents=True, exist_ok=True)
        text = pathlib.Path(page).read_text()
        # A link may begin in one line and end in the next, but its address is in one.
        (source / page).write_text("".join(in_prose(text, lambda line: LINK.sub(lead, line))))


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.ids, self.links = set(), set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id" or (name == "name" and tag == "a"):
                self.ids.add(value)
            elif name in ("href", "src") and value and tag != "base":
                self.links.add(value)


def check(book):
    book = book.resolve()
    pages = {path: Page(path) for path in book.rglob("*.html")}
    dead, count = [], 0
    for path, page in sorted(pages.items()):
        for link in sorted(page.links):
            count += 1
            ours = MAIN.match(link)
            if ours:
                if not os.path.exists(urllib.parse.unquote(ours[1])):
                    dead.append(f"{path.relative_to(book)}: {link}")
                continue
            url = urllib.parse.urlsplit(link)
            if url.scheme or url.netloc or (path.name == "404.html" and not url.path):
                continue
            # The page for unknown addresses has links from the root of the host.
            below, name = path.parent, urllib.parse.unquote(url.path)
            if name.startswith("/redquorum/"):
                below, name = book, name.removeprefix("/redquorum/")
            to = pathlib.Path(os.path.normpath(below / name)) if name else path
            to = to / "index.html" if to.is_dir() else to
            anchor = urllib.parse.unquote(url.fragment)
            if not to.exists() or (anchor and to in pages and anchor not in pages[to].ids):
                dead.append(f"{path.relative_to(book)}: {link}")
    print(f"site: {len(pages)} pages, {count} links, {len(dead)} of them dead")
    print(*dead, sep="\n")
    return bool(dead) or len(pages) < 30


if __name__ == "__main__":
    sys.exit({"prepare": prepare, "check": check}[sys.argv[1]](pathlib.Path(sys.argv[2])))
