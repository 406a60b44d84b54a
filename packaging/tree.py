#!/usr/bin/env python3
"""packaging/tree.py BUILD OUT: a relocatable tree of weft, OUT/weft-VERSION-linux-ARCH, and its
archive OUT/weft-VERSION-linux-ARCH.tar.zst (or .tar.gz without zstd).

    bin/weft          the program; finds its libraries relative to itself
    lib/weft/*.so.*   every library except the C library
    share             man pages, completions, examples, licenses of the libraries

Needs ldd, patchelf and dpkg (for the licenses). The libraries come from this machine, so
the tree runs where the C library is at least as new."""
import os
import platform
import re
import shutil
import subprocess
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# of the C library, which must be that of the machine
SYSTEM = re.compile(r"^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|nss_\w+|anl))\.so\.\d+$")
# loaded by name at run time
LOADED = ["libcurl.so.4"]


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def need(*tools):
    for tool in tools:
        if not shutil.which(tool):
            sys.exit(f"make dist-tar and dist-wheel need {tool}: apt-get install {tool}")


def libraries_of(path):
    """Names and paths of all libraries that the loader finds for a program or library."""
    found = {}
    for line in output("ldd", path).splitlines():
        name, arrow, rest = line.strip().partition(" => ")
        if arrow and rest.startswith("not found"):
            sys.exit(f"{path}: {name} is not found; install its package")
        if arrow:
            found[name] = rest.split(" (")[0]
    return found


def loaded_by_name():
    """Paths of the libraries of LOADED, from the cache of the loader."""
    cache = dict(re.findall(r"^\s*(\S+) \(libc6,x86-64[^)]*\) => (\S+)$", output("ldconfig", "-p"),
                            re.M))
    return {name: cache[name] for name in LOADED if name in cache}


def packages_of(paths):
    """The Debian packages of files. dpkg knows some of them without /usr."""
    found = set()
    real = {os.path.realpath(path) for path in paths}
    names = sorted(real | {path[4:] for path in real if path.startswith("/usr/")})
    listed = subprocess.run(["dpkg", "-S", *names], capture_output=True, text=True).stdout
    for line in listed.splitlines():
        found.add(line.split(":")[0])
    return sorted(found)


def copy_licenses(paths, folder):
    os.makedirs(folder)
    for package in packages_of(paths):
        license = f"/usr/share/doc/{package}/copyright"
        if os.path.exists(license):
            shutil.copyfile(license, f"{folder}/{package}")


def make(build, out):
    """Writes the tree and returns its folder."""
    need("ldd", "patchelf", "dpkg", "cmake")
    with open(f"{SOURCE}/VERSION", encoding="ascii") as f:
        version = f.read().strip()
    tree = f"{out}/weft-{version}-linux-{platform.machine()}"
    stage = f"{out}/stage"
    for folder in (tree, stage):
        shutil.rmtree(folder, ignore_errors=True)
    # DESTDIR would move the stage
    subprocess.run(["cmake", "--install", build, "--prefix", stage, "--strip"], check=True,
                   stdout=subprocess.DEVNULL, env={**os.environ, "DESTDIR": ""})
    os.makedirs(f"{tree}/lib/weft")
    os.makedirs(f"{tree}/bin")
    shutil.move(f"{stage}/bin/weft", f"{tree}/bin/weft")
    shutil.move(f"{stage}/share", f"{tree}/share")
    shutil.rmtree(stage)
    shutil.copytree(f"{SOURCE}/examples", f"{tree}/share/doc/weft/examples")
    for name in ("LICENSE", "README.md", "CHANGELOG.md"):
        shutil.copy(f"{SOURCE}/{name}", f"{tree}/share/doc/weft")

    libraries = libraries_of(f"{build}/weft")
    for name, path in loaded_by_name().items():
        libraries = {**libraries_of(path), name: path, **libraries}
    libraries = {n: p for n, p in libraries.items() if not SYSTEM.match(n)}
    for name, path in libraries.items():
        shutil.copyfile(os.path.realpath(path), f"{tree}/lib/weft/{name}")
    # DT_RPATH, unlike DT_RUNPATH, also holds for the libraries of libraries
    subprocess.run(["patchelf", "--force-rpath", "--set-rpath", "$ORIGIN/../lib/weft",
                    f"{tree}/bin/weft"], check=True)
    subprocess.run(["patchelf", "--force-rpath", "--set-rpath", "$ORIGIN",
                    *(f"{tree}/lib/weft/{name}" for name in sorted(libraries))], check=True)
    copy_licenses(libraries.values(), f"{tree}/share/doc/weft/licenses")
    return tree


def archive(tree):
    folder, name = os.path.split(tree)
    suffix, program = (".zst", "zstd -10 -T0") if shutil.which("zstd") else (".gz", "gzip -9")
    for old in (".zst", ".gz"):
        if os.path.exists(f"{tree}.tar{old}"):
            os.remove(f"{tree}.tar{old}")
    subprocess.run(["tar", "-C", folder, "--sort=name", "--owner=0", "--group=0", "--numeric-owner",
                    "-I", program, "-cf", f"{tree}.tar{suffix}", name], check=True)
    return f"{tree}.tar{suffix}"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(archive(make(sys.argv[1], os.path.abspath(sys.argv[2]))))
