# Sourced by benchmarks that run weft: enters a scratch folder, with one thread per rank.
WEFT=${WEFT-$here/../build/weft}
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
MPIRUN="$(command -v mpirun.openmpi || command -v mpirun)"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
say() { "$@" >log 2>&1 || { cat log >&2; exit 1; }; }
ranks() { if [ "$1" = 1 ]; then "${@:2}"; else "$MPIRUN" --oversubscribe --bind-to none -n "$@"; fi </dev/null; }
