# Reads `go build -v`, which names each module it downloads and each package it compiles, and says now and then how
# far it is. Anything else, such as an error, passes through.
/^go: downloading / {
	if (++downloaded % 50 == 0) { printf "  %d modules downloaded\n", downloaded; fflush() }
	next
}
/^[a-zA-Z0-9_.\/-]+$/ {
	if (++compiled % 100 == 0) { printf "  %d packages compiled\n", compiled; fflush() }
	next
}
{ print; fflush() }
