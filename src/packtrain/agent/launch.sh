#!/bin/sh
# Find a Python and a CA bundle in the image, and start the agent.
# Uses only the shell's builtins, because PATH may be empty and the image may have no other tools.

case $0 in
*/*) here=${0%/*} ;;
*) here=. ;;
esac

usable() {
    "$1" -I -S -c "import sys, $2; sys.exit(sys.version_info < (3, 9))" 2>/dev/null
}

find_python() {
    for name in "${PACKTRAIN_PYTHON:-python3}" python3 \
        python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python \
        /usr/bin/python3 /usr/local/bin/python3 /opt/conda/bin/python3 /opt/venv/bin/python3 \
        /usr/bin/python3.12 /usr/bin/python3.11 /usr/bin/python3.10 /usr/bin/python3.9; do
        if usable "$name" "$1"; then
            python=$name
            return 0
        fi
    done
    return 1
}

# Prefer a Python with TLS; without it http:// and file:// inputs still work.
python=
find_python "zlib, _ssl" || find_python "zlib" || {
    if [ -r "$here/shell_runner.sh" ]; then exec /bin/sh "$here/shell_runner.sh" "$@"; fi
    echo "packtrain: no Python 3.9 or newer was found on this machine;" \
        "use an image that has one, or name it in PACKTRAIN_PYTHON" >&2
    exit 50
}

for bundle in \
    /etc/ssl/certs/ca-certificates.crt \
    /etc/pki/tls/certs/ca-bundle.crt \
    /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem \
    /etc/ssl/ca-bundle.pem \
    /etc/ssl/cert.pem \
    /opt/conda/ssl/cacert.pem; do
    if [ -z "${SSL_CERT_FILE:-}" ] && [ -r "$bundle" ]; then
        SSL_CERT_FILE=$bundle
        export SSL_CERT_FILE
    fi
done

# Use the full path: without PATH (HTCondor sets none) Python cannot find its own location.
python=$(command -v "$python")
exec "$python" -I -S "$here/agent.pyz" "$@"
