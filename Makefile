# What a developer runs. "make" alone lists it.

GO       ?= go
TOOL     := $(GO) tool -modfile=tools/go.mod
LINT     := $(GO) tool -modfile=tools/lint/go.mod golangci-lint
# One test binary at a time: the servers and the workers of the drills run on the same cores.
TESTFLAGS ?= -timeout 20m -p 1
PKG      ?= ./...

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## bin/spillway; its version is the tag or commit it was built from
	$(GO) build -trimpath -buildvcs=auto -ldflags '-s -w' -o bin/spillway ./cmd/spillway

.PHONY: demo
demo: build ## the whole story in one process, about a minute (make demo ARGS="--duration 20s")
	bin/spillway demo $(ARGS)

.PHONY: test
test: ## every test, with real Kafka, Redis and PostgreSQL (make test PKG=./consumer/...)
	scripts/test $(TESTFLAGS) $(PKG)

.PHONY: check
check: lint fmt-check tidy-check ## what a change must pass: lint, formatting, go.mod, every test with -race
	scripts/test -race $(TESTFLAGS) $(PKG)

.PHONY: lint
lint: ## golangci-lint, with the import rules
	$(LINT) run --allow-parallel-runners
	if [ -f bench/go.mod ]; then cd bench && $(GO) vet ./...; fi
	cd deploy/check && $(GO) tool -modfile=$(CURDIR)/tools/lint/go.mod golangci-lint run -c $(CURDIR)/.golangci.yml --allow-parallel-runners

.PHONY: fmt
fmt: ## format the code
	$(LINT) fmt

.PHONY: fmt-check
fmt-check: ## show what fmt would change
	$(LINT) fmt --diff

.PHONY: tidy-check
tidy-check: ## show what go mod tidy would change
	$(GO) mod tidy -diff
	cd tools && $(GO) mod tidy -diff
	cd tools/lint && $(GO) mod tidy -diff
	cd deploy/check && $(GO) mod tidy -diff

.PHONY: vuln
vuln: ## known vulnerabilities in what we depend on (needs the vulnerability database)
	$(TOOL) govulncheck ./...

.PHONY: services-up
services-up: ## start Kafka, Redis and PostgreSQL for the tests and leave them running
	scripts/services up

.PHONY: services-down
services-down: ## stop them
	scripts/services down

.PHONY: bench-pipeline
bench-pipeline: ## orders per second end to end beside its references, into bench/out/pipeline.json
	scripts/bench pipeline

.PHONY: bench-intake
bench-intake: ## what reading a topic costs beside franz-go and kafka-go's Reader, into bench/out/intake.json
	scripts/bench intake

.PHONY: bench-breaker
bench-breaker: ## what a call through the breaker costs beside other Go breakers, into bench/out/breaker.json
	scripts/bench breaker

.PHONY: bench-little
bench-little: ## a whole worker against Little's law: permits / latency, into bench/out/little.json
	scripts/bench little

.PHONY: bench-story
bench-story: ## an outage from its begin to the end of its backlog, with and without SIGKILL, into bench/out/story.json
	scripts/bench story

.PHONY: bench-overload
bench-overload: ## five times the load a downstream can take, failing calls and a SIGKILL, into bench/out/overload.json
	scripts/bench overload

.PHONY: clean
clean: ## delete what was built; stop the services
	scripts/services down
	rm -rf bin bench/out .services
