#!/usr/bin/env python3
"""Kills and signals at random moments: nothing may be lost.

    kills.py --weft build/weft --work DIR [--rounds N] [--seed S] [--phases train2,curate,...] [--load N]

A round draws a phase. Then it draws up to three times a victim (one rank, all ranks, the launcher),
a signal and a moment, and starts the same command again each time; the last start runs to the end.
Errors are:

  - a final result that differs in a byte from an undisturbed run: losses, checkpoints, latents,
    exports, clips, lists, shards, videos
  - a file under its final name that is incomplete at any moment
  - temporary files (.tmp.PID, .step-N, .gone-N) that stay; a process that outlives its launcher
  - after SIGTERM or SIGINT: an exit code other than 130, or a newest checkpoint that is not of the
    last step
  - a stopped (SIGSTOP) or killed rank that the other ranks do not name within the timeout

Phases slow-... are layouts over slow links, so that most moments are inside a collective. Phases
save-... write a checkpoint after each step. In both, the launcher does not end the other ranks when
one is killed: each of them must name it, and the operations that they were in are counted. `--kept`
reuses the undisturbed runs in DIR. Phases of several ranks need mpirun."""
import argparse
import collections
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time

DEADLINE = 3  # seconds that a rank waits for others (comm_timeout); more on a busy machine
MARK = b"WEFT_KILLS_ROUND=" + str(os.getpid()).encode()
VAE = """
out: runs/vae
data: {path: shards}
autoencoder:
  class: AutoencoderKLWan
  config: {base_dim: 4, dim_mult: [1, 1, 2, 2], num_res_blocks: 1, z_dim: 4}
checkpoint: {interval: 7, keep_latest: 2}
stages:
  - {steps: 40, batch: 3, frames: 5, height: 16, width: 16, lr: 1e-3, warmup_steps: 2}
"""
DIT = """
out: runs/dit
autoencoder: {weights: base/model/vae}
data: {path: shards}
transformer:
  class: WanTransformer3DModel
  config: {num_layers: 2, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 48, freq_dim: 32}
text_encoders:
  - class: WeftBytesEncoder
    config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}
optimizer: {ema_decay: 0.9}
checkpoint: {interval: 7, keep_latest: 2}
stages:
  - {steps: 60, batch: 6, frames: 9, height: 32, width: 32, lr: 2e-3, warmup_steps: 4}
  - {steps: 20, batch: 5, frames: 5, height: 32, width: 32, lr: 1e-3, warmup_steps: 0, lr_schedule: constant}
"""
FEW = ["stages.0.steps=3", "stages.1.steps=2"]
ENCODE = FEW + ["stages.0.height=64", "stages.0.width=64", "stages.1.height=64", "stages.1.width=64"]
CHECKPOINTS = ["checkpoint.interval=1", "checkpoint.keep_latest=3"]
EXPORT = FEW + ["transformer.config.ffn_dim=8192", "transformer.config.num_layers=6"]


class Phase:
    """`ranks` 0: no training; `after`: a path below the work folder whose coming starts the clock; `link`: of all ranks."""

    def __init__(self, ranks, verb, *options, after=None, link=None):
        self.ranks, self.verb, self.options, self.after, self.link = ranks, verb, list(options), after, link

    def command(self, args, recover):
        start = [args.mpirun, "--oversubscribe", "-n", str(self.ranks)] if self.ranks > 1 else []
        start += ["--enable-recovery", "--tag-output"] if recover else []
        more = [x for o in self.options for x in ("--set", o)] if self.verb.startswith("train") else self.options
        if self.verb.startswith("train"):
            more += ["--set", "out=out", "--set", f"comm_timeout={DEADLINE}"]
        return start + [args.weft] + self.verb.split() + more


def generate(ranks):
    return Phase(ranks, "generate", "--model", "model", "--prompts", "prompts.txt", "--steps", "8", "--frames-npy", "--out", "out", "--batch-size", "2")


PHASES = {
    "train1": Phase(1, "train dit.yaml"),
    "train2": Phase(2, "train dit.yaml"),
    "train3": Phase(3, "train dit.yaml"),
    "fsdp2": Phase(2, "train dit.yaml", "parallel.fsdp=2"),
    "zero2": Phase(2, "train dit.yaml", "parallel.dp=2", "parallel.zero=2"),
    "tp2": Phase(2, "train dit.yaml", "parallel.tp=2"),
    "vae1": Phase(1, "train vae.yaml"),
    "vae2": Phase(2, "train vae.yaml"),
    "encode1": Phase(1, "train dit.yaml", *ENCODE, after="out/latents"),
    "encode2": Phase(2, "train dit.yaml", *ENCODE, after="out/latents"),
    "checkpoint1": Phase(1, "train dit.yaml", *CHECKPOINTS, after="out/checkpoints"),
    "checkpoint2": Phase(2, "train dit.yaml", *CHECKPOINTS, after="out/checkpoints"),
    "export1": Phase(1, "train dit.yaml", *EXPORT, after="out/checkpoints/step-00000005"),
    "export2": Phase(2, "train dit.yaml", *EXPORT, after="out/checkpoints/step-00000005"),
    "curate": Phase(0, "curate", "--in", "raw", "--out", "out", "--set", "workers=3"),
    "shard": Phase(0, "shard", "--in", "many", "--out", "out", "--set", "max_samples=40"),
    "generate1": generate(1),
    "generate2": generate(2),
}

# Layouts: their degrees make the ranks. Four blocks, so that two ranks may have two stages each.
LAYOUTS = {
    "dp": "dp=2", "zero1": "dp=2 zero=1", "zero2": "dp=2 zero=2", "fsdp": "fsdp=2", "tp": "tp=2", "sp": "tp=2 sequence=true",
    "ulysses": "cp=2", "ring": "cp=2 context=ring",
    "gpipe": "pp=2 schedule=gpipe", "1f1b": "pp=2 schedule=1f1b", "interleaved": "pp=2 schedule=interleaved",
    "wave": "pp=2 schedule=wave", "zero-bubble": "pp=2 schedule=zero-bubble",
    "hsdp": "dp=2 fsdp=2", "dp-zero1-tp": "dp=2 zero=1 tp=2", "dp-zero2-sp": "dp=2 zero=2 tp=2 sequence=true", "fsdp-tp": "fsdp=2 tp=2",
    "fsdp-ulysses": "fsdp=2 cp=2", "fsdp-ring": "fsdp=2 cp=2 context=ring", "dp-ring": "dp=2 cp=2 context=ring", "ulysses-tp": "cp=2 tp=2",
    "ring-ulysses": "context={ulysses: 2, ring: 2}", "pp-dp": "pp=2 dp=2", "pp-zero1": "pp=2 dp=2 zero=1 schedule=zero-bubble",
    "pp-zero2": "pp=2 dp=2 zero=2 schedule=interleaved", "pp-fsdp": "pp=2 fsdp=2 schedule=wave", "pp-tp": "pp=2 tp=2 schedule=gpipe",
    "pp-sp": "pp=2 tp=2 sequence=true schedule=zero-bubble", "pp-ulysses": "pp=2 cp=2 schedule=interleaved", "pp-ring": "pp=2 cp=2 context=ring",
}
FOUR_BLOCKS = ["transformer.config.num_layers=4", "stages.0.steps=14", "stages.1.steps=6", "stages.1.batch=6", "checkpoint.interval=4"]


def layout(degrees, *options, link=None):
    keys = re.findall(r"\w+=(?:\{[^}]*\}|\S+)", degrees)
    ranks = 1
    for key in keys:
        name, _, value = key.partition("=")
        if name in ("dp", "fsdp", "tp", "cp", "pp"):
            ranks *= int(value)
        elif value.startswith("{"):
            ranks *= 4  # both of 2
    return Phase(ranks, "train dit.yaml", *FOUR_BLOCKS, *("parallel." + k for k in keys), *options, after="out/metrics.jsonl", link=link)


for name, degrees in LAYOUTS.items():
    PHASES["slow-" + name] = layout(degrees, link="0.05 Gbit/s, 400 us")
for name in ("zero2", "fsdp-tp", "pp-zero1", "pp-ring"):
    PHASES["save-" + name] = layout(LAYOUTS[name], "checkpoint.interval=1", "checkpoint.keep_latest=3")


# ---- contents of a folder ----------------------------------------------------------------------

def digest(data):
    return hashlib.sha1(data).hexdigest()[:16]


def members(path):
    with tarfile.open(path) as tar:
        return {m.name: digest(tar.extractfile(m).read()) for m in tar}


def is_rest(name):
    return ".tmp." in name or name.startswith((".step-", ".gone-"))


def content(root):
    """{name: digest}; of latents, which ranks share out by what is missing, the members; without clocks and process numbers."""
    found = {}
    for path in sorted(p for p in pathlib.Path(root).rglob("*") if p.is_file()):
        name = str(path.relative_to(root))
        if path.name in (".lock", "lock") or "tfevents" in name or name.endswith(".index"):
            continue
        if path.name == "metrics.jsonl":
            found[name] = losses(path)
        elif "latents/" in name and name.endswith(".tar"):
            found.update({f"{path.parent.name}/{k}": v for k, v in members(path).items()})
        else:
            found[name] = digest(path.read_bytes())
    return found


def lines(path):
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(True) if line.endswith("\n")]


def losses(path):
    return [(d["step"], d["loss"], d["grad_norm"]) for d in lines(path)]


def differences(whole, found):
    """Of checkpoints the last one counts: a run that was stopped has one more before it."""
    last = max((k.split("/")[1] for k in whole if k.startswith("checkpoints/")), default="")
    names = {k for k in whole.keys() | found.keys() if not k.startswith("checkpoints/step-") or k.split("/")[1] == last}
    return sorted(k for k in names if whole.get(k) != found.get(k))


def checkpoint_steps(out):
    return sorted(int(p.name[5:]) for p in (out / "checkpoints").glob("step-*"))


# ---- processes --------------------------------------------------------------------------------------------------------

def processes(weft=None):
    """Numbers of this round's living processes; `weft`: only of those that run it."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if MARK not in (folder / "environ").read_bytes() or (folder / "stat").read_text().rpartition(") ")[2][0] in "ZX":
                continue
            if not weft or os.path.realpath(folder / "exe") == weft:
                found.append(int(folder.name))
        except (OSError, IndexError):
            continue
    return sorted(found)


def rank_of(number):
    try:
        found = re.search(rb"\0OMPI_COMM_WORLD_RANK=(\d+)", pathlib.Path(f"/proc/{number}/environ").read_bytes())
        return int(found.group(1)) if found else None
    except OSError:
        return None


def send(numbers, how):
    sent = 0
    for n in numbers:
        try:
            os.kill(n, how)
            sent += 1
        except ProcessLookupError:
            pass
    return sent


def catches(number):
    """Whether it is so far that it treats signals; before, at the loading of its libraries, it dies of them."""
    try:
        caught = re.search(r"SigCgt:\s*(\w+)", pathlib.Path(f"/proc/{number}/status").read_text())
        return int(caught.group(1), 16) >> (signal.SIGTERM - 1) & 1 == 1
    except (OSError, AttributeError):
        return False


class Run:
    """`recover`: the launcher lets ranks be when one of them dies."""

    def __init__(self, args, phase, folder, recover=False):
        env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_WAIT_POLICY="passive",
                   OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_hwloc_base_binding_policy="none",
                   OMPI_MCA_odls_base_sigkill_timeout="2", **{MARK.partition(b"=")[0].decode(): str(os.getpid())})
        env.setdefault("OMP_NUM_THREADS", "2")
        if phase.link:
            env["WEFT_LINK"] = phase.link
        self.args, self.folder, self.recover, self.dead = args, folder, recover, None
        self.log = open(folder / "log", "w")
        self.process = subprocess.Popen(phase.command(args, recover), cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        start_new_session=True)

    def code(self):
        """A launcher that leaves ranks alone says 0 whatever they say."""
        code = self.process.returncode
        return 1 if self.recover and code == 0 and re.search("weft [a-z]+: ", self.text()) else code

    def said_by(self, rank):
        return "\n".join(x for x in re.split("[\r\n]+", self.text()) if x.startswith(f"[1,{rank}]"))

    def text(self):
        return (self.folder / "log").read_text(errors="replace")

    def last_words(self):
        said = [x for x in re.split("[\r\n]+", self.text()) if re.search("stopp|weft|waited|latents|train |exited|signal", x)]
        return " | ".join(x.strip()[:90] for x in said[-4:])

    def victims(self, who):
        if who == "launcher":
            return [self.process.pid]
        ranks = processes(self.args.weft)
        random.shuffle(ranks)  # any rank may get the signal first
        below = [n for n in ranks if n != self.process.pid] or ranks  # a launcher's ranks, a curation's workers
        if who != "rank" or not below:
            return ranks
        one = random.choice(below)
        self.dead = rank_of(one) if self.recover else None
        return [one]

    def wait(self, seconds):
        """Until it and all that it began are gone."""
        end = time.monotonic() + seconds
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        while processes() and time.monotonic() < end:
            time.sleep(0.02)
        left = processes()
        send(left, signal.SIGKILL)
        if left == [self.process.pid] and os.path.realpath(self.args.mpirun) != self.args.weft and "PMIX ERROR" in self.text():
            left = []  # mpirun itself hangs where its ranks were killed while they greeted it
        self.process.wait()
        self.log.close()
        return left


# ---- a round ----------------------------------------------------------------------------------------------------------

def prepare_folder(args, phase, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("shards", "base", "raw", "many", "model", "prompts.txt"):
        os.symlink(args.work / "data" / name, folder / name)
    (folder / "vae.yaml").write_text(VAE)
    (folder / "dit.yaml").write_text(DIT)


def undisturbed(args, name):
    """What the phase leaves, and the seconds from its clock's start to its end."""
    phase, folder, note = PHASES[name], args.work / "now", args.work / "whole" / (name + ".json")
    if args.kept and note.exists():
        kept = json.loads(note.read_text())
        kept["content"] = {k: [tuple(x) for x in v] if isinstance(v, list) else v for k, v in kept["content"].items()}
        return kept
    prepare_folder(args, phase, folder)
    run, began = Run(args, phase, folder), None
    start = time.monotonic()
    while run.process.poll() is None:
        if began is None and (not phase.after or (folder / phase.after).exists()):
            began = time.monotonic()
        time.sleep(0.002)
    seconds = time.monotonic() - (began or start)
    if run.wait(60) or run.process.returncode:
        sys.exit(f"{name} does not even run undisturbed:\n{run.text()}")
    whole = {"content": content(folder / "out"), "seconds": seconds}
    note.parent.mkdir(exist_ok=True)
    note.write_text(json.dumps(whole))
    return whole


def whole_files(phase, out, whole):
    """Files whose final name promises that they are whole, and which differ."""
    found = content(out) if out.exists() else {}
    if phase.verb.startswith("train"):
        promised = [k for k in found if k.startswith("model/") or re.match("[0-9a-f]{16}/", k)]
    elif phase.verb == "curate":
        promised = [k for k in found if k.startswith("metas/")]
        promised += [k.replace("metas/", "clips/").replace(".json", ".mp4") for k in promised]
    elif phase.verb == "shard":
        promised = [k for k in found if k.endswith(".tar")]
    else:
        promised = [k for k in found if k.endswith((".mp4", ".npy"))]
    return [k for k in promised if not is_rest(pathlib.Path(k).name) and found.get(k) != whole.get(k)]


def check_stop(phase, whole, run, who, how, code, before):
    """What is wrong with the end of a run of ranks that a signal came to."""
    text, out = run.text(), run.folder / "out"
    wrong = []
    if not differences(whole["content"], content(out)):
        return wrong  # the signal came after the end
    if how in (signal.SIGTERM, signal.SIGINT) and "stopping cleanly" in text and code != 0:
        if code != 130 and not (who == "launcher" and phase.ranks > 1):  # mpirun exits with 1
            wrong.append(f"{how.name}: exit code {code}, not 130")
        if phase.verb == "generate":
            return wrong
        steps, done = checkpoint_steps(out), len(lines(out / "metrics.jsonl"))
        if done > before and (steps[-1] if steps else 0) != done:
            wrong.append(f"{how.name}: {done} steps done, checkpoints {steps}")
        said = re.findall(r"stopped (?:at step|by|while)", text)
        if len(said) != 1:
            wrong.append(f"{how.name}: said {len(said)} times that it stopped")
    if how == signal.SIGSTOP and phase.ranks > 1 and code != 0 and not re.search(r"waited [0-9.]+ s .*for rank|for ranks? [0-9]", text):
        wrong.append("the sleeping rank is not named")
    if code < 0 and how not in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        wrong.append(f"died of signal {-code}")
    if re.search(r"Segmentation|SIGSEGV|SIGBUS|SIGABRT|Assertion", text):
        wrong.append("crashed")
    return wrong


def check_named(phase, run, took, waits):
    """One rank was killed and the launcher lets the others be: each of them ends by itself and names it."""
    wrong = []
    for rank in range(phase.ranks):
        said = run.said_by(rank)
        if rank == run.dead or "weft train: " not in said:
            continue  # a rank that had finished exits without an error
        if not re.search(rf"rank {run.dead} (?:exited|failed|is gone|.*ended before)|for rank {run.dead}\b|rank {run.dead} has written nothing", said):
            wrong.append(f"rank {rank} does not name rank {run.dead}, which was killed: {said[-200:]}")
        found = re.search(rf"waited for it in (\w+)(?:.*on axis (\w+))?", said)
        if found:
            waits[" ".join(x for x in found.groups() if x)] += 1
    if took > 3 * DEADLINE:
        wrong.append(f"took {took:.1f} s to end without rank {run.dead}")
    return wrong


def choose(phase, seconds, rng):
    """(a moment of a run, the receiver of the signal, the signal, whether twice)"""
    moment = rng.random() * seconds * 1.1
    who = rng.choice(["rank", "all", "launcher"])
    how = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
    if phase.after == "out/metrics.jsonl" and rng.random() < 0.5:
        who, how = "rank", signal.SIGKILL  # layouts differ in their handling of killed ranks
    if phase.ranks > 1 and phase.verb.startswith("train") and who == "rank" and rng.random() < 0.25:
        how = signal.SIGSTOP
    return moment, who, how, how in (signal.SIGTERM, signal.SIGINT) and rng.random() < 0.1


def strike(args, phase, run, moment, who, how, twice):
    """Waits for the moment of the run, and sends the signal. (signal, how many it met, whether they catch signals)"""
    while phase.after and not (run.folder / phase.after).exists() and run.process.poll() is None:
        time.sleep(0.002)
    while run.recover and "memory of a rank" not in run.text() and run.process.poll() is None:
        time.sleep(0.002)  # ranks that are killed while MPI starts are handled by the launcher
    end = time.monotonic() + moment
    while time.monotonic() < end and run.process.poll() is None:
        time.sleep(min(0.005, max(0.0, end - time.monotonic())))
    if run.process.poll() is not None:
        return how, 0, False
    if how == signal.SIGSTOP and "memory of a rank" not in run.text():
        how = signal.SIGKILL  # ranks that are stopped while MPI starts are handled by the launcher
    victims = run.victims(who)
    ready = len(processes(args.weft)) >= phase.ranks and all(catches(n) for n in processes(args.weft))
    sent = send(victims, how)
    if twice:
        time.sleep(random.random() * 0.05)
        send(victims, how)
    return how, sent, ready


def play(args, name, whole, rng, counts, waits):
    """One round; what went wrong."""
    phase, folder, wrong = PHASES[name], args.work / "now", []
    prepare_folder(args, phase, folder)
    for _ in range(rng.choice([1, 1, 2, 3])):
        before = len(lines(folder / "out" / "metrics.jsonl"))
        moment, who, how, twice = choose(phase, whole["seconds"], rng)
        run = Run(args, phase, folder, phase.after == "out/metrics.jsonl" and who == "rank" and how == signal.SIGKILL)
        how, sent, ready = strike(args, phase, run, moment, who, how, twice)
        began = time.monotonic()
        left = run.wait(20 * DEADLINE)
        took = time.monotonic() - began
        label = f"{name} {who} {how.name}{' twice' if twice else ''}"
        if sent:
            counts[who + " " + how.name] += 1
        args.trace.write(f"  {label} sent {sent} code {run.code()} after {took:.2f} s: {run.last_words()}\n")
        if left:
            wrong.append(f"{label}: processes {left} are left")
        if sent and phase.ranks and not twice and ready:
            wrong += [f"{label}: {w}" for w in check_stop(phase, whole, run, who, how, run.code(), before)]
        if sent and run.dead is not None and run.code():
            wrong += [f"{label}: {w}" for w in check_named(phase, run, took, waits)]
        wrong += [f"{label}: {k} is there and is not whole" for k in whole_files(phase, folder / "out", whole["content"])]
        if wrong or run.code() == 0 and phase.verb != "curate":
            break
    if wrong:
        return wrong
    run = Run(args, phase, folder)
    if run.wait(600):
        return [f"{name}: the last run does not end"]
    text, out = run.text(), folder / "out"
    if run.process.returncode:
        return [f"{name}: the same command again fails with {run.process.returncode}"]
    for word in ("damaged", "truncated", "[checkpoint-", "[latents-rebuilt]"):
        if word in text and phase.verb != "curate":
            wrong.append(f"{name}: the last run tells of '{word}'")
    found = content(out)
    rests = [k for k in found if is_rest(pathlib.Path(k).name)] + [str(p) for p in (out / "checkpoints").glob(".*")]
    wrong += [f"{name}: {k} is left" for k in rests]
    other = differences(whole["content"], {k: v for k, v in found.items() if k not in rests})
    if other:
        wrong.append(f"{name}: {len(other)} differ from the undisturbed run: {', '.join(other[:6])}")
    return wrong


# ---- data -------------------------------------------------------------------------------------------------------------

def make_data(args):
    data = args.work / "data"
    if args.kept and (data / "done").exists():
        return
    shutil.rmtree(data, ignore_errors=True)
    (data / "cur/clips").mkdir(parents=True)
    (data / "cur/metas").mkdir()

    def call(*command):
        done = subprocess.run([args.weft, *command], cwd=data, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"weft {' '.join(command)}: {done.stdout}{done.stderr}")
    call("synth", "--out", "synth", "--shots", "24", "--single-share", "1", "--held-out-clips", "0", "--min-frames", "12", "--max-frames", "14")
    call("synth", "--out", "films", "--shots", "24", "--size", "96")
    for film in sorted((data / "synth/train").glob("s*.mp4")):
        shutil.copy(film, data / "cur/clips")
        meta = {"id": film.stem, "caption": film.with_suffix(".txt").read_text().strip(), "frames": 12, "width": 64, "height": 64, "fps": 24.0}
        (data / "cur/metas" / (film.stem + ".json")).write_text(json.dumps(meta))
    for i in range(600):  # for sharding: the same clips under many names
        film = sorted((data / "cur/clips").glob("*.mp4"))[i % 24]
        for kind, suffix in (("clips", "mp4"), ("metas", "json")):
            (data / "many" / kind).mkdir(parents=True, exist_ok=True)
            shutil.copy(data / "cur" / kind / f"{film.stem}.{suffix}", data / "many" / kind / f"m{i:04}.{suffix}")
    os.rename(data / "films/train", data / "raw")
    call("shard", "--in", "cur", "--out", "shards", "--set", "heldout=0")
    (data / "vae.yaml").write_text(VAE)
    call("train", "vae.yaml", "--set", "out=base", "--set", "stages.0.steps=8")
    (data / "dit.yaml").write_text(DIT)
    call("train", "dit.yaml", "--set", "out=small", "--set", "stages.0.steps=3", "--set", "stages.1.steps=2")
    os.symlink("small/model", data / "model")
    (data / "prompts.txt").write_text("".join(f"a {c} circle\n" for c in ("red", "green", "blue", "yellow")))
    (data / "done").touch()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", required=True, type=os.path.realpath)
    parser.add_argument("--work", required=True, type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--phases", default=",".join(PHASES))
    parser.add_argument("--load", type=int, default=0, help="processes that compute at the same time")
    parser.add_argument("--kept", action="store_true")
    parser.add_argument("--deadline", type=int, default=DEADLINE)
    parser.add_argument("--mpirun", default=shutil.which("mpirun.openmpi") or shutil.which("mpirun") or "mpirun")
    args = parser.parse_args()
    globals()["DEADLINE"] = args.deadline
    phases = args.phases.split(",")
    unknown = [p for p in phases if p not in PHASES]
    if unknown:
        sys.exit(f"kills.py: no phase {unknown[0]}; there are {', '.join(PHASES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("kills.py: got SIGTERM"))
    args.work.mkdir(parents=True, exist_ok=True)
    args.trace = open(args.work / "trace", "a", buffering=1)
    make_data(args)
    whole = {name: undisturbed(args, name) for name in phases}
    loads = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(args.load)]
    counts, waits, bad = collections.Counter(), collections.Counter(), 0
    order = []
    try:
        for n in range(args.rounds):
            if not order:  # every phase once, then again in another order
                order = random.Random(f"{args.seed}/{n}").sample(phases, len(phases))
            name, rng = order.pop(), random.Random(f"{args.seed}/{n}/round")
            random.seed(f"{args.seed}/{n}/victim")
            args.trace.write(f"round {n} {name}\n")
            wrong = play(args, name, whole[name], rng, counts, waits)
            bad += bool(wrong)
            for text in wrong:
                print(f"round {n}: {text}")
            if wrong:
                shutil.rmtree(args.work / f"bad-{args.seed}-{n}", ignore_errors=True)
                os.rename(args.work / "now", args.work / f"bad-{args.seed}-{n}")
            sys.stdout.flush()
    finally:
        send(processes(), signal.SIGKILL)
        for load in loads:
            load.kill()
    print(f"{args.rounds} rounds, {sum(counts.values())} kills and signals, {bad} rounds wrong")
    print(", ".join(f"{k} {v}" for k, v in sorted(counts.items())))
    if waits:
        print("the others waited in " + ", ".join(f"{k} {v}" for k, v in waits.most_common()))
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
