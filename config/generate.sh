#!/bin/sh
# Generates the deepcopy code and the CRDs from pkg/apis, and docs/reference.md from the CRDs and tenure's commands.
#
#   config/generate.sh           writes them
#   config/generate.sh --check   changes nothing; fails when the code or a CRD that is committed is out of date
#
# controller-gen comes from test/tools, a module of its own, so that its dependencies stay out of the main module.
set -eu
cd "$(dirname "$0")/.."
generate() {
	go tool -modfile=test/tools/go.mod controller-gen object crd paths=./pkg/apis/... "$@"
}
# Narrows what the CRDs of a folder take to what clients can read: one object that they can't read would keep all objects
# of its kind in the cluster from everybody. By the pattern that controller-gen writes, the exponents of quantities may
# have a fraction, or so many digits that reading them takes for ever and keeps the processors of all replicas busy. The
# format date-time alone lets small letters in the times of conditions pass, and offsets of any size.
bound() {
	time='^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$'
	for crd in "$1"/*_*.yaml; do
		sed -e 's/(\[eE\](\\+|-)?((\[0-9\]+(\\\.\[0-9\]\*)?)|(\\\.\[0-9\]+)))/([eE](\\+|-)?[0-9]{1,2})/' \
			-e '/^ *lastTransitionTime:$/,/type: string$/ s/^\( *\)format: date-time$/&\
\1pattern: '"$time"'/' "$crd" > "$crd.new"
		mv "$crd.new" "$crd"
	done
}
if [ "${1:-}" != --check ]; then
	generate output:crd:dir=config/crd
	bound config/crd
	go test -count=1 ./cmd/tenure -run TestTheReference -update > /dev/null # without -update it checks the page
	exit
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
generate output:crd:dir="$work" output:object:stdout > "$work/deepcopy.go"
bound "$work"
stale=0
cat pkg/apis/*/*/zz_generated.deepcopy.go | diff -u - "$work/deepcopy.go" || stale=1
for file in "$work"/*.yaml; do
	diff -u "config/crd/$(basename "$file")" "$file" || stale=1
done
if [ "$stale" != 0 ]; then
	echo "generated files are out of date: run make generate" >&2
	exit 1
fi
