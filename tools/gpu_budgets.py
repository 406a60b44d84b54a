#!/usr/bin/env python3
"""gpu_budgets.py: compares the resources of every CUDA kernel with a table.

usage: tools/gpu_budgets.py [--write] [--out DIR] [--only NAME] [--clang CLANG] [--ptxas PTXAS]
                            [--nvdisasm NVDISASM]

Compiles src/kernel/cuda/kernels/*.cu by clang to PTX 7.5 for sm_80, which any driver since CUDA 11.5
loads. Assembles the PTX by ptxas for sm_80, sm_89 and sm_90. Fails if a kernel has a stack frame or
spills registers, or if it needs more registers or shared memory than tools/gpu_budgets.txt has.
Kernels without a row are counted. Some kernels are also compiled for a shape (+linear), as NVRTC
does at run time. Registers depend on the release of ptxas: another release than
the table's is only checked for stack frames, spills and shared memory.

Without clang or ptxas, the steps that need the tool are skipped and counted.

  --write   write the table; with --only, the rows of these files
  --out     folder of PTX and cubins [build/gpu]
  --only    only the source files whose name contains NAME
  --clang   compiler [clang-14 or clang]
  --ptxas   assembler [$WEFT_PTXAS, ptxas, that of the package nvidia-cuda-nvcc-cu12]
  --nvdisasm  disassembler: prints the instructions of the inner loops on tensor cores
"""
import argparse
import glob
import importlib.util
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TABLE = os.path.join(ROOT, "tools", "gpu_budgets.txt")
# registers, threads, blocks and bytes of shared memory of a multiprocessor (CUDA C++ Programming
# Guide, "Technical Specifications per Compute Capability")
LIMITS = {"sm_80": (65536, 2048, 32, 164 << 10), "sm_89": (65536, 1536, 24, 100 << 10),
          "sm_90": (65536, 2048, 32, 228 << 10)}
FLAGS = ["-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib", "-DWEFT_BARE",
         "--cuda-path=/nonexistent", "--cuda-gpu-arch=sm_80", "-Xclang", "-target-feature",
         "-Xclang", "+ptx75", "-O3", "-S"]


# Bytes of shared memory that launches add (op_attention.c, add_flash).
DYNAMIC = {"weft_flash_64": 49152, "weft_flash_128": 65536,
           "weft_flash_dq_64": 32768, "weft_flash_dq_128": 32768,
           "weft_flash_dkv_64": 50176, "weft_flash_dkv_128": 66048,
           "weft_flash_tf32_64": 65536, "weft_flash_tf32_128": 98304,
           "weft_flash_dq_tf32_64": 65536, "weft_flash_dq_tf32_128": 98304,
           "weft_flash_dkv_tf32_64": 66048, "weft_flash_dkv_tf32_128": 98560,
           "weft_flash_blocks_64": 40960, "weft_flash_blocks_128": 49152,
           "weft_flash_blocks_dq_64": 32768, "weft_flash_blocks_dq_128": 32768,
           "weft_flash_blocks_dkv_64": 50176, "weft_flash_blocks_dkv_128": 66048,
           "weft_flash_blocks_tf32_64": 49152, "weft_flash_blocks_tf32_128": 65536,
           "weft_flash_blocks_dq_tf32_64": 65536, "weft_flash_blocks_dq_tf32_128": 98304,
           "weft_flash_blocks_dkv_tf32_64": 66048, "weft_flash_blocks_dkv_tf32_128": 98560}
def divisor(path, by):
    """Values of a fast_divisor, as weft_cuda_divisor() computes them."""
    shift = by.bit_length() - 1
    multiply = ((1 << (32 + shift)) + by - 1) // by if by & (by - 1) else 0
    return {f"{path}.by": by, f"{path}.multiply": f"{multiply}u", f"{path}.shift": shift}


def operand(name, depth, kind="OPERAND_PLAIN"):
    """Values of an operand of bf16 whose depth has stride 1."""
    return {f"{name}.t.type": "TYPE_BF16", f"{name}.row_stride": depth, f"{name}.depth_stride": 1,
            f"{name}.kind": kind, f"{name}.shared": 1, f"{name}.vector": 1}


def product(columns, depth, act):
    return {"c.type": "TYPE_BF16", "list": "NULL", "tile_expert": "NULL", "starts": "NULL",
            "columns": columns, "depth": depth, "splits": 1, "act": act, "round": "TYPE_BF16",
            "list_c": 0, "vector_c": 1, "tf32": 0}


def positions(grid, taps, channels):
    """Values of the map of a convolution with stride 1."""
    values = {"conv.back": 0, **divisor("conv.channels", channels)}
    for d in range(3):
        values |= divisor(f"conv.grid[{d}]", grid[d])
        values |= {f"conv.source[{d}]": grid[d], f"conv.stride[{d}]": 1,
                   f"conv.before[{d}]": 2 if d == 0 else 1}
    for d in range(2):
        values |= divisor(f"conv.taps[{d}]", taps)
    return values


HEADS = {"width": 128, "heads": 12, "queries": 32760, "vector": 1, "causal": 0, "bias": "NULL",
         "segments": "NULL", "base": "NULL", "dlse": "NULL", **divisor("by_queries", 32760)}
# Kernels for a shape, as NVRTC compiles them (special_kernels.c): file, kernel, values of members.
# Sizes of Wan 1.3B at 81 x 480 x 832, and of a convolution of its autoencoder.
SIZES = {
    "weft_norm+1536": ("norms", "weft_norm", {
        "x.type": "TYPE_BF16", "out.type": "TYPE_BF16", "gamma.type": "TYPE_F32",
        "beta.data": "NULL", "columns": 1536, "kind": "NORM_RMS", "vector": 1, "by_warp": 1}),
    "weft_gemm_bf16+linear": ("gemm", "weft_gemm_bf16", {
        **operand("a", 1536), **operand("b", 1536), "bias.type": "TYPE_F32",
        **product(8960, 1536, 1)}),
    "weft_gemm_bf16+conv3d": ("gemm", "weft_gemm_bf16", {
        **operand("a", 0, "OPERAND_POSITION_ROWS"), **operand("b", 27 * 384),
        "bias.type": "TYPE_BF16", **product(384, 27 * 384, 0),
        **positions((21, 60, 104), 3, 384)}),
    "weft_flash_128+heads": ("flash_128", "weft_flash_128", HEADS),
    "weft_flash_dq_128+heads": ("flash_128", "weft_flash_dq_128", HEADS),
    "weft_flash_dkv_128+heads": ("flash_128", "weft_flash_dkv_128", HEADS),
}

FLOPS = {"HMMA.16816": 4096, "HMMA.1688": 2048}  # of an instruction of a warp


def find_ptxas():
    for path in (os.environ.get("WEFT_PTXAS"), shutil.which("ptxas")):
        if path:
            return path
    spec = importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.cuda_nvcc")
    for folder in spec.submodule_search_locations if spec else []:
        path = os.path.join(folder, "bin", "ptxas")
        if os.path.exists(path):
            return path
    return None


def occupancy(arch, threads, registers, shared):
    """Percent of the threads of a multiprocessor, by its registers, blocks and shared memory."""
    regs, most, blocks, bytes_most = LIMITS[arch]
    warps = -(-threads // 32)
    a_warp = -(-registers * 32 // 256) * 256  # registers are given in units of 256 a warp
    fit = min(blocks, most // (warps * 32), regs // a_warp // warps,
              bytes_most // (shared + 1024))  # 1 KiB of each block is the system's
    return 100 * fit * warps * 32 // most

# NVRTC compiles these with the results of the embedded kernels, bitwise (cmake/kernels.cmake).
EXACT = ("pointwise", "modulation", "norms", "attention", "gemm", "gemm_tf32", "flash_64",
         "flash_128", "flash_tf32_64", "flash_tf32_128")


def compile_file(clang, source, to):
    name = os.path.splitext(os.path.basename(source))[0]
    exact = name in EXACT or name in SIZES
    contract = ["-ffp-contract=off"] if exact else []
    done = subprocess.run([clang, *FLAGS, *contract, "-I" + os.path.join(ROOT, "src"), "-o", to,
                           source], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{source}: {clang} failed\n{done.stderr}")


def threads_of(ptx):
    with open(ptx, encoding="utf-8") as f:
        return {name: int(n) for name, n in re.findall(
            r"\.entry (\w+)\(.*?\.maxntid (\d+)", f.read(), re.S)}


def assemble(ptxas, arch, ptx, to):
    """Returns {kernel: (registers, shared bytes, stack bytes, spilled bytes)}."""
    done = subprocess.run([ptxas, "-v", "-arch=" + arch, "-o", to, ptx], capture_output=True,
                          text=True)
    if done.returncode:
        sys.exit(f"{ptx}: {ptxas} failed\n{done.stderr}")
    kernels = {}
    for part in done.stderr.split("Compiling entry function")[1:]:
        name = re.search(r"'(\w+)'", part).group(1)
        stack, stores, loads = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, "
                                         r"(\d+) bytes spill loads", part).groups()
        shared = re.search(r"(\d+) bytes smem", part)
        bytes_shared = (int(shared.group(1)) if shared else 0) + DYNAMIC.get(name.rstrip("_"), 0)
        kernels[name] = (int(re.search(r"Used (\d+) registers", part).group(1)),
                         bytes_shared, int(stack),
                         int(stores) + int(loads))
    return kernels


def read_table():
    release, rows = None, {}
    if os.path.exists(TABLE):
        with open(TABLE, encoding="utf-8") as f:
            for line in f:
                if line.startswith("# ptxas "):
                    release = line.split()[2]
                elif not line.startswith("#") and line.strip():
                    name, threads, shared, *rest = line.split()
                    rows[name] = (int(threads), int(shared), [int(x) for x in rest])
    return release, rows


def write_table(release, found, keep):
    lines = {}
    if keep and os.path.exists(TABLE):
        with open(TABLE, encoding="utf-8") as f:
            lines = {line.split()[0]: line for line in f if line.strip() and line[0] != "#"}
    with open(TABLE, "w", encoding="utf-8") as f:
        f.write("# Written by tools/gpu_budgets.py --write. Stack frames and spills are 0.\n"
                f"# ptxas {release}\n"
                "# kernel, threads, bytes of shared memory; registers on sm_80, sm_89, sm_90; "
                "percent of occupancy on each\n")
        for name in sorted(set(found) | set(lines)):
            if name not in found:
                f.write(lines[name])
                continue
            threads, by_arch = found[name]
            numbers = [by_arch[a][0] for a in LIMITS]
            numbers += [occupancy(a, threads, by_arch[a][0], by_arch[a][1]) for a in LIMITS]
            f.write(f"{name:28} {threads:4} {by_arch['sm_80'][1]:6}  "
                    + " ".join(f"{x:4}" for x in numbers) + "\n")


def problems_of(name, threads, by_arch, row, same_release):
    for i, arch in enumerate(LIMITS):
        registers, shared, stack, spilled = by_arch[arch]
        if stack or spilled:
            yield f"{name}: {stack} bytes of stack and {spilled} spilled on {arch}, allowed: 0"
        if row is None:
            continue
        if same_release and registers > row[2][i]:
            yield f"{name}: {registers} registers on {arch}, allowed: {row[2][i]}"
        if shared > row[1]:
            yield f"{name}: {shared} bytes of shared memory on {arch}, allowed: {row[1]}"
    if row and threads != row[0]:
        yield f"{name}: blocks of {threads} threads, in the table: {row[0]}"


def write_sizes(folder, only):
    """Writes the sources of kernels for a shape. Returns {source: its name in the table}."""
    rows = {}
    for row, (file, kernel, values) in SIZES.items():
        if only not in file:
            continue
        constants = " ".join(f"given.{member} = {value};" for member, value in values.items())
        path = os.path.join(folder, row + ".cu")
        rows[path] = row
        with open(path, "w", encoding="utf-8") as f:
            f.write(f"#define WEFT_CHOSEN_NAME {kernel}_\n"
                    f"#define WEFT_CHOOSE_{kernel} ~, WEFT_CHOSEN_KERNEL\n"
                    f"#define WEFT_CONSTANTS {constants}\n"
                    f'#include "kernel/cuda/kernels/{file}.cu"\n')
    return rows


def measure(options, sources):
    """Returns {kernel: (threads, {arch: resources})}, without resources if ptxas is missing, and
    the paths of the compiled files without their ends."""
    os.makedirs(options.out, exist_ok=True)
    found, bases, rows = {}, [], write_sizes(options.out, options.only)
    for source in sources + list(rows):
        base = os.path.join(options.out, os.path.basename(source)[:-3])
        bases.append(base)
        compile_file(options.clang, source, base + ".ptx")
        for name, threads in threads_of(base + ".ptx").items():
            found[rows.get(source, name)] = (threads, {})
        for arch in LIMITS if options.ptxas else ():
            for name, used in assemble(options.ptxas, arch, base + ".ptx",
                                       f"{base}.{arch}.cubin").items():
                found[rows.get(source, name)][1][arch] = used
    return found, bases


def inner_loop(code):
    """Instructions of the shortest loop with the most products. Code that is rarely taken, such as
    the masks of the last tile, is counted: the FLOPs per instruction are a lower bound."""
    place = {line[:-1]: i for i, line in enumerate(code) if line.endswith(":")}
    best = []
    for i, line in enumerate(code):
        target = re.search(r"BRA.*?`\((\S+)\)", line)
        if target and place.get(target.group(1), len(code)) < i:
            loop = [x for x in code[place[target.group(1)]:i + 1] if not x.endswith(":")]
            most = sum("MMA" in x for x in best), -len(best)
            best = loop if (sum("MMA" in x for x in loop), -len(loop)) > most else best
    return best


def print_sass(nvdisasm, cubin, arch):
    done = subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True)
    for part in re.split(r"\.section\s+\.text\.", done.stdout)[1:]:
        code = re.findall(r"^(\.L\w+:)|^\s+/\*[0-9a-f]{4,}\*/\s+(.*?);", part, re.M)
        code = [label or text for label, text in code]
        if not any("MMA" in x for x in code):
            continue
        loop = inner_loop(code)
        flops = sum(n for x in loop for name, n in FLOPS.items() if name in x)
        counts = " ".join(f"{what} {sum(bool(re.search(what, x)) for x in loop)}"
                          for what in ("HMMA", "LDSM", "LDGSTS.*128", "MUFU", "SHFL"))
        row = os.path.basename(cubin).split(".")[0]
        name = row if row in SIZES else part.split(",")[0].strip()
        print(f"{name} {arch}: loop of {len(loop)} instructions: {counts}; "
              f"{flops / max(1, len(loop)):.0f} FLOPs an instruction of a warp")


def main():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=False)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "gpu"))
    parser.add_argument("--only", default="")
    parser.add_argument("--clang", default=shutil.which("clang-14") or shutil.which("clang"))
    parser.add_argument("--ptxas", default=find_ptxas())
    parser.add_argument("--nvdisasm", default="")
    options = parser.parse_args()
    sources = [s for s in sorted(glob.glob(os.path.join(ROOT, "src/kernel/cuda/kernels/*.cu")))
               if options.only in os.path.basename(s)]
    if not options.clang:
        print(f"gpu-budgets: {len(sources)} files skipped: clang-14 is not installed")
        return
    found, bases = measure(options, sources)
    if not options.ptxas:
        print(f"gpu-budgets: {len(found)} kernels in {len(sources)} files compile to PTX; "
              f"{len(found)} skipped: ptxas is not installed (nvidia-cuda-nvcc-cu12)")
        return
    version = subprocess.run([options.ptxas, "--version"], capture_output=True, text=True).stdout
    release = re.search(r"release (\S+),", version).group(1)
    for base in sorted(bases) if options.nvdisasm else ():
        for arch in LIMITS:
            print_sass(options.nvdisasm, f"{base}.{arch}.cubin", arch)
    if options.write:
        write_table(release, found, options.only)
    known, table = read_table()
    problems = [p for name in sorted(found) for p in
                problems_of(name, *found[name], table.get(name), release == known)]
    if not options.only:
        problems += [f"{name}: is in the table, but not in the source"
                     for name in sorted(set(table) - set(found))]
    print("\n".join(problems + [f"gpu-budgets: {len(found)} kernels on {', '.join(LIMITS)} by "
                                f"ptxas {release}, {len(problems)} problems"]))
    without = sorted(set(found) - set(table))
    if without:
        print(f"gpu-budgets: {len(without)} kernels have no row in tools/gpu_budgets.txt, which "
              f"--write adds: {' '.join(without)}")
    if release != known:
        print(f"gpu-budgets: registers of {len(found)} kernels skipped: the table is of ptxas "
              f"{known}")
    sys.exit(bool(problems))


main()
