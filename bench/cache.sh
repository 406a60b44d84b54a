#!/bin/bash
# bench/cache.sh WEFT [OPTIONS...]: `weft eval savings` with OPTIONS, and its result as a table. Gains by
# FLOPs and losses come from the decoded videos, the measured gain from the seconds of denoising.
set -eu
weft=$1
shift
result=$(mktemp)
trap 'rm -f "$result"' EXIT
"$weft" eval savings "$@" --json "$result"
python3 - "$result" <<'P'
import json, sys
show = lambda value, digits: "-" if value is None else value if isinstance(value, str) else f"{value:.{digits}f}"
print("\n| setting | reused % | gain by FLOPs | PSNR dB | lowest PSNR dB | SSIM | LPIPS | measured gain |")
print("|---|---|---|---|---|---|---|---|")
for row in json.load(open(sys.argv[1]))["each"]:
    reused = row.get("reused")
    print(f"| {row['name']} | {show(None if reused is None else 100 * reused, 0)} | {show(row.get('predicted'), 2)} | {show(row['psnr'], 1)} "
          f"| {show(row['psnr_least'], 1)} | {show(row['ssim'], 3)} | {show(row.get('lpips'), 4)} | {show(row['speedup'], 2)} |")
P
