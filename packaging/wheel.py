#!/usr/bin/env python3
"""packaging/wheel.py BUILD OUT: the relocatable tree of packaging/tree.py as a wheel, for
`uv tool install` and pip. The wheel has no Python: bin/weft of the environment is the program, and
lib/weft of the environment its libraries."""
import base64
import hashlib
import os
import platform
import shutil
import sys
import zipfile

import tree as relocatable

NAME = "weft_video"  # "weft" is the name of another project on the index of Python packages
DATE = (2026, 1, 1, 0, 0, 0)  # equal trees give equal wheels


def tag():
    """The platform: the C library of this machine or a newer one."""
    major, minor = platform.libc_ver()[1].split(".")[:2]
    return f"py3-none-manylinux_{major}_{minor}_{platform.machine()}"


class Wheel:
    def __init__(self, path):
        self.file = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6)
        self.record = []

    def add(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name, DATE)
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.file.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def close(self, info):
        self.record.append(f"{info}/RECORD,,")
        self.file.writestr(zipfile.ZipInfo(f"{info}/RECORD", DATE), "\n".join(self.record) + "\n")
        self.file.close()


def metadata(version):
    return (f"Metadata-Version: 2.1\nName: {NAME.replace('_', '-')}\nVersion: {version}\n"
            "Summary: train and run video generation models\n"
            "License: MIT; the libraries have licenses of their own, FFmpeg with x264 the GPL\n"
            "Requires-Python: >=3.8\n")


def files_of(tree):
    for folder, folders, names in os.walk(tree):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            yield os.path.relpath(path, tree), path


def write(tree, out):
    version = os.path.basename(tree).split("-")[1]
    path = f"{out}/{NAME}-{version}-{tag()}.whl"
    info, data = f"{NAME}-{version}.dist-info", f"{NAME}-{version}.data"
    wheel = Wheel(path)
    for name, file in files_of(tree):
        with open(file, "rb") as f:
            content = f.read()
        if name == "bin/weft":
            wheel.add(f"{data}/scripts/weft", content, 0o755)
        else:
            wheel.add(f"{data}/data/{name}", content)
    wheel.add(f"{info}/METADATA", metadata(version).encode())
    wheel.add(f"{info}/WHEEL", ("Wheel-Version: 1.0\nGenerator: weft\nRoot-Is-Purelib: false\n"
                                f"Tag: {tag()}\n").encode())
    wheel.close(info)
    return path


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder = os.path.abspath(sys.argv[2])
    made = relocatable.make(sys.argv[1], folder)
    print(write(made, folder))
    shutil.rmtree(made)
