# What only tests need. Without it the suites that need it say that they are skipped; with
# DROVER_NO_SKIP=1 what cannot be had is an error here already. Read by tools/install.
failed=
lacks() { # what, which tests need it
    echo "install: no $1: $2 will be skipped" >&2
    failed="$failed $1"
}

for program in java mvn kcat openssl; do
    command -v "$program" >/dev/null 2>&1 || lacks "$program" "the suite with Kafka"
done
command -v jq >/dev/null 2>&1 || lacks jq "the clients of the documentation"
command -v zsh >/dev/null 2>&1 || lacks zsh "the completion in zsh"
command -v ip >/dev/null 2>&1 || lacks ip "a client in another network"

cache="$HOME/.cache/drover"
# An environment of Python in the cache: its name, a module to try, packages.
environment() {
    if "$cache/$1/bin/python" -c "import $2" >/dev/null 2>&1; then
        return 0
    fi
    name=$1
    shift 2
    { python3 -m venv "$cache/$name" && "$cache/$name/bin/pip" install -q "$@"; } >/dev/null 2>&1
}
# A server that speaks S3.
environment moto moto,boto3 'moto[s3,iam,server]==5.*' boto3 || lacks moto "the suites with S3"
# Readers of Parquet.
environment duckdb duckdb,pandas,pyarrow duckdb pandas pyarrow ||
    lacks duckdb "the suite with Parquet"

# Go, for the official client of Nomad's API: Debian's may be too old for it.
least=$(sed -n 's/^go \([0-9.]*\).*/\1/p' "$(dirname "$0")/../tests/api/go/go.mod")
enough() { # a go
    has=$("$1" env GOVERSION 2>/dev/null | sed 's/^go//')
    [ -n "$has" ] && [ "$(printf '%s\n%s\n' "$least" "$has" | sort -V | head -n 1)" = "$least" ]
}
if ! enough go && ! enough "$cache/go/bin/go"; then
    case "$(uname -m)" in
    x86_64) arch=amd64 ;;
    aarch64) arch=arm64 ;;
    *) arch=$(uname -m) ;;
    esac
    case "$least" in
    *.*.*) version=$least ;;
    *) version=$least.0 ;;
    esac
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/go.XXXXXX")
    if curl -fsSL "https://go.dev/dl/go$version.linux-$arch.tar.gz" | tar -xz -C "$work" 2>/dev/null; then
        rm -rf "$cache/go"
        mv "$work/go" "$cache/go"
    fi
    rm -rf "$work"
    enough "$cache/go/bin/go" || lacks go "the suites with Go"
fi

go=go
enough go || go="$cache/go/bin/go"

# What proves a plugin of the Container Storage Interface.
sanity=github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity@v5.6.0
if [ ! -x "$cache/bin/csi-sanity" ]; then
    GOBIN="$cache/bin" "$go" install "$sanity" >/dev/null 2>&1 ||
        lacks csi-sanity "the proof of drover-hostpath"
fi

if [ -n "$failed" ] && [ "${DROVER_NO_SKIP:-0}" != 0 ]; then
    echo "install: tests need$failed, and DROVER_NO_SKIP is set" >&2
    exit 1
fi
echo "install: $("$go" version 2>/dev/null || echo no Go)"
