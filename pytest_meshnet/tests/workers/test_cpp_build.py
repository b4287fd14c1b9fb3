"""The build of the C++ worker, with stand-ins for the compiler: where it looks, what it leaves."""

import shutil
import stat
import subprocess

import pytest

from pytest_meshnet import layout

FIXTURES = layout.folder("fixtures")
PRESENT = ("bash", "cat", "cut", "dirname", "find", "flock", "mkdir", "mktemp", "mv", "nproc", "rm")
PRESENT += ("sha256sum", "sleep", "sort", "touch", "uname", "xargs")

CMAKE = """#!/usr/bin/env bash
echo "$*" >> "$LOG"
if [ "$1" = --build ]; then
  touch "$2/meshnet-cpp-worker" "$2/meshnet-cpp-codec-testee"
else
  mkdir -p "$4"
fi
"""


class Workplace:
    """A copy of the sources in the layout of an installation, and a PATH of stand-ins."""

    def __init__(self, root):
        self.log = root / "log"
        self.cache = root / "cache"
        self.tools = root / "tools"
        self.package = root / "site-packages" / "pytest_meshnet"
        self.folder = self.package / "fixtures" / "workers" / "cpp"
        shutil.copytree(FIXTURES / "workers" / "cpp", self.folder)
        shutil.copytree(FIXTURES / "codec", self.package / "fixtures" / "codec")
        self.schema = self.package / "protocol" / "shard_runtime.proto"
        self.schema.parent.mkdir()
        self.schema.write_text('syntax = "proto3";')
        self.tools.mkdir()
        for tool in PRESENT:
            (self.tools / tool).symlink_to(shutil.which(tool))
        self.tool("cmake", CMAKE)
        for tool in ("g++", "grpc_cpp_plugin", "pkg-config", "protoc"):
            self.tool(tool, "#!/usr/bin/env bash\necho 1.0\n")

    def tool(self, name, text):
        path = self.tools / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def start(self):
        return subprocess.Popen(
            [self.tools / "bash", self.folder / "build.sh"],
            env={"PATH": str(self.tools), "XDG_CACHE_HOME": str(self.cache), "LOG": str(self.log)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def build(self):
        started = self.start()
        out, err = started.communicate(timeout=60)
        return started.returncode, out.strip(), err

    def builds(self):
        return self.log.read_text().count("--build")


@pytest.fixture
def workplace(tmp_path):
    return Workplace(tmp_path)


def test_an_installation_builds_from_the_schema_it_came_with(workplace):
    status, programs, err = workplace.build()
    assert status == 0, err
    assert f"-DMESHNET_PROTO={workplace.schema}" in workplace.log.read_text()
    assert programs.startswith(str(workplace.cache))


def test_a_second_build_finds_the_first_one(workplace):
    assert workplace.build() == workplace.build()
    assert workplace.builds() == 1


def test_two_builds_at_once_are_one(workplace):
    workplace.tool("cmake", CMAKE.replace('echo "$*"', 'sleep 0.3\necho "$*"'))
    both = [workplace.start(), workplace.start()]
    answers = [one.communicate(timeout=60)[0] for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert answers[0] == answers[1]
    assert workplace.builds() == 1


@pytest.mark.parametrize("changed", ["source", "schema", "testee", "compiler"])
def test_what_goes_into_the_build_decides_where_it_is(workplace, changed):
    before = workplace.build()
    if changed == "compiler":
        workplace.tool("g++", "#!/usr/bin/env bash\necho 2.0\n")
    else:
        where = {
            "source": workplace.folder / "src" / "tensors" / "codec.cpp",
            "schema": workplace.schema,
            "testee": workplace.package / "fixtures" / "codec" / "codec_testee.proto",
        }[changed]
        where.write_text(where.read_text() + "\n")
    assert workplace.build() != before
    assert workplace.builds() == 2


def test_a_build_that_fails_leaves_nothing_that_looks_built(workplace):
    workplace.tool("cmake", '#!/usr/bin/env bash\n[ "$1" != --build ]\n')
    status, programs, _ = workplace.build()
    assert (status, programs) == (1, "")
    assert not list(workplace.cache.glob("**/bin"))
    assert not list(workplace.cache.glob("**/build.*"))


def test_a_missing_tool_is_named_with_the_packages_that_bring_it(workplace):
    (workplace.tools / "grpc_cpp_plugin").unlink()
    status, _, err = workplace.build()
    assert status == 1
    assert "no grpc_cpp_plugin; on Debian: apt-get install" in err
