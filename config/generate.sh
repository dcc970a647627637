#!/bin/sh
# Generates the deepcopy code and the CRDs from pkg/apis.
#
#   config/generate.sh           writes them
#   config/generate.sh --check   changes nothing; fails when what is committed is out of date
#
# controller-gen is built from test/tools, a module of its own, so that its
# dependencies stay out of the main module.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

(cd "$root/test/tools" && go build -o "$work/controller-gen" sigs.k8s.io/controller-tools/cmd/controller-gen)
cd "$root"

if [ "${1:-}" != --check ]; then
	"$work/controller-gen" object crd paths=./pkg/apis/... output:crd:dir=config/crd
	exit
fi

# The deepcopy files are named after their packages, so each gets a folder of its own.
"$work/controller-gen" crd paths=./pkg/apis/... output:crd:dir="$work/crd"
stale=0
for file in "$work"/crd/*.yaml; do
	diff -u "config/crd/$(basename "$file")" "$file" || stale=1
done
for package in pkg/apis/*/*/; do
	mkdir -p "$work/$package"
	"$work/controller-gen" object paths="./$package" output:object:dir="$work/$package"
	diff -u "${package}zz_generated.deepcopy.go" "$work/${package}zz_generated.deepcopy.go" || stale=1
done
if [ "$stale" != 0 ]; then
	echo "generated files are out of date: run make generate" >&2
	exit 1
fi
