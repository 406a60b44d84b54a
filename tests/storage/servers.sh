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
    "$WEFT_BUILD/test-tools/store" s3://bucket list >/dev/null 2>probe
    ! has_message probe library-missing 2>/dev/null || skip "weft has no libcurl"
}
# fault LINE...: the next requests that fit have these faults, in order.
fault() { printf '%s\n' "$@" >data/faults; }
# no_fault_is_left: all faults were used.
no_fault_is_left() { [ ! -s data/faults ] || fail "unused faults: $(cat data/faults)"; }
# start_proxy URL SEED: a proxy with faults before the server, until the script ends. Sets `proxy`, its
# URL. ./proxy-requests has its requests.
start_proxy() {
    local port
    # bash warns of a second coproc
    { coproc PROXY { exec python3 -IS "$SRC/tests/storage/fault_proxy.py" "${1##*:}" "$2" "$PWD/proxy-requests"; }; } 2>/dev/null
    read -r port <&"${PROXY[0]}" || fail "the proxy did not start"
    proxy=http://127.0.0.1:$port
}
# start_moto: the same with moto_server, whose user must sign.
start_moto() {
    local port user
    port=$(python3 -IS -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    # the three calls below are free; all later ones need a signature
    INITIAL_NO_AUTH_ACTION_COUNT=3 moto_server -H 127.0.0.1 -p "$port" >moto_output 2>&1 &
    moto_process=$!
    trap 'kill $moto_process 2>/dev/null' EXIT
    until grep -q "Running on" moto_output; do
        kill -0 $moto_process 2>/dev/null || fail_with moto_output "moto did not start"
        sleep 0.1
    done
    export AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_DEFAULT_REGION=us-east-1
    export AWS_ACCESS_KEY_ID=first AWS_SECRET_ACCESS_KEY=first
    user='{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}'
    aws iam create-user --user-name u >/dev/null &&
        aws iam put-user-policy --user-name u --policy-name p --policy-document "$user" &&
        read -r AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY < <(aws iam create-access-key --user-name u \
            --query 'AccessKey.[AccessKeyId,SecretAccessKey]' --output text) || fail "no user of moto"
}
# put_folder FOLDER PREFIX: puts the files of a folder as objects, as another client does.
put_folder() {
    python3 -IS - "$1" "$2" <<'PY'
import os, shutil, sys, urllib.parse
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        path = os.path.join(folder, name)
        key = sys.argv[2] + "/" + os.path.relpath(path, sys.argv[1])
        shutil.copyfile(path, "data/bucket/" + urllib.parse.quote(key, "-._~"))
PY
}
# get_folder PREFIX FOLDER: writes the objects below the prefix as files.
get_folder() {
    python3 -IS - "$1" "$2" <<'PY'
import os, shutil, sys, urllib.parse
for name in os.listdir("data/bucket"):
    key = urllib.parse.unquote(name)
    if key.startswith(sys.argv[1] + "/"):
        path = os.path.join(sys.argv[2], key[len(sys.argv[1]) + 1:])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copyfile("data/bucket/" + name, path)
PY
}
# moto_refuses_aws: moto 5.2.1 compares signatures of encoded names wrongly, also with the aws client. s3://bucket exists.
moto_refuses_aws() {
    local endpoint=${AWS_ENDPOINT_URL_S3-$AWS_ENDPOINT_URL}
    echo probe >probe
    if aws --endpoint-url "$endpoint" s3 cp probe "s3://bucket/probe ü" >probe_output 2>&1; then
        aws --endpoint-url "$endpoint" s3 rm "s3://bucket/probe ü" >/dev/null
        return 1
    fi
    grep -q SignatureDoesNotMatch probe_output
}
