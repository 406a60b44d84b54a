"""dockerfile.py DOCKERFILE: the last stage of a Dockerfile as JSON, for tests without a daemon. Fails on instructions that a
server's image must have or must not have. Values of ENTRYPOINT, CMD and HEALTHCHECK must be lists."""
import glob
import json
import os
import re
import sys

KNOWN = {"FROM", "RUN", "COPY", "WORKDIR", "USER", "VOLUME", "EXPOSE", "ENV", "HEALTHCHECK", "STOPSIGNAL", "ENTRYPOINT", "CMD"}


def instructions(path):
    """(NAME, value) with continued lines joined."""
    text = "".join(line for line in open(path, encoding="utf-8") if not line.lstrip().startswith("#"))
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if line.strip():
            name, value = line.split(None, 1)
            yield name, re.sub(r"\s+", " ", value).strip()


def main(path):
    context, stages = os.path.join(os.path.dirname(path), ".."), []
    for name, value in instructions(path):
        assert name in KNOWN, name
        if name == "FROM":
            assert re.fullmatch(r"debian:[a-z]+-slim( AS [a-z]+)?", value), value
            stages.append({"name": value.partition(" AS ")[2], "RUN": [], "COPY": [], "ENV": {}})
            continue
        stage = stages[-1]
        if name == "RUN":
            stage["RUN"].append(value)
        elif name == "COPY":
            source = re.fullmatch(r"(?:--from=(\S+) )?(\S+) \S+", value)
            assert source, value
            assert source[1] in [s["name"] for s in stages[:-1]] if source[1] else glob.glob(os.path.join(context, source[2])), value
            stage["COPY"].append(value)
        elif name == "ENV":
            key, _, text = value.partition("=")
            stage["ENV"][key] = text
        elif name in ("ENTRYPOINT", "CMD"):
            stage[name] = json.loads(value)
        elif name == "HEALTHCHECK":
            stage[name] = json.loads(re.fullmatch(r"(?:--\S+ )+CMD (\[.*\])", value)[1])
        else:
            stage[name] = value
    last = stages[-1]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", last["USER"]), "the user must be a number other than 0"
    for name in ("HEALTHCHECK", "VOLUME", "ENTRYPOINT", "CMD", "STOPSIGNAL", "EXPOSE"):
        assert last.get(name), "no " + name
    assert last["VOLUME"].startswith(last["WORKDIR"] + "/"), "weft serve --state is relative to the folder"
    assert all("apt-get update" not in run or "rm -rf /var/lib/apt/lists/*" in run for run in last["RUN"])
    print(json.dumps(last))


main(sys.argv[1])
