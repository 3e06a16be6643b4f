# SPDX-License-Identifier: GPL-2.0-only
"""Do the files for CI measure what they are told, and comment where they may, as whom they may?"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from documentation import all_blocks
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.version import __version__

ROOT = Path(__file__).resolve().parents[2]
MARK = "<!-- probe-lab: opens -->"
TOKEN = "secret-of-the-job"
BOT = "github-actions[bot]"


# The server of GitHub and GitLab, as far as comments go.


class Raw(str):
    """An answer as it is, not JSON."""


@dataclass
class Server:
    comments: list[dict[str, Any]]
    gitlab: bool = False
    user: str | None = None
    """None as for the token of an App, GitHub's own among them, which may not ask."""
    app: str = BOT
    """Whose token it is that may not ask."""
    knows_viewer: bool = True
    """Whether GraphQL says whose token it is."""
    may_edit: Collection[str] | None = None
    """Whose comments may be edited; None: everybody's."""
    longest_page: int = 100
    may_write: bool = True
    limited: bool = False
    redirect: str | None = None
    asked: list[tuple[str, str]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    address: str = ""

    def add(self, body: str, user: str = BOT) -> None:
        who = {"author": {"username": user}} if self.gitlab else {"user": {"login": user}}
        self.comments.append({"id": 1000 + len(self.comments), "body": body, **who})

    @property
    def bodies(self) -> list[str]:
        return [one["body"] for one in self.comments]

    def answer(self, method: str, path: str, content: Any) -> tuple[int, Any]:
        url = urlsplit(path)
        if url.path.endswith("/user"):
            name = "username" if self.gitlab else "login"
            return (403, {}) if self.user is None else (200, {name: self.user})
        if method == "GET":
            query = parse_qs(url.query)
            size = min(int(query["per_page"][0]), self.longest_page)
            first = (int(query["page"][0]) - 1) * size
            return 200, self.comments[first : first + size]
        if url.path == "/graphql":
            assert method == "POST"
            assert "viewer" in content["query"]
            if not self.knows_viewer:
                return 403, {}
            return 200, {"data": {"viewer": {"login": self.app}}}
        if not self.may_write or self.limited:
            return 403, {"message": "::set-output name=x::y"}
        if method == "POST":
            self.add(content["body"], self.user or self.app)
            return 201, {}
        assert method == ("PUT" if self.gitlab else "PATCH")
        (one,) = (one for one in self.comments if str(one["id"]) == url.path.rpartition("/")[2])
        author = one["author"]["username"] if self.gitlab else one["user"]["login"]
        if self.may_edit is not None and author not in self.may_edit:
            return 403, {"message": "Resource not accessible by integration"}
        one["body"] = content["body"]
        return 200, {}


def serve(server: Server) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def handle_one(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            content = json.loads(self.rfile.read(length)) if length else None
            server.asked.append((self.command, self.path))
            server.headers.append(dict(self.headers))
            status, answer = server.answer(self.command, self.path, content)
            if server.redirect is not None:
                status = 302
            self.send_response(status)
            if server.redirect is not None:
                self.send_header("Location", server.redirect)
            if server.limited:
                self.send_header("X-RateLimit-Remaining", "0")
            self.end_headers()
            self.wfile.write((answer if isinstance(answer, Raw) else json.dumps(answer)).encode())

        do_GET = do_POST = do_PATCH = do_PUT = handle_one  # noqa: N815  # the names that http.server calls

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    server.address = f"http://127.0.0.1:{http.server_address[1]}"
    return http


@pytest.fixture
def github() -> Iterator[Server]:
    server = Server([])
    http = serve(server)
    yield server
    http.shutdown()
    http.server_close()


@pytest.fixture
def gitlab() -> Iterator[Server]:
    server = Server([], gitlab=True, user="project_7_bot")
    http = serve(server)
    yield server
    http.shutdown()
    http.server_close()


def comment(folder: Path, server: Server, event: object = None, **more: str) -> subprocess.CompletedProcess[str]:
    """Call the script as a step of a pull request's job does. The result has the sentence on stderr."""
    (folder / "event.json").write_text(json.dumps(event or {"pull_request": {"number": 7}}))
    (folder / "comment.md").write_text(f"{MARK}\n\nnew\n")
    if server.gitlab:
        environment = {
            "CI_API_V4_URL": f"{server.address}/api/v4",
            "CI_PROJECT_ID": "7",
            "CI_MERGE_REQUEST_IID": "3",
            "LAB_GITLAB_TOKEN": TOKEN,
        }
    else:
        environment = {
            "GITHUB_API_URL": server.address,
            "GITHUB_GRAPHQL_URL": f"{server.address}/graphql",
            "GITHUB_REPOSITORY": "owner/project",
            "GITHUB_EVENT_PATH": str(folder / "event.json"),
            "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
            "GITHUB_TOKEN": TOKEN,
        }
    done = subprocess.run(
        [sys.executable, "-I", str(ROOT / "ci/comment.py"), str(folder / "comment.md")],
        env={**environment, **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "Traceback" not in done.stderr
    assert TOKEN not in done.stdout + done.stderr
    return done


def test_the_first_comment_is_written(github: Server, tmp_path: Path) -> None:
    done = comment(tmp_path, github)
    assert (done.returncode, done.stderr) == (0, "the comment was written\n")
    assert github.bodies == [f"{MARK}\n\nnew\n"]
    assert github.asked[-1] == ("POST", "/repos/owner/project/issues/7/comments")
    assert "the comment was written" in (tmp_path / "summary.md").read_text()


def test_a_comment_on_a_later_page_is_replaced(github: Server, tmp_path: Path) -> None:
    for number in range(150):
        github.add(f"comment {number}", "somebody")
    github.add(f"{MARK}\r\n\r\nold `$(touch executed)`")
    github.add("the last one", "somebody")
    done = comment(tmp_path, github)
    assert (done.returncode, done.stderr) == (0, "the comment was replaced\n")
    assert github.bodies[150] == f"{MARK}\n\nnew\n"
    assert len(github.comments) == 152
    assert github.asked[-1] == ("PATCH", "/repos/owner/project/issues/comments/1150")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("count", [100, 101])
def test_all_pages_are_read_before_a_comment_is_written(github: Server, tmp_path: Path, count: int) -> None:
    for _ in range(count):
        github.add("<!-- probe-lab: another -->")
    assert "written" in comment(tmp_path, github).stderr
    assert len(github.comments) == count + 1


@pytest.mark.parametrize(("user", "body"), [("attacker", MARK), (BOT, f"> {MARK}"), (BOT, f"first\n{MARK}"), (BOT, "")])
def test_other_comments_stay(github: Server, tmp_path: Path, user: str, body: str) -> None:
    """Its author could edit a replaced comment, so that it shows another verdict."""
    github.add(body, user)
    assert "written" in comment(tmp_path, github).stderr
    assert github.bodies == [body, f"{MARK}\n\nnew\n"]


def test_a_token_of_a_person_finds_that_person_s_comment(github: Server, tmp_path: Path) -> None:
    github.user = "maintainer"
    github.add(MARK, BOT)
    github.add(MARK, "maintainer")
    assert "replaced" in comment(tmp_path, github).stderr
    assert github.bodies == [MARK, f"{MARK}\n\nnew\n"]


APP = "my-app[bot]"


@pytest.mark.parametrize("app", [BOT, APP])
@pytest.mark.parametrize("more", [{}, {"GITHUB_GRAPHQL_URL": ""}], ids=["asked", "REST-alone"])
@pytest.mark.parametrize("knows_viewer", [True, False])
def test_an_app_replaces_its_comment(
    github: Server, tmp_path: Path, app: str, more: dict[str, str], knows_viewer: bool
) -> None:
    github.app, github.knows_viewer = app, knows_viewer
    github.add(f"{MARK}\n\nanybody's", "attacker")
    for said in ("written", "replaced", "replaced"):
        assert comment(tmp_path, github, **more).stderr == f"the comment was {said}\n"
    assert github.bodies == [f"{MARK}\n\nanybody's", f"{MARK}\n\nnew\n"]


def test_apps_do_not_replace_each_other_s_comments(github: Server, tmp_path: Path) -> None:
    for app in (BOT, APP, "other-app[bot]"):
        github.app = app
        assert comment(tmp_path, github).stderr == "the comment was written\n"
        assert comment(tmp_path, github).stderr == "the comment was replaced\n"
    assert [one["user"]["login"] for one in github.comments] == [BOT, APP, "other-app[bot]"]


def test_a_comment_that_may_not_be_edited_stays(github: Server, tmp_path: Path) -> None:
    """Where GraphQL does not say whose token it is, it is found by what may be edited."""
    github.app, github.knows_viewer, github.may_edit = APP, False, [APP]
    github.add(f"{MARK}\n\nold", "other-app[bot]")
    assert comment(tmp_path, github).stderr == "the comment was written\n"
    assert comment(tmp_path, github).stderr == "the comment was replaced\n"
    assert github.bodies == [f"{MARK}\n\nold", f"{MARK}\n\nnew\n"]


def test_a_user_whose_name_is_an_app_s_is_another(github: Server, tmp_path: Path) -> None:
    github.app = APP
    github.add(f"{MARK}\n\nold", "my-app")
    assert comment(tmp_path, github).stderr == "the comment was written\n"
    assert len(github.comments) == 2


def test_a_server_with_shorter_pages(github: Server, tmp_path: Path) -> None:
    github.longest_page = 30
    for number in range(45):
        github.add(f"comment {number}", "somebody")
    github.add(MARK)
    assert comment(tmp_path, github).stderr == "the comment was replaced\n"


def test_without_permission_to_write_there_is_the_summary(github: Server, tmp_path: Path) -> None:
    github.may_write = False
    done = comment(tmp_path, github)
    assert done.returncode == 0
    assert "may not write one, as in pull requests of forks; the job's summary has it" in done.stderr
    assert "may not write one" in (tmp_path / "summary.md").read_text()
    assert "::" not in done.stdout + done.stderr


def test_too_many_requests_are_no_lack_of_permission(github: Server, tmp_path: Path) -> None:
    github.user, github.limited = "maintainer", True
    done = comment(tmp_path, github)
    assert done.returncode == 1
    assert done.stderr == "error: POST /repos/owner/project/issues/7/comments: status 403, too many requests\n"


def test_the_token_is_in_a_header_of_the_named_server_alone(github: Server, gitlab: Server, tmp_path: Path) -> None:
    comment(tmp_path, github)
    assert [headers["Authorization"] for headers in github.headers] == [f"Bearer {TOKEN}"] * len(github.asked)
    assert not any(TOKEN in path for _, path in github.asked)
    asked = len(github.asked)
    gitlab.redirect = github.address
    done = comment(tmp_path, gitlab)
    assert (done.returncode, len(github.asked)) == (1, asked)
    assert done.stderr == "error: GET /api/v4/user: status 302\n"


@pytest.mark.parametrize(
    ("event", "more", "sentence"),
    [
        ({"ref": "refs/heads/main"}, {}, "the event is not of a pull request"),
        (None, {"GITHUB_TOKEN": ""}, "GITHUB_TOKEN is not set"),
    ],
)
def test_without_a_request_there_is_no_comment(
    github: Server, tmp_path: Path, event: object, more: dict[str, str], sentence: str
) -> None:
    done = comment(tmp_path, github, event, **more)
    assert (done.returncode, done.stderr) == (0, f"no comment: {sentence}\n")
    assert github.asked == []


def test_an_answer_that_is_no_json(github: Server, tmp_path: Path) -> None:
    github.answer = lambda *_: (200, Raw("<html>"))  # type: ignore[method-assign]  # as a proxy may
    done = comment(tmp_path, github)
    assert (done.returncode, done.stderr.startswith("error: Expecting value")) == (1, True)


def test_a_server_that_is_not_there(github: Server, tmp_path: Path) -> None:
    done = comment(tmp_path, github, GITHUB_API_URL="http://127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")


def test_a_note_of_gitlab_is_written_and_replaced(gitlab: Server, tmp_path: Path) -> None:
    gitlab.add(MARK, "somebody")
    assert comment(tmp_path, gitlab).stderr == "the comment was written\n"
    assert comment(tmp_path, gitlab).stderr == "the comment was replaced\n"
    assert gitlab.bodies == [MARK, f"{MARK}\n\nnew\n"]
    assert gitlab.asked[-1] == ("PUT", "/api/v4/projects/7/merge_requests/3/notes/1001")
    assert gitlab.headers[-1]["Private-Token"] == TOKEN
    assert "not set, as in merge requests of forks" in comment(tmp_path, gitlab, LAB_GITLAB_TOKEN="").stderr


# The script that measures.

LAB = """#!/bin/sh
printf '%s\\0' "$@" >"$ARGUMENTS"
[ "$1" != test ] || : >"${2#--junitxml=}"
echo '::add-mask::x ``` <b>'
[ -n "${SILENT:-}" ] || printf '%s\\n' '<!-- probe-lab: experiment -->' '' 'a table'
echo 'progress' >&2
exit "${STATUS:-0}"
"""


@dataclass
class Job:
    folder: Path

    def __post_init__(self) -> None:
        shutil.copytree(ROOT / "ci", self.folder / "lab" / "ci")
        (self.folder / "lab" / "lab").write_text(LAB)
        (self.folder / "lab" / "lab").chmod(0o755)

    def run(self, words: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"], "LAB_RUN": words, "ARGUMENTS": str(self.folder / "arguments")}
        return subprocess.run(
            [str(self.folder / "lab" / "ci" / "run.sh")],
            cwd=self.folder,
            env={**environment, **more},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    @property
    def words(self) -> list[str]:
        """The arguments of the lab."""
        return (self.folder / "arguments").read_text().split("\0")[:-1]

    @property
    def comment(self) -> list[str]:
        return (self.folder / "lab-reports" / "comment.md").read_text().splitlines()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_quotes_are_a_shell_s_and_nothing_is_executed(job: Job) -> None:
    program = "bpftrace: kprobe:vfs_read { @[comm] = hist(arg2); }"
    assert job.run(f"""cost '{program}' "$(touch executed)" `id` *""").returncode == 0
    assert job.words == ["cost", program, "$(touch executed)", "`id`", "*", "--format", "github"]
    assert not (job.folder / "executed").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "cost kprobe \\\n  --kernels 6.1 \\\n  --at-most 900",
            ["cost", "kprobe", "--kernels", "6.1", "--at-most", "900"],
        ),
        ("cost kprobe\n  --kernels 6.1\n", ["cost", "kprobe", "--kernels", "6.1"]),
        ("cost kprobe \\\r\n --kernels\t6.1\r\n", ["cost", "kprobe", "--kernels", "6.1"]),
        ("cost kpr\\\nobe \\\n", ["cost", "kprobe"]),
        ("cost 'bpftrace: a\n  { }' x", ["cost", "bpftrace: a\n  { }", "x"]),
        ('cost "a\n b" "c\\\nd"', ["cost", "a\n b", "cd"]),
        ("cost 'a\\\nb'", ["cost", "a\\\nb"]),
        ('cost "\\$HOME \\` \\" \\\\ \\n \'"', ["cost", "$HOME ` \" \\ \\n '"]),
        ("""cost 'it'"'"'s' it\\'s""", ["cost", "it's", "it's"]),
        ("cost '' \"\" x''y", ["cost", "", "", "xy"]),
        ("# why\ncost a#b # what\n  'c' #d \\\n  \\# ''#e", ["cost", "a#b", "c", "#", "#e"]),
        (
            "cost $HOME ${X} $(id) `id` * ~ {a,b} a;b & c | d >e",
            ["cost", "$HOME", "${X}", "$(id)", "`id`", "*", "~", "{a,b}", "a;b", "&", "c", "|", "d", ">e"],
        ),
        ("cost 'Größe µ.c' \N{NO-BREAK SPACE}x", ["cost", "Größe µ.c", "\N{NO-BREAK SPACE}x"]),
        ("cost a\\ b\\\tc", ["cost", "a b\tc"]),
        ("cost -- -n -e \\\\n %s", ["cost", "--", "-n", "-e", "\\n", "%s"]),
    ],
)
def test_words_are_those_of_a_shell(job: Job, text: str, words: list[str]) -> None:
    assert job.run(text).returncode == 0
    assert job.words == [*words, "--format", "github"]


def quoted(text: str, *statuses: int, awk: Sequence[str] = ("awk",)) -> str:
    """The words of a text, as ci/words.awk prints them for a shell."""
    command = [*awk, "-f", str(ROOT / "ci/words.awk")]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, env=SPLIT)
    assert done.returncode in (statuses or (0,))
    return done.stdout


def shell_words(text: str) -> list[str]:
    """The words that a shell makes of arguments without an expansion."""
    command = ["sh", "-c", f"set -- {text}\nfor word; do printf '%s\\0' \"$word\"; done"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=SPLIT)
    return done.stdout.split("\0")[:-1]


ALL_IN_QUOTES = re.compile(r"( '[^']*'(\\''[^']*')*)*")
SPLIT = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
INSIDE = st.text("a \t\n#é-", max_size=4)
PARTS = st.one_of(
    st.text("aé-=,", max_size=3),
    st.sampled_from([" ", "\t", "\\\n", "a#", "\\ ", "\\'", '\\"', "\\\\", "\\#", "\\a"]),
    INSIDE.map(lambda text: f"'{text}\\'"),
    st.lists(st.one_of(INSIDE, st.sampled_from(["\\\n", "\\a", '\\"', "\\\\", "'"])), max_size=4).map(
        lambda parts: f'"{"".join(parts)}"'
    ),
)


@given(st.lists(PARTS, max_size=8).map("".join), st.sampled_from(["", " # it's \\"]))
def test_words_are_those_that_a_shell_makes(text: str, comment: str) -> None:
    assert shell_words(quoted(text + comment)) == shell_words(text + comment)


@given(st.text(st.one_of(st.characters(exclude_characters="\0", codec="utf-8"), st.sampled_from("\"'\\\n\r $`;&#("))))
def test_a_shell_executes_nothing_of_a_text(text: str) -> None:
    """All that it gets is in single quotes."""
    assert ALL_IN_QUOTES.fullmatch(quoted(text, 0, 1))


@pytest.mark.parametrize("awk", ["awk", "mawk", "gawk", "gawk --posix", "original-awk", "busybox awk"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("""cost "a' ; echo executed ; '" """, ["cost", "a' ; echo executed ; '"]),
        ("""cost it\\'s \\''a'\\' "''" """, ["cost", "it's", "'a'", "''"]),
        ("""cost "'\\&" '\\&&' \\&\\\\ "\\\\'" """, ["cost", "'\\&", "\\&&", "&\\", "\\'"]),
        ("cost 'Größe µ.c' \N{NO-BREAK SPACE}x", ["cost", "Größe µ.c", "\N{NO-BREAK SPACE}x"]),
        ("# why\ncost a#b # it's\r\n 'c\n d' \\\ne", ["cost", "a#b", "c\n d", "e"]),
    ],
)
def test_each_awk_quotes_what_a_shell_would_execute(awk: str, text: str, words: list[str]) -> None:
    program, *options = awk.split()
    if shutil.which(program) is None:
        pytest.skip(f"the host has no {program}")
    printed = quoted(text, awk=[program, *options])
    assert ALL_IN_QUOTES.fullmatch(printed)
    assert shell_words(printed) == words


def test_a_format_is_a_word(job: Job) -> None:
    job.run("cost 'bpftrace: a --format b'")
    assert job.words == ["cost", "bpftrace: a --format b", "--format", "github"]


def test_a_format_of_the_user_s_own_stays(job: Job) -> None:
    job.run("cost x.c --format=markdown")
    assert job.words == ["cost", "x.c", "--format=markdown"]


def test_a_variable_of_the_job_s_is_not_printed(job: Job) -> None:
    done = job.run("cost x.c", token=TOKEN)
    assert TOKEN not in done.stdout + done.stderr


def test_the_lab_does_not_know_the_word_that_ends_its_output(job: Job) -> None:
    lab = job.folder / "lab" / "lab"
    lab.write_text(LAB.replace("echo 'progress' >&2", "printenv >&2"))
    done = job.run("cost x.c", GITHUB_ACTIONS="true", token="job's")
    first = next(line for line in done.stdout.splitlines() if line.startswith("::stop-commands::"))
    assert first.removeprefix("::stop-commands::") not in done.stderr


@pytest.mark.parametrize("status", [0, 1, 3])
def test_the_status_is_the_lab_s_and_the_comment_has_a_mark_of_the_job(job: Job, status: int) -> None:
    summary = job.folder / "summary.md"
    done = job.run("cost x.c", STATUS=str(status), GITHUB_JOB="gate -->", GITHUB_STEP_SUMMARY=str(summary))
    assert done.returncode == status, done.stderr
    assert job.comment[0].startswith("<!-- probe-lab: gate-----cost-")
    assert job.comment[-1] == "a table"
    assert summary.read_text().splitlines() == job.comment
    assert job.run("cost x.c", LAB_NAME="mine").returncode == 0
    assert job.comment[0] == "<!-- probe-lab: mine -->"


def test_names_that_differ_have_marks_that_differ(job: Job) -> None:
    """One would replace the comment of the other."""
    marks = set()
    for name in ("größe", "graße", "a b", "a-b", "--> @you"):
        job.run("cost x.c", LAB_NAME=name)
        marks.add(job.comment[0])
        assert re.fullmatch(r"<!-- probe-lab: [A-Za-z0-9._@+-]+ -->", job.comment[0])
    assert len(marks) == 5


def test_what_could_not_be_measured_says_so_with_the_end_of_the_output(job: Job) -> None:
    (job.folder / "lab" / "lab").write_text("#!/bin/sh\necho 'error: `no` @such </details> file' >&2\nexit 2\n")
    assert job.run("cost x.c").returncode == 2
    assert job.comment == [
        "<!-- probe-lab: job-cost -->",
        "",
        "❌ **./lab cost: exit status 2**",
        "",
        "    error: `no` @such </details> file",
    ]


def test_tests_have_junit_s_file_and_the_end_of_their_output(job: Job) -> None:
    assert job.run("test tests/ -k 'a or b'", STATUS="1").returncode == 1
    reports = job.folder / "lab-reports"
    files = [f"--junitxml={reports / 'junit.xml'}", f"--qemu-comment={reports / 'comment.md'}"]
    assert job.words == ["test", *files, "tests/", "-k", "a or b"]
    assert (reports / "junit.xml").exists()
    assert job.comment[2:5] == ["❌ **./lab test: exit status 1**", "", "    ::add-mask::x ``` <b>"]


def test_the_runner_takes_no_commands_from_the_output(job: Job) -> None:
    lines = job.run("test tests", GITHUB_ACTIONS="true").stdout.splitlines()
    stop = lines[0].removeprefix("::stop-commands::")
    assert len(stop) == 32
    assert lines[-1] == f"::{stop}::"
    assert lines.index("::add-mask::x ``` <b>") in range(1, len(lines) - 1)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("", "has no arguments for ./lab"),
        (" \n\t\r\n \\\n", "has no arguments"),
        ("# cost x", "has no arguments"),
        ("cost 'x", "has a quote without"),
        ('cost "x\n y\\"', "has a quote without"),
        ("cost it's", "has a quote without"),
    ],
)
def test_a_job_without_right_arguments_says_what_is_wrong(job: Job, words: str, what: str) -> None:
    done = job.run(words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"ci/run.sh: LAB_RUN {what}")
    assert len(done.stderr.splitlines()) == 1


# The key of the cache.


def key(words: str) -> str:
    """The real lab's key, without any environment of Python."""
    environment = {"PATH": "/usr/bin:/bin", "LAB_RUN": words}
    done = subprocess.run([str(ROOT / "ci/run.sh"), "key"], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.strip()


def test_the_key_depends_on_what_the_command_puts_into_the_cache(tmp_path: Path) -> None:
    two = key("cost x.bpf.c --kernels 6.1,7.3 --at-most 900")
    assert two.startswith("probe-lab-0.")
    assert two == key("cost y.bpf.c --kernels=7.3,6.1")
    others = [key("cost x.bpf.c --kernels 6.1"), key("cost x.bpf.c"), key("test tests"), key("cost 'bpftrace: y'")]
    experiment = tmp_path / "mine.yaml"
    for kernel in ("debian-686", "debian-amd64"):
        experiment.write_text(f"kernels: [{kernel}]\n")
        others.append(key(f"run {experiment}"))
    assert len({two, *others}) == 7


def test_the_key_is_that_of_the_words(tmp_path: Path) -> None:
    """However they are written: quoted, over several lines, with a comment."""
    assert (
        key("cost kprobe \\\n  --kernels 6.1") == key("cost kprobe --kernels 6.1") == key("cost x\n'--kernels=6.1' # y")
    )
    folder = tmp_path / "with spaces, [a-z]*"
    folder.mkdir()
    experiment = folder / "mine.yaml"
    experiment.write_text("kernels: [debian-686]\n")
    first = key(f"run '{experiment}'")
    experiment.write_text("kernels: [debian-amd64]\n")
    assert key(f"run '{experiment}'") != first


def test_the_key_depends_on_the_pinned_packages(tmp_path: Path) -> None:
    def copied() -> str:
        done = subprocess.run([str(tmp_path / "lab"), "cache-key"], capture_output=True, text=True, check=True)
        return done.stdout

    for name in ("lab", "pyproject.toml", "constraints.txt", "orchestrator/version.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "orchestrator/catalog").mkdir()
    for name in ("debian.yaml", "kernels.yaml"):
        shutil.copy(ROOT / "orchestrator/catalog" / name, tmp_path / "orchestrator/catalog" / name)
    before = copied()
    assert before.startswith(f"probe-lab-{__version__}-bookworm-")
    with (tmp_path / "constraints.txt").open("a") as file:
        file.write("another==1\n")
    assert copied() != before
    assert copied().rpartition("-")[0] == before.rpartition("-")[0]  # what a workflow restores from


# Linters.


def lint(*words: str) -> None:
    """Call a program that a Python package brings."""
    program, *arguments = words
    command = [str(Path(sysconfig.get_path("scripts")) / program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_action_and_the_template_have_what_their_schemas_ask_for(tmp_path: Path) -> None:
    lint("check-jsonschema", "--builtin-schema", "vendor.github-actions", "action.yml")
    lint("check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", "ci/gitlab.yml")
    for number, block in enumerate(block for block in all_blocks() if block.page.name == "ci.md"):
        if block.language == "yaml":
            schema = "github-workflows" if "runs-on:" in block.text else "gitlab-ci"
            file = tmp_path / f"{number}.yaml"
            file.write_text(block.text)
            lint("check-jsonschema", "--builtin-schema", f"vendor.{schema}", str(file))


def test_shellcheck_finds_nothing() -> None:
    lint("shellcheck", "lab", "ci/run.sh")
