# shellcheck shell=bash
# Servers for tests of buckets. Source this file after check.sh.
unset "${!AWS_@}" http_proxy HTTP_PROXY https_proxy HTTPS_PROXY
export AWS_CONFIG_FILE=$PWD/no-config AWS_SHARED_CREDENTIALS_FILE=$PWD/no-credentials
export AWS_EC2_METADATA_DISABLED=true

# start_s3 [OPTION]: serves ./data with tests/storage/s3_server.py until the script ends, and sets
# the variables of the AWS tools. data/bucket exists.
start_s3() {
    mkdir -p data/bucket
    coproc S3 { exec python3 -IS "$SRC/tests/storage/s3_server.py" "$PWD/data" "$@"; }
    read -r s3_port <&"${S3[0]}" || fail "the S3 server did not start"
    export AWS_ENDPOINT_URL_S3=http://127.0.0.1:$s3_port
    export AWS_ACCESS_KEY_ID=testkey1 AWS_SECRET_ACCESS_KEY=testsecret12
}
# fault LINE...: the next requests that fit have these faults, in order.
fault() { printf '%s\n' "$@" >data/faults; }
# no_fault_is_left: all faults were used.
no_fault_is_left() { [ ! -s data/faults ] || fail "unused faults: $(cat data/faults)"; }
