"""Compares the predicted, reserved and measured memory of a run. usage: compare_memory.py WEFT NAME CONFIG [OPTIONS...]
MPIRUN: command that starts the ranks of the run; unset for one rank"""
import json, os, re, resource, subprocess, sys
weft, name, *args = sys.argv[1:]
def told(text):
    value, unit = re.search(r"^memory(?: of a rank)?: at most ([0-9.]+) ([KMG]iB)", text, re.M).groups()
    return float(value) * {"KiB": 2**-10, "MiB": 1, "GiB": 1024}[unit]
def values(text, kind, key=None):
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [m["value"] / 2**20 for m in lines if m.get("id") == kind and "value" in m and m.get("key") == key]
def program(text, pattern):
    return re.search(pattern, text, re.M).group(1)
inspect = subprocess.run([weft, "inspect", "graph", *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
train = subprocess.run([*os.environ.get("MPIRUN", "").split(), weft, "train", *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
if inspect.returncode or train.returncode:
    sys.exit(inspect.stdout + train.stdout)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
before, run = told(inspect.stdout), values(train.stdout, "memory-report")[0]
print(f"{name}: inspect {before:.1f} MiB, run {run:.1f} MiB ({100 * (run / peak - 1):+.1f} %), measured {peak:.1f} MiB")
planned, unit = program(inspect.stdout, r"^  program *([0-9.]+ [KMG]iB)").split()
planned = "%.2f MiB" % (float(planned) * {"KiB": 2**-10, "MiB": 1, "GiB": 1024}[unit])
reserved = "%.2f MiB" % values(train.stdout, "stage-report")[0]
if planned != reserved:
    sys.exit(f"the program is planned with {planned} and reserves {reserved}")
measures = not re.search("/(asan|tsan)", weft) # these use more memory
if measures and abs(run / peak - 1) > 0.05:
    sys.exit("the prediction is off by more than 5 %")
if measures and abs(before / run - 1) > 0.02:
    sys.exit("inspect predicts another peak than the run")
if not values(train.stdout, "memory-report", "memory"):
    sys.exit("the measured peak is not reported: " + train.stdout)
