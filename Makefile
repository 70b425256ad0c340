# The menu. Each target is one line; anything with an `if` lives in `cargo xtask` or scripts/.
.DEFAULT_GOAL := menu
.PHONY: menu setup tollgate build run test bench check vm lists hunt fuzz fleet golden fmt install uninstall deb testdeb \
	dist testdist
MAKEFLAGS += --no-print-directory

PREFIX ?= /usr/local
RELEASE := $(or $(CARGO_TARGET_DIR),target)/release

# Where rustup puts cargo, for a shell that was opened before rustup ran.
export PATH := $(PATH):$(HOME)/.cargo/bin

menu: ## print this menu
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install the Debian packages that build and run need; tell how to get Rust
	@sh scripts/setup.sh

# What `make run` needs. The first build takes some minutes.
tollgate:
	@cargo build --release --locked --package tollgate

build: ## build target/release/tollgate and its companions
	@cargo build --release --locked --package tollgate --package ausearch --package bench --package detect --package search \
		--package ship --package top

run: ## audit this machine with examples/first.rules until Ctrl-C; without root, one command
	@sh scripts/run.sh

check: ## check formatting, lints and tidy; run every test that needs no root
	@cargo xtask check

test: ## install what tests need; run check, the end-to-end tests (root) and the tests on other kernels
	@sh scripts/setup.sh tests
	@cargo xtask test

bench: build ## compare the cost of no auditing, tollgate and the kernel's audit (root)
	@$(RELEASE)/tollgate-bench --goals

vm: ## run the tests on Debian's kernels in QEMU: KERNEL=6.1|6.12|6.12-full|newest-arm64|all
	@cargo xtask vm --kernel $(or $(KERNEL),tested)

lists: ## compare random rule lists with the kernel's audit (root): LISTS=SEED:FIRST:COUNT
	@cargo xtask lists $(or $(LISTS),1:0:300)

hunt: ## run random programs under both auditors: SECONDS=60 KERNEL=6.1|6.12|tested|host
	@cargo xtask hunt --seconds $(or $(SECONDS),60) --kernel $(or $(KERNEL),6.12)

fuzz: ## feed mutated input to the parsers: SECONDS=60 for each target
	@cargo xtask fuzz --seconds $(or $(SECONDS),60)

fleet: build ## send logs to a real collector, brokers of Kafka and auditd, and query Parquet files in three engines (Go, Maven; network once)
	@sh scripts/fleet.sh $(RELEASE)

golden: ## rewrite every expected and generated file, for review (root, QEMU)
	@cargo xtask golden

fmt: ## format Rust and C
	@cargo xtask fmt

install: ## install the build under DESTDIR/PREFIX (/usr/local) (root)
	@sh scripts/install.sh $(RELEASE) "$(DESTDIR)" "$(PREFIX)"

uninstall: ## end auditing and remove what `make install` has installed; rules and logs stay (root)
	@sh scripts/uninstall.sh $(RELEASE) "$(DESTDIR)" "$(PREFIX)"

deb: build ## build the Debian package in target/debian
	@sh scripts/deb.sh $(RELEASE) $(or $(CARGO_TARGET_DIR),target)/debian

testdeb: deb ## check the package with lintian; install, boot and remove it in a separate Debian 12 (root, network)
	@sh scripts/test-deb.sh $(or $(CARGO_TARGET_DIR),target)/debian/tollgate_*.deb

dist: ## build static programs for any distribution, x86_64 and arm64: archive, .deb, .rpm in target/dist (network)
	@sh scripts/dist.sh $(or $(CARGO_TARGET_DIR),target)/dist

testdist: dist ## build all of it again and compare; install, run and remove it in Debian 11 and 13 (root, network)
	@sh scripts/test-dist.sh $(or $(CARGO_TARGET_DIR),target)/dist
