#!/bin/bash
# tools/install-deps.sh waits while another program holds the lock of the package manager, and reports other failures.
set -eu
fail() { echo "$*"; cat log; exit 1; }
mkdir bin
printf '#!/bin/sh\nexit 1\n' >bin/dpkg-query # nothing is installed
printf '#!/bin/sh\nexit 0\n' >bin/sleep
printf '#!/bin/sh\nexec "$@"\n' >bin/sudo
cat >bin/apt-get <<'EOF'
#!/bin/sh
echo "$*" >>calls
[ "$(wc -l <calls)" -gt "$BUSY" ] && exit "$STATUS"
echo "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 1 (apt-get)" >&2
exit 100
EOF
chmod +x bin/*
run() { PATH=$PWD/bin:$PATH BUSY=$1 STATUS=$2 "$tool" >log 2>&1; }
tool=$(dirname "$WEFT_BUILD")/tools/install-deps.sh
run 3 0 || fail "a busy package manager ends the installation"
[ "$(wc -l <calls)" = 5 ] || fail "apt-get was not called three times in vain, to update and to install"
grep -q "waiting for it" log || fail "waiting is not reported"
rm calls
run 100000 0 && fail "it waits for ever"
grep -q "Could not get lock" log || fail "the reason is not printed"
rm calls
run 0 100 && fail "a failure of apt-get is lost"
exit 0
