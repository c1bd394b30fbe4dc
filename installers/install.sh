#!/bin/sh
# Install gptoss on Linux or WSL, for you alone: sh installers/install.sh [--help]
# Finds a Python, or fetches one with uv, and hands over to setup_app.py: next to it in a clone, in
# the source archive next to it among a release's files.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
python_wanted=3.13
unset PYTHONHOME # meant for one Python, with which no other starts

say() { printf '%s\n' "$*" >&2; }

fail() {
    say "$1"
    say "$2"
    exit 1
}

case ${HOME:-} in
/*) ;;
*) fail "HOME names no folder: '${HOME:-}'." "Say where your home is: HOME=/home/you sh $0" ;;
esac
case ${XDG_DATA_HOME:-} in
/*) app=$XDG_DATA_HOME/gptoss/app ;;
*) app=$HOME/.local/share/gptoss/app ;;
esac

# A Python that can make environments; Debian's cannot until python3-venv is there.
find_python() {
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        found=$(command -v "$name" 2>/dev/null) || continue
        if "$found" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
        then
            printf '%s\n' "$found"
            return
        fi
    done
    return 1
}

download() { # URL FILE
    if command -v curl >/dev/null 2>&1; then
        curl --proto '=https' -fsSL --connect-timeout 20 -o "$2" "$1"
    elif command -v wget >/dev/null 2>&1; then
        wget -q --https-only --timeout=20 -O "$2" "$1"
    else
        return 1
    fi
}

# uv from its makers, or with --index from a package index through any Python that has pip.
find_uv() {
    for found in "$(command -v uv 2>/dev/null)" "$app/uv/uv" "$app/uv/bin/uv"; do
        if [ -f "$found" ] && [ -x "$found" ]; then
            printf '%s\n' "$found"
            return
        fi
    done
    mkdir -p "$app/uv"
    say "fetching uv, which brings a Python"
    if [ -z "$index" ] && download https://astral.sh/uv/install.sh "$app/uv/install.sh" &&
        UV_UNMANAGED_INSTALL="$app/uv" sh "$app/uv/install.sh" >&2; then
        printf '%s\n' "$app/uv/uv"
        return
    fi
    say "not from astral.sh; trying the package index"
    PYTHONPATH='' python3 -m pip install --quiet --target "$app/uv" ${index:+--index-url "$index"} uv >&2 ||
        fail "No Python 3.11 or newer with venv is here, and uv, which could fetch one, is out of reach." \
            "Debian, Ubuntu: apt install python3-venv. Fedora: dnf install python3. Or see docs.astral.sh/uv. Then run this again."
    printf '%s\n' "$app/uv/bin/uv"
}

index=
is_dry=
previous=
for word in "$@"; do
    [ "$previous" = --index ] && index=$word
    case $word in
        --index=*) index=${word#--index=} ;;
        --dry-run | --help | -h) is_dry=yes ;;
    esac
    previous=$word
done

if ! python=$(find_python); then
    if [ -n "$is_dry" ]; then
        say "No Python 3.11 or newer with venv is here: the installer would fetch uv, and with it Python $python_wanted, into $app. Nothing was changed."
        exit 0
    fi
    GPTOSS_UV=$(find_uv)
    export GPTOSS_UV UV_PYTHON_INSTALL_DIR="$app/python" UV_CACHE_DIR="$app/uv/cache"
    export UV_PYTHON_INSTALL_BIN=0 # no python3.13 beside the user's own programs
    export UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1 # what a company's proxy needs; two names, by its age
    python=$("$GPTOSS_UV" python find --no-project '>=3.11' 2>/dev/null) || {
        say "fetching Python $python_wanted"
        "$GPTOSS_UV" python install "$python_wanted" >&2 ||
            fail "uv could not fetch Python $python_wanted." \
                "Behind a proxy set HTTPS_PROXY, with a mirror UV_PYTHON_INSTALL_MIRROR; or install Python 3.11 or newer yourself."
        python=$("$GPTOSS_UV" python find --no-project "$python_wanted")
    }
fi

if [ -f "$here/setup_app.py" ]; then
    exec "$python" "$here/setup_app.py" "$@"
fi
set -- --release "$here" "$@"
archive=$(find "$here" -maxdepth 1 -name 'gptoss_local-*.tar.gz')
[ -f "$archive" ] || fail "No release's source is next to this script: ${archive:-gptoss_local-VERSION.tar.gz}." \
    "Keep the files of one release in one folder, and install.sh with them."
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
trap 'exit 130' INT
tar -xzf "$archive" -C "$unpacked" --strip-components=1
"$python" "$unpacked/installers/setup_app.py" "$@"
