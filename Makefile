# Tenure: everything is built and tested from here. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
BIN := bin
# A go.work in a folder above isn't ours.
export GOWORK := off

# The Kubernetes versions that the local control planes report: those of k8s.io/kubernetes in the go.mod of
# test/controlplane and test/oldest.
KUBE_VERSION := v1.37.2
OLDEST_VERSION := v1.32.13
KUBE_VERSION_PACKAGE := k8s.io/component-base/version
kube_ldflags = -s -w \
	-X $(KUBE_VERSION_PACKAGE).gitVersion=$(1) \
	-X $(KUBE_VERSION_PACKAGE).gitMajor=$(word 1,$(subst ., ,$(patsubst v%,%,$(1)))) \
	-X $(KUBE_VERSION_PACKAGE).gitMinor=$(word 2,$(subst ., ,$(1)))

# run builds a program and runs it in place of the shell, so that a SIGTERM to make reaches it. go run passes no signal
# on. Like go run, it needs nothing from git. The program's arguments follow the call.
define run
@mkdir -p $(BIN)
@go build -buildvcs=false -o $(BIN)/$(notdir $(1)) $(1)
exec $(BIN)/$(notdir $(1))
endef

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-zA-Z0-9_.\/-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# What takes minutes is built under the number of the make that does it: two at a time don't get into each other's way.
.PHONY: controlplane
controlplane: $(BIN)/controlplane ## build bin/controlplane: etcd, the Kubernetes control plane, kubectl and kwok in one

$(BIN)/controlplane: $(wildcard test/controlplane/*.go) test/controlplane/go.mod test/controlplane/go.sum
	@echo "Building $@ from source (Kubernetes $(KUBE_VERSION)): 5 to 10 minutes the first time, seconds afterwards."
	@mkdir -p $(BIN)
	@cd test/controlplane && CGO_ENABLED=0 go build -v -trimpath -ldflags "$(call kube_ldflags,$(KUBE_VERSION))" \
		-o ../../$(BIN)/controlplane.$$PPID . 2>&1 | awk -f progress.awk
	@mv $(BIN)/controlplane.$$PPID $@

# TENURE_CONTROLPLANE=$PWD/bin/controlplane-oldest has other tests run on that version. Those of filtered watches fail
# there, since it has none.
.PHONY: oldest
oldest: $(BIN)/controlplane-oldest ## build bin/controlplane-oldest: the control plane of the oldest Kubernetes that is supported

$(BIN)/controlplane-oldest: test/oldest/main.go test/oldest/go.mod test/oldest/go.sum $(BIN)/controlplane
	@echo "Building $@ from source (Kubernetes $(OLDEST_VERSION)): 3 to 6 minutes the first time, seconds afterwards."
	@cd test/oldest && CGO_ENABLED=0 go build -v -trimpath -ldflags "$(call kube_ldflags,$(OLDEST_VERSION))" \
		-o ../../$(BIN)/controlplane-oldest.$$PPID . 2>&1 | awk -f ../controlplane/progress.awk
	@mv $(BIN)/controlplane-oldest.$$PPID $@

# Jaeger's module can't be `go install`ed; test/jaeger wraps it. Its go.sum is a copy of Jaeger's own, because some of
# those modules have no entry in the checksum database.
.PHONY: jaeger
jaeger: $(BIN)/jaeger ## build bin/jaeger, which takes the traces

$(BIN)/jaeger: test/jaeger/go.mod test/jaeger/go.sum
	@echo "Building $@ from source: 3 to 6 minutes the first time, seconds afterwards."
	@mkdir -p $(BIN)
	@cd test/jaeger && CGO_ENABLED=0 go build -v -trimpath -ldflags "-s -w" -o ../../$(BIN)/jaeger.$$PPID \
		github.com/jaegertracing/jaeger/cmd/jaeger 2>&1 | awk -f ../controlplane/progress.awk
	@mv $(BIN)/jaeger.$$PPID $@

# Without the service discoveries, which testing rules needs none of.
.PHONY: promtool
promtool: $(BIN)/promtool ## build bin/promtool, Prometheus' own, which tests the alerts

$(BIN)/promtool: config/monitoring/gen/go.mod config/monitoring/gen/go.sum
	@echo "Building $@ from source: 1 to 3 minutes the first time, seconds afterwards."
	@mkdir -p $(BIN)
	@cd config/monitoring/gen && CGO_ENABLED=0 go build -trimpath -tags remove_all_sd -ldflags "-s -w" \
		-o ../../../$(BIN)/promtool.$$PPID github.com/prometheus/prometheus/cmd/promtool
	@mv $(BIN)/promtool.$$PPID $@

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)

.PHONY: build
build: ## build bin/tenure and bin/bench
	@mkdir -p $(BIN)
	CGO_ENABLED=0 go build -trimpath -ldflags "-X main.version=$(VERSION)" -o $(BIN)/ ./cmd/tenure ./cmd/bench

.PHONY: lab
lab: ## build bin/tenure-lab: a replica with the hooks of benchmarks and the faults of gates, never to be shipped
	@mkdir -p $(BIN)
	CGO_ENABLED=0 go build -tags lab -trimpath -ldflags "-X main.version=$(VERSION)" -o $(BIN)/tenure-lab ./cmd/tenure

# The newest commit whose replicas speak the version of the protocol before this one's, shard/protocol.Version.
BEFORE = 7f71f5cdad5b7e9ffd4a19c2446ca5fd98fe0dd4

.PHONY: before
before: ## build bin/tenure-before: a replica of the protocol's version before, for the test of upgrades
	@mkdir -p "$(BIN)"
	@if ! said=$$(git rev-parse --git-dir 2>&1); then \
		echo "upgrades aren't tested: that takes git and a clone made by it, not an archive of the sources: $$said"; \
		exit 0; fi; \
	if ! git cat-file -e $(BEFORE) 2>/dev/null; then \
		echo "this clone lacks commit $(BEFORE), so upgrades aren't tested: git fetch --unshallow"; exit 0; fi; \
		into=$$(realpath "$(BIN)") && source=$$(mktemp -d) && trap 'rm -rf "$$source"' EXIT && \
		git archive -o "$$source/source.tar" $(BEFORE) && cd "$$source" && tar -xf source.tar && \
		CGO_ENABLED=0 go build -trimpath -ldflags "-X main.version=before" -o "$$into/tenure-before" ./cmd/tenure

.PHONY: demo
demo: controlplane jaeger build ## three replicas, three clusters, 600 Ats, a crash and a join, Deployments everywhere, all traced
	@CGO_ENABLED=0 go build -trimpath -o $(BIN)/demo ./cmd/demo
	@exec $(BIN)/demo

# One command, so that nobody has to know what a change makes out of date.
.PHONY: generate
generate: ## write anew all that is generated: code, CRDs, the reference, chart, dashboard, exported API, stories
	config/generate.sh
	@$(MAKE) --no-print-directory chart monitoring # the chart holds the CRDs
	go test -count=1 ./test/arch -run ExportedAPI -update > /dev/null
	go test -count=1 ./shard/internal/shardtest -run TestStories -update > /dev/null

.PHONY: lint
lint: ## formatting, lines of 120 characters at most, vet, and that generated files are up to date
	@go run ./test/loc > /dev/null
	go vet ./...
	cd test/browser && go vet ./...
	cd test/apiserver && go vet ./...
	cd cmd/release && go vet ./...
	cd test/chart && go vet ./...
	cd config/monitoring/gen && go vet ./...
	go vet -tags lab ./cmd/tenure
	go mod tidy -diff
	cd test/apiserver && go mod tidy -diff
	cd cmd/release && go mod tidy -diff
	cd test/browser && go mod tidy -diff
	cd test/chart && go mod tidy -diff
	config/generate.sh --check

.PHONY: chart
chart: $(BIN)/controlplane ## write the templates of the Helm chart anew, from config/default
	cd test/chart && go run .

.PHONY: monitoring
monitoring: ## write the Grafana dashboard and the list of its metrics anew
	cd config/monitoring/gen && go run .

.PHONY: monitoring-test
monitoring-test: promtool ## the dashboard by Grafana's schema, every expression, every alert, every runbook entry
	cd config/monitoring/gen && go test -count=1 ./...

# Chromium is installed from the distribution's packages where there is none; that needs apt-get and the right to use it.
.PHONY: chromium
chromium:
	@for browser in "$${CHROMIUM:-chromium}" chromium-browser google-chrome; do \
			command -v "$$browser" >/dev/null && exit; done; \
		{ echo "Installing Chromium for the test of the status page."; \
			sudo=; [ "$$(id -u)" = 0 ] || sudo="sudo -n"; \
			$$sudo apt-get update -qq && $$sudo apt-get install -y -qq --no-install-recommends chromium >/dev/null \
			|| { echo "Install Chromium, or name a browser like it: CHROMIUM=FILE." >&2; exit 1; }; }

.PHONY: browser-test
browser-test: chromium ## the status page in a real browser; SCREENSHOTS=FOLDER keeps pictures
	cd test/browser && go test -count=1 ./...

SEEDS ?= 400000
.PHONY: sim
sim: ## the ownership protocol under faults: schedules that failed once, 100,000 known and SEEDS=n fresh ones
	$(call run,./shard/internal/shardtest/cmd/sim) --seeds $(SEEDS) --record shard/internal/shardtest/testdata/regressions.jsonl

.PHONY: mutants
mutants: ## seed bugs into the protocol, caches, queue and reconcilers, one at a time; every one must be caught
	$(call run,./shard/internal/shardtest/cmd/mutants)

.PHONY: chaos
chaos: controlplane ## replicas as processes, killed, paused and cut off under load; CHAOS="flags" narrows it down
	$(call run,./test/chaos) $(CHAOS)
	@go test -c -o $(BIN)/cycles.test ./shard/internal/engage/cycles
	cd shard/internal/engage/cycles && exec ../../../../$(BIN)/cycles.test -test.v -test.timeout 10m -cycles 10000

.PHONY: gates
gates: controlplane jaeger ## plant a fault for each gate in what is built; each must be caught, each control be clean; GATES="--only NAME"
	$(call run,./test/chaos) gates $(GATES)
	$(call run,./shard/internal/shardtest/cmd/mutants) --sim --run 'skip the margin'

SCENARIO ?=
# It is said before anything is built.
ifeq ($(filter bench,$(MAKECMDGOALS))$(SCENARIO),bench)
$(if $(SET),$(error SET="$(SET)" needs SCENARIO=name, a file of bench/scenarios: the tour takes no settings))
endif
.PHONY: bench
bench: controlplane build lab ## SCENARIO=name [SET="k=v ..."]; without one, a tour of five minutes
	@mkdir -p out
	exec $(BIN)/bench $(if $(SCENARIO),run $(SCENARIO) $(foreach s,$(SET),--set $(s)) \
		--html out/$(SCENARIO).html --json out/$(SCENARIO).json,tour)

# The gate builds what it needs. GATE="-only NAME" runs one suite, GATE=-list names them; the output is in out/gate.
GATE ?=
.PHONY: test
test: ## everything: builds, lint, all tests with -race against real API servers, each suite within its time
	@$(call run,./test/gate) $(GATE)

IMAGE ?= tenure
.PHONY: release
release: $(BIN)/controlplane ## VERSION=v1.2.3 [IMAGE=name]: binaries, image, manifests, chart, bills of materials and checksums in out/release
	cd cmd/release && go build -o ../../$(BIN)/release .
	$(BIN)/release -version "$(VERSION)" -image "$(IMAGE)"

BASE ?=
.PHONY: loc
loc: ## lines of code of product and of evidence; BASE=commit compares
	@go run ./test/loc $(if $(BASE),-base $(BASE))
